"""What happens in an MPA stream: one class for each thing.

``position`` counts bytes of the direction's stream (see :mod:`rdmawire.dissect.tcp`).
``begin`` is where in the payload of the current TCP segment the thing begins, or ``None`` if its
first byte came in an earlier one. In a stream that is iWARP every byte from the first one on
is in exactly one event, except that a :class:`Lost` may lie inside a :class:`Torn` or a
:class:`Forgotten`.
"""

from collections import OrderedDict
from enum import Enum
from typing import NamedTuple, Protocol

from rdmawire.wire.mpa import FPDU, MPAEnhanced, MPAReply, MPARequest, StartUpHeader, parse_fpdu


class CRCStatus(Enum):
    """What is to be said of an FPDU's CRC."""

    GOOD = "good"
    BAD = "bad"
    ABSENT = "absent"
    """CRCs are not in use, so that whatever stands in the field is not judged: the start-up said
    so or, where it was not seen, no FPDU of the connection has had a good one so far."""


class StartUp(NamedTuple):
    """A start-up frame, whole. ``enhanced`` is decoded from the private data it begins.

    ``header.pd_length`` may exceed what RFC 5044 allows; ``private_data`` is empty then.
    """

    position: int
    begin: int | None
    header: StartUpHeader
    private_data: bytes
    enhanced: MPAEnhanced | None

    @property
    def data(self) -> bytes:
        """The frame."""
        return self.header.build() + self.private_data


class Fpdu(NamedTuple):
    """An FPDU, whole. Offsets in ``fpdu`` count from its first byte, as in ``bytes``."""

    position: int
    begin: int | None
    data: bytes
    fpdu: FPDU
    crc: CRCStatus


class Torn(NamedTuple):
    """An FPDU that takes ``size`` bytes, of which only the first ones are there.

    ``place`` is where it begins as MPA counts, for its Markers; ``None`` without Markers.
    """

    position: int
    begin: int | None
    data: bytes
    size: int
    place: int | None = None

    @property
    def fpdu(self) -> FPDU:
        """The FPDU, read as if the bytes that are not there were zeros."""
        return parse_fpdu(self.data.ljust(self.size, b"\0"), position=self.place)


class Lost(NamedTuple):
    """Bytes that were never captured."""

    position: int
    length: int


class Skipped(NamedTuple):
    """Bytes passed over because it is unknown where in them FPDUs begin."""

    position: int
    length: int


class Forgotten(NamedTuple):
    """An FPDU of which the first bytes were let go, for too many streams kept too many."""

    position: int
    length: int


class NotIwarp(NamedTuple):
    """The connection is something else; no more events follow. The last one of its kind."""


Event = StartUp | Fpdu | Torn | Lost | Skipped | Forgotten | NotIwarp


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


KEPT_IN_ALL = 64 << 20
"""Bytes that all directions keep together: 500 searches with a full window, or the longest FPDU
of 1000 directions. Links have fewer half-sent FPDUs than that, and captures are not joined in the
middle of more streams; past it, the direction longest silent lets go."""


class Keeper(Protocol):
    """A direction of a connection."""

    @property
    def kept(self) -> int:
        """Bytes of memory that letting go would free."""

    def let_go(self) -> None:
        """Keep nothing, and go on with what comes next."""


class Budget:
    """Shares out ``most`` bytes; ``kept`` are in use."""

    def __init__(self, most: int = KEPT_IN_ALL) -> None:
        self.kept = 0
        self._most = most
        self._shares: OrderedDict[Keeper, int] = OrderedDict()

    def settle(self, keeper: Keeper) -> None:
        """A direction has spoken: note what it keeps now; others let go if that is too much."""
        self.forget(keeper)
        if share := keeper.kept:
            self._shares[keeper] = share
            self.kept += share
        while self.kept > self._most:
            self._shrink()

    def forget(self, keeper: Keeper) -> None:
        """A direction is no more, or keeps nothing."""
        self.kept -= self._shares.pop(keeper, 0)

    def _shrink(self) -> None:
        silent, share = self._shares.popitem(last=False)
        self.kept -= share
        silent.let_go()
