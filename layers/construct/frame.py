"""Transport packets and the headers that carry them: RoCEv2, RoCE, and native InfiniBand links."""

from io import SEEK_END
from typing import Any

from construct import (
    Adapter,
    Bytes,
    Container,
    Default,
    FixedSized,
    GreedyBytes,
    If,
    RepeatUntil,
    Struct,
    Switch,
    ValidationError,
)

from rdmawire.errors import WireError
from rdmawire.layers.construct.header import Completed, Pieces, Refused, number, struct
from rdmawire.wire import mad
from rdmawire.wire.checksum import ipv4_header_checksum
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH, GRH, ICRC, LNH, LRH, VCRC
from rdmawire.wire.icrc import icrc_lrh, vcrc
from rdmawire.wire.inet import (
    ROCE_PORT,
    UDP,
    VLAN,
    Ethernet,
    EtherType,
    IPProtocol,
    IPv4,
    IPv6,
)
from rdmawire.wire.opcode import Opcode, is_vendor
from rdmawire.wire.packet import LAYOUTS, check_payload
from rdmawire.wire.roce import icrc_of
from rdmawire.wire.tables import MANAGEMENT, tables_of


def _opcode(bth: Any) -> int:
    return number(bth["opcode"], Opcode)


class _Padded(Adapter):
    """Splits the bytes after the headers into payload and pad, by the pad count of the BTH.

    Only a payload that the opcode allows is parsed.
    """

    def _decode(self, obj: Container, context: Any, path: str) -> Container:  # noqa: ARG002
        rest, padcnt = obj.pop("rest"), obj.bth.padcnt
        try:
            check_payload(BTH(opcode=_opcode(obj.bth), padcnt=padcnt), len(rest), 0)
        except WireError as error:
            raise ValidationError(str(error), path=path) from error
        obj.payload, obj.pad = rest[: len(rest) - padcnt], rest[len(rest) - padcnt :]
        return obj

    def _encode(self, obj: Any, context: Any, path: str) -> dict[str, Any]:  # noqa: ARG002
        payload = obj.get("payload", b"")
        padcnt = 0 if is_vendor(_opcode(obj["bth"])) else -len(payload) % 4
        pad = obj.get("pad", bytes(padcnt))
        bth = {"padcnt": len(pad), **obj["bth"]}
        return {**obj, "bth": bth, "rest": payload + pad}


_EXTENDED = {
    opcode: Struct(*(table.label / struct(table) for table in layout.headers))
    for opcode, layout in LAYOUTS.items()
}
_RESERVED = Refused(lambda packet: f"opcode 0x{_opcode(packet['bth']):02x} is reserved (IBA 9.2.1)")

TransportPacket = "TransportPacket" / _Padded(
    Struct(
        "bth" / struct(BTH),
        "extended"
        / Default(Switch(lambda ctx: _opcode(ctx.bth), _EXTENDED, default=_RESERVED), {}),
        "rest" / GreedyBytes,
    )
)
"""``bth``, ``extended`` (the headers of the opcode, by label), ``payload`` and ``pad``.

Omitted pad and pad count are computed. Reserved opcodes are an error.
"""


ManagementDatagram = "ManagementDatagram" / Pieces(mad.layout, *tables_of(*MANAGEMENT))
"""A management datagram: the common header, and the data of its class and attribute."""


_TABLES: dict[int, type[Header]] = {EtherType.IPV4: IPv4, EtherType.IPV6: IPv6, EtherType.ROCE: GRH}
_ANNOUNCES: dict[int, str] = {EtherType.IPV4: "protocol", EtherType.IPV6: "next_header"}
_TAGS = (EtherType.VLAN, EtherType.QINQ, EtherType.QINQ_OLD)


def _type(header: Any) -> int:
    return number(header["type"], EtherType)


def _ethertype(frame: Any) -> int:
    return _type(frame["tags"][-1] if frame["tags"] else frame["ethernet"])


