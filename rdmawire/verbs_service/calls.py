"""The calls of a context: what each control request does. Errors are ``VerbsError``s."""

import os
from collections.abc import Callable, Sequence
from errno import EFAULT, EINVAL, EMFILE, ENOENT, ENOMEM, EOPNOTSUPP, EPERM
from functools import partial
from mmap import PAGESIZE
from typing import Final

from rdmawire.errors import VerbsError
from rdmawire.ib import QPInit
from rdmawire.ib.port import PORT
from rdmawire.memory import WHOLE_SPACE, Access, Extent, MemoryWindow, Region, Rereg
from rdmawire.memory.mr_table import AllocatedPD
from rdmawire.verbs import (
    AddressHandle,
    QPCap,
    QPType,
    XRCReceiver,
)
from rdmawire.verbs_service.attributes import (
    address_handle,
    gid_of,
    gid_words,
    port_words,
    qp_attributes,
    qp_words,
)
from rdmawire.verbs_service.cm import MAX_GROUPS
from rdmawire.verbs_service.completion_counters import CompletionCounterCalls
from rdmawire.verbs_service.connection import NO_VALUES, Reply
from rdmawire.verbs_service.context import (
    Context,
    CqHandle,
    QueuePairHandle,
    SrqHandle,
    XrcDomain,
)
from rdmawire.verbs_service.device_memory import DeviceMemory, DevicePages, NullPages
from rdmawire.verbs_service.events import Channel
from rdmawire.verbs_service.flow_calls import FlowCalls
from rdmawire.verbs_service.process_memory import (
    CopiedPages,
    CopiedRegion,
    ProcessPages,
    check_mapped,
)
from rdmawire.verbs_service.protocol import (
    CALLS,
    MAX_INLINE_DATA,
    MEMORY_OF_DMABUF,
    MEMORY_OF_HOST,
    QP_CAP,
)
from rdmawire.verbs_service.ring import CompletionRing

_ROCE_V2_UAPI: Final = 2
"""``gid_type`` of a GID entry: IB_UVERBS_GID_TYPE_ROCE_V2 of Linux."""
_FIRST_NDEV: Final = 1
"""Index of the network interface of a GID entry; 0 would be none."""
_ADVICE: Final = range(3)
"""IBV_ADVISE_MR_ADVICE_PREFETCH, PREFETCH_WRITE and PREFETCH_NO_FAULT."""
_PREFETCH_WRITE: Final = 1
_XRC_SRQ: Final = 1
_SRQ_MAX_WR, _SRQ_LIMIT = 1, 2
_MIN_INLINE: Final = 64
"""Minimum ``max_inline_data`` of a queue pair, in bytes. Adapters have some in any case, and
programs such as rdma_xclient send inline without asking for it."""
_CREATE, _EXCLUSIVE = os.O_CREAT, os.O_EXCL


