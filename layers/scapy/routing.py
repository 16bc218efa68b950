# SPDX-License-Identifier: GPL-2.0-only
"""The headers before a transport packet, and the ICRC that begins with them."""

from collections.abc import Callable, Iterator
from contextlib import suppress

from scapy.packet import Packet

from rdmawire.errors import WireError
from rdmawire.layers.scapy.field import BehindField
from rdmawire.wire import ib, roce
from rdmawire.wire.icrc import icrc_grh, icrc_lrh

_LENGTHS: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "IP": ("len", lambda own, behind: own + behind),
    "IPv6": ("plen", lambda _, behind: behind),
    "UDP": ("len", lambda own, behind: own + behind),
    "GRH": ("paylen", lambda _, behind: behind),
    "LRH": ("pktlen", lambda own, behind: (own + behind) // 4),
}
"""The field that says how long a packet is, from the bytes of the header and those behind it."""

_ICRCS: dict[str, Callable[[bytes, int], int]] = {
    "IP": lambda data, bth: roce.icrc_of(data, 0, bth, len(data)),
    "IPv6": lambda data, bth: roce.icrc_of(data, 0, bth, len(data)),
    "GRH": lambda data, _: icrc_grh(data),
    "LRH": lambda data, _: icrc_lrh(data),
}
"""How the ICRC is computed, by the header that it begins with."""


def icrc(bth: Packet, transport: bytes) -> int | None:
    """The ICRC behind these bytes, from the BTH to the pad; ``None`` if no network is below.

    What stands there may also be no header that an ICRC could begin with, as when it is fuzzed.
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
    """The layers below, the nearest first."""
    below = pkt.underlayer
    while below is not None:
        yield below
        below = below.underlayer


def head(pkt: Packet, behind: int) -> bytes:
    """The bytes of one header with so many ``behind`` it, though those are not built yet."""
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
    """Whether the layer below says that the packet has more than these bytes."""
    below = pkt.underlayer
    name, count = _LENGTHS.get(type(below).__name__, ("", None))
    return count is not None and count(len(head(below, 0)), size) < below.getfieldval(name)
