"""What the two sides of an MPA connection have agreed on, as far as a capture shows."""

from rdmawire.analysis.mpa_event import CRCStatus
from rdmawire.wire.mpa import FPDU, MPAReply, MPARequest, StartUpHeader


class Agreement:
    """What both directions share.

    ``known`` says that the connection is iWARP: a start-up frame or FPDUs were found. ``crc`` is
    whether CRCs are in use, ``None`` while nobody knows; ``rejected`` that the responder has
    refused the connection.
    """

    __slots__ = ("_headers", "crc", "known", "rejected")

    def __init__(self) -> None:
        self.known = self.rejected = False
        self.crc: bool | None = None
        self._headers: list[StartUpHeader | None] = [None, None]

    @property
    def request(self) -> MPARequest | None:
        """The initiator's start-up frame, if it was seen."""
        return next((one for one in self._headers if isinstance(one, MPARequest)), None)

    @property
    def reply(self) -> MPAReply | None:
        """The responder's start-up frame, if it was seen."""
        return next((one for one in self._headers if isinstance(one, MPAReply)), None)

    def start_up(self, way: int, header: StartUpHeader) -> None:
        """A start-up frame has come."""
        self.known = True
        self._headers[way] = header
        self.rejected = self.rejected or (isinstance(header, MPAReply) and bool(header.r))
        # RFC 5044, section 7.1.1: CRCs are in use if either side asks for them.
        asked = [one is not None and bool(one.c) for one in self._headers]
        if any(asked) or None not in self._headers:
            self.crc = any(asked)

    def wants_markers(self, way: int) -> bool | None:
        """Whether a direction must have Markers; ``None`` if its receiver's frame was not seen."""
        # RFC 5044, section 7.1.1: M asks the other side for Markers.
        receiver = self._headers[1 - way]
        return None if receiver is None else bool(receiver.m)

    def found(self, *, crc: bool) -> None:
        """FPDUs were found by a search; by a good CRC, or without one."""
        self.known = True
        self.crc = crc or self.crc

    def learn(self, fpdu: FPDU) -> None:
        """An FPDU has come: a good CRC shows that CRCs are in use, where nobody knew."""
        if self.crc is None and fpdu.good:
            self.crc = True

    def status(self, fpdu: FPDU) -> CRCStatus:
        """What is to be said of an FPDU's CRC."""
        if not self.crc:
            return CRCStatus.ABSENT
        return CRCStatus.GOOD if fpdu.good else CRCStatus.BAD