def _is_ip(frame: Any) -> bool:
    return _ethertype(frame) != EtherType.ROCE


def _protocol(frame: Any) -> int | None:
    """The next protocol of an IP header; ``None`` for a GRH."""
    field = _ANNOUNCES.get(_ethertype(frame))
    return number(frame["network"][field], IPProtocol) if field else None


def _options_size(frame: Any) -> int:
    return frame["network"]["ihl"] * 4 - IPv4.SIZE if _ethertype(frame) == EtherType.IPV4 else 0


def _network_size(frame: Any) -> int:
    """Bytes after the IP header or GRH, as it announces them."""
    network = frame["network"]
    if _ethertype(frame) == EtherType.IPV4:
        return int(network["total_length"]) - 4 * int(network["ihl"])
    return int(network["payload_length"] if _is_ip(frame) else network["paylen"])


def _transport_size(frame: Any) -> int:
    """Bytes up to the ICRC: the UDP datagram ends with the IP packet, if that is shorter."""
    size = _network_size(frame)
    if _is_ip(frame):
        size = min(size, int(frame["udp"]["length"])) - UDP.SIZE
    return size - ICRC.SIZE


def _is_cut(frame: Any) -> bool:
    """Whether the frame ends before its IP packet or GRH announces, read up to the ICRC."""
    stream = frame["_io"]
    here = stream.tell()
    left = stream.seek(0, SEEK_END) - stream.seek(here)
    udp = UDP.SIZE if _is_ip(frame) else 0
    behind = _network_size(frame) - udp - _transport_size(frame) - ICRC.SIZE
    return bool(behind > left)


_FRAME = Struct(
    "ethernet" / struct(Ethernet),
    "tags"
    / If(
        lambda ctx: _type(ctx.ethernet) in _TAGS,
        RepeatUntil(lambda tag, _all, _ctx: _type(tag) not in _TAGS, struct(VLAN)),
    ),
    "network"
    / Switch(
        _ethertype,
        {ethertype: struct(table) for ethertype, table in _TABLES.items()},
        default=Refused(lambda frame: f"EtherType 0x{_ethertype(frame):04x} carries no RoCE"),
    ),
    If(
        lambda ctx: ctx._parsing and _protocol(ctx) not in (None, IPProtocol.UDP),
        Refused(lambda frame: f"IP protocol {_protocol(frame)} carries no RoCE"),
    ),
    "options" / Bytes(_options_size),
    "udp" / If(_is_ip, struct(UDP)),
    "transport" / FixedSized(_transport_size, TransportPacket),
    "icrc" / struct(ICRC),
    If(
        lambda ctx: ctx._parsing and _is_cut(ctx),
        Refused(lambda frame: f"{_network_size(frame)} bytes announced, fewer are there"),
    ),
    "trailer" / Default(GreedyBytes, b""),
)


def _sealed(given: Any) -> dict[str, Any]:
    """Return the frame with omitted lengths, IPv4 checksum and ICRC computed."""
    frame = {"tags": [], "options": b"", "udp": {}, "network": {}, **given}
    transport = TransportPacket.build(frame["transport"])
    size = len(transport) + ICRC.SIZE
    if _is_ip(frame):
        frame["udp"] = {"dstport": ROCE_PORT, "length": UDP.SIZE + size, **(frame["udp"] or {})}
        size += UDP.SIZE
    frame["network"] = _network(frame, size)
    return frame if "icrc" in frame else {"icrc": {"crc": _icrc(frame, transport)}, **frame}


def _network(frame: Any, size: int) -> dict[str, Any]:
    """Return the IP header or GRH with omitted lengths for ``size`` bytes after it."""
    if _ethertype(frame) == EtherType.IPV4:
        return _ipv4(frame, size)
    if _ethertype(frame) == EtherType.IPV6:
        return {"payload_length": size, "next_header": IPProtocol.UDP, **frame["network"]}
    return {"paylen": size, **frame["network"]}


