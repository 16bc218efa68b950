"""The MPA reader of the dissector as a system to learn: a fresh TCP connection for each word.

Inputs are what the initiator (``I_``) or the responder (``R_``) sends, one TCP segment each.
Outputs are the events of :mod:`rdmawire.dissect.mpa_event`, with the CRC status of an FPDU; ``-``
is not an event. FPDUs have the Markers that the other side asked for. RFC 5044, 7.1.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from rdmawire.dissect.mpa_event import Event, Fpdu
from rdmawire.dissect.mpa_framing import MPAConnection
from rdmawire.dissect.tcp import Data, Hole, Piece, Segment
from rdmawire.errors import FuzzError
from rdmawire.wire.mpa import (
    FPDUCRC,
    MARKER_SPACING,
    FPDULength,
    Marker,
    MPAReply,
    MPARequest,
    build_fpdu,
)
from rdmawire.wire.rdmap import UntaggedHeader

_LENGTH: Final = MARKER_SPACING - Marker.SIZE - FPDUCRC.SIZE - FPDULength.SIZE
"""Bytes of a DDP segment whose FPDU, with a Marker, fills the bytes up to the next Marker."""
_SEND: Final = b"\x41\x43" + bytes(4)
"""DDP and RDMAP control of a SEND, the last segment of its message, and the reserved bytes."""


class Begin(NamedTuple):
    """What begins a stream: ``data``, and whether it asks for Markers in the other stream."""

    data: bytes
    markers: bool = False


BEGINS: Final[dict[str, Begin]] = {
    "I_REQ": Begin(MPARequest().build()),
    "I_REQ_CRC": Begin(MPARequest(c=1).build()),
    "I_REQ_MARKERS": Begin(MPARequest(m=1).build(), markers=True),
    "I_TEXT": Begin(b"GET / HTTP/1.1\r\n\r\n"),
    "R_REP": Begin(MPAReply().build()),
    "R_REP_CRC": Begin(MPAReply(c=1).build()),
    "R_REP_MARKERS": Begin(MPAReply(m=1).build(), markers=True),
    "R_REJECT": Begin(MPAReply(r=1).build()),
    "R_TEXT": Begin(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
}
"""Inputs that begin a stream. They are not sent later in it, and one that asks for Markers not
after an FPDU without them."""

_KINDS: Final = ("FPDU", "FPDU_BAD", "LOST")
"""Whole FPDUs: with a good CRC, with a bad one, and one that was not captured."""

ALPHABETS: Final[dict[str, tuple[str, ...]]] = {
    "start-up": ("I_REQ", "I_TEXT", "R_REP", "R_REJECT", "R_TEXT", "I_FPDU", "R_FPDU"),
    "crc": ("I_REQ", "I_REQ_CRC", "R_REP", "R_REP_CRC", "I_FPDU", "I_FPDU_BAD", "R_FPDU_BAD"),
    "markers": ("I_REQ", "I_REQ_MARKERS", "R_REP", "R_REP_MARKERS", "I_FPDU", "R_FPDU"),
    "lost": ("I_REQ", "R_REP_CRC", "I_FPDU", "R_FPDU", "I_LOST", "R_LOST"),
}
"""The sets of inputs, by name."""


class MPASystem:
    """The reader of one TCP connection. ``inputs`` is the alphabet.

    ``joined`` says that the capture began after the streams did. Raises :class:`FuzzError` for an
    unknown input.
    """

    def __init__(
        self,
        inputs: Sequence[str] = ALPHABETS["start-up"],
        *,
        joined: bool = False,
        name: str = "MPA reader",
    ) -> None:
        known = {*BEGINS, *(f"{side}_{kind}" for side in "IR" for kind in _KINDS)}
        for one in inputs:
            if one not in known:
                raise FuzzError(f"the MPA reader has no input {one!r} (--list has them)")
        self.name, self.inputs, self._joined = name, tuple(inputs), joined

    def reset(self) -> None:
        """Make a fresh connection."""
        self._connection = MPAConnection()
        self._ends = [0, 0]
        self._markers = [False, False]
        self._messages = [0, 0]

    def step(self, name: str) -> str:
        """Play one input; return the events."""
        side = int(name.startswith("R"))
        position = self._ends[side]
        piece = self._piece(name, side, position)
        if piece is None:
            return "-"
        length = piece.length if isinstance(piece, Hole) else len(piece.data)
        self._ends[side] += length
        captured = 0 if isinstance(piece, Hole) else length
        segment = Segment(position, length, captured, (piece,))
        events = self._connection.receive(side, segment, joined=self._joined)
        return ",".join(map(_shown, events)) or "-"

    def _piece(self, name: str, side: int, position: int) -> Piece | None:
        if (begin := BEGINS.get(name)) is not None:
            if position or (begin.markers and self._messages[1 - side]):
                return None
            self._markers[1 - side] = begin.markers
            return Data(position, begin.data)
        self._messages[side] += 1
        fpdu = self._fpdu(side)
        if name.endswith("LOST"):
            return Hole(position, len(fpdu))
        if name.endswith("BAD"):
            fpdu = fpdu[:-1] + bytes((fpdu[-1] ^ 1,))
        return Data(position, fpdu)

    def _fpdu(self, side: int) -> bytes:
        """The next SEND of a side, a message of one DDP segment."""
        ulpdu = _SEND + UntaggedHeader(msn=self._messages[side]).build()
        return build_fpdu(ulpdu.ljust(_LENGTH, b"\0"), position=0 if self._markers[side] else None)


def _shown(event: Event) -> str:
    name = type(event).__name__
    return f"{name}.{event.crc.value}" if isinstance(event, Fpdu) else name
