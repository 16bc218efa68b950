# SPDX-License-Identifier: GPL-2.0-only
"""iWARP: start-up frames of MPA, and FPDUs with a DDP segment in each."""

from typing import Any, ClassVar

from scapy.fields import PacketListField
from scapy.layers.inet import TCP
from scapy.packet import Packet

from rdmawire.layers.scapy.field import BehindField
from rdmawire.layers.scapy.layer import Plan, Step, TableLayer, define
from rdmawire.layers.scapy.transport import planned
from rdmawire.wire import mpa, rdmap
from rdmawire.wire.rdmap import DDPControl

_CRC = mpa.FPDUCRC.SIZE
_MAX_FRAMES = (1 << 16) // (mpa.FPDULength.SIZE + _CRC)
"""Maximum number of frames in the payload of an IP packet."""


class StartUpLayer(TableLayer):
    """A start-up frame: an omitted ``pd_length`` is computed."""

    def planned(self, data: bytes) -> Plan:
        """Plan RFC 6581's header before the private data, if S is set."""
        whole = len(data) >= self.table.SIZE
        header: Any = self.table.parse(data) if whole else None
        return (Step(mpa.MPAEnhanced, mpa.MPAEnhanced.SIZE),) if whole and header.s else ()

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes]:
        """Split the private data from the bytes after the frame."""
        return s[: self.pd_length], s[self.pd_length :]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Set the length of the private data."""
        if self.pd_length is None:
            pkt = self.table.parse(pkt).replace(pd_length=len(pay)).build()
        return pkt + pay


class FPDULayer(TableLayer):
    """An FPDU: omitted ``ulpdu_length``, ``pad`` and ``crc`` are computed.

    It has no Markers: :class:`~rdmawire.layers.scapy.IWARPSession` removes them.
    """

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

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes]:
        """Split the segment from the bytes after the FPDU."""
        return s[: self.ulpdu_length], s[self.ulpdu_length :]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Append pad and CRC to the segment."""
        if self.ulpdu_length is None:
            pkt = mpa.FPDULength(len(pay)).build()
        data = pkt + pay
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
