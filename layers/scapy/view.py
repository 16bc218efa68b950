# SPDX-License-Identifier: GPL-2.0-only
"""Headers and packets as Scapy reads them, for a comparison with the codec.

It is the counterpart of :mod:`rdmawire.layers.construct.view`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from scapy.packet import NoPayload, Packet

from rdmawire.errors import WireError
from rdmawire.layers.scapy.layer import PlannedLayer, TableLayer, layer
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH, ICRC
from rdmawire.wire.packet import LAYOUTS

Values = dict[str, Any]
Read = tuple[list[Values | bytes], bytes]

REFUSAL = WireError
"""What parsing and building raise."""


def parse_header(table: type[Header], data: bytes) -> Values:
    """Return the values of the header at the start of ``data``."""
    found = layer(table)(data)
    if not data or not isinstance(found, TableLayer):  # without bytes, Scapy makes a new header
        raise WireError(f"{type(found).__name__} instead of {table.__name__}")
    return _values(found)


def build_header(table: type[Header], values: Mapping[str, Any]) -> bytes:
    """Build a header of its values."""
    built: bytes = layer(table)(**values).self_build()
    return built


def _values(pkt: TableLayer) -> Values:
    return {row.name: _plain(pkt.fields[row.name]) for row in pkt.table.rows}


def _plain(value: Any) -> Any:
    """A value without what Scapy wraps it in."""
    if isinstance(value, list | tuple):
        return tuple(map(int, value))
    return value if isinstance(value, bytes) else int(value)


def _packet(data: bytes) -> Read:
    """Read a transport packet, from the BTH to the pad."""
    pkt = layer(BTH)(data + bytes(ICRC.SIZE))
    if not isinstance(pkt, TableLayer) or pkt.fields["opcode"] not in LAYOUTS:
        raise WireError("no packet")
    parts: list[Values | bytes] = []
    rest: Packet = pkt
    tables: tuple[type[Header], ...] = (BTH, *LAYOUTS[pkt.fields["opcode"]].headers)
    for table in tables:
        if not isinstance(rest, TableLayer) or rest.table is not table:
            raise WireError(f"no {table.__name__}")
        parts.append(_values(rest))
        rest = rest.payload
    parts += [part for part in (_bytes(rest), pkt.fields["pad"]) if part]
    return parts, _uncached(pkt)[: -ICRC.SIZE]


def _bytes(pkt: Packet) -> bytes:
    """The bytes of a layer and of those above it, built of their values."""
    return b"" if isinstance(pkt, NoPayload) else _uncached(pkt)


def _uncached(pkt: Packet) -> bytes:
    """Build a packet of the values of its layers, not of the bytes that they were read from."""
    copy: Any = pkt.copy()
    each = copy
    while not isinstance(each, NoPayload):
        if isinstance(each, PlannedLayer):
            each.raw_packet_cache = None
        each = each.payload
    return bytes(copy)


MESSAGES: dict[str, Callable[[bytes], Read]] = {"packet": _packet}
"""The messages by name."""
