"""Golden cases as data: two ends, what they do and when, and what befalls their frames.

A case is all that a test bench must know to play either end. Numbers (queue pairs, PSNs, keys,
addresses) are drawn from the case's name, so that no two cases share them and every run draws the
same. Times are ns from the beginning of the case, lengths bytes.
"""

from collections.abc import Callable, Mapping
from functools import cache
from random import Random
from typing import Any, NamedTuple

from rdmawire.fabric import ALL_ACCESS, Place
from rdmawire.ib import Fault
from rdmawire.memory import PAGE_4K
from rdmawire.units import us
from rdmawire.verbs import AddressHandle, QPAttributes, QPType, SendOpcode
from rdmawire.wire.header import Header
from rdmawire.wire.ib import RETH, AtomicETH
from rdmawire.wire.management import MTU
from rdmawire.wire.opcode import Opcode

CLIENT, SERVER = "client", "server"
OTHER = {CLIENT: SERVER, SERVER: CLIENT}

LATENCY = us(1)
"""Nanoseconds from end to end."""
MEMORY = 1 << 15
"""Bytes that a peer may reach."""
STEP = us(20)
"""Nanoseconds after which what was done before is over."""
FAST = PAGE_4K
"""Bytes that are registered again and again."""

_V4 = {
    CLIENT: Place.of("02:1a:2b:3c:4d:5e", "192.0.2.10"),
    SERVER: Place.of("02:a1:b2:c3:d4:e5", "198.51.100.20"),
}
_V6 = {
    CLIENT: Place.of("02:1a:2b:3c:4d:5e", "2001:db8:1::10"),
    SERVER: Place.of("02:a1:b2:c3:d4:e5", "2001:db8:2::20"),
}
PLACES = {False: _V4, True: _V6}
"""Where the ends are, over IPv4 and over IPv6: addresses for documentation (RFC 5737, 3849)."""
ALTERNATES = {
    CLIENT: Place.of("02:1a:2b:3c:4d:5e", "192.0.2.110"),
    SERVER: Place.of("02:a1:b2:c3:d4:e5", "198.51.100.120"),
}
"""The ends of the alternate path."""

XRC_SRQ = 4
"""The number of the server's shared receive queue, where its service has one."""

ATTRIBUTES = QPAttributes(
    path_mtu=MTU.MTU_256,
    qp_access_flags=ALL_ACCESS,
    max_rd_atomic=4,
    max_dest_rd_atomic=4,
    min_rnr_timer=1,
    timeout=8,
    retry_cnt=3,
    rnr_retry=3,
)
"""Of a queue pair, where the case says nothing else."""


