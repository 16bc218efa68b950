"""Everything that a scenario may say, as rows: keys, counters, events and endings."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from rdmawire.traffic.scenario.counters import COUNTERS
from rdmawire.traffic.scenario.form.kind import Kind, Many
from rdmawire.traffic.scenario.form.record import Choice, Named, Record, records_in
from rdmawire.traffic.scenario.schema.expect import EVENTS
from rdmawire.traffic.scenario.schema.whole import SCENARIO
from rdmawire.traffic.scenario.schema.words import STATUS
from rdmawire.traffic.scenario.tables import REASONS

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
        """All that is said behind its name."""
        value = f"[{self.value}]" if self.value else ""
        usual = self.left_out
        if usual and usual != MUST_BE_THERE:
            usual = f"if left out: {usual}"
        return " ".join(filter(None, (self.help, value, usual and f"({usual})")))

    def has(self, word: str) -> bool:
        """Whether a word is part of its name, or of what it is of."""
        return any(word.lower() in text.lower() for text in (self.of, self.name))


def listed_rows() -> Iterator[Listed]:
    """All of it. What several things have in common, the first of them has."""
    seen: set[tuple[int, str]] = set()
    for record in records_in(SCENARIO):
        for key, row in (*record.keys.items(), *_prefixed(record)):
            left_out = _left_out(record, key)
            if (id(row), left_out) not in seen:
                seen.add((id(row), left_out))
                yield Listed(record.called, key, row.help, _value(row.kind), left_out)
    for of, counters in COUNTERS.items():
        yield from (Listed(f"counters of a {of.value}", *row) for row in counters.items())
    yield from (Listed("events of hosts", name, value=_reasons(name)) for name in EVENTS)
    yield from (Listed("endings of work", name) for name in STATUS.words)


def _reasons(event: str) -> str:
    """With which reason an event may be named, if it has one."""
    first = next(iter(REASONS[event])).name if event in REASONS else ""
    return f"{event}, or with why it came: {event}.{first} and so on" if first else ""


def _left_out(record: Record[Any], key: str) -> str:
    if key not in record.keys:
        return ""
    return MUST_BE_THERE if record.keys[key].needed else record.left_out(key)


def _prefixed(record: Record[Any]) -> Iterator[tuple[str, Any]]:
    return ((f"{prefix} HOST", row) for prefix, row in record.prefixes.items())


def _value(kind: Kind[Any]) -> str:
    """What stands there; things with keys have rows of their own."""
    match kind:
        case Record() | Choice():
            return kind.called
        case Named():
            return f"{kind.record.called} behind each name"
        case Many(item=Record() | Choice(), alone=True):
            return f"{_value(kind.item)}, or a list of them"
    return kind.said
