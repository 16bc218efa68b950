"""Everything that a scenario may say, as rows: keys, counters, events and endings."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from rdmawire.traffic.scenario.counters import COUNTERS
from rdmawire.traffic.scenario.model.expectation import EVENTS
from rdmawire.traffic.scenario.model.scenario import Scenario
from rdmawire.traffic.scenario.section import Key, Section, sections_in
from rdmawire.traffic.scenario.tables import REASONS, STATUS

MUST_BE_THERE: Final = "must be there"
"""What is said of a key that may not be left out."""


class Listed(NamedTuple):
    """What something is of, its name, what it says, what may stand there, and what if it does not.

    ``left_out`` is the value that it has then, or that it must be there.
    """

    of: str
    name: str
    help: str = ""
    value: str = ""
    left_out: str = ""

    @property
    def line(self) -> str:
        """All that is said after its name."""
        value = f"[{self.value}]" if self.value else ""
        usual = self.left_out
        if usual and usual != MUST_BE_THERE:
            usual = f"if left out: {usual}"
        return " ".join(filter(None, (self.help, value, usual and f"({usual})")))

    def has(self, word: str) -> bool:
        """Whether a word is part of its name, or of what it is of."""
        return any(word.lower() in text.lower() for text in (self.of, self.name))


def listed_rows() -> Iterator[Listed]:
    """All rows. What several sections have in common, the first of them has."""
    seen: set[tuple[object, ...]] = set()
    for section in sections_in(Scenario):
        for name, row in (*section.keys().items(), *_prefixed(section)):
            if row.identity not in seen:
                seen.add(row.identity)
                left_out = MUST_BE_THERE if row.needed else row.left_out
                yield Listed(section.called, name, row.help, row.type.label, left_out)
    for of, counters in COUNTERS.items():
        yield from (Listed(f"counters of a {of.value}", *row) for row in counters.items())
    yield from (Listed("events of hosts", name, value=_reasons(name)) for name in EVENTS)
    yield from (Listed("endings of work", name) for name in STATUS.words)


def _reasons(event: str) -> str:
    """With which reason an event may be named, if it has one."""
    first = next(iter(REASONS[event])).name if event in REASONS else ""
    return f"{event}, or with why it came: {event}.{first} and so on" if first else ""


def _prefixed(section: type[Section]) -> Iterator[tuple[str, Key]]:
    return ((f"{prefix} HOST", row) for prefix, row in section.prefixed().items())
