"""What happens in an MPA stream: one class for each thing.

``position`` counts octets of the direction's stream (see :mod:`rdmawire.analysis.tcp_stream`).
``begin`` is where in the payload of the current TCP segment the thing begins, or ``None`` if its
first octet came in an earlier one. In a stream that is iWARP every octet from the first one on
is in exactly one event, except that a :class:`Lost` may lie inside a :class:`Torn` or a
:class:`Forgotten`.
"""

from enum import Enum
from typing import NamedTuple

from rdmawire.wire.mpa import FPDU, MPAEnhanced, StartUpHeader, parse_fpdu


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
    def octets(self) -> bytes:
        """The frame."""
        return self.header.build() + self.private_data


class Fpdu(NamedTuple):
    """An FPDU, whole. Offsets in ``fpdu`` count from its first octet, as in ``octets``."""

    position: int
    begin: int | None
    octets: bytes
    fpdu: FPDU
    crc: CRCStatus


class Torn(NamedTuple):
    """An FPDU that takes ``size`` octets, of which only the first ones are there.

    ``place`` is where it begins as MPA counts, for its Markers; ``None`` without Markers.
    """

    position: int
    begin: int | None
    octets: bytes
    size: int
    place: int | None = None

    @property
    def fpdu(self) -> FPDU:
        """The FPDU, read as if the octets that are not there were zeros."""
        return parse_fpdu(self.octets.ljust(self.size, b"\0"), position=self.place)


class Lost(NamedTuple):
    """Octets that were never captured."""

    position: int
    length: int


class Skipped(NamedTuple):
    """Octets passed over because it is unknown where in them FPDUs begin."""

    position: int
    length: int


class Forgotten(NamedTuple):
    """An FPDU of which the first octets were let go, for too many streams kept too many."""

    position: int
    length: int


class NotIwarp(NamedTuple):
    """The connection is something else; no more events follow. The last one of its kind."""


Event = StartUp | Fpdu | Torn | Lost | Skipped | Forgotten | NotIwarp
