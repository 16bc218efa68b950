"""Doubt in the framing of one direction: whether FPDUs still begin where they are thought to.

Framing that began with a start-up frame is certain, and survives many FPDUs in a row that make no
sense. Framing that a search has found survives none; and if the search found no Markers, it is
clear of them only after as many octets as Markers are apart. There each place is doubted once at
most: if the search comes back to it, it stays.
"""

from rdmawire.analysis.mpa_chain import HEAD, read_head
from rdmawire.analysis.mpa_event import CRCStatus, Fpdu
from rdmawire.analysis.mpa_search import Found
from rdmawire.wire.mpa import MARKER_SPACING, FPDULength, Marker

SENSELESS = 16
"""FPDUs in a row without the versions of DDP and RDMAP that certain framing survives."""


class Doubt:
    """Is told what framing brings, in order. ``in_step`` says whether framing may go on."""

    __slots__ = ("_certain", "_clear", "_doubted", "_proof", "_senseless", "in_step")

    def __init__(self, position: int) -> None:
        self.in_step = True
        self._certain = False
        self._senseless = 0
        self._clear = self._proof = position
        self._doubted = position - 1

    def begin_certain(self) -> None:
        """Framing begins behind a start-up frame."""
        self._certain = self.in_step = True

    def begin_found(self, found: Found) -> None:
        """Framing begins where a search has found an FPDU."""
        self._certain, self.in_step = False, True
        clear = found.base is not None
        end = found.position if clear else found.position + MARKER_SPACING + Marker.SIZE
        self._clear, self._proof = found.clear, end

    def take_head(self, position: int, octets: bytes | bytearray, place: int | None) -> None:
        """An FPDU begins with these octets; ``place`` is its position as MPA counts, if it does."""
        cut = len(octets) < HEAD or (place is not None and -place % MARKER_SPACING < HEAD)
        if not self._certain and not cut and read_head(octets, 0, position) is None:
            self._fall_out(position)

    def take(self, event: Fpdu) -> None:
        """An FPDU is whole."""
        if self._certain:
            self._senseless = 0 if _is_sensible(event) else self._senseless + 1
            self.in_step = self._senseless <= SENSELESS
        elif event.crc is not CRCStatus.GOOD and self._is_unproved(event):
            self._fall_out(event.position)

    def _fall_out(self, position: int) -> None:
        if position > self._doubted:
            self._doubted, self.in_step = position, False

    def _is_unproved(self, event: Fpdu) -> bool:
        """Whether an FPDU without a good CRC is none, or hides a Marker nobody knows of."""
        unclear = self._clear <= event.position < self._proof
        return (unclear and _may_hold_marker(event)) or _contradicts_itself(event)


def _is_sensible(event: Fpdu) -> bool:
    """Whether an FPDU has a good CRC, or DDP and RDMAP in the versions there are."""
    control = event.fpdu.ulpdu[:2]
    versions = len(control) == 2 and control[0] & 0x03 == 1 and control[1] & 0xC0 == 0x40
    return versions or event.crc is CRCStatus.GOOD


def _may_hold_marker(event: Fpdu) -> bool:
    """Whether an FPDU read as one without Markers looks as if it had one."""
    words = range(0, min(len(event.octets), MARKER_SPACING), 4)
    return event.crc is CRCStatus.BAD or any(
        int.from_bytes(event.octets[at : at + 4], "big") == at for at in words
    )


def _contradicts_itself(event: Fpdu) -> bool:
    """Whether an FPDU without a good CRC is none that a conforming sender makes."""
    fpdu = event.fpdu
    content = FPDULength(len(fpdu.ulpdu)).build() + fpdu.ulpdu
    short = len(content) < HEAD
    return short or any(fpdu.wrong_markers()) or read_head(content, 0, event.position) is None