@cache
def text(length: int, start: int = 0) -> bytes:
    """Bytes of which each tells where it stands."""
    return bytes((start + i * 7 + i // 256) % 251 for i in range(length))


class Memory(NamedTuple):
    """Memory that the peer may reach; at first it holds :func:`text`."""

    va: int
    rkey: int
    access: int = ALL_ACCESS
    length: int = MEMORY

    def reth(self, dmalen: int, offset: int = 0) -> RETH:
        """The RETH for so many bytes of it."""
        return RETH(self.va + offset, self.rkey, dmalen)

    def variant(self, number: int) -> int:
        """Its key with another variant."""
        return self.rkey & ~0xFF | (self.rkey + number) & 0xFF

    def atomic(self, swapdt: int, cmpdt: int = 0, offset: int = 0) -> AtomicETH:
        """The AtomicETH for eight bytes of it."""
        return AtomicETH(self.va + offset, self.rkey, swapdt, cmpdt)


class End(NamedTuple):
    """One end of a connection.

    ``fast`` is memory that is registered anew again and again; its key has another variant each
    time, and the peer may invalidate it. Receives of one that is ``shared`` come from a shared
    receive queue. One that is ``silent`` answers nothing: its queue pair is never brought up.
    ``notifies`` sends CNPs for marks.
    """

    qpn: int
    place: Place
    memory: Memory
    fast: Memory
    attributes: QPAttributes
    traffic_class: int = 26 << 2 | 2
    flow_label: int = 0
    shared: bool = False
    silent: bool = False
    notifies: bool = False

    def path_to(self, peer: "End") -> AddressHandle:
        """The way to the other end."""
        path = AddressHandle(peer.place.mac, peer.place.gid, self.place.gid)
        return path._replace(traffic_class=self.traffic_class, flow_label=self.flow_label)


class Work(NamedTuple):
    """Send work: ``bytes`` of it, at ``offset`` of the peer's memory.

    ``key`` is used in place of the peer's own where it is not 0: its key, or of datagrams its
    Q_Key. The rest has the names of
    :class:`~rdmawire.verbs.wr.SendWR`.
    """

    at: int
    who: str
    do: SendOpcode
    bytes: int = 0
    offset: int = 0
    imm_data: int = 0
    invalidate_rkey: int = 0
    compare_add: int = 0
    swap: int = 0
    placement: int = 0
    selectivity: int = 0
    flags: int = 2
    key: int = 0


class Receive(NamedTuple):
    """So many receives of so many bytes. ``broken`` ones name a local key that nobody has."""

    at: int
    who: str
    bytes: int
    times: int = 1
    broken: bool = False


class Register(NamedTuple):
    """The end's ``fast`` memory is good again, by this key. IBA 10.6.4."""

    at: int
    who: str
    rkey: int


class Lose(NamedTuple):
    """The memory that the peer may reach is unmapped; its key stays. It must be on demand."""

    at: int
    who: str


class Rearm(NamedTuple):
    """Load the alternate path, and get ready to go over to it. IBA 17.2.8."""

    at: int
    who: str


class Migrate(NamedTuple):
    """Go over to the alternate path."""

    at: int
    who: str


Action = Work | Receive | Register | Lose | Rearm | Migrate

Ends = Mapping[str, "End"]
Made = Callable[[Ends], Action]
"""An action whose numbers are drawn first."""

Headers = Callable[[Memory], tuple[Header, ...]]


class Say(NamedTuple):
    """A packet that no adapter sends: a script puts it on the link in the place of one.

    ``psn`` counts from the first of the client's. ``headers`` are made from the memory of who is
    told.
    """

    at: int
    who: str
    opcode: Opcode
    psn: int = 0
    headers: Headers = lambda _: ()
    payload: bytes = b""
    bth: Mapping[str, int] = {}


class Again(NamedTuple):
    """The network brings a frame of this end's a second time: its number in the case."""

    at: int
    who: str
    number: int


class Pause(NamedTuple):
    """A frame of priority flow control, for so many quanta of 512 bit times."""

    at: int
    who: str
    priority: int
    quanta: int


class Raw(NamedTuple):
    """A frame as it is."""

    at: int
    who: str
    frame: bytes


Script = Say | Again | Pause | Raw


class Case(NamedTuple):
    """One conversation. ``does`` are the actions of both ends.

    ``lost`` and ``late`` are numbers of its frames, from 1 on, as they are sent; ``late`` with
    what they wait besides (ns). With a ``rate`` in bits a second frames take their
    time. ``fault`` is what the responder finds, where that is the point of it.
    """

    name: str
    shows: str
    ends: Mapping[str, End]
    does: tuple[Action, ...]
    says: tuple[Script, ...] = ()
    kind: QPType = QPType.RC
    lost: tuple[int, ...] = ()
    late: Mapping[int, int] = {}
    rate: int | None = None
    fault: Fault | None = None

    def kind_of(self, who: str) -> QPType:
        """The type of an end's queue pair."""
        target = self.kind is QPType.XRC_INI and who == SERVER
        return QPType.XRC_TGT if target else self.kind


def case(
    name: str,
    shows: str,
    *does: Action | Made | Script,
    ipv6: bool = False,
    client: Mapping[str, Any] | None = None,
    server: Mapping[str, Any] | None = None,
    both: Mapping[str, Any] | None = None,
    **rest: Any,
) -> Case:
    """A case with numbers of its own.

    ``client``, ``server`` and ``both`` change rows of :class:`End`, :class:`Memory` and
    ``QPAttributes``; ``rest`` are rows of :class:`Case`.
    """
    shared = both or {}
    given = {CLIENT: {**shared, **(client or {})}, SERVER: {**shared, **(server or {})}}
    drawn = Random(name)
    ends = {who: _end(PLACES[ipv6][who], drawn, ipv6=ipv6) for who in (CLIENT, SERVER)}
    ends = {who: _changed(end, given[who]) for who, end in ends.items()}
    ends = {who: _expecting(end, ends[OTHER[who]], given[who]) for who, end in ends.items()}
    says = tuple(one for one in does if isinstance(one, Script))
    others = (one for one in does if not isinstance(one, Script))
    actions = tuple(one(ends) if callable(one) else one for one in others)
    return Case(name, shows, ends, actions, says, **rest)


def _end(place: Place, drawn: Random, *, ipv6: bool) -> End:
    qpn, psn = drawn.getrandbits(22) | 1 << 22, drawn.getrandbits(23)
    memory = Memory(0x7F00_0000_0000 | drawn.getrandbits(26) << 12, drawn.getrandbits(31) | 1 << 31)
    fast = Memory(memory.va + (1 << 40), memory.rkey ^ 1 << 30, length=FAST)
    label = drawn.getrandbits(20) | 1 if ipv6 else 0
    attributes = ATTRIBUTES._replace(sq_psn=psn, qkey=drawn.getrandbits(31))
    return End(qpn, place, memory, fast, attributes, flow_label=label)


def _changed(end: End, given: Mapping[str, Any]) -> End:
    """An end with these rows changed, wherever they stand."""
    memory = end.memory._replace(**_of(Memory, given))
    attributes = end.attributes._replace(**_of(QPAttributes, given))
    return end._replace(memory=memory, attributes=attributes)._replace(**_of(End, given))


def _of(kind: type[Memory | QPAttributes | End], given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name in kind._fields}


def _expecting(end: End, peer: End, given: Mapping[str, Any]) -> End:
    """An end that knows its peer's number and first PSN, or what it is given instead."""
    known: dict[str, Any] = {"dest_qp_num": peer.qpn, "rq_psn": peer.attributes.sq_psn}
    known |= {name: given[name] for name in known if name in given}
    return end._replace(attributes=end.attributes._replace(**known))