class Calls(FlowCalls, CompletionCounterCalls):
    """The calls of one context, with the names and arguments that the protocol has."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def perform(self, number: int, arguments: tuple[int, ...]) -> Reply:
        """Do a call. ``VerbsError`` if it is refused: it has changed nothing."""
        handler = _HANDLERS.get(number)
        if handler is None:
            raise VerbsError("this call is for a connection without a context", EINVAL)
        try:
            return handler(self, *arguments)
        except OSError as error:
            raise VerbsError(f"no descriptors or memory left: {error}", _scarce(error)) from error

    def query_port(self, port_num: int) -> Reply:
        _check_port(port_num)
        return Reply(port_words(self._context.device))

    def query_gid(self, port_num: int, index: int) -> Reply:
        _check_port(port_num)
        gid = self._context.device.query_gid(index)
        return Reply((*gid_words(gid), _ROCE_V2_UAPI, _FIRST_NDEV))

    def query_pkey(self, port_num: int, index: int) -> Reply:
        return Reply((self._context.nic.query_pkey(port_num, index),))

    def alloc_pd(self) -> Reply:
        self._context.check_room()
        return Reply((self._context.add(self._context.nic.alloc_pd()),))

    def dealloc_pd(self, pd: int) -> Reply:
        self._context.dealloc_pd(pd, self._context.find(pd, AllocatedPD))
        return NO_VALUES

    def reg_mr(  # noqa: PLR0917  the arguments of the protocol
        self, pd: int, address: int, length: int, iova: int, access: int, memory: int
    ) -> Reply:
        self._context.check_room()
        domain = self._context.find(pd, AllocatedPD)
        if (address ^ iova) % PAGESIZE:  # as ib_uverbs_reg_mr() of Linux
            raise VerbsError(f"iova {iova:#x} and {address:#x} differ within a page", EINVAL)
        copied = CopiedRegion(memory)
        region = self._context.nic.memory.register(
            domain,
            Extent(address, iova, length),
            access,
            partial(_pages, self._context, copied, access, address, length),
        )
        handle = copied.handle = self._context.add(region)
        return Reply((handle, region.lkey, region.rkey))

    def reg_dmabuf_mr(self, pd: int, offset: int, length: int, iova: int, access: int) -> Reply:
        """The library has mapped the dma-buf, and its thread copies."""
        return self.reg_mr(pd, offset, length, iova, access, MEMORY_OF_DMABUF)

    def rereg_mr(  # noqa: PLR0917  the arguments of the protocol
        self, mr: int, flags: int, pd: int, address: int, length: int, access: int
    ) -> Reply:
        region = self._context.find(mr, Region)
        copied = CopiedRegion(MEMORY_OF_HOST)
        copied.handle = mr
        rights = access if flags & Rereg.CHANGE_ACCESS else region.access
        self._context.nic.memory.rereg_mr(
            region,
            flags,
            pd=self._context.find_optional(pd, AllocatedPD),
            address=address,
            length=length,
            access=access,
            make_backing=partial(_pages, self._context, copied, rights),
        )
        return Reply((region.lkey, region.rkey))

    def dereg_mr(self, mr: int) -> Reply:
        self._context.dereg_mr(mr, self._context.find(mr, Region))
        return NO_VALUES

    def advise_mr(  # noqa: PLR0917  the arguments of the protocol
        self, pd: int, advice: int, flags: int, address: int, length: int, lkey: int
    ) -> Reply:
        """Check the arguments alone: the library brings in the pages of its process.

        The errors are those of mlx5 in Linux, and of ibv_advise_mr(3).
        """
        domain = self._context.find(pd, AllocatedPD)
        if advice not in _ADVICE:
            raise VerbsError(f"advice {advice} is unknown", EOPNOTSUPP)
        if flags > 1:
            raise VerbsError(f"flags {flags:#x} are unknown", EINVAL)
        found = self._context.nic.memory.keys.find(lkey)
        if not isinstance(found, Region) or not found.access & Access.ON_DEMAND:
            raise VerbsError(f"L_Key {lkey:#x} is of no region on demand", ENOENT)
        if found.pd is not domain:
            raise VerbsError(f"L_Key {lkey:#x} is of another domain", EPERM)
        if advice == _PREFETCH_WRITE and not found.access & Access.LOCAL_WRITE:
            raise VerbsError(f"region {lkey:#x} is read-only", EPERM)
        if address < found.iova or address + length > found.end:
            raise VerbsError(f"{length} bytes at {address:#x} exceed the region", EFAULT)
        return NO_VALUES

    def import_pd(self, pd: int) -> Reply:
        self._context.find(pd, AllocatedPD)
        return NO_VALUES

    def import_mr(self, mr: int) -> Reply:
        region = self._context.find(mr, Region)
        return Reply((region.length, region.lkey, region.rkey))

    def import_dm(self, dm: int) -> Reply:
        memory = self._context.find(dm, DeviceMemory)
        return Reply((memory.length,), (memory.duplicate_fd(),))

    def alloc_dm(self, length: int, log_alignment: int) -> Reply:
        self._context.check_room()
        memory = self._context.device.memory.allocate(length, log_alignment)
        try:
            fd = memory.duplicate_fd()
        except OSError:
            memory.free()
            raise
        return Reply((self._context.add(memory),), (fd,))

    def free_dm(self, dm: int) -> Reply:
        self._context.free_dm(dm, self._context.find(dm, DeviceMemory))
        return NO_VALUES

    def reg_dm_mr(self, pd: int, dm: int, offset: int, length: int, access: int) -> Reply:
        """Register device memory. As in Linux the region is zero-based, and may be empty."""
        self._context.check_room()
        domain = self._context.find(pd, AllocatedPD)
        memory = self._context.find(dm, DeviceMemory)
        memory.check_range(offset, length)
        if not access & Access.ZERO_BASED:
            raise VerbsError("a region of device memory is zero-based", EINVAL)
        region = self._context.nic.memory.register(
            domain, Extent(offset, 0, length), access, partial(DevicePages, memory), min_length=0
        )
        return Reply((self._context.add(region), region.lkey, region.rkey))

    def alloc_null_mr(self, pd: int) -> Reply:
        """Make a null region: all addresses are valid, by the local key alone."""
        self._context.check_room()
        region = self._context.nic.memory.register(
            self._context.find(pd, AllocatedPD),
            Extent(0, 0, WHOLE_SPACE),
            Access.LOCAL_WRITE,
            NullPages,
        )
        return Reply((self._context.add(region), region.lkey))

    def alloc_mw(self, pd: int, kind: int) -> Reply:
        self._context.check_room()
        window = self._context.nic.memory.alloc_mw(self._context.find(pd, AllocatedPD), kind)
        return Reply((self._context.add(window), window.rkey))

    def dealloc_mw(self, mw: int) -> Reply:
        self._context.dealloc_mw(mw, self._context.find(mw, MemoryWindow))
        return NO_VALUES

    def create_comp_channel(self) -> Reply:
        self._context.check_room()
        channel = Channel()
        return Reply((self._context.add(channel),), (channel.pipe.take_read_end(),))

    def destroy_comp_channel(self, channel: int) -> Reply:
        self._context.destroy_channel(channel, self._context.find(channel, Channel))
        return NO_VALUES

    def create_cq(self, cqe: int, channel: int, _comp_vector: int) -> Reply:
        """All completion vectors are the same: the library checks their number."""
        self._context.check_room()
        found = self._context.find_optional(channel, Channel)
        cq = self._context.nic.create_cq(
            cqe,
            found,
            self._context.async_channel,
            make=partial(CompletionRing, self._context.srqs),
        )
        assert isinstance(cq, CompletionRing)
        owner = CqHandle(cq, found)
        handle = self._context.add(owner)
        cq.notify = self._context.notifier(handle, owner)
        if found is not None:
            found.users += 1
        return Reply((handle, cqe, cq.entries), (cq.take_fd(),))

    def resize_cq(self, cq: int, cqe: int) -> Reply:
        ring = self._context.find(cq, CqHandle).cq
        ring.resize(cqe)
        return Reply((cqe, ring.entries), (ring.take_fd(),))

    def modify_cq(self, cq: int, count: int, period: int) -> Reply:
        self._context.nic.modify_cq(self._context.find(cq, CqHandle).cq, count, period * 1000)
        return NO_VALUES

    def destroy_cq(self, cq: int) -> Reply:
        owner = self._context.find(cq, CqHandle)
        self._context.destroy_cq(cq, owner)
        return Reply((owner.events_reported,))

    def create_srq(  # noqa: PLR0917  the arguments of the protocol
        self,
        pd: int,
        srq_type: int,
        max_wr: int,
        max_sge: int,
        srq_limit: int,
        xrcd: int,
        cq: int,
    ) -> Reply:
        self._context.check_room()
        if srq_type > _XRC_SRQ:
            raise VerbsError(f"srq_type {srq_type}: neither basic (0) nor XRC (1)", EOPNOTSUPP)
        xrc = None
        if srq_type == _XRC_SRQ:
            xrc = XRCReceiver(
                self._context.find(xrcd, XrcDomain).number, self._context.find(cq, CqHandle).cq
            )
        domain = self._context.find(pd, AllocatedPD)
        srq = self._context.nic.create_srq(
            domain, max_wr, max_sge, xrc, self._context.async_channel
        )
        if srq_limit:
            srq.modify(limit=min(srq_limit, max_wr))
        handle = self._context.add(SrqHandle(srq))
        self._context.srqs.handles[srq.number] = handle
        return Reply((handle, srq.number, srq.max_wr, srq.max_sge))

    def modify_srq(self, srq: int, mask: int, max_wr: int, srq_limit: int) -> Reply:
        found = self._context.find(srq, SrqHandle).srq
        if not mask or mask & ~(_SRQ_MAX_WR | _SRQ_LIMIT):
            raise VerbsError(f"srq_attr_mask {mask:#x} is unknown", EINVAL)
        found.modify(
            max_wr if mask & _SRQ_MAX_WR else None,
            srq_limit if mask & _SRQ_LIMIT else None,
        )
        return NO_VALUES

    def query_srq(self, srq: int) -> Reply:
        found = self._context.find(srq, SrqHandle).srq
        return Reply((found.max_wr, found.max_sge, found.limit))

    def destroy_srq(self, srq: int) -> Reply:
        owner = self._context.find(srq, SrqHandle)
        self._context.destroy_srq(srq, owner)
        return Reply((owner.events_reported,))

    def create_qp(self, *words: int) -> Reply:
        self._context.check_room()
        pd, send_cq, recv_cq, srq, xrcd, qp_type, sq_sig_all, create_flags, *sizes = words
        if create_flags:
            raise VerbsError(f"create_flags {create_flags:#x} are not supported", EOPNOTSUPP)
        kind, cap = _qp_type(qp_type), _capacities(sizes)
        if kind is QPType.XRC_TGT:
            domain = self._context.find(xrcd, XrcDomain).number
            init = QPInit(*self._context.device.xrc_target_queues, xrc_domain=domain)
        else:
            queues = send_cq, send_cq if kind is QPType.XRC_INI else recv_cq, srq
            init = self._init(pd, queues, cap, signals_all=bool(sq_sig_all))
        qp = self._context.nic.create_qp(kind, init)
        self._context.qps[qp.qp_num] = qp
        self._context.device.openers[qp] += 1
        handle = self._context.add(QueuePairHandle(qp))
        return Reply((handle, qp.qp_num, *(getattr(cap, name) for name in QP_CAP)))

    def _init(
        self, pd: int, queues: tuple[int, int, int], cap: QPCap, *, signals_all: bool
    ) -> QPInit:
        """``ibv_qp_init_attr`` from handles; ``queues`` are send CQ, receive CQ and SRQ."""
        send_cq, recv_cq, srq = queues
        shared = self._context.find_optional(srq, SrqHandle)
        return QPInit(
            self._context.find(pd, AllocatedPD),
            self._context.find(send_cq, CqHandle).cq,
            self._context.find(recv_cq, CqHandle).cq,
            cap,
            None if shared is None else shared.srq,
            signals_all,
            async_channel=self._context.async_channel,
        )

    def open_qp(self, xrcd: int, qp_num: int, qp_type: int) -> Reply:
        """Open an XRC target that another context has created. ibv_open_qp(3)."""
        self._context.check_room()
        domain = self._context.find(xrcd, XrcDomain).number
        qp = self._context.nic.device.qps.get(qp_num)
        if qp is None or qp_type != QPType.XRC_TGT != qp.type or qp.xrc_domain != domain:
            raise VerbsError(f"QP {qp_num:#x} is no target of the XRC domain", EINVAL)
        self._context.device.openers[qp] += 1
        self._context.qps[qp_num] = qp
        return Reply((self._context.add(QueuePairHandle(qp)), qp_num))

    def modify_qp(self, qp: int, mask: int, *words: int) -> Reply:
        owner = self._context.find(qp, QueuePairHandle)
        found = owner.qp
        if owner.rss is not None:
            raise VerbsError(f"QP {found.qp_num:#x} of RSS has no state", EOPNOTSUPP)
        attributes, known = qp_attributes(self._context.device, found.type, mask, words)
        self._context.nic.modify_qp(found, attributes, known)
        if attributes.ah is not None and found.service.connected:
            self._context.device.control_congestion(found, attributes.ah)
        return Reply((int(found.state),))

    def query_qp(self, qp: int) -> Reply:
        found = self._context.find(qp, QueuePairHandle).qp
        return Reply(qp_words(self._context.device, self._context.nic.query_qp(found)))

    def destroy_qp(self, qp: int) -> Reply:
        owner = self._context.find(qp, QueuePairHandle)
        self._context.destroy_qp(qp, owner)
        return Reply((owner.events_reported,))

    def create_ah(self, pd: int, *words: int) -> Reply:
        self._context.check_room()
        self._context.find(pd, AllocatedPD)
        return Reply((self._context.add(address_handle(self._context.device, words)),))

    def destroy_ah(self, ah: int) -> Reply:
        self._context.find(ah, AddressHandle)
        self._context.remove(ah)
        return NO_VALUES

    def attach_mcast(self, qp: int, gid0: int, gid1: int, _lid: int) -> Reply:
        """The LID is of InfiniBand; it is ignored for RoCE, as in Linux."""
        found, gid = self._context.find(qp, QueuePairHandle).qp, gid_of(gid0, gid1)
        if len(self._context.mcast.get(found, ())) >= MAX_GROUPS:
            text = f"QP {found.qp_num:#x} has {MAX_GROUPS} multicast groups, the maximum"
            raise VerbsError(text, ENOMEM)
        self._context.nic.attach_mcast(found, gid)
        self._context.mcast.setdefault(found, set()).add(gid)
        return NO_VALUES

    def detach_mcast(self, qp: int, gid0: int, gid1: int, _lid: int) -> Reply:
        found, gid = self._context.find(qp, QueuePairHandle).qp, gid_of(gid0, gid1)
        self._context.nic.detach_mcast(found, gid)
        self._context.mcast.get(found, set()).discard(gid)
        return NO_VALUES

    def open_xrcd(self, file_device: int, file_inode: int, flags: int) -> Reply:
        self._context.check_room()
        file = (file_device, file_inode)
        files = self._context.device.xrc_files
        if file == (0, 0):
            return Reply((self._context.add(XrcDomain(self._context.nic.open_xrcd(), None)),))
        if file in files:
            if flags & _CREATE and flags & _EXCLUSIVE:
                raise VerbsError("the file has an XRC domain already, and O_EXCL is set", EINVAL)
            number, users = files[file]
        elif flags & _CREATE:
            number, users = self._context.nic.open_xrcd(), 0
        else:
            raise VerbsError("the file has no XRC domain, and O_CREAT is not set", EINVAL)
        files[file] = number, users + 1
        return Reply((self._context.add(XrcDomain(number, file)),))

    def close_xrcd(self, xrcd: int) -> Reply:
        self._context.close_xrcd(xrcd, self._context.find(xrcd, XrcDomain))
        return NO_VALUES


_OUTSIDE: Final = {
    "hello",
    "get_device",
    "open_device",
    "import_device",
    "read_counters",
    "write_counters",
}
"""Calls for which a connection needs no context: the server does them."""

_HANDLERS: Final[dict[int, Callable[..., Reply]]] = {
    call.number: getattr(Calls, call.name)
    for call in CALLS
    if call.name not in _OUTSIDE and not call.name.startswith("cm_")
}
"""Methods to call with the arguments of a request, by the call's number."""


