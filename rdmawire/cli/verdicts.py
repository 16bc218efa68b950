"""What became of scenarios, for people and for machines."""

import json
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TextIO

from rdmawire.cli.summary import as_object, write_summary
from rdmawire.screen import safe

if TYPE_CHECKING:
    from rdmawire.traffic.scenario.document import Mistake, ScenarioError
    from rdmawire.traffic.scenario.hints import Hint
    from rdmawire.traffic.scenario.playing.failure import Failure
    from rdmawire.traffic.scenario.playing.outcome import Outcome
    from rdmawire.traffic.scenario.playing.ports import PortCounts
    from rdmawire.traffic.summary import Summary

_SECOND = 1_000_000_000
_PASSED = ("passed", "green")
_FAILED = ("FAILED", "bold red")


class Results:
    """Results of scenarios, one after the other; JSON is printed when all are there.

    With ``counters``, those that are not zero are printed behind each.
    """

    def __init__(self, to: TextIO, *, as_json: bool, quiet: bool, counters: bool = False) -> None:
        self._to = to
        self._quiet = quiet
        self._counters = counters
        self._objects: list[dict[str, object]] | None = [] if as_json else None
        self._total: Summary | None = None
        self._mistakes: list[dict[str, object]] = []
        self._more = 0
        self._passed = self._failed = 0
        self._ports: Mapping[str, PortCounts] = {}

    def add(self, outcome: "Outcome") -> None:
        """One more has been played."""
        from rdmawire.traffic.summary import added

        total = self._total
        self._total = outcome.summary if total is None else added(total, outcome.summary)
        self._ports = outcome.ports
        self._passed += outcome.passed
        self._failed += not outcome.passed
        if self._objects is not None:
            self._objects.append(_object(outcome))
        elif self._counters or not (self._quiet and outcome.passed):
            self._say(self._line(outcome))
            for failure in outcome.failures:
                self._say(f"  {safe(failure.text(outcome.scenario.source))}")
            self._count(outcome.counters if self._counters else {})
            self._to.flush()

    def _count(self, counters: "Mapping[str, int]") -> None:
        """A line for each counter that is not zero."""
        rows = [(safe(name), f"{count:,}") for name, count in counters.items() if count]
        wide = max((len(name) for name, _ in rows), default=0)
        right = max((len(count) for _, count in rows), default=0)
        for name, count in rows:
            self._say(f"  {name:<{wide}}  {count:>{right}}")

    def mistaken(self, error: "ScenarioError", hint: str) -> None:
        """A scenario has mistakes; ``hint`` is what may have been meant by its name."""
        self._mistakes += [_mistake(mistake, hint) for mistake in error.mistakes]
        self._more += error.more

    def conclude(self) -> int:
        """Print what is left; the exit status."""
        if self._objects is not None:
            document = {
                "scenarios": self._objects,
                "passed": self._passed,
                "failed": self._failed,
                "mistakes": self._mistakes,
                "more_mistakes": self._more,
            }
            self._say(json.dumps(document, indent=1))
        elif not self._quiet and self._total is not None:
            several = self._passed + self._failed > 1
            more = () if several else _port_rows(self._ports)
            self._say()
            write_summary(self._total, as_json=False, to=self._to, more=more)
            if several:
                self._say(f"\n{self._passed} passed, {self._failed} failed")
        return 1 if self._failed else 0

    def _say(self, text: str = "") -> None:
        self._to.write(f"{text}\n")

    def _line(self, outcome: "Outcome") -> str:
        style = _PASSED if outcome.passed else _FAILED
        time = outcome.summary.virtual_ns / _SECOND
        said = f"{outcome.frames} frames, {time:.9f} s"
        scenario = outcome.scenario
        return f"{self._painted(*style)}  {safe(scenario.source)}: {safe(scenario.name)} ({said})"

    def _painted(self, text: str, style: str) -> str:
        """Text in colour, in a terminal."""
        if not self._to.isatty() or "NO_COLOR" in os.environ:
            return text
        from rich.style import Style

        return Style.parse(style).render(text)


_OF_PORTS = {
    "marks": "{} marked",
    "drops": "{} dropped",
    "stops": "{} pauses asked for",
    "pauses": "stopped {} times",
}
"""What is said of a port's counts, where there are any."""


def _port_rows(ports: "Mapping[str, PortCounts]") -> Iterator[tuple[str, str]]:
    """A line for each port of a switch at which something happened."""
    for name, counts in ports.items():
        found = counts._asdict()
        said = [words.format(f"{found[key]:,}") for key, words in _OF_PORTS.items() if found[key]]
        if said:
            yield f"port {safe(name)}", ", ".join(said)


def _object(outcome: "Outcome") -> dict[str, object]:
    """A result as JSON has it."""
    from rdmawire.traffic.scenario.hints import hints

    scenario = outcome.scenario
    return {
        "name": scenario.name,
        "source": scenario.source,
        "seed": scenario.seed,
        "passed": outcome.passed,
        "frames": outcome.frames,
        "failures": [_failure(failure, scenario.source) for failure in outcome.failures],
        "hints": [_hint(hint, scenario.source) for hint in (*hints(scenario), *outcome.hints)],
        "steps": [
            {
                "name": step.name,
                "verb": step.verb,
                "line": step.mark.line,
                "posted": step.posted,
                "endings": dict(step.endings),
            }
            for step in outcome.steps
        ],
        "summary": as_object(outcome.summary),
        "counters": dict(outcome.counters),
        "ports": {name: counts._asdict() for name, counts in outcome.ports.items()},
    }


def _failure(failure: "Failure", source: str) -> dict[str, object]:
    line, column = failure.mark
    return {
        "file": source,
        "line": line,
        "column": column,
        "what": failure.what,
        "expected": failure.expected,
        "found": failure.found,
        "frame": failure.frame,
        "point": failure.point,
        "nearest": failure.nearest,
    }


def _hint(hint: "Hint", source: str) -> dict[str, object]:
    line, column = hint.mark
    return {"file": source, "line": line, "column": column, "said": hint.said}


def _mistake(mistake: "Mistake", hint: str) -> dict[str, object]:
    line, column = mistake.mark or (None, None)
    return {
        "file": mistake.source,
        "line": line,
        "column": column,
        "found": mistake.found,
        "expected": mistake.expected,
        "hint": mistake.meant or hint,
    }
