"""Requests and replies as values: what a model gets, and what it expects of a target."""

from typing import Final, NamedTuple

from rdmawire.fuzz.setup import QKEY
from rdmawire.terminal import plural
from rdmawire.wire.ib import Ack, Nak
from rdmawire.wire.opcode import SHAPES, Service, service_of
from rdmawire.wire.opcode import Operation as Op
from rdmawire.wire.roce import Medium


class Numbers(NamedTuple):
    """Numbers of a target that its peer needs.

    - ``qpn``: its queue pair.
    - ``vas``, ``rkeys``: address and key of each region of :data:`rdmawire.fuzz.setup.AREAS`, then
      of :data:`rdmawire.fuzz.setup.WINDOW`.
    - ``qkey``: the Q_Key of datagrams.
    - ``srqs``: the number of each queue of :data:`rdmawire.fuzz.setup.SHARED_QUEUES`, of an XRC
      target.
    - ``peer_lid``: the LID of the peer on an InfiniBand link, 0 on Ethernet.
    """

    qpn: int
    vas: tuple[int, ...]
    rkeys: tuple[int, ...]
    qkey: int = QKEY
    srqs: tuple[int, ...] = ()
    peer_lid: int = 0

    @property
    def medium(self) -> Medium:
        """What the link carries."""
        return Medium.INFINIBAND if self.peer_lid else Medium.ETHERNET


class Request(NamedTuple):
    """A request packet as values. ``opcode`` is the complete byte of the BTH.

    ``malformed`` packets have a reserved opcode, or a payload that the operation does not allow.
    ``qkey`` and ``source`` (a QPN) are those of a DETH, ``srq`` is the number in an XRCETH.
    ``network`` is the header that the receive of a datagram holds, as bytes: IPv4, IPv6 or GRH.
    """

    opcode: int
    psn: int
    ackreq: int
    payload: bytes
    va: int = 0
    rkey: int = 0
    dmalen: int = 0
    value: int = 0
    compare: int = 0
    malformed: bool = False
    qkey: int = 0
    source: int = 0
    srq: int = 0
    network: bytes = b""

    def __str__(self) -> str:
        """Describe the request in a line."""
        text = f"{_opcode(self.opcode)} PSN {self.psn}"
        named = ("va", "rkey", "dmalen", "value", "compare", "qkey", "source", "srq")
        values = (f", {name} {getattr(self, name):#x}" for name in named if getattr(self, name))
        text += "".join(values) + ("" if self.ackreq else ", no AckReq")
        return text + (f", {plural(len(self.payload), 'byte')}" if self.payload else "")


class Reply(NamedTuple):
    """A response packet as values. ``syndrome`` is the byte of the AETH, -1 if there is none.

    ``data`` is the payload, or the eight bytes of an AtomicAckETH.
    """

    operation: int
    psn: int
    syndrome: int = -1
    msn: int = 0
    data: bytes = b""

    def __str__(self) -> str:
        """Describe the reply in a line."""
        text = f"{_name(self.operation)} PSN {self.psn}"
        if self.syndrome >= 0:
            text += f", {_syndrome(self.syndrome)}, MSN {self.msn}"
        return text + (f", {plural(len(self.data), 'byte')}" if self.data else "")


_OPERATIONS: Final = frozenset(Op)


def _name(operation: int) -> str:
    return Op(operation).name if operation in _OPERATIONS else f"{operation:#x}"


def _opcode(opcode: int) -> str:
    """The name of an opcode; of RC, without the name of the service."""
    if service_of(opcode) is Service.RC or opcode not in SHAPES:
        return _name(opcode)
    return SHAPES[opcode].name


def _syndrome(value: int) -> str:
    kind, code = value >> 5, value & 31
    if kind == Ack.NAK:
        return Nak(code).name if code in set(Nak) else f"NAK {code}"
    known: dict[int, str] = {Ack.ACK: f"ACK credits {code}", Ack.RNR_NAK: f"RNR NAK timer {code}"}
    return known.get(kind, f"syndrome {value:#x}")


class Expected(NamedTuple):
    """What a target must answer, and the clause that requires it."""

    replies: tuple[Reply, ...] = ()
    clause: str = ""
    why: str = ""
