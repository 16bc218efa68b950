"""What may be wrong with work, and what follows from each, by name. IBA 9.9.2, 9.9.3, 10.8.3.3."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rdmawire.memory.fast_reg import FastRegistration
from rdmawire.memory.key import Access
from rdmawire.memory.mw import Bind
from rdmawire.verbs.async_event import (
    AccessViolation,
    Event,
    InvalidRequest,
)
from rdmawire.verbs.enums import WCStatus
from rdmawire.verbs.qp_attr import QPAttributes
from rdmawire.verbs.wr import BindMW, RecvWR, RegMR, SendOpcode, SendWR, Sge
from tests.stateful.connection import PATIENCE
from tests.stateful.flow import NUMBERS, Flow

_W, _O = WCStatus, SendOpcode
MTU_256 = 256


@dataclass(frozen=True)
class Failure:
    """What is wrong, and what follows: for the work, the peer, the peer's receive and its owner."""

    work: Callable[[Flow], SendWR]
    status: WCStatus
    peer_fails: bool = False
    receive: WCStatus | None = None
    event: type[Event] | None = None
    receives: Callable[[Flow], RecvWR | None] = lambda _: None
    attributes: QPAttributes = PATIENCE


def remote(flow: Flow, opcode: SendOpcode, size: int, at: int = 0) -> SendWR:
    """Good work on the peer's target, ``at`` so far from its start."""
    way = flow.ways[0]
    sink = opcode in (_O.RDMA_READ, _O.ATOMIC_CMP_AND_SWP, _O.ATOMIC_FETCH_AND_ADD)
    area = flow.sender.sink if sink else flow.sender.source
    sges = () if opcode is _O.FLUSH else (Sge(area.region.iova, size, area.region.lkey),)
    return SendWR(opcode, sges, remote_address=way.iova + at, rkey=way.rkey)


def _keyed(opcode: SendOpcode, length: int, area: str) -> Callable[[Flow], SendWR]:
    """Work that uses the key of another area of the peer's."""

    def work(flow: Flow) -> SendWR:
        region = getattr(flow.receiver, area).region
        wr = remote(flow, opcode, length)
        return wr._replace(rkey=region.rkey, remote_address=region.iova)

    return work


def _local(opcode: SendOpcode, make: Callable[[Flow], Sge]) -> Callable[[Flow], SendWR]:
    """Work with a wrong piece of local memory."""
    return lambda flow: remote(flow, opcode, 8)._replace(sges=(make(flow),))


def _past_the_end(flow: Flow) -> Sge:
    region = flow.sender.source.region
    return Sge(region.end - 7, 8, region.lkey)


def _past_the_start(flow: Flow) -> Sge:
    region = flow.sender.source.region
    return Sge(region.iova - 1, 8, region.lkey)


def _of_no_key(flow: Flow) -> Sge:
    return Sge(flow.sender.source.region.iova, 8, flow.sender.source.region.lkey + 1)


def _not_writable(flow: Flow) -> Sge:
    return flow.sender.source.take([8])[0]


def _of_the_peer(flow: Flow) -> Sge:
    return flow.receiver.inbox.take([8])[0]._replace(lkey=0xDEAD)


def _short_receive(flow: Flow) -> RecvWR:
    return RecvWR(flow.receiver.inbox.take([99]), next(NUMBERS))


def _bad_receive(flow: Flow) -> RecvWR:
    (sge,) = flow.receiver.inbox.take([1000])
    return RecvWR((sge._replace(lkey=sge.lkey + 1),), next(NUMBERS))


def _receive_one_short(flow: Flow) -> RecvWR:
    return RecvWR(flow.receiver.inbox.take([4 * MTU_256 - 1]), next(NUMBERS))


def _good_receive(flow: Flow) -> RecvWR:
    return RecvWR(flow.receiver.inbox.take([1000]), next(NUMBERS))


def _receive_in_read_only(flow: Flow) -> RecvWR:
    return RecvWR(flow.receiver.source.take([1000]), next(NUMBERS))


def _bad_bind(flow: Flow) -> SendWR:
    place = flow.sender
    window = place.host.nic.memory.alloc_mw(place.host.pd, 2)
    bind = Bind(place.source.region.iova, 8, Access.REMOTE_READ, rkey=window.key + 2)
    return SendWR(_O.BIND_MW, bind=BindMW(window, place.source.region, bind))


def _bad_registration(flow: Flow) -> SendWR:
    place = flow.sender
    region = place.host.nic.memory.alloc_mr(place.host.pd, 1)
    pages = [place.arena.memory.base, place.arena.memory.base + 4096]
    registration = FastRegistration(region.key, 0, 8192, Access.LOCAL_WRITE, pages)
    return SendWR(_O.REG_MR, reg=RegMR(region, registration))


def _refused(work: Callable[[Flow], SendWR]) -> Failure:
    return Failure(work, _W.REM_ACCESS_ERR, peer_fails=True, event=AccessViolation)


def _invalid(work: Callable[[Flow], SendWR]) -> Failure:
    return Failure(work, _W.REM_INV_REQ_ERR, peer_fails=True, event=InvalidRequest)


def _without(right: int, opcode: SendOpcode) -> Failure:
    """The peer's queue pair does not have the right."""
    allowed = PATIENCE.qp_access_flags & ~right
    return Failure(
        lambda flow: remote(flow, opcode, 8),
        _W.REM_INV_REQ_ERR,
        peer_fails=True,
        event=InvalidRequest,
        attributes=PATIENCE._replace(qp_access_flags=allowed),
    )


