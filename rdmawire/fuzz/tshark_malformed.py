"""Differences from tshark 4.0.17 in frames that rdmawire or tshark calls malformed.

Both show what they can read of such a frame, and handle the rest differently. A row has the frames
and the fields concerned, and whether the fields may be shown by one of the two alone or with two
values. For each row tests have a frame that needs it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Flag, auto
from fnmatch import fnmatchcase
from typing import Final

from rdmawire.dissect.dissection import Dissection
from rdmawire.fuzz.tshark_differences import Applies, has_header
from rdmawire.wire import inet


class Shown(Flag):
    """By which of the two values of a field are shown."""

    RDMAWIRE = auto()
    TSHARK = auto()
    DIFFERENT = auto()


def shown_by(mine: Sequence[str], its: Sequence[str]) -> Shown:
    """Return which of the two shows more values; both may begin with equal ones."""
    common = min(len(mine), len(its))
    if mine[:common] != its[:common]:
        return Shown.DIFFERENT
    return Shown.RDMAWIRE if len(mine) > common else Shown.TSHARK


@dataclass(frozen=True, slots=True)
class MalformedDifference:
    """Fields that may differ in malformed frames, and by which of the two they are shown."""

    fields: tuple[str, ...]
    where: str
    reason: str
    by: Shown
    applies: Applies

    def covers(self, name: str, frame: Dissection, mine: Sequence[str], its: Sequence[str]) -> bool:
        """Whether this row allows these values of a field in that frame."""
        return (
            shown_by(mine, its) in self.by
            and any(fnmatchcase(name, field) for field in self.fields)
            and self.applies(frame)
        )


def _reason(pattern: str) -> Applies:
    """Frames for which rdmawire gives a reason that matches ``pattern``."""
    return lambda frame: any(
        re.search(pattern, node.reason) is not None for node in frame.nodes if node.reason
    )


def _exceeds(frame: Dissection) -> bool:
    """Frames with an IPv6 option that is longer than its header says. RFC 8200, 4.2."""
    return any(map(_overrun, (node.data for node in frame.nodes if node.name == "ipv6 options")))


def _overrun(options: bytes) -> bool:
    at = 0
    while at < len(options):
        at += 2 + options[at + 1] if options[at] and at + 1 < len(options) else 1
    return at > len(options)


_EVERY: Final = ("*",)
_TRANSPORT: Final = ("infiniband.*",)
_CRC: Final = ("infiniband.*variant.crc",)

MALFORMED_DIFFERENCES: Final = (
    MalformedDifference(
        _TRANSPORT,
        "a length of IP, UDP or a GRH beyond the end of the frame",
        "the last bytes that are there are shown as ICRC, the others as management datagram; "
        "rdmawire shows no ICRC, because the end of the packet is missing",
        Shown.TSHARK,
        _reason(r"says that \d+ bytes follow"),
    ),
    MalformedDifference(
        ("udp.checksum.status",),
        "a length of IP, or of UDP around another frame, beyond the end of the frame",
        "verified over the bytes that are there; rdmawire leaves it unverified",
        Shown.DIFFERENT,
        _reason(r"^(IPv4|IPv6|UDP)\.\w+ says that \d+ bytes follow"),
    ),
    MalformedDifference(
        _EVERY,
        "a length of UDP below 8",
        "nothing is shown after the length; rdmawire shows what follows the header",
        Shown.RDMAWIRE,
        _reason(r"^UDP\.length says that -\d+ bytes follow"),
    ),
    MalformedDifference(
        _EVERY,
        "a length of IPv4 below that of its header",
        "nothing is shown after the length; rdmawire shows what follows the header",
        Shown.RDMAWIRE,
        _reason(r"^IPv4\.total_length says that -\d+ bytes follow"),
    ),
    MalformedDifference(
        _EVERY,
        "IPv4 by the EtherType, with version 6",
        "decoded as IPv6: the version decides",
        Shown.RDMAWIRE | Shown.TSHARK | Shown.DIFFERENT,
        _reason(r"^IPv4\.version 6 "),
    ),
    MalformedDifference(
        _EVERY,
        "an IPv6 header with payload length 0",
        "nothing is shown after it; rdmawire takes it for a frame that the adapter segments",
        Shown.RDMAWIRE,
        has_header(inet.IPv6, payload_length=0),
    ),
    MalformedDifference(
        _EVERY,
        "IPv6 options of which one exceeds its header",
        "nothing is shown after them; rdmawire does not read options",
        Shown.RDMAWIRE,
        _exceeds,
    ),
    MalformedDifference(
        _TRANSPORT,
        "headers that do not fit before the ICRC",
        "read from the bytes of the ICRC and after it, or not at all; the ICRC is not shown",
        Shown.TSHARK | Shown.RDMAWIRE,
        _reason(r"takes \d+ bytes, \d+ are left|no room for the ICRC"),
    ),
    MalformedDifference(
        _TRANSPORT,
        "management datagrams that are too short",
        "not shown; rdmawire shows the headers that are whole",
        Shown.RDMAWIRE,
        _reason(r"bytes belong here, \d+ are there"),
    ),
    MalformedDifference(
        _CRC,
        "a payload after an opcode that has none, or another size",
        "the ICRC is taken from the bytes after the headers; rdmawire takes the last four",
        Shown.TSHARK | Shown.RDMAWIRE | Shown.DIFFERENT,
        _reason(r"carries (nothing|eight bytes) after its headers"),
    ),
    MalformedDifference(
        _TRANSPORT,
        "a payload whose size is not a multiple of four",
        "management datagrams are shown, whatever their size",
        Shown.TSHARK,
        _reason(r"make \d+ bytes, no multiple of four"),
    ),
)
"""Differences in frames that one of the two calls malformed."""
