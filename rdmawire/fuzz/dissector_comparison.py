"""The dissector against tshark: the same fields with the same values, frame by frame.

Each field that both know must have the same values, unless a row allows a difference: of
:mod:`rdmawire.fuzz.tshark_differences`, of :mod:`rdmawire.fuzz.tshark_mutants`, or, in malformed
frames, of :mod:`rdmawire.fuzz.tshark_malformed`. A crash of tshark, an exit status other than 0, or
no end in time is a violation of the case that causes it, which is found by halving.
"""

import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from rdmawire.capture import LinkType
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.fields import FieldInfo
from rdmawire.errors import FuzzError
from rdmawire.fuzz.command_target import without_numbers, write_frames
from rdmawire.fuzz.frame_map import map_frame
from rdmawire.fuzz.frame_mutation import SeedFrame
from rdmawire.fuzz.oracle import Violation
from rdmawire.fuzz.tshark_differences import KNOWN_DIFFERENCES, KnownDifference
from rdmawire.fuzz.tshark_fields import (
    Values,
    differing,
    own_values,
    shared_fields,
    tshark_values,
)
from rdmawire.fuzz.tshark_malformed import MALFORMED_DIFFERENCES, MalformedDifference
from rdmawire.fuzz.tshark_mutants import MUTANT_DIFFERENCES
from rdmawire.fuzz.tshark_process import TsharkError

_LOG: Final = logging.getLogger(__name__)
_CAPTURE: Final = "mutants.pcap"
"""The name of the capture, which rows for some captures are not about."""
_SHOWN: Final = "infiniband.bth.opcode"
"""Frames in which neither shows this field carry another protocol: they are not compared."""
_MAX_TEXT: Final = 200
_MAX_FAILURES: Final = 20
"""Cases of one batch with which tshark fails, after which the other cases count as good."""

FieldReader = Callable[[Path, Sequence[FieldInfo]], Iterator[Values]]
"""What another dissector shows of each frame of a capture."""


def is_compared(frame: SeedFrame) -> bool:
    """Whether a frame can be compared alone: Ethernet, with a BTH, and not a part of a stream."""
    if frame.link_type != LinkType.ETHERNET:
        return False
    labels = {type(one.header).label for one in map_frame(frame.data, frame.link_type).headers}
    return "bth" in labels and "tcp" not in labels


