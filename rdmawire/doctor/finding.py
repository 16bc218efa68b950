"""What the doctor finds: a cause, what shows it, and what to do."""

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, Final, NamedTuple

SHOWN: Final = 5
"""Places of a finding that are named."""


class Subject(Enum):
    """What is examined."""

    HOST = "host"
    SCENARIO = "scenario"
    CAPTURE = "capture"


class Severity(Enum):
    """How bad it is: data does not arrive or is slow, or it could be better."""

    ERROR = "error"
    WARNING = "warning"


class Check(NamedTuple):
    """A check, as data: what it looks for, and what to say.

    ``find`` yields what shows the cause, one text for each place. ``source`` says where the rule is
    from.
    """

    name: str
    subject: Subject
    severity: Severity
    cause: str
    remedy: str
    source: str
    find: Callable[[Any], Iterator[str]]


class Finding(NamedTuple):
    """A check that found something: ``evidence`` is what shows it."""

    check: Check
    evidence: list[str]

    def lines(self) -> Iterator[str]:
        """Yield the finding as text."""
        yield f"{self.check.severity.value}: {self.check.cause} ({self.check.name})"
        yield from (f"  shown by: {text}" for text in self.evidence[:SHOWN])
        if len(self.evidence) > SHOWN:
            yield f"  and {len(self.evidence) - SHOWN} more"
        yield f"  remedy: {self.check.remedy}"

    def values(self) -> dict[str, object]:
        """Return the finding as JSON has it."""
        return {
            "check": self.check.name,
            "severity": self.check.severity.value,
            "cause": self.check.cause,
            "evidence": self.evidence,
            "remedy": self.check.remedy,
            "source": self.check.source,
        }


def findings(checks: tuple[Check, ...], facts: object) -> list[Finding]:
    """Return what the checks find in what is known of their subject."""
    found = ((check, list(check.find(facts))) for check in checks)
    return [Finding(check, evidence) for check, evidence in found if evidence]