def _ipv4(frame: Any, size: int) -> dict[str, Any]:
    options = frame["options"]
    header = {
        "ihl": (IPv4.SIZE + len(options)) // 4,
        "total_length": IPv4.SIZE + len(options) + size,
        "protocol": IPProtocol.UDP,
        **frame["network"],
    }
    unchecked = struct(IPv4).build({**header, "checksum": 0}) + options
    return {"checksum": ipv4_header_checksum(unchecked), **header}


def _icrc(frame: Any, transport: bytes) -> int:
    network = struct(_TABLES[_ethertype(frame)]).build(frame["network"]) + frame["options"]
    udp = struct(UDP).build(frame["udp"]) if _is_ip(frame) else b""
    data = network + udp + transport
    return icrc_of(data, 0, len(network + udp), len(data))


RoCEFrame = "RoCEFrame" / Completed(_FRAME, _sealed)
"""``ethernet``, ``tags``, ``network``, ``options``, ``udp``, ``transport``, ``icrc``, ``trailer``.

The EtherType selects ``network``: IPv4, IPv6 or a GRH; after a GRH ``udp`` is ``None``.
Building computes omitted lengths, IPv4 checksum and ICRC.
"""


def _next_header(packet: Any) -> int:
    return number(packet["lrh"].get("lnh", LNH.IBA_LOCAL), LNH)


def _is_global(packet: Any) -> bool:
    return _next_header(packet) == LNH.IBA_GLOBAL


def _is_raw(packet: Any) -> bool:
    return _next_header(packet) not in (LNH.IBA_LOCAL, LNH.IBA_GLOBAL)


def _native_transport_size(packet: Any) -> int:
    before = LRH.SIZE + (GRH.SIZE if _is_global(packet) else 0)
    return int(packet["lrh"]["pktlen"]) * 4 - before - ICRC.SIZE


_PACKET = Struct(
    "lrh" / struct(LRH),
    If(
        lambda ctx: ctx._parsing and _is_raw(ctx),
        Refused(lambda packet: f"LRH.lnh {_next_header(packet)}: no IBA transport (IBA 7.7.5)"),
    ),
    "grh" / If(_is_global, struct(GRH)),
    "transport" / FixedSized(_native_transport_size, TransportPacket),
    "icrc" / struct(ICRC),
    "vcrc" / struct(VCRC),
    "trailer" / Default(GreedyBytes, b""),
)


def _native_sealed(given: Any) -> dict[str, Any]:
    """Return the packet with omitted lengths and CRCs computed."""
    transport = TransportPacket.build(given["transport"])
    size = len(transport) + ICRC.SIZE
    packet = {"lrh": {}, **given}
    grh = {"paylen": size, **(given.get("grh") or {})} if _is_global(packet) else None
    size += LRH.SIZE + (GRH.SIZE if grh else 0)
    lrh = {"lnh": LNH.IBA_LOCAL, "pktlen": size // 4, **packet["lrh"]}
    data = struct(LRH).build(lrh) + (struct(GRH).build(grh) if grh else b"") + transport
    return _with_crcs(data, {**packet, "lrh": lrh, "grh": grh})


def _with_crcs(data: bytes, packet: dict[str, Any]) -> dict[str, Any]:
    """Return the packet with its omitted CRCs computed."""
    packet = {"icrc": {"crc": icrc_lrh(data)}, **packet}
    covered = data + struct(ICRC).build(packet["icrc"])
    return {"vcrc": {"crc": vcrc(covered)}, **packet}


NativePacket = "NativePacket" / Completed(_PACKET, _native_sealed)
"""``lrh``, ``grh`` (depending on ``lrh.lnh``), ``transport``, ``icrc``, ``vcrc``, ``trailer``.

Building computes omitted lengths and CRCs.
"""
