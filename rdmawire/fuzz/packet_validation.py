"""Validation of packets: the request or reply in a frame as values, or nothing if it is dropped.

For frames that cannot be compared as bytes. The header tables parse them, and none of the
adapter's checks is used. IBA 9.6.
"""

from typing import Any, Final, NamedTuple

from rdmawire.errors import WireError
from rdmawire.fabric.host import LMC
from rdmawire.fuzz.exchange import Reply, Request
from rdmawire.fuzz.setup import PEER_QPN, PKEY
from rdmawire.wire import roce
from rdmawire.wire.ib import (
    AETH,
    BTH,
    DETH,
    FETH,
    GRH,
    IETH,
    LNH,
    LRH,
    RETH,
    XRCETH,
    AtomicAckETH,
    AtomicETH,
    ImmDt,
)
from rdmawire.wire.inet import UDP, Ethernet, EtherType, IPv4, IPv6
from rdmawire.wire.layout import Piece
from rdmawire.wire.opcode import SHAPES, Service, service_of
from rdmawire.wire.packet import LAYOUTS
from rdmawire.wire.roce import Medium

_Fields = dict[type[Piece], tuple[str, ...]]

_FREE: Final[_Fields] = {
    Ethernet: ("src",),
    IPv4: ("dscp", "ecn", "identification", "df", "rb", "ttl", "total_length", "checksum"),
    IPv6: ("dscp", "ecn", "flow", "hop_limit", "payload_length"),
    UDP: ("srcport", "length", "checksum"),
    GRH: ("tclass", "flowlabel", "hoplmt", "paylen"),
    LRH: ("vl", "sl", "resv2", "resv5", "pktlen"),
}
"""Fields that may have any value, or are verified by :meth:`Frame.seal`."""
_MEMBERSHIP: Final = 1 << 15


_SENDER: Final[_Fields] = {
    IPv4: ("src",),
    IPv6: ("src",),
    GRH: ("sgid",),
    LRH: ("slid",),
}
"""Fields that may have any value in datagrams."""


class Accepted(NamedTuple):
    """A packet that a queue pair must process, and whether it is ``malformed``."""

    frame: roce.Frame
    malformed: bool


def accepted_packet(
    frame: bytes, headers: tuple[Any, ...], qpn: int, *, any_sender: bool = False
) -> Accepted | None:
    """Return the packet in ``frame`` for the queue pair ``qpn``; ``None`` if it must be dropped.

    ``headers`` are those of the connection's path, before the BTH. With ``any_sender`` the packet
    may come from another address, and go to any LID of the port.
    """
    medium = medium_of(headers)
    try:
        parsed = roce.parse(frame, medium=medium)
        malformed = False
    except WireError:
        found = _malformed(frame, medium)
        if found is None:
            return None
        parsed, malformed = found, True
    free = _SENDER if any_sender else {}
    return Accepted(parsed, malformed) if _is_for(parsed, headers, qpn, free) else None


def request_of(
    frame: bytes, headers: tuple[Any, ...], qpn: int, *, any_sender: bool = False
) -> Request | None:
    """Return the request in ``frame``, with its network header, as :func:`accepted_packet` does."""
    found = accepted_packet(frame, headers, qpn, any_sender=any_sender)
    if found is None:
        return None
    network = network_header(frame, medium_of(headers))
    return request_in(found.frame, malformed=found.malformed)._replace(network=network)


def reply_of(
    frame: bytes, base: int = 0, medium: roce.Medium = roce.Medium.ETHERNET
) -> Reply | None:
    """Return a reply as values; ``None`` if it is damaged, or for another queue pair.

    ``base`` is the service, as the upper bits of the opcode; ``medium`` is what the link carries.
    """
    try:
        parsed = roce.parse(frame, medium=medium)
    except WireError:
        return None
    if parsed.seal() != parsed or not is_to_peer(parsed.packet.bth):
        return None
    return reply_in(parsed) if parsed.packet.bth.opcode & ~31 == base else None


def is_to_peer(bth: BTH) -> bool:
    """Whether a packet is addressed to the fuzzer's queue pair."""
    return bth.destqp == PEER_QPN and bth.pkey == PKEY and not bth.tver


def packet_for(frame: bytes, headers: tuple[Any, ...], qpn: int) -> roce.Frame | None:
    """Return the parsed ``frame`` if it is for the queue pair ``qpn``; else ``None``.

    ``headers`` are those of the connection's path, before the BTH.
    """
    try:
        parsed = roce.parse(frame, medium=medium_of(headers))
    except WireError:
        return None
    return parsed if _is_for(parsed, headers, qpn, {}) else None


def _is_for(frame: roce.Frame, headers: tuple[Any, ...], qpn: int, free: _Fields) -> bool:
    """Whether a packet is undamaged, of the connection's path, and for the queue pair.

    ``free`` are further fields that may have any value, by header.
    """
    bth = frame.packet.bth
    found = _base_lids(frame.headers) if free else frame.headers
    return (
        bth.tver == 0
        and bth.destqp == qpn
        and bth.pkey | _MEMBERSHIP == PKEY
        and _same_path(found, headers, free)
        and _is_sealed(frame)
    )