FAILURES: Final[dict[str, Failure]] = {
    "source with no key": Failure(_local(_O.SEND, _of_no_key), _W.LOC_PROT_ERR),
    "source past its end": Failure(_local(_O.RDMA_WRITE, _past_the_end), _W.LOC_PROT_ERR),
    "source before its start": Failure(_local(_O.RDMA_WRITE, _past_the_start), _W.LOC_PROT_ERR),
    "source of the peer": Failure(_local(_O.SEND, _of_the_peer), _W.LOC_PROT_ERR),
    "READ into read-only": Failure(_local(_O.RDMA_READ, _not_writable), _W.LOC_PROT_ERR),
    "atomic into read-only": Failure(
        _local(_O.ATOMIC_FETCH_AND_ADD, _not_writable), _W.LOC_PROT_ERR
    ),
    "bind without the right": Failure(_bad_bind, _W.MW_BIND_ERR),
    "registration too long": Failure(_bad_registration, _W.MW_BIND_ERR),
    "invalidation of no key": Failure(
        lambda _: SendWR(_O.LOCAL_INV, invalidate_rkey=0xDEAD), _W.MW_BIND_ERR
    ),
    "WRITE with no key": _refused(
        lambda flow: remote(flow, _O.RDMA_WRITE, 8)._replace(rkey=0xDEAD)
    ),
    "WRITE past the end": _refused(
        lambda flow: remote(flow, _O.RDMA_WRITE, 8, flow.ways[0].length - 7)
    ),
    "long WRITE past the end": _refused(
        lambda flow: remote(flow, _O.RDMA_WRITE, 4 * MTU_256, flow.ways[0].length - MTU_256)
    ),
    "WRITE before the start": _refused(lambda flow: remote(flow, _O.RDMA_WRITE, 8, -1)),
    "WRITE round 64 bits": _refused(
        lambda flow: remote(flow, _O.RDMA_WRITE, 8)._replace(remote_address=(1 << 64) - 4)
    ),
    "WRITE without the right": _refused(_keyed(_O.RDMA_WRITE, 8, "source")),
    "WRITE to local memory": _refused(_keyed(_O.RDMA_WRITE, 8, "inbox")),
    "READ with no key": _refused(lambda flow: remote(flow, _O.RDMA_READ, 8)._replace(rkey=0xDEAD)),
    "READ past the end": _refused(
        lambda flow: remote(flow, _O.RDMA_READ, 800, flow.ways[0].length - 799)
    ),
    "READ without the right": _refused(_keyed(_O.RDMA_READ, 8, "inbox")),
    "atomic without the right": _refused(_keyed(_O.ATOMIC_FETCH_AND_ADD, 8, "inbox")),
    "ATOMIC WRITE without the right": _refused(_keyed(_O.ATOMIC_WRITE, 8, "inbox")),
    "atomic past the end": _refused(
        lambda flow: remote(flow, _O.ATOMIC_CMP_AND_SWP, 8, flow.ways[0].length)
    ),
    "atomic misaligned": _invalid(lambda flow: remote(flow, _O.ATOMIC_CMP_AND_SWP, 8, 4)),
    "ATOMIC WRITE misaligned": _invalid(lambda flow: remote(flow, _O.ATOMIC_WRITE, 8, 1)),
    "queue pair without WRITE": _without(Access.REMOTE_WRITE, _O.RDMA_WRITE),
    "queue pair without READ": _without(Access.REMOTE_READ, _O.RDMA_READ),
    "queue pair without atomics": _without(Access.REMOTE_ATOMIC, _O.ATOMIC_CMP_AND_SWP),
    "FLUSH without a placement": _invalid(
        lambda flow: remote(flow, _O.FLUSH, 0)._replace(length=8)
    ),
    "SEND too long": Failure(
        lambda flow: remote(flow, _O.SEND, 100),
        _W.REM_INV_REQ_ERR,
        peer_fails=True,
        receive=_W.LOC_LEN_ERR,
        receives=_short_receive,
    ),
    "long SEND too long": Failure(
        lambda flow: remote(flow, _O.SEND, 4 * MTU_256),
        _W.REM_INV_REQ_ERR,
        peer_fails=True,
        receive=_W.LOC_LEN_ERR,
        receives=_receive_one_short,
    ),
    "receive with no key": Failure(
        lambda flow: remote(flow, _O.SEND, 8),
        _W.REM_OP_ERR,
        peer_fails=True,
        receive=_W.LOC_PROT_ERR,
        receives=_bad_receive,
    ),
    "receive in read-only": Failure(
        lambda flow: remote(flow, _O.SEND, 8),
        _W.REM_OP_ERR,
        peer_fails=True,
        receive=_W.LOC_PROT_ERR,
        receives=_receive_in_read_only,
    ),
    "no receive": Failure(
        lambda flow: remote(flow, _O.SEND, 8),
        _W.RNR_RETRY_EXC_ERR,
        attributes=PATIENCE._replace(rnr_retry=2),
    ),
    "no receive for a long SEND": Failure(
        lambda flow: remote(flow, _O.SEND, 5 * MTU_256),
        _W.RNR_RETRY_EXC_ERR,
        attributes=PATIENCE._replace(rnr_retry=0),
    ),
    "no receive for an immediate": Failure(
        lambda flow: remote(flow, _O.RDMA_WRITE_WITH_IMM, 0),
        _W.RNR_RETRY_EXC_ERR,
        attributes=PATIENCE._replace(rnr_retry=1),
    ),
}
"""Everything that ends a queue pair in an error."""
