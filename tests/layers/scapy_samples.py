# SPDX-License-Identifier: GPL-2.0-only
"""Packets of the shipped captures as Scapy reads them, and questions about them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import scapy.layers.vxlan  # noqa: F401 - a binding that a capture needs
from scapy.config import conf
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import NoPayload, Packet, bind_bottom_up
from scapy.utils import rdpcap

from rdmawire.capture import Record, open_capture
from rdmawire.layers.scapy import MPA, TableLayer
from rdmawire.layers.scapy.layer import PlannedLayer
from rdmawire.wire.header import Header
from rdmawire.wire.inet import EtherType

bind_bottom_up(Ether, Dot1Q, type=EtherType.QINQ_OLD)  # another


def read(path: Path) -> list[tuple[Record, Packet]]:
    """Return the frames of a capture, and the packets that Scapy reads from them."""
    with open_capture(path) as reader:
        records = list(reader)
    return list(zip(records, rdpcap(str(path)), strict=True))


def is_known(record: Record) -> bool:
    """Whether Scapy has a layer for this link type; of the captures' it lacks RAW_OPENBSD's."""
    return record.link_type in conf.l2types.num2layer


def layers_of(pkt: Packet) -> Iterator[Packet]:
    """The layers of a packet, those of its list of FPDUs among them."""
    while not isinstance(pkt, NoPayload):
        yield pkt
        if isinstance(pkt, MPA):
            for frame in pkt.frames:
                yield from layers_of(frame)
        pkt = pkt.payload


def headers_of(pkt: Packet) -> list[Header]:
    """The headers that the packet's layers are made of."""
    return [each.header() for each in layers_of(pkt) if isinstance(each, TableLayer)]


def uncached(pkt: Packet) -> Packet:
    """A copy in which our layers have forgotten the bytes that they were read from."""
    copy: Any = pkt.copy()
    for each in layers_of(copy):
        if isinstance(each, PlannedLayer | MPA):
            each.raw_packet_cache = None
    return copy