def _scarce(error: OSError) -> int:
    return EMFILE if error.errno == EMFILE else ENOMEM


def _check_port(port_num: int) -> None:
    if port_num != PORT:
        raise VerbsError(f"port {port_num}: devices have only port {PORT}", EINVAL)


def _pages(
    context: Context, copied: CopiedRegion, access: int, address: int, length: int
) -> ProcessPages:
    """The pages of ``length`` bytes from ``address`` on, which a region with ``access`` has.

    Pages on demand are copied by the library, with the rights that the program has to them:
    ``/proc/PID/mem`` ignores these, and no registration has checked them. ``VerbsError`` EFAULT if
    other pages are not mapped, EINVAL for an unknown kind of memory, or a part of all memory.
    """
    if copied.memory > MEMORY_OF_DMABUF:
        raise VerbsError(f"memory {copied.memory} is none of 0 to {MEMORY_OF_DMABUF}", EINVAL)
    on_demand = access & Access.ON_DEMAND
    context.is_registered = True
    if length == WHOLE_SPACE and (address or not on_demand):
        raise VerbsError("a region of all memory begins at 0, on demand", EINVAL)
    if copied.memory == MEMORY_OF_HOST and context.process is not None and not on_demand:
        check_mapped(context.process, address, length)
        return ProcessPages(context.process)
    return CopiedPages(context.copies, copied)


def _qp_type(number: int) -> QPType:
    if number not in QPType._value2member_map_:
        raise VerbsError(f"qp_type {number} is not supported", EOPNOTSUPP)
    return QPType(number)


def _capacities(sizes: Sequence[int]) -> QPCap:
    """The capabilities of a queue pair. ``VerbsError`` EINVAL for too much inline data."""
    cap = QPCap(*sizes)
    if cap.max_inline_data > MAX_INLINE_DATA:
        text = f"max_inline_data {cap.max_inline_data}: at most {MAX_INLINE_DATA}"
        raise VerbsError(text, EINVAL)
    return cap._replace(max_inline_data=max(cap.max_inline_data, _MIN_INLINE))
