"""What a capture amounts to: frames, checksums good and bad, and what did not parse."""

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from rdmawire.analysis.node import Dissection


class Tally:
    """Counts over the frames of a capture."""

    def __init__(self) -> None:
        self.frames = 0
        self.malformed = 0
        self.good: Counter[str] = Counter()
        self.bad: Counter[str] = Counter()
        self.unverified: Counter[str] = Counter()
        self._first_bad: dict[str, tuple[int, str]] = {}
        self._first_malformed = ""

    def add(self, frame: Dissection) -> None:
        """Count one frame."""
        self.frames += 1
        self.unverified.update(frame.unverified)
        for check in frame.checks:
            (self.good if check.good else self.bad)[check.name] += 1
            if not check.good:
                self._first_bad.setdefault(check.name, (frame.number, str(check)))
        if frame.malformed:
            self.malformed += 1
            said = f"frame {frame.number}: {frame.malformed.reason}"
            self._first_malformed = self._first_malformed or said

    def include(self, other: "Tally") -> None:
        """Count what another has counted as well; what came first stays each capture's own."""
        self.frames += other.frames
        self.malformed += other.malformed
        self.good += other.good
        self.bad += other.bad
        self.unverified += other.unverified

    def __str__(self) -> str:
        checks = [f"{name} {self._states(name)}" for name in self._names()]
        malformed = f"{self.malformed} malformed" if self.malformed else "none malformed"
        return "; ".join([counted(self.frames, "frame"), *checks, malformed])

    def as_object(self) -> dict[str, Any]:
        """The counts for JSON: of frames, and by kind of checksum."""
        checks = {
            name: {
                "good": self.good[name],
                "bad": self.bad[name],
                "not_verified": self.unverified[name],
            }
            for name in self._names()
        }
        return {"frames": self.frames, "malformed": self.malformed, "checksums": checks}

    def objections(self, checksums: Collection[str], *, malformed: bool) -> Iterator[str]:
        """What is wrong, and where first: with checksums of these names, and with parsing."""
        firsts = [self._first_bad[name] for name in checksums if name in self._first_bad]
        if firsts:
            number, said = min(firsts)
            bad = counted(sum(self.bad[name] for name in checksums), "bad checksum")
            yield f"{bad}, the first in frame {number}: {said}"
        if malformed and self.malformed:
            yield f"{counted(self.malformed, 'malformed frame')}, first {self._first_malformed}"

    def _names(self) -> list[str]:
        return sorted({*self.good, *self.bad, *self.unverified})

    def _states(self, name: str) -> str:
        states = (self.good, "good"), (self.bad, "BAD"), (self.unverified, "not verified")
        counts = [(found[name], word) for found, word in states]
        return ", ".join(f"{count} {word}" for count, word in counts if count)


def counted(number: int, noun: str) -> str:
    """``1 frame``, ``2 frames``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
