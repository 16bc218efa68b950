# SPDX-License-Identifier: GPL-2.0-only
"""iWARP: start-up frames of MPA, FPDUs with a DDP segment in each, and the TCP session of both."""

from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any, ClassVar

from scapy.fields import PacketListField
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.packet import NoPayload, Packet, Padding
from scapy.sessions import IPSession

from rdmawire.dissect.mpa_event import Event, Fpdu, PartialFpdu, StartUp
from rdmawire.dissect.mpa_framing import Streams
from rdmawire.layers.scapy.field import BehindField
from rdmawire.layers.scapy.layer import LengthLayer, Plan, Step, TableLayer, define
from rdmawire.layers.scapy.transport import planned, underlayers
from rdmawire.wire import inet, mpa, rdmap
from rdmawire.wire.rdmap import DDPControl

_CRC = mpa.FPDUCRC.SIZE
_MAX_FRAMES = (1 << 16) // (mpa.FPDULength.SIZE + _CRC)
"""Maximum number of frames in the payload of an IP packet."""


class StartUpLayer(LengthLayer):
    """A start-up frame: an omitted ``pd_length`` is computed."""

    length_row = "pd_length"

    def planned(self, data: bytes) -> Plan:
        """Plan RFC 6581's header before the private data, if S is set."""
        whole = len(data) >= self.table.SIZE
        header: Any = self.table.parse(data) if whole else None
        return (Step(mpa.MPAEnhanced, mpa.MPAEnhanced.SIZE),) if whole and header.s else ()


class FPDULayer(LengthLayer):
    """An FPDU: omitted ``ulpdu_length``, ``pad`` and ``crc`` are computed.

    It has no Markers: :class:`~rdmawire.layers.scapy.IWARPSession` removes them.
    """

    length_row = "ulpdu_length"

    def planned(self, data: bytes) -> Plan:
        """Plan the headers of the DDP segment."""
        start = mpa.FPDULength.SIZE
        length = int.from_bytes(data[:start], "big")
        return planned(rdmap.layout(data[start : start + length]))

    def post_dissect(self, s: bytes) -> bytes:
        """Read pad and CRC after the segment."""
        self.raw_packet_cache = None  # bytes after the segment are not in it
        end = mpa.fpdu_size(self.ulpdu_length) - mpa.FPDULength.SIZE
        if end > len(s):
            self.fields |= {"pad": b"", "crc": b""}
            return s
        crc = end - _CRC
        self.fields |= {"pad": s[self.ulpdu_length : crc], "crc": int.from_bytes(s[crc:end], "big")}
        return s[: self.ulpdu_length] + s[end:]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Append pad and CRC to the segment."""
        data = super().post_build(pkt, pay)
        data += self.behind("pad", lambda: bytes(-len(data) % 4))
        return data + self.behind("crc", lambda: mpa.crc_of(data))

    def crc_expected(self) -> int:
        """The correct CRC."""
        data = self.copy()
        data.fields["crc"] = b""
        return mpa.crc_of(data.do_build())

    def crc_good(self) -> bool:
        """Whether the CRC is correct; meaningless if CRCs are not in use."""
        return bool(self.crc == self.crc_expected())


class SegmentLayer(TableLayer):
    """The control field at the start of a DDP segment."""

    def planned(self, data: bytes) -> Plan:
        """Plan the other headers of the segment."""
        return planned(rdmap.layout(data))[1:]


MPARequest = define(mpa.MPARequest, StartUpLayer, computed=("pd_length",))
MPAReply = define(mpa.MPAReply, StartUpLayer, computed=("pd_length",))
FPDU = define(
    mpa.FPDULength,
    FPDULayer,
    more=(BehindField("FPDU", "pad"), BehindField("FPDU", "crc", _CRC)),
    computed=("ulpdu_length",),
    name="FPDU",
)
define(DDPControl, SegmentLayer)

_KEYS = {mpa.REQUEST_KEY: MPARequest, mpa.REPLY_KEY: MPAReply}


def frame_layer(data: bytes) -> type[Packet]:
    """The layer of the first frame in these bytes: start-up frame or FPDU."""
    return _KEYS.get(data[: len(mpa.REQUEST_KEY)], FPDU)


class MPA(Packet):
    """Consecutive start-up frames and FPDUs: a part of an MPA stream."""

    name = "MPA"
    __module__ = "rdmawire.layers.scapy"
    fields_desc: ClassVar[list[Any]] = [
        PacketListField(
            "frames",
            [],
            next_cls_cb=lambda _pkt, _before, _last, data: frame_layer(data),
            max_count=_MAX_FRAMES,
        )
    ]

    def mysummary(self) -> Any:
        """Join the summaries of the frames."""
        return ", ".join(frame.summary() for frame in self.frames), [TCP]


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
            crc = mpa.FPDUCRC(event.fpdu.crc).build()
            yield FPDU(_head(event) + event.fpdu.ulpdu + event.fpdu.pad + crc)
        elif isinstance(event, PartialFpdu):
            yield FPDU(_head(event) + event.fpdu.ulpdu_before(len(event.data)))


def _head(event: Fpdu | PartialFpdu) -> bytes:
    return mpa.FPDULength(len(event.fpdu.ulpdu)).build()
