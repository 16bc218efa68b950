# SPDX-License-Identifier: GPL-2.0-only
"""The InfiniBand transport, from BTH to ICRC, and native links: GRH, LRH and ERF records."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from scapy.packet import Packet

from rdmawire.errors import WireError
from rdmawire.layers.scapy.field import WORDS, BehindField
from rdmawire.layers.scapy.layer import LengthLayer, Plan, Step, TableLayer, define
from rdmawire.wire import erf, ib, mad, roce
from rdmawire.wire.icrc import icrc_grh, icrc_lrh, vcrc
from rdmawire.wire.layout import Placed, size
from rdmawire.wire.mad import MANAGEMENT_QPS
from rdmawire.wire.mad import SIZE as DATAGRAM
from rdmawire.wire.opcode import SHAPES, Opcode, Service, is_vendor
from rdmawire.wire.packet import LAYOUTS

_LENGTHS: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "IP": ("len", lambda own, behind: own + behind),
    "IPv6": ("plen", lambda _, behind: behind),
    "UDP": ("len", lambda own, behind: own + behind),
    "GRH": ("paylen", lambda _, behind: behind),
    "LRH": ("pktlen", lambda own, behind: (own + behind) // 4),
}
"""Length of a packet, from the bytes of the header and those after it."""

_ICRCS: dict[str, Callable[[bytes, int], int]] = {
    "IP": lambda data, bth: roce.icrc_of(data, 0, bth, len(data)),
    "IPv6": lambda data, bth: roce.icrc_of(data, 0, bth, len(data)),
    "GRH": lambda data, _: icrc_grh(data),
    "LRH": lambda data, _: icrc_lrh(data),
}
"""ICRC functions, by the first header that the ICRC covers."""


def icrc(bth: Packet, transport: bytes) -> int | None:
    """The ICRC after these bytes, from the BTH to the pad; ``None`` without a network layer.

    Also ``None`` if the header is invalid for an ICRC, as when it is fuzzed.
    """
    before, behind = b"", len(transport) + ib.ICRC.SIZE
    for pkt in underlayers(bth):
        data = head(pkt, behind + len(before))
        before = data + before
        kind = type(pkt).__name__
        if kind in _ICRCS:
            with suppress(WireError):
                return _ICRCS[kind](before + transport, len(before))
            return None
    return None


def underlayers(pkt: Packet) -> Iterator[Packet]:
    """Yield the layers below, the nearest first."""
    below = pkt.underlayer
    while below is not None:
        yield below
        below = below.underlayer


def head(pkt: Packet, behind: int) -> bytes:
    """The bytes of one header, with lengths for ``behind`` bytes that are not built yet."""
    if pkt.raw_packet_cache is not None:
        return bytes(pkt.raw_packet_cache)
    given = {field.name: pkt.getfieldval(field.name) for field in pkt.fields_desc}
    behind_it = {field.name: b"" for field in pkt.fields_desc if isinstance(field, BehindField)}
    alone = type(pkt)(**given | behind_it)
    name, count = _LENGTHS.get(type(pkt).__name__, ("", None))
    if count is not None and given[name] is None:
        alone.setfieldval(name, count(len(bytes(alone)), behind))
    return bytes(alone)


def is_cut(pkt: Packet, size: int) -> bool:
    """Whether the layer below gives the packet more than ``size`` bytes."""
    below = pkt.underlayer
    name, count = _LENGTHS.get(type(below).__name__, ("", None))
    return count is not None and count(len(head(below, 0)), size) < below.getfieldval(name)


def planned(pieces: Iterator[Placed]) -> Plan:
    """Convert a layout to a plan; bytes from the first error on are raw."""
    steps: list[Step] = []
    with suppress(WireError):
        for _, piece in pieces:
            table = None if isinstance(piece, bytes) else type(piece)
            steps.append(Step(table, size(piece)))
    return tuple(steps)


class TransportLayer(TableLayer):
    """A BTH: omitted ``padcnt``, ``pad`` and ``icrc`` are computed."""

    def planned(self, data: bytes) -> Plan:
        """Plan the headers of the opcode, and those of a management datagram after them."""
        found = LAYOUTS.get(data[0]) if data else None
        if found is None:
            return ()
        start = ib.BTH.SIZE + found.size
        steps = tuple(Step(table, table.SIZE) for table in found.headers)
        return steps + _datagram(data, start)

    def compute_icrc(self, p: bytes) -> bytes:
        """The ICRC of ``p``, the bytes from the BTH to the ICRC's end, in wire order.

        This and :meth:`pack_icrc` are for scripts that call them on ``scapy.contrib.roce``.
        """
        return (icrc(self, p[: -ib.ICRC.SIZE]) or 0).to_bytes(ib.ICRC.SIZE, "big")

    @staticmethod
    def pack_icrc(icrc: int) -> bytes:
        """The bytes of a CRC-32 in wire order, the lowest first."""
        return (icrc & 0xFFFFFFFF).to_bytes(ib.ICRC.SIZE, "little")

    def post_dissect(self, s: bytes) -> bytes:
        """Remove ICRC and pad from the end."""
        self.raw_packet_cache = None  # bytes after the payload are not in it
        self.fields |= {"pad": b"", "icrc": b""}
        if len(s) < ib.ICRC.SIZE or is_cut(self, ib.BTH.SIZE + len(s)):
            return s
        rest, self.fields["icrc"] = s[: -ib.ICRC.SIZE], int.from_bytes(s[-ib.ICRC.SIZE :], "big")
        end = len(rest) - min(self.padcnt, len(rest))
        self.fields["pad"] = rest[end:]
        return rest[:end]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Append pad and ICRC to the payload."""
        pad = self.behind("pad", lambda: bytes(0 if is_vendor(pkt[0]) else -len(pay) % 4))
        if self.padcnt is None:
            pkt = ib.BTH.parse(pkt).replace(padcnt=len(pad) & 3).build()
        data = pkt + pay + pad
        return data + self.behind("icrc", lambda: icrc(self, data) or 0)

    def icrc_expected(self) -> int | None:
        """The correct ICRC; ``None`` without IP header, GRH or LRH below."""
        data = self.copy()
        data.fields["icrc"] = b""
        return icrc(self, data.do_build())

    def icrc_good(self) -> bool:
        """Whether the ICRC is correct."""
        return bool(self.icrc == self.icrc_expected())


