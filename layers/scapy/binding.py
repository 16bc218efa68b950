# SPDX-License-Identifier: GPL-2.0-only
"""Which layers Scapy finds by itself, from ports, EtherTypes and link types."""

from typing import Any

from scapy.config import conf
from scapy.layers.inet import TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, bind_layers, bind_top_down, split_bottom_up, split_top_down

from rdmawire.layers.scapy.iwarp import FPDU
from rdmawire.layers.scapy.layer import layer
from rdmawire.layers.scapy.native import ERF, GRH, LRH
from rdmawire.layers.scapy.transport import BTH
from rdmawire.wire import erf, ib
from rdmawire.wire.inet import ROCE_PORT, EtherType
from rdmawire.wire.native import IBA_TRANSPORT

_LINKS: dict[int, type[Packet]] = {247: LRH, 197: ERF}
"""Link types of captures that Scapy does not know, or not down to the packet."""


def bind(port: int = ROCE_PORT) -> None:
    """Bind RoCEv2 to a UDP port, and RoCE to its EtherType, before what is bound already."""
    unbind(port)
    _bind_first(UDP, BTH, dport=port)
    _bind_first(Ether, GRH, type=int(EtherType.ROCE))


def unbind(port: int = ROCE_PORT) -> None:
    """Take back what :func:`bind` did; what others bound stays."""
    _unbind(UDP, BTH, dport=port)
    _unbind(Ether, GRH, type=int(EtherType.ROCE))


def bind_iwarp(port: int) -> None:
    """Read TCP segments from and to a port as iWARP, each for itself.

    Where FPDUs do not begin with segments, :class:`~rdmawire.layers.scapy.IWARPSession` is what
    finds them.
    """
    unbind_iwarp(port)
    _bind_first(TCP, FPDU, dport=port)
    _bind_first(TCP, FPDU, sport=port)


def unbind_iwarp(port: int) -> None:
    """Take back what :func:`bind_iwarp` did."""
    _unbind(TCP, FPDU, dport=port)
    _unbind(TCP, FPDU, sport=port)


def _bind_first(lower: type[Packet], upper: type[Packet], **fields: Any) -> None:
    """Bind as Scapy does, but before all that is bound."""
    bind_top_down(lower, upper, **fields)
    lower.payload_guess.insert(0, (fields, upper))


def _unbind(lower: type[Packet], upper: type[Packet], **fields: Any) -> None:
    split_bottom_up(lower, upper, **fields)
    split_top_down(lower, upper, **fields)


def _bind_links() -> None:
    bind_layers(LRH, BTH, lnh=int(ib.LNH.IBA_LOCAL))
    bind_layers(LRH, GRH, lnh=int(ib.LNH.IBA_GLOBAL))
    bind_layers(LRH, IPv6, lnh=int(ib.LNH.IP_NON_IBA))
    bind_layers(LRH, layer(ib.RWH), lnh=int(ib.LNH.RAW))
    bind_layers(GRH, BTH, nxthdr=IBA_TRANSPORT)
    bind_layers(layer(erf.ERFEthernetPad), Ether)
    for number, link in _LINKS.items():
        conf.l2types.register(number, link)


_bind_links()
