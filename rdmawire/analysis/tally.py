"""What a capture amounts to: frames, checksums good and bad, and what did not parse."""

from collections import Counter

from rdmawire.analysis.node import Dissection


class Tally:
    """Counts over the frames of a capture."""

    def __init__(self) -> None:
        self.frames = 0
        self.malformed = 0
        self.good: Counter[str] = Counter()
        self.bad: Counter[str] = Counter()
        self.unverified: Counter[str] = Counter()
        self.first_bad = ""

    def add(self, frame: Dissection) -> None:
        """Count one frame."""
        self.frames += 1
        self.malformed += frame.malformed is not None
        self.unverified.update(frame.unverified)
        for check in frame.checks:
            (self.good if check.good else self.bad)[check.name] += 1
            if not check.good and not self.first_bad:
                self.first_bad = f"frame {frame.number}: {check}"

    def include(self, other: "Tally") -> None:
        """Count what another has counted as well."""
        self.frames += other.frames
        self.malformed += other.malformed
        self.good += other.good
        self.bad += other.bad
        self.unverified += other.unverified
        self.first_bad = self.first_bad or other.first_bad

    def __str__(self) -> str:
        names = sorted(set(self.good) | set(self.bad) | set(self.unverified))
        checks = [f"{name} {self._states(name)}" for name in names]
        malformed = f"{self.malformed} malformed" if self.malformed else "none malformed"
        return "; ".join([_counted(self.frames, "frame"), *checks, malformed])

    @property
    def verdict(self) -> str:
        """How many checksums do not hold, and the first of them; nothing if all hold."""
        bad = _counted(self.bad.total(), "bad checksum")
        return f"{bad}, the first in {self.first_bad}" if self.first_bad else ""

    def _states(self, name: str) -> str:
        states = (self.good, "good"), (self.bad, "BAD"), (self.unverified, "not verified")
        counts = [(found[name], word) for found, word in states]
        return ", ".join(f"{count} {word}" for count, word in counts if count)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