def _datagram(data: bytes, start: int) -> Plan:
    """The plan of a management datagram, if the packet is for QP 0 or 1."""
    bth = ib.BTH.parse(data) if len(data) >= ib.BTH.SIZE else None
    shape = SHAPES.get(data[0])
    if bth is None or shape is None or shape.service is not Service.UD:
        return ()
    if bth.destqp not in MANAGEMENT_QPS:
        return ()
    return planned(mad.layout(data[start : start + DATAGRAM]))


class DatagramLayer(TableLayer):
    """The common header of a management datagram; ``fill`` makes it 256 bytes long."""

    def planned(self, data: bytes) -> Plan:
        """Plan the data of class and attribute."""
        return planned(mad.layout(data))[1:]

    def post_dissect(self, s: bytes) -> bytes:
        """Accept a truncated datagram."""
        self.fields["fill"] = b""
        return s

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Pad a short datagram."""
        data = pkt + pay
        return data + self.behind("fill", lambda: bytes(max(DATAGRAM - len(data), 0)))


BTH = define(
    ib.BTH,
    TransportLayer,
    more=(BehindField("BTH", "pad"), BehindField("BTH", "icrc", ib.ICRC.SIZE)),
    computed=("padcnt",),
)
MAD = define(mad.MAD, DatagramLayer, more=(BehindField("MAD", "fill"),))
DirectedMAD = define(mad.DirectedMAD, DatagramLayer, more=(BehindField("DirectedMAD", "fill"),))


CNP_OPCODE = int(Opcode.CNP)

_HALVES = {"reserved1": slice(0, 8), "reserved2": slice(8, 16)}


def _half(name: str) -> property:
    """Eight of the reserved bytes of a CNP, as a number."""

    def put(pkt: Any, value: int) -> None:
        data = bytearray(pkt.resv128)
        data[_HALVES[name]] = value.to_bytes(8, "big")
        pkt.resv128 = bytes(data)

    return property(lambda pkt: int.from_bytes(pkt.resv128[_HALVES[name]], "big"), put)


class CongestionLayer(TableLayer):
    """The reserved bytes of a CNP, as one value or as the two numbers of ``CNPPadding``."""

    reserved1 = _half("reserved1")
    reserved2 = _half("reserved2")

    def __init__(self, *args: Any, **fields: Any) -> None:
        halves = {name: fields.pop(name) for name in _HALVES if name in fields}
        super().__init__(*args, **fields)
        for name, value in halves.items():
            setattr(self, name, value)


CNPPadding = define(ib.CNP, CongestionLayer)


def cnp(dqpn: int) -> TableLayer:
    """Make a congestion notification packet to a queue pair: a BTH and its reserved bytes."""
    return BTH(opcode=CNP_OPCODE, becn=1, destqp=dqpn) / CNPPadding()


def opcode(transport: str, op: str) -> tuple[int, str]:
    """Return number and name of an opcode: ``opcode("RC", "SEND_ONLY")``.

    As in ``scapy.contrib.roce``, any operation goes with any transport. ``KeyError`` for unknown
    words.
    """
    name = f"RC_{op}"
    number = Opcode[WORDS.get(name, name)]
    return Service[transport] << 5 | number, f"{transport}_{op}"


class GlobalRouteLayer(LengthLayer):
    """A GRH: an omitted ``paylen`` is computed."""

    length_row = "paylen"


class LocalRouteLayer(TableLayer):
    """An LRH: omitted ``pktlen`` and ``vcrc`` are computed.

    ``trailer`` are bytes that the link added after the packet. Bytes after the IP packet or GRH
    payload inside are padding before the VCRC.
    """

    def post_dissect(self, s: bytes) -> bytes:
        """Remove VCRC and trailer from the end."""
        self.raw_packet_cache = None  # bytes after the payload are not in it
        end = max(self.pktlen * 4 - ib.LRH.SIZE, 0)
        crc = s[end : end + ib.VCRC.SIZE]
        whole = len(crc) == ib.VCRC.SIZE
        self.fields["vcrc"] = int.from_bytes(crc, "big") if whole else crc
        self.fields["trailer"] = s[end + len(crc) :]
        return s[:end]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Set the length of the packet, and append the VCRC."""
        data = pay + self.payload.build_padding()
        if self.pktlen is None:
            words = (ib.LRH.SIZE + len(data)) // 4
            pkt = ib.LRH.parse(pkt).replace(pktlen=words).build()
        data = pkt + data
        return data + self.behind("vcrc", lambda: vcrc(data))

    def build_padding(self) -> bytes:
        """Return the trailer; padding inside the packet precedes the VCRC."""
        return self.behind("trailer", bytes)


