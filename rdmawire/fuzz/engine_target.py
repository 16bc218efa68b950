"""The software RNIC as a target.

It has one queue pair, as responder and requester, fresh for each case.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Final

from rdmawire.errors import VerbsError
from rdmawire.fabric.host import Host
from rdmawire.fuzz.exchange import Numbers
from rdmawire.fuzz.inputs import MAX_INLINE, MAX_SGES, WorkInput
from rdmawire.fuzz.setup import (
    AREAS,
    ARENA,
    FRESH_ARENA,
    MAX_SEND_WR,
    PEER_QPN,
    PEER_RKEY,
    PEER_SRQN,
    PEER_VA,
    RECEIVE_SLOT,
    RECEIVE_SLOTS,
    RECEIVES,
    SHARED_QUEUES,
    TARGET_QPN,
    WINDOW,
    Network,
    Setup,
    SharedQueue,
    receive_start,
)
from rdmawire.fuzz.target import COUNTERS, REQUESTER_COUNTERS, Completion
from rdmawire.ib.hw_counters import QPCounters
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.ib.rules import Rules
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.memory.key import Access
from rdmawire.memory.mw import Bind, bind_window
from rdmawire.validate import BytesLike
from rdmawire.verbs.ah import AddressHandle, GIDType
from rdmawire.verbs.enums import SUCCESS, QPState, QPType, WCFlags, WCOpcode, WorkCompletion
from rdmawire.verbs.profile import IBTA, Profile
from rdmawire.verbs.qp_attr import QPAttributes, QPCap
from rdmawire.verbs.srq import SharedReceiveQueue, XRCReceiver
from rdmawire.verbs.wr import RecvWR, SendFlags, SendOpcode, SendWR, Sge
from rdmawire.wire.management import MTU, PATH_MTUS

_CAP: Final = QPCap(MAX_SEND_WR, 16, MAX_SGES, 1, MAX_INLINE)
_COMPLETIONS: Final = 1 << 10
_MAX_KEPT: Final = 4096
"""Attributes that are kept, at most."""
TARGET_HOST: Final = 2
PEER_HOST: Final = 1


class _Adapter:
    """The adapter and its peer on one kind of network, with the memory and keys for all cases."""

    def __init__(self, network: Network, rules: Rules, profile: Profile) -> None:
        ipv6, medium = network is not Network.ROCE2_IPV4, network.medium
        self.host = Host(TARGET_HOST, profile=profile, rules=rules, ipv6=ipv6, medium=medium)
        self.peer = Host(PEER_HOST, ipv6=ipv6, medium=medium)
        self.peer_lid = self.peer.nic.query_port().lid
        self.to_peer = _path(self.host, self.peer, network)
        self.arena = self.host.space.allocate(ARENA)
        self.base = base = self.arena.base
        self.vas = tuple(base + area.start for area in (*AREAS, WINDOW))
        self.nic = self.host.nic
        memory, pd = self.nic.memory, self.host.pd
        self.regions = [
            memory.reg_mr(pd, base + area.start, area.length, area.access) for area in AREAS
        ]
        self.sink = memory.reg_mr(
            pd, base + RECEIVES, RECEIVE_SLOT * RECEIVE_SLOTS, Access.LOCAL_WRITE
        )
        self.window = memory.alloc_mw(pd, 2)
        self.window_rkey = 0
        self.cq = self.nic.create_cq(_COMPLETIONS)
        self.domain, self.other_domain = self.nic.open_xrcd(), self.nic.open_xrcd()
        self.srqs: list[SharedReceiveQueue] = []
        self.used_srqs: set[int] = set()

    def make_srqs(self) -> None:
        """Make shared receive queues without receives; those that never had one are kept."""
        if not self.srqs:
            self.srqs = [self._make_srq(queue) for queue in SHARED_QUEUES]
        for index in self.used_srqs:
            self.nic.destroy_srq(self.srqs[index])
            self.srqs[index] = self._make_srq(SHARED_QUEUES[index])
        self.used_srqs.clear()

    def _make_srq(self, queue: SharedQueue) -> SharedReceiveQueue:
        domain = self.domain if queue.usable else self.other_domain
        xrc = XRCReceiver(domain, self.cq) if queue.is_xrc else None
        return self.nic.create_srq(self.host.pd, _CAP.max_recv_wr, xrc=xrc)

    def bind(self) -> None:
        """Bind the window to the fresh queue pair, with the next variant of its key."""
        if self.window.valid:
            return
        key = self.window.key
        bind = Bind(
            self.base + WINDOW.start,
            WINDOW.length,
            WINDOW.access,
            TARGET_QPN,
            self.host.pd,
            key & ~0xFF | (key + 1) & 0xFF,
        )
        self.window_rkey = bind_window(self.nic.memory.keys, self.window, self.regions[0], bind)


class EngineTarget:
    """One adapter.

    ``rules`` and ``profile`` are those of :class:`rdmawire.ib.engine.Nic`, ``name`` is for reports.
    """

    def __init__(
        self, *, rules: Rules = STANDARD, profile: Profile = IBTA, name: str = "engine"
    ) -> None:
        self.name = name
        self.rules = rules
        self._profile = profile
        self._adapters: dict[Network, _Adapter] = {}
        self._kept: dict[Setup, QPAttributes] = {}
        self._qp: QueuePair | None = None

    def numbers(self, setup: Setup) -> Numbers:
        """Return the addresses and keys that a peer needs for this setup."""
        adapter = self._adapter_of(setup)
        is_xrc = setup.service is QPType.XRC_TGT
        srqs = tuple(srq.number for srq in adapter.srqs) if is_xrc else ()
        return Numbers(TARGET_QPN, adapter.vas, _keys(adapter), setup.qkey, srqs, adapter.peer_lid)

    def path(self, setup: Setup) -> tuple[AddressHandle, bytes]:
        """Return the peer's path to the target, and the peer's MAC address."""
        adapter = self._adapter_of(setup)
        return _path(adapter.peer, adapter.host, setup.network), adapter.peer.mac

    def _adapter_of(self, setup: Setup) -> _Adapter:
        """Return the adapter on the network of a setup; it is kept for further cases."""
        network = setup.network
        if network not in self._adapters:
            self._adapters[network] = _Adapter(network, self.rules, self._profile)
        return self._adapters[network]

    def reset(self, setup: Setup) -> None:
        """Make a fresh queue pair, and memory and keys as at first."""
        if self._qp is not None:
            self._remove(self._qp)
        self._adapter = adapter = self._adapter_of(setup)
        adapter.arena.write(adapter.base, FRESH_ARENA)
        self.now = 0
        self._posted = self._sends = 0
        is_xrc = setup.service is QPType.XRC_TGT
        if is_xrc:
            adapter.make_srqs()
        domain = adapter.domain if is_xrc else 0
        init = QPInit(adapter.host.pd, adapter.cq, adapter.cq, _CAP, xrc_domain=domain)
        self._qp = adapter.nic.create_qp(setup.service, init, TARGET_QPN)
        self._to_peer = adapter.to_peer
        adapter.host.bring_up(self._qp, self._attributes(setup))
        adapter.bind()

    def _remove(self, qp: QueuePair) -> None:
        """Destroy the queue pair of the last case, with its completions and events."""
        self._adapter.nic.destroy_qp(qp)
        self._adapter.cq.poll(_COMPLETIONS)
        self._adapter.host.events()

    def _attributes(self, setup: Setup) -> QPAttributes:
        """Return the attributes of a setup; they are kept, since few setups are different."""
        found = self._kept.get(setup)
        if found is None:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            self._kept[setup] = found = self._made_attributes(setup)
        return found

    def _made_attributes(self, setup: Setup) -> QPAttributes:
        access = int(AREAS[0].access & ~Access.LOCAL_WRITE) if setup.access else 0
        return QPAttributes(
            path_mtu=MTU(PATH_MTUS.index(setup.mtu) + 1),
            qkey=setup.qkey,
            rq_psn=setup.psn,
            sq_psn=setup.psn,
            qp_access_flags=access,
            max_rd_atomic=setup.rd_atomic,
            max_dest_rd_atomic=setup.rd_atomic,
            min_rnr_timer=setup.rnr_timer,
            timeout=setup.timeout,
            retry_cnt=setup.retry_cnt,
            rnr_retry=setup.rnr_retry,
            dest_qp_num=PEER_QPN,
            ah=self._to_peer,
        )

    def send(self, frame: bytes) -> list[bytes]:
        """Deliver a frame; return all frames that the adapter then sends."""
        try:
            self._adapter.nic.receive(frame, self.now)
            return self._sent()
        except Exception:
            self._discard()
            raise

    def send_within(self, frame: bytes, room: int) -> list[bytes]:
        """Deliver a frame; return at most ``room`` frames that the adapter then sends."""
        nic = self._adapter.nic
        try:
            nic.receive(frame, self.now)
            return nic.transmit(self.now, room) if room else []
        except Exception:
            self._discard()
            raise

    def _discard(self) -> None:
        """Forget the adapter: after an exception in it, its state may be anything."""
        self._adapters.clear()
        self._qp = None

    def _sent(self) -> list[bytes]:
        nic, now = self._adapter.nic, self.now
        frames = more = nic.transmit(now) if nic.sends_more else []
        while more and nic.sends_more:
            more = nic.transmit(now)
            frames += more
        return frames

    def post_receive(self, length: int, srq: int = 0) -> bool:
        """Post a receive into the next slot; ``False`` if the queue refuses it."""
        assert self._qp is not None
        adapter = self._adapter
        start = adapter.base + receive_start(self._posted, length)
        sges = (Sge(start, length, adapter.sink.lkey),) if length else ()
        work = (RecvWR(sges, self._posted + 1),)
        try:
            if self._qp.type is QPType.XRC_TGT:
                adapter.used_srqs.add(srq)
                adapter.nic.post_srq_recv(adapter.srqs[srq], work)
            else:
                adapter.nic.post_recv(self._qp, work)
        except VerbsError:
            return False
        self._posted += 1
        return True

    def post_send(self, work: WorkInput) -> bool:
        """Post send work; ``False`` if the queue pair refuses it."""
        assert self._qp is not None
        adapter = self._adapter
        wr = _work_request(adapter, work, self._sends + 1)
        if self._qp.type is QPType.UD:
            wr = wr._replace(ah=self._to_peer)
        try:
            adapter.nic.post_send(self._qp, (wr,))
        except VerbsError:
            return False
        self._sends += 1
        return True

    def state(self) -> QPState:
        """Return the state of the queue pair."""
        assert self._qp is not None
        return self._qp.state

    def completions(self) -> list[Completion]:
        """Remove and return the completions."""
        found = self._adapter.cq.poll(_COMPLETIONS)
        if not found:
            return []
        assert self._qp is not None
        is_datagram = self._qp.type is QPType.UD
        return [_completion(done, done.src_qp if is_datagram else 0) for done in found]

    def counters(self) -> tuple[int, ...]:
        """Return the counters :data:`COUNTERS` of the queue pair."""
        assert self._qp is not None
        return _counters(self._qp.counters)

    def requester_counters(self) -> tuple[int, ...]:
        """Return the counters :data:`REQUESTER_COUNTERS` of the queue pair."""
        assert self._qp is not None
        return _requester_counters(self._qp.counters)

    def memory(self) -> BytesLike:
        """Return a view of the arena."""
        adapter = self._adapter
        view = adapter.arena.lend(adapter.base, ARENA)
        return adapter.arena.read(adapter.base, ARENA) if view is None else view

    def wait(self, ns: int) -> list[bytes]:
        """Let time pass, with the timers that are due; return the frames sent."""
        end = self.now + ns
        try:
            frames = self._sent()
            frames += self._timers(end)
        except Exception:
            self._discard()
            raise
        self.now = end
        return frames

    def _timers(self, end: int) -> list[bytes]:
        """Let the timers run that are due until ``end`` (ns); return the frames sent."""
        nic = self._adapter.nic
        frames: list[bytes] = []
        while (due := nic.next_timer()) is not None and due <= end:
            self.now = max(due, self.now)
            nic.handle_timer(self.now)
            frames += self._sent()
        return frames


_counters: Final[Callable[[QPCounters], tuple[int, ...]]] = attrgetter(*COUNTERS)
_requester_counters: Final[Callable[[QPCounters], tuple[int, ...]]] = attrgetter(
    *REQUESTER_COUNTERS
)


def _keys(adapter: _Adapter) -> tuple[int, ...]:
    return (*(region.rkey for region in adapter.regions), adapter.window_rkey)


def _path(host: Host, other: Host, network: Network) -> AddressHandle:
    path = host.path_to(other)
    if network is Network.ROCE1:
        return path._replace(gid_type=GIDType.ROCE_V1)
    return path._replace(is_global=True) if network is Network.IB_GLOBAL else path


def _work_request(adapter: _Adapter, work: WorkInput, number: int) -> SendWR:
    """Make the work request of an input."""
    return SendWR(
        work.opcode,
        _sges(adapter, work),
        number,
        _flags(work),
        remote_address=(PEER_VA + work.offset) % (1 << 64),
        rkey=PEER_RKEY,
        imm_data=work.value & _BITS_32,
        invalidate_rkey=work.value & _BITS_32,
        compare_add=work.compare if work.opcode is _CMP_SWAP else work.value,
        swap=work.value,
        placement=1,
        length=work.compare & _BITS_32,
        remote_qpn=PEER_QPN,
        remote_qkey=work.qkey,
        remote_srqn=PEER_SRQN + work.srq,
    )


_CMP_SWAP: Final = SendOpcode.ATOMIC_CMP_AND_SWP
_BITS_32: Final = (1 << 32) - 1


def _sges(adapter: _Adapter, work: WorkInput) -> tuple[Sge, ...]:
    keys = [adapter.regions[index].lkey for index, _, _ in work.sges]
    keys[:1] = [(key + work.key) & _BITS_32 for key in keys[:1]]
    return tuple(
        Sge(adapter.base + AREAS[index].start + offset, length, key)
        for (index, offset, length), key in zip(work.sges, keys, strict=True)
    )


def _flags(work: WorkInput) -> int:
    flags = SendFlags.SIGNALED if work.signaled else 0
    flags |= SendFlags.FENCE if work.fence else 0
    return int(flags | (SendFlags.INLINE if work.inline else 0))


_WITHOUT_LENGTH: Final = frozenset(
    (WCOpcode.SEND, WCOpcode.RDMA_WRITE, WCOpcode.FLUSH, WCOpcode.ATOMIC_WRITE)
)
"""Work whose completion has no length. ibv_poll_cq(3)."""


def _completion(done: WorkCompletion, source: int) -> Completion:
    if done.status is not SUCCESS:
        return Completion(done.wr_id, done.status)
    if done.opcode in _WITHOUT_LENGTH:
        return Completion(done.wr_id, done.status, done.opcode)
    value = done.imm_data if done.wc_flags & WCFlags.WITH_IMM else 0
    if done.wc_flags & WCFlags.WITH_INV:
        value = done.invalidated_rkey
    return Completion(done.wr_id, done.status, done.opcode, done.byte_len, value, source)
