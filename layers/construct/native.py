"""Packets of InfiniBand's own links: an LRH, a GRH where there is one, the transport, two CRCs."""

from typing import Any

from construct import Default, FixedSized, GreedyBytes, If, Struct

from rdmawire.layers.construct.completed import Completed
from rdmawire.layers.construct.header import number, struct
from rdmawire.layers.construct.packet import TransportPacket
from rdmawire.wire.ib import GRH, ICRC, LNH, LRH, VCRC
from rdmawire.wire.icrc import icrc_lrh, vcrc


def _is_global(packet: Any) -> bool:
    return number(packet["lrh"].get("lnh", LNH.IBA_LOCAL), LNH) == LNH.IBA_GLOBAL


def _transport_size(packet: Any) -> int:
    before = LRH.SIZE + (GRH.SIZE if _is_global(packet) else 0)
    return int(packet["lrh"]["pktlen"]) * 4 - before - ICRC.SIZE


_PACKET = Struct(
    "lrh" / struct(LRH),
    "grh" / If(_is_global, struct(GRH)),
    "transport" / FixedSized(_transport_size, TransportPacket),
    "icrc" / struct(ICRC),
    "vcrc" / struct(VCRC),
    "trailer" / Default(GreedyBytes, b""),
)


def _sealed(given: Any) -> dict[str, Any]:
    """The packet with lengths and both CRCs where they are left out."""
    transport = TransportPacket.build(given["transport"])
    size = len(transport) + ICRC.SIZE
    packet = {"lrh": {}, **given}
    grh = {"paylen": size, **(given.get("grh") or {})} if _is_global(packet) else None
    size += LRH.SIZE + (GRH.SIZE if grh else 0)
    lrh = {"lnh": LNH.IBA_LOCAL, "pktlen": size // 4, **packet["lrh"]}
    data = struct(LRH).build(lrh) + (struct(GRH).build(grh) if grh else b"") + transport
    return _closed(data, {**packet, "lrh": lrh, "grh": grh})


def _closed(data: bytes, packet: dict[str, Any]) -> dict[str, Any]:
    """The packet with the CRCs of its bytes, but for those that it has."""
    packet = {"icrc": {"crc": icrc_lrh(data)}, **packet}
    covered = data + struct(ICRC).build(packet["icrc"])
    return {"vcrc": {"crc": vcrc(covered)}, **packet}


NativePacket = "NativePacket" / Completed(_PACKET, _sealed)
"""``lrh``, ``grh`` (where ``lrh.lnh`` says so), ``transport``, ``icrc``, ``vcrc``, ``trailer``.

Building works out lengths and both CRCs where they are left out.
"""
