# SPDX-License-Identifier: GPL-2.0-only
"""Native InfiniBand links, and RoCE's GRH: headers with a length of what follows."""

from typing import Any

from rdmawire.layers.scapy.field import BehindField
from rdmawire.layers.scapy.layer import Plan, Step, TableLayer, define
from rdmawire.wire import erf, ib
from rdmawire.wire.icrc import vcrc


class GlobalRouteLayer(TableLayer):
    """A GRH: an omitted ``paylen`` is computed."""

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Set the length of the packet."""
        if self.paylen is None:
            pkt = ib.GRH.parse(pkt).replace(paylen=len(pay)).build()
        return pkt + pay

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes]:
        """Split the packet from the bytes that the link added."""
        return s[: self.paylen], s[self.paylen :]


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
