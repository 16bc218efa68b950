# SPDX-License-Identifier: GPL-2.0-only
"""A session for `sniff` and `rdpcap` that finds iWARP in TCP connections."""

from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

from scapy.layers.inet import TCP
from scapy.packet import NoPayload, Packet, Padding
from scapy.sessions import IPSession

from rdmawire.analysis.mpa_event import Event, Fpdu, StartUp
from rdmawire.analysis.mpa_stream import Streams
from rdmawire.layers.scapy.iwarp import FPDU, stream_layer
from rdmawire.wire import inet, mpa
from rdmawire.wire.mpa import FPDUCRC, FPDULength


class IWARPSession(IPSession):
    """Puts FPDUs and start-up frames behind the TCP header of the packet that completes them.

    ``sniff(offline="capture.pcap", session=IWARPSession)``. Segments may come out of order, twice
    or overlapping; FPDUs may lie across segments, have Markers in them, and be joined midway.
    Every packet comes out once; FPDUs stand one behind the other, without their Markers.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._streams = Streams()

    def process(self, pkt: Packet) -> Packet | None:
        """The packet, with what it completes; ``None`` for fragments that complete nothing."""
        whole = super().process(pkt)
        if whole is None or TCP not in whole:
            return whole
        found = list(_layers(self._events(whole[TCP])))
        if found:
            whole[TCP].remove_payload()
            for one in found:
                whole[TCP].add_payload(one)
        return whole

    def _events(self, tcp: Packet) -> list[Event]:
        ip = tcp.underlayer
        source, destination = (ip_address(end).packed for end in (ip.src, ip.dst))
        header = inet.TCP.parse(tcp.self_build())
        payload = _payload(tcp)
        found = self._streams.segment(source, destination, header, payload, len(payload))
        return found.events if found.arrival.connection.upper.agreement.known else []


def _payload(tcp: Packet) -> bytes:
    """The octets of a segment, without what the link put behind them."""
    if isinstance(tcp.payload, NoPayload | Padding):
        return b""
    return bytes(tcp.payload.original)


def _layers(events: list[Event]) -> Iterator[Packet]:
    for event in events:
        if isinstance(event, Fpdu):
            yield FPDU(_without_markers(event.fpdu))
        elif isinstance(event, StartUp):
            yield stream_layer(event.octets)(event.octets)


def _without_markers(fpdu: mpa.FPDU) -> bytes:
    head = FPDULength(len(fpdu.ulpdu)).build()
    return head + fpdu.ulpdu + fpdu.pad + FPDUCRC(fpdu.crc).build()