class DissectorComparison:
    """Compares the dissector with tshark; it is a parser of :class:`ParserFuzzer`.

    ``reader`` reads a capture instead of tshark, ``known`` are the differences that are allowed,
    ``malformed`` those that are allowed in malformed frames.
    """

    def __init__(
        self,
        reader: FieldReader = tshark_values,
        known: Sequence[KnownDifference] = (*KNOWN_DIFFERENCES, *MUTANT_DIFFERENCES),
        malformed: Sequence[MalformedDifference] = MALFORMED_DIFFERENCES,
    ) -> None:
        self.name = "dissector"
        self._reader = reader
        self._known = known
        self._malformed = malformed
        self._fields = shared_fields()
        self._is_usable = False
        self._failures = 0

    def judge(self, frames: Sequence[SeedFrame]) -> Violation | None:
        """Compare each frame; ``place`` of a violation is the index of the frame."""
        return self.judge_all([frames])[0]

    def judge_all(self, cases: Sequence[Sequence[SeedFrame]]) -> list[Violation | None]:
        """Compare the frames of all cases with one run of tshark, or with more if tshark fails.

        Raises :class:`FuzzError` if tshark is not installed, or fails without any frame.
        """
        self._failures = 0
        return self._judged(cases)

    def _judged(self, cases: Sequence[Sequence[SeedFrame]]) -> list[Violation | None]:
        if self._failures >= _MAX_FAILURES:
            return [None] * len(cases)
        try:
            return self._compared(cases)
        except TsharkError as error:
            self.check()
            if len(cases) == 1:
                self._failures += 1
                return [self._failure(cases[0], error)]
            return self._halved(cases, error)

    def _halved(
        self, cases: Sequence[Sequence[SeedFrame]], error: TsharkError
    ) -> list[Violation | None]:
        """Judge the halves of cases with which tshark fails."""
        before, middle = self._failures, len(cases) // 2
        found = self._judged(cases[:middle]) + self._judged(cases[middle:])
        if self._failures == before:
            _LOG.warning("%s; not if half of the same %d cases are read", error, len(cases))
        return found

    def check(self) -> None:
        """Raise :class:`FuzzError` if tshark is not installed, or fails without any frame, too."""
        if self._is_usable:
            return
        try:
            self._compared([[]])
        except TsharkError as error:
            raise FuzzError(f"{error}: with a capture without frames") from error
        self._is_usable = True

    def _failure(self, frames: Sequence[SeedFrame], error: TsharkError) -> Violation:
        """The violation of a case with which tshark fails, at the frame that makes it fail."""
        for count in range(1, len(frames)):
            try:
                self._compared([frames[:count]])
            except TsharkError as shown:
                return _failed(shown, count - 1)
        return _failed(error, len(frames) - 1)

    def _compared(self, cases: Sequence[Sequence[SeedFrame]]) -> list[Violation | None]:
        """Compare with one run of tshark. Raises :class:`TsharkError` if it fails."""
        with tempfile.TemporaryDirectory(prefix="rdmawire-fuzz-") as folder:
            path = write_frames(Path(folder), [frame for frames in cases for frame in frames])
            path = path.rename(path.with_name(_CAPTURE))
            found = iter(self._differences(path, sum(map(len, cases))))
        return [self._first(islice(found, len(frames))) for frames in cases]

    @staticmethod
    def _first(found: Iterator[Violation | None]) -> Violation | None:
        """The first violation of a case, with the index of its frame."""
        kept = list(found)
        shown = ((index, one) for index, one in enumerate(kept) if one is not None)
        return next((one._replace(place=index) for index, one in shown), None)

    def _differences(self, path: Path, count: int) -> list[Violation | None]:
        """The first difference of each frame of a capture."""
        other = list(self._reader(path, self._fields))
        if len(other) != count:
            raise TsharkError("does not show each frame", f"{len(other)} of {count} frames")
        own = own_values(path, self._fields)
        pairs = zip(own, other, strict=True)
        return [self._difference(frame, mine, its) for (frame, mine), its in pairs]

    def _difference(self, frame: Dissection, mine: Values, its: Values) -> Violation | None:
        """The first difference of a frame that no row allows."""
        if not (_SHOWN in mine or _SHOWN in its):
            return None
        for name in sorted(differing(mine, its)):
            if not self._is_allowed(name, frame, mine.get(name, []), its.get(name, [])):
                return _violation(name, mine.get(name), its.get(name))
        return None

    def _is_allowed(
        self, name: str, frame: Dissection, mine: Sequence[str], its: Sequence[str]
    ) -> bool:
        """Whether a row allows different values of a field."""
        return any(row.covers(name, frame, _CAPTURE) for row in self._known) or any(
            row.covers(name, frame, mine, its) for row in self._malformed
        )


def _failed(error: TsharkError, index: int) -> Violation:
    """The violation of a frame with which tshark fails."""
    signature = f"tshark {error.reason} | {without_numbers(error.line)}"
    return Violation(index, "tshark", "tshark shows each frame", str(error), "", signature)


def _violation(name: str, mine: list[str] | None, its: list[str] | None) -> Violation:
    kind = "another value" if mine and its else "by rdmawire alone" if mine else "by tshark alone"
    expected = f"tshark shows {name} {_shown(its)}"
    happened = f"rdmawire shows {_shown(mine)}"
    return Violation(0, "field", expected, happened, "", f"{name} | {kind}")


def _shown(values: list[str] | None) -> str:
    return "nothing" if values is None else ", ".join(values)[:_MAX_TEXT]
