"""iWARP connections to make captures of, and DDP segments with distinct numbers to fill them.

Fields are non-zero and distinct where their rules allow it, so that a value in the wrong place
shows.
"""

from rdmawire.wire import mpa, rdmap
from rdmawire.wire.header import Header
from rdmawire.wire.mpa import MPAEnhanced, MPAReply, MPARequest
from rdmawire.wire.rdmap import (
    AtomicOpcode,
    AtomicRequestHeader,
    AtomicResponseHeader,
    ImmediateData,
    RDMAPOpcode,
    ReadRequestHeader,
    segment,
)
from rdmawire.wire.terminate import TerminateControl
from tools.make_captures.tcp import Conversation

Frames = list[bytes]

STAG, SINK_STAG, SOURCE_STAG = 0x11223344, 0x55667788, 0x99AABBCC
TO, SINK_TO, SOURCE_TO = 0x0102030405060708, 0x1112131415161718, 0x2122232425262728
ATOMIC_NUMBERS = (0x31323334, 0x41424344, 0x5152535455565758)
ATOMIC_DATA = (0x6162636465666768, 0x7172737475767778, 0x8182838485868788, 0x9192939495969798)


def text(length: int, start: int = 0) -> bytes:
    """A payload in which every byte tells where it stands."""
    return bytes((start + i * 7 + i // 256) % 251 for i in range(length))


class Stream:
    """An iWARP connection over a TCP conversation: start-up, then FPDUs both ways.

    ``markers`` are what the client's and the server's frames ask of the other side.
    """

    def __init__(
        self,
        tcp: Conversation | None = None,
        *,
        crc: bool = False,
        markers: tuple[bool, bool] = (False, False),
    ) -> None:
        self.tcp = tcp or Conversation()
        self.crc, self.markers = crc, markers
        self._position = [0, 0]

    @property
    def frames(self) -> Frames:
        """The frames so far."""
        return self.tcp.frames

    def open(self, rev: int = 1, private: tuple[bytes, bytes] = (b"", b"")) -> "Stream":
        """TCP's handshake and MPA's start-up."""
        self.tcp.open()
        enhanced = int(rev > 1)
        for way, table in enumerate((MPARequest, MPAReply)):
            frame = table(
                m=int(self.markers[way]),
                c=int(self.crc),
                s=enhanced,
                rev=rev,
                pd_length=len(private[way]),
            )
            self.tcp.say(way, frame.build() + private[way])
        return self

    def fpdu(self, way: int, ulpdu: bytes) -> bytes:
        """The next FPDU of this way."""
        position = self._position[way] if self.markers[1 - way] else None
        data = mpa.build_fpdu(ulpdu, crc=self.crc, position=position)
        self._position[way] += len(data)
        return data

    def say(self, way: int, *ulpdus: bytes) -> "Stream":
        """One TCP segment with an FPDU for each of these."""
        self.tcp.say(way, b"".join([self.fpdu(way, ulpdu) for ulpdu in ulpdus]))
        return self

    def close(self) -> Frames:
        """FINs both ways; all frames."""
        self.tcp.close()
        return self.frames


def _numbers(opcode: RDMAPOpcode) -> dict[str, int]:
    if rdmap.SHAPES[opcode].tagged:
        return {"stag": STAG + opcode, "to": TO + opcode}
    fields = {"msn": 0x101 + opcode}
    if not rdmap.SHAPES[opcode].whole:
        fields |= {"mo": 0x20202 + opcode}
    if rdmap.SHAPES[opcode].control is rdmap.RDMAPControlInvalidate:
        fields |= {"invalidate_stag": SOURCE_STAG + opcode}
    return fields


READ_REQUEST = ReadRequestHeader(SINK_STAG, SINK_TO, 0x12345, SOURCE_STAG, SOURCE_TO)


def atomic_request(opcode: int) -> AtomicRequestHeader:
    """An Atomic Request with distinct numbers in all its rows."""
    return AtomicRequestHeader(0, opcode, *ATOMIC_NUMBERS, *ATOMIC_DATA)


_HEADERS: dict[RDMAPOpcode, Header] = {
    RDMAPOpcode.RDMA_READ_REQUEST: READ_REQUEST,
    RDMAPOpcode.IMMEDIATE_DATA: ImmediateData(b"\xa1\xa2\xa3\xa4\xa5\xa6\xa7\xa8"),
    RDMAPOpcode.IMMEDIATE_DATA_WITH_SE: ImmediateData(b"\xb1\xb2\xb3\xb4\xb5\xb6\xb7\xb8"),
    RDMAPOpcode.ATOMIC_REQUEST: atomic_request(AtomicOpcode.FETCH_ADD),
    RDMAPOpcode.ATOMIC_RESPONSE: AtomicResponseHeader(0xC1C2C3C4, 0xD1D2D3D4D5D6D7D8),
    RDMAPOpcode.TERMINATE: TerminateControl(),
}


def ulpdu(opcode: RDMAPOpcode, length: int = 0, **fields: int) -> bytes:
    """A DDP segment of this opcode; ``length`` bytes of payload where it carries any."""
    numbers = _numbers(opcode) | fields
    header: Header | None = _HEADERS.get(opcode)
    if header is not None:
        return segment(opcode, b"", header, **numbers)
    return segment(opcode, text(length, opcode), **numbers)


ENHANCED = MPAEnhanced(1, 0, 0x123, 1, 1, 0x2345).build()
"""Private data of revision 2."""
