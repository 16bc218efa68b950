# SPDX-License-Identifier: GPL-2.0-only
"""Bindings of layers to ports, EtherTypes and link types."""

from typing import Any

from scapy.config import conf
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Ether, Loopback
from scapy.packet import (
    Packet,
    bind_bottom_up,
    bind_layers,
    bind_top_down,
    split_bottom_up,
    split_top_down,
)

from rdmawire.capture import LinkType
from rdmawire.layers.scapy.iwarp import FPDU, MPA
from rdmawire.layers.scapy.layer import layer
from rdmawire.layers.scapy.transport import BTH, ERF, GRH, LRH
from rdmawire.wire import erf, ib
from rdmawire.wire.inet import ROCE_PORT, EtherType
from rdmawire.wire.native import IBA_TRANSPORT

_Fields = dict[str, Any]

_LINKS: dict[int, type[Packet]] = {LinkType.INFINIBAND: LRH, LinkType.ERF: ERF}
"""Link types of captures that Scapy does not know, or does not dissect to the packet."""

_ETHERTYPES: dict[int, type[Packet]] = {
    EtherType.IPV4: IP,
    EtherType.IPV6: IPv6,
    EtherType.ARP: ARP,
    EtherType.ROCE: GRH,
}
"""Layers in raw packets of an InfiniBand link, by EtherType."""

_FAMILIES_OF_IPV6 = (10, 24, 28, 30)
"""Address families of IPv6 in BSD loopback captures: each system has its own."""


def bind(port: int = ROCE_PORT) -> None:
    """Bind RoCEv2 to a UDP port, and RoCE to its EtherType, with precedence over other bindings.

    Built packets get the port that was bound last.
    """
    _bind_first(UDP, BTH, {"dport": port})
    _bind_first(Ether, GRH, {"type": int(EtherType.ROCE)})


def unbind(port: int | None = None) -> None:
    """Undo :func:`bind` for a port, or for all ports and RoCE by default."""
    for fields in _bound(UDP, BTH):
        if port in (None, fields["dport"]):
            _unbind(UDP, BTH, fields)
    if port is None:
        _unbind(Ether, GRH, {"type": int(EtherType.ROCE)})


def bind_iwarp(port: int) -> None:
    """Dissect TCP segments from and to a port as iWARP, each separately.

    For FPDUs that do not begin with segments, or contain Markers, use
    :class:`~rdmawire.layers.scapy.IWARPSession`.
    """
    for side in ("sport", "dport"):
        _bind_first(TCP, MPA, {side: port})
    bind_top_down(TCP, FPDU, dport=port)


def unbind_iwarp(port: int) -> None:
    """Undo :func:`bind_iwarp`."""
    for side in ("sport", "dport"):
        _unbind(TCP, MPA, {side: port})
    split_top_down(TCP, FPDU, dport=port)


def _bound(lower: type[Packet], upper: type[Packet]) -> list[_Fields]:
    """Return the fields that bind one layer to the other, the last bound first."""
    return [fields for fields, follows in lower.payload_guess if follows is upper]


def _bind_first(lower: type[Packet], upper: type[Packet], fields: _Fields) -> None:
    """Bind as Scapy does, but with precedence over existing bindings."""
    split_bottom_up(lower, upper, **fields)
    lower.payload_guess.insert(0, (fields, upper))
    bind_top_down(lower, upper, **fields)


def _unbind(lower: type[Packet], upper: type[Packet], fields: _Fields) -> None:
    """Remove a binding; built packets get the last remaining one."""
    split_bottom_up(lower, upper, **fields)
    split_top_down(lower, upper, **fields)
    for left in _bound(lower, upper)[:1]:
        bind_top_down(lower, upper, **left)


def _bind_links() -> None:
    bind_layers(LRH, BTH, lnh=int(ib.LNH.IBA_LOCAL))
    bind_layers(LRH, GRH, lnh=int(ib.LNH.IBA_GLOBAL))
    bind_layers(LRH, IPv6, lnh=int(ib.LNH.IP_NON_IBA))
    bind_layers(LRH, layer(ib.RWH), lnh=int(ib.LNH.RAW))
    bind_layers(GRH, BTH, nxthdr=IBA_TRANSPORT)
    bind_layers(layer(erf.ERFEthernetPad), Ether)
    for ethertype, upper in _ETHERTYPES.items():
        bind_layers(layer(ib.RWH), upper, etype=int(ethertype))
    for family in _FAMILIES_OF_IPV6:
        bind_bottom_up(Loopback, IPv6, type=family)
    for number, link in _LINKS.items():
        conf.l2types.register(int(number), link)


_bind_links()
