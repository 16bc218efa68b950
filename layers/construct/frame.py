"""Frames that carry a transport packet: RoCEv2 over IPv4 and IPv6, and RoCE with a GRH."""

from collections.abc import Callable
from typing import Any

from construct import (
    Bytes,
    Default,
    FixedSized,
    GreedyBytes,
    If,
    RepeatUntil,
    Struct,
    Switch,
)

from rdmawire.layers.construct.completed import Completed
from rdmawire.layers.construct.header import number, struct
from rdmawire.layers.construct.packet import TransportPacket
from rdmawire.layers.construct.refused import Refused
from rdmawire.wire.checksum import ipv4_header_checksum
from rdmawire.wire.header import Header
from rdmawire.wire.ib import GRH, ICRC
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
from rdmawire.wire.roce import icrc_of

_ANNOUNCES: dict[int, str] = {EtherType.IPV4: "protocol", EtherType.IPV6: "next_header"}
_TAGS = (EtherType.VLAN, EtherType.QINQ, EtherType.QINQ_OLD)


def _type(header: Any) -> int:
    return number(header["type"], EtherType)


def _ethertype(frame: Any) -> int:
    return _type(frame["tags"][-1] if frame["tags"] else frame["ethernet"])


def _is_ip(frame: Any) -> bool:
    return _ethertype(frame) != EtherType.ROCE


def _protocol(frame: Any) -> int | None:
    """What an IP header announces; ``None`` for a GRH."""
    field = _ANNOUNCES.get(_ethertype(frame))
    return number(frame["network"][field], IPProtocol) if field else None


def _options_size(frame: Any) -> int:
    return frame["network"]["ihl"] * 4 - IPv4.SIZE if _ethertype(frame) == EtherType.IPV4 else 0


def _transport_size(frame: Any) -> int:
    announced = frame["udp"]["length"] - UDP.SIZE if _is_ip(frame) else frame["network"]["paylen"]
    return int(announced) - ICRC.SIZE


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
        {
            EtherType.IPV4: struct(IPv4),
            EtherType.IPV6: struct(IPv6),
            EtherType.ROCE: struct(GRH),
        },
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
    "trailer" / Default(GreedyBytes, b""),
)


def _sealed(given: Any) -> dict[str, Any]:
    """The frame with lengths, the IPv4 checksum and the ICRC where they are left out."""
    frame = {"tags": [], "options": b"", "udp": {}, "network": {}, **given}
    transport = TransportPacket.build(frame["transport"])
    size = len(transport) + ICRC.SIZE
    if _is_ip(frame):
        frame["udp"] = {"dstport": ROCE_PORT, "length": UDP.SIZE + size, **(frame["udp"] or {})}
        size += UDP.SIZE
    frame["network"] = _NETWORKS[_ethertype(frame)](frame, size)
    return frame if "icrc" in frame else {"icrc": {"crc": _icrc(frame, transport)}, **frame}


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


def _ipv6(frame: Any, size: int) -> dict[str, Any]:
    return {"payload_length": size, "next_header": IPProtocol.UDP, **frame["network"]}


def _grh(frame: Any, size: int) -> dict[str, Any]:
    return {"paylen": size, **frame["network"]}


_NETWORKS: dict[int, Callable[[Any, int], dict[str, Any]]] = {
    EtherType.IPV4: _ipv4,
    EtherType.IPV6: _ipv6,
    EtherType.ROCE: _grh,
}
_TABLES: dict[int, type[Header]] = {EtherType.IPV4: IPv4, EtherType.IPV6: IPv6, EtherType.ROCE: GRH}


def _icrc(frame: Any, transport: bytes) -> int:
    network = struct(_TABLES[_ethertype(frame)]).build(frame["network"]) + frame["options"]
    udp = struct(UDP).build(frame["udp"]) if _is_ip(frame) else b""
    data = network + udp + transport
    return icrc_of(data, 0, len(network + udp), len(data))


RoCEFrame = "RoCEFrame" / Completed(_FRAME, _sealed)
"""``ethernet``, ``tags``, ``network``, ``options``, ``udp``, ``transport``, ``icrc``, ``trailer``.

``network`` is IPv4, IPv6 or a GRH, as the EtherType says; behind a GRH ``udp`` is ``None``.
Building works out lengths, the IPv4 checksum and the ICRC where they are left out.
"""