def medium_of(headers: tuple[Any, ...]) -> Medium:
    """Return what a link carries whose frames begin with these headers."""
    return Medium.INFINIBAND if isinstance(headers[0], LRH) else Medium.ETHERNET


def network_header(frame: bytes, medium: Medium = Medium.ETHERNET) -> bytes:
    """Return the IPv4 header, IPv6 header or GRH after the link header; no bytes without one."""
    if medium is Medium.INFINIBAND:
        return frame[LRH.SIZE : LRH.SIZE + GRH.SIZE] if frame[1] & 3 == LNH.IBA_GLOBAL else b""
    size = IPv4.SIZE if frame[_TYPE] == _IPV4 else GRH.SIZE
    return frame[Ethernet.SIZE : Ethernet.SIZE + size]


_TYPE: Final = slice(12, 14)
_IPV4: Final = EtherType.IPV4.to_bytes(2, "big")


def _is_sealed(frame: roce.Frame) -> bool:
    """Whether lengths, checksums and CRCs are correct; not of a GRH with another version."""
    whole = medium_of(frame.headers) is Medium.INFINIBAND or not frame.trailer
    try:
        return whole and frame.seal() == frame
    except WireError:
        return False


def _base_lids(headers: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the headers, the DLID without its path bits."""
    return tuple(
        one.replace(dlid=one.dlid >> LMC << LMC) if isinstance(one, LRH) else one for one in headers
    )


def _same_path(found: tuple[Any, ...], wanted: tuple[Any, ...], also: _Fields) -> bool:
    """Whether the headers before the BTH are those of the path, but for fields that may differ."""
    if [type(one) for one in found] != [type(one) for one in wanted]:
        return False
    for one, other in zip(found, wanted, strict=True):
        free = _FREE[type(one)] + also.get(type(one), ())
        names = [row.name for row in type(one).rows if row.name not in free]
        if any(getattr(one, name) != getattr(other, name) for name in names):
            return False
    return True


def _malformed(frame: bytes, medium: Medium) -> roce.Frame | None:
    """Parse a frame whose opcode is reserved or allows no such payload; ``None`` for others.

    Its length after the BTH is a multiple of four bytes, and enough for the opcode's headers.
    """
    offset = roce.bth_offset(frame, 0, len(frame), medium=medium)
    if offset < 0:
        return None
    opcode = frame[offset]
    shape = SHAPES.get(opcode)
    if service_of(opcode) not in _ANSWERED or (shape is not None and shape.response):
        return None
    try:
        other = frame[:offset] + bytes((_VENDOR,)) + frame[offset + 1 :]
        parsed = roce.parse(other, medium=medium)
    except WireError:
        return None
    packet = parsed.packet
    length = len(packet.payload) + len(packet.pad)
    if length % 4 or length < _SIZES.get(opcode, 0):
        return None
    return parsed._replace(packet=packet._replace(bth=packet.bth.replace(opcode=opcode)))


_ANSWERED: Final = (Service.RC, Service.XRC)
"""Services that answer malformed requests. IBA 9.7.4.1.4."""
_VENDOR: Final = Service.VENDOR_6 << 5
_SIZES: Final = {opcode: LAYOUTS[opcode].size for opcode in SHAPES}
"""Bytes of the extended headers, by opcode."""


def reply_in(frame: roce.Frame) -> Reply:
    """Return the response in a parsed frame as values."""
    bth = frame.packet.bth
    aeth: AETH | None = frame.packet.header(AETH)
    atomic: AtomicAckETH | None = frame.packet.header(AtomicAckETH)
    data = atomic.origremdt.to_bytes(8, "big") if atomic else frame.packet.payload
    if aeth is None:
        return Reply(bth.opcode & 31, bth.psn, -1, 0, data)
    return Reply(
        bth.opcode & 31, bth.psn, aeth.resv1 << 7 | aeth.ack << 5 | aeth.value, aeth.msn, data
    )


def request_in(frame: roce.Frame, *, malformed: bool) -> Request:
    """Return the request in a parsed frame as values."""
    packet = frame.packet
    bth = packet.bth
    values: dict[str, Any] = {}
    for header in packet.extended:
        values |= _values(header)
    return Request(bth.opcode, bth.psn, bth.ackreq, packet.payload, malformed=malformed, **values)


def _values(header: Any) -> dict[str, int]:
    """The values of an extended transport header, by the names of :class:`Request`."""
    if isinstance(header, RETH):
        return {"va": header.va, "rkey": header.rkey, "dmalen": header.dmalen}
    if isinstance(header, AtomicETH):
        return {
            "va": header.va,
            "rkey": header.rkey,
            "value": header.swapdt,
            "compare": header.cmpdt,
        }
    if isinstance(header, ImmDt):
        return {"value": header.immdt}
    if isinstance(header, IETH):
        return {"rkey": header.rkey}
    if isinstance(header, DETH):
        return {"qkey": header.qkey, "source": header.srcqp}
    if isinstance(header, XRCETH):
        return {"srq": header.xrcsrq}
    if isinstance(header, FETH):
        return {"value": header.plt, "compare": header.sel}
    return {}
