"""Whether what a caller names is this adapter's, and still there.

libibverbs would follow a pointer; here it is ``VerbsError`` EINVAL, and nothing has changed.
"""

from errno import EINVAL

from rdmawire.errors import VerbsError
from rdmawire.memory.argument import check_kind, check_number
from rdmawire.nic.attribute import QPCap, check_cap
from rdmawire.nic.cq import CompletionQueue
from rdmawire.nic.device import Device
from rdmawire.nic.qp import IN_XRC_DOMAINS, QPInit, QueuePair
from rdmawire.nic.service import SERVICES
from rdmawire.nic.srq import SharedReceiveQueue, SRQType, XRCReceiver
from rdmawire.nic.state import QPType
from rdmawire.screen import shown


def check_qp(device: Device, qp: QueuePair) -> None:
    """A queue pair that was not destroyed."""
    if not isinstance(qp, QueuePair) or device.qps.get(qp.number) is not qp:
        raise _foreign("QP", qp)


def check_cq(device: Device, cq: CompletionQueue) -> None:
    """A completion queue that was not destroyed."""
    if not isinstance(cq, CompletionQueue) or device.cqs.get(cq.number) is not cq:
        raise _foreign("CQ", cq)


def check_srq(device: Device, srq: SharedReceiveQueue) -> None:
    """A shared receive queue that was not destroyed."""
    if not isinstance(srq, SharedReceiveQueue) or device.srqs.get(srq.number) is not srq:
        raise _foreign("SRQ", srq)


def check_receiver(device: Device, xrc: XRCReceiver | None) -> None:
    """Where an XRC shared receive queue completes, if it is one."""
    if xrc is not None:
        check_kind("xrc", xrc, XRCReceiver)
        device.xrcds.check(xrc.domain)
        check_cq(device, xrc.cq)


def check_init(device: Device, kind: QPType, wants: QPInit) -> None:
    """All that a queue pair of this type is made of."""
    check_kind("qp_init_attr", wants, QPInit)
    check_kind("cap", wants.cap, QPCap)
    own = wants.srq is None and SERVICES[kind].receives
    check_cap(wants.cap if own else wants.cap._replace(**_NO_RECEIVES), device.profile)
    device.memory.check_domain(wants.pd)
    check_cq(device, wants.send_cq)
    check_cq(device, wants.recv_cq)
    if wants.srq is not None:
        _check_shared(device, kind, wants.srq)
    check_number("xrc_domain", wants.xrc_domain)
    if kind in IN_XRC_DOMAINS:
        device.xrcds.check(wants.xrc_domain)


_NO_RECEIVES = {"max_recv_wr": 0, "max_recv_sge": 0}
"""What is ignored where a queue pair has no receive queue of its own. ibv_create_qp(3)."""


def _check_shared(device: Device, kind: QPType, srq: SharedReceiveQueue) -> None:
    """Whether a queue pair of this type may receive from it. IBA 10.2.9, A14; ibv_create_qp(3)."""
    check_srq(device, srq)
    if not SERVICES[kind].receives:
        raise VerbsError(f"{kind.name} queue pairs receive nothing, and have no SRQ", EINVAL)
    if srq.type is SRQType.XRC:
        raise VerbsError(f"SRQ {srq.number} is for XRC: messages name it, not queue pairs", EINVAL)


def _foreign(label: str, found: object) -> VerbsError:
    number = getattr(found, "number", None)
    name = shown(found) if number is None else f"{label} {number:#x}"
    return VerbsError(f"{name} is no {label} of this adapter, or was destroyed", EINVAL)