class RecordLayer(TableLayer):
    """A record of Endace's format; its extension headers precede the packet."""

    def planned(self, data: bytes) -> Plan:
        """Plan the extension headers, and the pad before an Ethernet frame."""
        steps, at, more = [], erf.ERF.SIZE, data[8:9] > b"\x7f"
        while more and at < len(data):
            steps.append(Step(erf.ERFExtension, erf.ERFExtension.SIZE))
            more, at = bool(data[at] & 0x80), at + erf.ERFExtension.SIZE
        kind = data[8] & 0x7F if len(data) > 8 else 0
        inner = _INNER.get(kind, ())
        return (*steps, *(Step(table, table.SIZE) for table in inner))


_INNER: dict[int, tuple[Any, ...]] = {
    erf.ERFType.ETHERNET: (erf.ERFEthernetPad,),
    erf.ERFType.INFINIBAND: (ib.LRH,),
    erf.ERFType.INFINIBAND_LINK: (ib.FlowControl,),
}
"""First layer of each record type, after the extension headers."""


GRH = define(ib.GRH, GlobalRouteLayer, computed=("paylen",))
LRH = define(
    ib.LRH,
    LocalRouteLayer,
    more=(BehindField("LRH", "vcrc", ib.VCRC.SIZE), BehindField("LRH", "trailer")),
    computed=("pktlen",),
)
ERF = define(erf.ERF, RecordLayer)
