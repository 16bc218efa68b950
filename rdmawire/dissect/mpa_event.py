"""Events of an MPA stream, one class for each event type.

``position`` is an offset in bytes in the direction's stream (see :mod:`rdmawire.dissect.tcp`).
``begin`` is the event's offset in the payload of the current TCP segment, or ``None`` if its
first byte arrived in an earlier segment. In an iWARP stream every byte from the first one on
is in exactly one event, except that a :class:`Lost` may lie inside a :class:`PartialFpdu` or a
:class:`Forgotten`.
"""

from collections import OrderedDict
from enum import Enum
from typing import NamedTuple, Protocol

from rdmawire.wire.mpa import FPDU, MPAEnhanced, MPAReply, MPARequest, StartUpHeader, parse_fpdu


class CRCStatus(Enum):
    """Result of the CRC check of an FPDU."""

    GOOD = "good"
    BAD = "bad"
    ABSENT = "absent"
    """CRCs are not in use, so the field is not checked: the start-up disabled them or, if it was
    not captured, no FPDU of the connection has had a good CRC so far."""


class StartUp(NamedTuple):
    """A complete start-up frame. ``enhanced`` is parsed from the start of the private data.

    ``header.pd_length`` may exceed what RFC 5044 allows; ``private_data`` is empty then.
    """

    position: int
    begin: int | None
    header: StartUpHeader
    private_data: bytes
    enhanced: MPAEnhanced | None

    @property
    def data(self) -> bytes:
        """The frame as bytes."""
        return self.header.build() + self.private_data


class Fpdu(NamedTuple):
    """A complete FPDU. Offsets in ``fpdu`` count from its first byte, as in ``data``."""

    position: int
    begin: int | None
    data: bytes
    fpdu: FPDU
    crc: CRCStatus


class PartialFpdu(NamedTuple):
    """An FPDU of ``size`` bytes, of which only the first ones were captured.

    ``place`` is its offset in the Marker sequence of MPA; ``None`` without Markers.
    """

    position: int
    begin: int | None
    data: bytes
    size: int
    place: int | None = None

    @property
    def fpdu(self) -> FPDU:
        """The FPDU, with zeros for the missing bytes."""
        return parse_fpdu(self.data.ljust(self.size, b"\0"), position=self.place)


class Lost(NamedTuple):
    """Bytes that were never captured."""

    position: int
    length: int


class Skipped(NamedTuple):
    """Bytes skipped because the FPDU boundaries in them are unknown."""

    position: int
    length: int


class Forgotten(NamedTuple):
    """An FPDU whose first bytes were discarded because the memory budget was exceeded."""

    position: int
    length: int


class NotIwarp(NamedTuple):
    """The connection is not iWARP; always the last event of a connection."""


Event = StartUp | Fpdu | PartialFpdu | Lost | Skipped | Forgotten | NotIwarp


class Agreement:
    """Connection state that both directions share.

    ``known`` says that the connection is iWARP: a start-up frame or FPDUs were found. ``crc`` is
    whether CRCs are in use, ``None`` while that is unknown; ``rejected`` that the responder has
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

    def start_up(self, side: int, header: StartUpHeader) -> None:
        """Record a start-up frame of side ``side`` (0 or 1)."""
        self.known = True
        self._headers[side] = header
        self.rejected = self.rejected or (isinstance(header, MPAReply) and bool(header.r))
        # RFC 5044, section 7.1.1: CRCs are in use if either side asks for them.
        asked = [one is not None and bool(one.c) for one in self._headers]
        if any(asked) or None not in self._headers:
            self.crc = any(asked)

    def wants_markers(self, side: int) -> bool | None:
        """Whether side ``side`` (0 or 1) must have Markers; ``None`` if unknown."""
        # RFC 5044, section 7.1.1: M asks the other side for Markers.
        receiver = self._headers[1 - side]
        return None if receiver is None else bool(receiver.m)

    def found(self, *, crc: bool) -> None:
        """Record that a search found FPDUs; ``crc`` if it was by a good CRC.

        What both start-up frames said is not changed by that.
        """
        self.known = True
        if self.crc is None and crc:
            self.crc = True

    def learn(self, fpdu: FPDU) -> None:
        """Record an FPDU: a good CRC shows that CRCs are in use, if that was unknown."""
        if self.crc is None and fpdu.good:
            self.crc = True

    def status(self, fpdu: FPDU) -> CRCStatus:
        """Return the CRC status of an FPDU."""
        if not self.crc:
            return CRCStatus.ABSENT
        return CRCStatus.GOOD if fpdu.good else CRCStatus.BAD


KEPT_IN_ALL = 64 << 20
"""Maximum of bytes that all directions buffer: 500 searches with a full window, or the longest
FPDU of 1000 directions, which no real capture needs. Beyond it, the direction that has been idle
longest discards its buffer."""


class Keeper(Protocol):
    """A direction of a connection."""

    @property
    def kept(self) -> int:
        """Bytes of memory that ``let_go`` would free."""

    def let_go(self) -> None:
        """Discard the buffer and continue with the next bytes."""


class Budget:
    """Shares out ``most`` bytes of memory; ``kept`` are in use."""

    def __init__(self, most: int = KEPT_IN_ALL) -> None:
        self.kept = 0
        self._most = most
        self._shares: OrderedDict[Keeper, int] = OrderedDict()

    def settle(self, keeper: Keeper) -> None:
        """Update the share of an active direction; shrink idle ones if the budget is exceeded."""
        self.forget(keeper)
        if share := keeper.kept:
            self._shares[keeper] = share
            self.kept += share
        while self.kept > self._most:
            self._shrink()

    def forget(self, keeper: Keeper) -> None:
        """Release the share of a direction."""
        self.kept -= self._shares.pop(keeper, 0)

    def _shrink(self) -> None:
        silent, share = self._shares.popitem(last=False)
        self.kept -= share
        silent.let_go()
