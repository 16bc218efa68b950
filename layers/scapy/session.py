# SPDX-License-Identifier: GPL-2.0-only
"""A session for `sniff` that finds iWARP in TCP connections."""

from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.packet import NoPayload, Packet, Padding
from scapy.sessions import IPSession

from rdmawire.dissect.mpa_event import Event, Fpdu, PartialFpdu, StartUp
from rdmawire.dissect.mpa_framing import Streams
from rdmawire.layers.scapy.iwarp import FPDU, MPA, frame_layer
from rdmawire.layers.scapy.transport import underlayers
from rdmawire.wire import inet
from rdmawire.wire.mpa import FPDUCRC, FPDULength


class IWARPSession(IPSession):
    """Appends FPDUs and start-up frames to the TCP header of the packet that completes them.

    ``sniff(offline="capture.pcap", session=IWARPSession)``. Segments may arrive out of order, twice
    or overlapping; FPDUs may span segments and contain Markers; captures may begin mid-connection.
    Every packet is returned once, with its FPDUs consecutive and without Markers.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._streams = Streams()

    def process(self, pkt: Packet) -> Packet | None:
        """Return the packet with the frames it completes; ``None`` for incomplete fragments."""
        whole = super().process(pkt)
        tcp = whole.getlayer(TCP) if whole is not None else None
        frames = list(_frames(self._events(tcp))) if tcp is not None else []
        if tcp is not None and frames:
            tcp.remove_payload()
            tcp.add_payload(MPA(frames=frames))
        return whole

    def _events(self, tcp: Packet) -> list[Event]:
        ip = next((pkt for pkt in underlayers(tcp) if type(pkt) in (IP, IPv6)), None)
        if ip is None:
            return []
        source, destination = (ip_address(end).packed for end in (ip.src, ip.dst))
        payload = _payload(tcp)
        length = len(payload) + _cut_off(ip)
        header = inet.TCP.parse(tcp.self_build())
        found = self._streams.segment(source, destination, header, payload, length)
        return found.events if found.arrival.connection.upper.agreement.known else []


def _payload(tcp: Packet) -> bytes:
    """The bytes of a segment, without those that the link added."""
    if isinstance(tcp.payload, NoPayload | Padding):
        return b""
    return bytes(tcp.payload.original or tcp.payload)


def _cut_off(ip: Packet) -> int:
    """Number of bytes of a packet that were not captured."""
    announced = ip.len if isinstance(ip, IP) else ip.plen and inet.IPv6.SIZE + ip.plen
    return max((announced or 0) - len(ip.original), 0) if ip.original else 0


def _frames(events: list[Event]) -> Iterator[Packet]:
    """Make layers of start-up frames and FPDUs; of incomplete ones, the available bytes."""
    for event in events:
        if isinstance(event, StartUp):
            yield frame_layer(event.data)(event.data)
        elif isinstance(event, Fpdu):
            yield FPDU(_head(event) + event.fpdu.ulpdu + event.fpdu.pad + _crc(event))
        elif isinstance(event, PartialFpdu):
            yield FPDU(_head(event) + event.fpdu.ulpdu_before(len(event.data)))


def _head(event: Fpdu | PartialFpdu) -> bytes:
    return FPDULength(len(event.fpdu.ulpdu)).build()


def _crc(event: Fpdu) -> bytes:
    return FPDUCRC(event.fpdu.crc).build()
