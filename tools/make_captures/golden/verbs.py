"""Every verb on every service that has it, in sizes that give every part and every pad."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

from rdmawire.ib import SERVICES
from rdmawire.verbs import VERBS, QPType, SendOpcode
from rdmawire.wire.ib import Placement, Selectivity
from rdmawire.wire.management import MTU
from tools.make_captures.golden.case import (
    CLIENT,
    SERVER,
    STEP,
    Action,
    Case,
    Made,
    Receive,
    Register,
    Work,
    case,
)

SIZES = (0, 1, 2, 3, 4, 256, 257, 512, 514, 767, 768)
"""Bytes of messages: none, every pad, and one, two and three packets of 256, full or not."""
_DATAGRAMS = (0, 1, 2, 3, 4, 256, 1023, 4096)
"""A datagram is one packet, up to the port's MTU."""
_IMM = 0xCAFE_0000
_FLUSHES = tuple(product(Selectivity, Placement))
_ATOMICS: dict[SendOpcode, tuple[dict[str, int], ...]] = {
    SendOpcode.ATOMIC_CMP_AND_SWP: (
        {"compare_add": 0x312A_231C_150E_0700, "swap": 0x0123_4567_89AB_CDEF},
        {"compare_add": 0x312A_231C_150E_0700, "swap": 0xFFFF_FFFF_FFFF_FFFF},
    ),
    SendOpcode.ATOMIC_FETCH_AND_ADD: (
        {"compare_add": 1},
        {"compare_add": 0xFFFF_FFFF_FFFF_FFFF},
    ),
}
"""A comparison that holds and one that does not; an addition, and one that goes round."""

_WORDS = {
    SendOpcode.SEND: "send",
    SendOpcode.SEND_WITH_IMM: "send-imm",
    SendOpcode.SEND_WITH_INV: "send-inv",
    SendOpcode.RDMA_WRITE: "write",
    SendOpcode.RDMA_WRITE_WITH_IMM: "write-imm",
    SendOpcode.RDMA_READ: "read",
    SendOpcode.ATOMIC_CMP_AND_SWP: "compare-swap",
    SendOpcode.ATOMIC_FETCH_AND_ADD: "fetch-add",
    SendOpcode.FLUSH: "flush",
    SendOpcode.ATOMIC_WRITE: "atomic-write",
}


def verbs(kind: QPType) -> Iterator[Case]:
    """A case for each verb of a service, over IPv4 and over IPv6."""
    service = kind.name.removesuffix("_INI")
    for ipv6 in (False, True):
        for do in (each for each in _WORDS if each in SERVICES[kind].outbound):
            over = 6 if ipv6 else 4
            name = f"{service.lower()}-{_WORDS[do]}-ipv{over}"
            shows = f"{service} {do.name} over IPv{over}, one after the other"
            yield case(name, shows, *_actions(do, kind), ipv6=ipv6, kind=kind)


def _actions(do: SendOpcode, kind: QPType) -> Iterator[Action | Made]:
    """The receives first, as far as the verb takes any; then work, each once the last is over."""
    works = [make(at=number * STEP) for number, make in enumerate(_works(do, kind))]
    if VERBS[do].takes_receive:
        written = do is SendOpcode.RDMA_WRITE_WITH_IMM
        yield from (Receive(0, SERVER, 0 if written else work.bytes) for work in works)
    for number, work in enumerate(works):
        yield from _invalidating(work, number) if do is SendOpcode.SEND_WITH_INV else (work,)


def _works(do: SendOpcode, kind: QPType) -> list[Callable[..., Work]]:
    make = partial(Work, who=CLIENT, do=do)
    if do in _ATOMICS:
        return [partial(make, bytes=8, offset=8 * n, **w) for n, w in enumerate(_ATOMICS[do])]
    if do is SendOpcode.FLUSH:
        write = partial(Work, who=CLIENT, do=SendOpcode.RDMA_WRITE, bytes=600)
        kinds = [partial(make, bytes=600, placement=p, selectivity=s) for s, p in _FLUSHES]
        return [write, *kinds]
    if do is SendOpcode.ATOMIC_WRITE:
        return [partial(make, bytes=8, offset=16)]
    sizes = _DATAGRAMS if kind is QPType.UD else SIZES
    return [partial(make, bytes=size, **_with(do, size)) for size in sizes]


def _with(do: SendOpcode, size: int) -> dict[str, int]:
    immediate = do in (SendOpcode.SEND_WITH_IMM, SendOpcode.RDMA_WRITE_WITH_IMM)
    return {"imm_data": _IMM + size} if immediate else {}


def _invalidating(work: Work, number: int) -> Iterator[Made]:
    """A key that is good, and the SEND that takes it back."""
    yield lambda ends: Register(work.at, SERVER, ends[SERVER].fast.variant(number))
    yield lambda ends: work._replace(invalidate_rkey=ends[SERVER].fast.variant(number))


def path_mtus() -> Iterator[Case]:
    """A WRITE and a READ of one byte more than a packet holds, for each path MTU."""
    for mtu in MTU:
        data = (128 << mtu) + 1
        does = [SendOpcode.RDMA_WRITE, SendOpcode.RDMA_READ]
        yield case(
            f"path-mtu-{128 << mtu}",
            f"{data} bytes with a path MTU of {128 << mtu}",
            *(Work(n * STEP, CLIENT, do, data) for n, do in enumerate(does)),
            both={"path_mtu": mtu},
        )
