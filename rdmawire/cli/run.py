"""`rdmawire run`: scenarios of virtual hosts, run, captured and checked."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from itertools import groupby
from operator import attrgetter
from time import perf_counter
from typing import TYPE_CHECKING, TextIO

import click
from click.shell_completion import CompletionItem

from rdmawire.capture.io import STANDARD_INPUT, STREAM
from rdmawire.capture.writer import format_named
from rdmawire.cli import options
from rdmawire.cli.command import Command, IntegerType, option, use_color
from rdmawire.cli.options import by_own_name, check_compatible, check_suffix
from rdmawire.cli.progress import late_bar
from rdmawire.cli.streams import bytes_of_input, complain, print_text
from rdmawire.cli.table import as_object, write_summary
from rdmawire.errors import CaptureError, CollectiveError
from rdmawire.terminal import escape, plural, quote

if TYPE_CHECKING:
    from rdmawire.ib.rules import Rules
    from rdmawire.traffic.scenario.document import Failure, Hint, Mistake, ScenarioError
    from rdmawire.traffic.scenario.model import Scenario
    from rdmawire.traffic.scenario.runner.play import Outcome, PortCounts
    from rdmawire.traffic.summary import TrafficSummary


def print_list() -> int:
    """Print the names of the shipped scenarios."""
    from rdmawire.traffic.scenario import read_shipped, shipped

    names = list(shipped())
    width = max(map(len, names))
    for name in names:
        click.echo(f"{name:<{width}}  {read_shipped(name).name}")
    return 0


def print_schema() -> int:
    """Print the JSON Schema of scenarios."""
    from rdmawire.traffic.scenario import json_schema

    click.echo(json.dumps(json_schema(), indent=1))
    return 0


def print_keys(word: str) -> int:
    """Print the keys, counters and words of scenarios whose name or owner contains ``word``."""
    from rdmawire.terminal import closest_names
    from rdmawire.traffic.scenario.reader import listed_rows

    every = list(listed_rows())
    rows = [row for row in every if row.has(word)]
    if not rows:
        near = next(iter(closest_names(word, [row.name for row in every])), "")
        meant = f"; did you mean {near!r}?" if near else ""
        raise click.UsageError(f"no key of scenarios contains {quote(word)}{meant}")
    width = max(len(row.name) for row in rows)
    for of, group in groupby(rows, key=attrgetter("of")):
        click.echo(of)
        for row in group:
            click.echo(f"  {row.name:<{width}}  {row.line}".rstrip())
    return 0


def text_of_word(word: str, *, shipped: bool) -> str:
    """Return the text of a scenario; raise ``ScenarioError`` if it is too long or not text."""
    from rdmawire.traffic.scenario.reader import read_bytes, text_of, text_of_bytes

    if shipped:
        return text_of(word)
    if word == STREAM:
        return text_of_bytes(bytes_of_input(), STANDARD_INPUT)
    return text_of_bytes(read_bytes(word), word)


_FOLDER = "captures/"
_SEPARATORS = tuple(filter(None, (os.sep, os.altsep)))


@dataclass(frozen=True, slots=True)
class CaptureTarget:
    """The capture to write, and the points to tap; without points, everything that hosts send."""

    capture: str | None
    points: tuple[str, ...]
    _: KW_ONLY
    arrived: bool

    def check(self, names: Sequence[str]) -> None:
        """Raise ``click.UsageError`` for options that do not go together."""
        if self.capture is None and (self.points or self.arrived):
            raise click.UsageError("--tap and --arrived need -w FILE")
        if self.arrived and not self.points:
            raise click.UsageError(
                "--arrived needs a --tap POINT: a link, a host, or a port of a switch"
            )
        if self.capture and len(names) > 1 and not self.is_folder:
            problem = f"-w {escape(self.capture)} is one file, for {len(names)} scenarios"
            raise click.UsageError(f"{problem}; name a folder, such as {_FOLDER}")
        self._check_files(names)
        if self.capture is not None and not self.is_folder:
            check_suffix(self.capture)
            self._check_room(self.capture)

    def _check_room(self, capture: str) -> None:
        """Raise ``click.UsageError`` for several points in a pcap, which has one interface."""
        if len(self.points) > 1 and capture != STREAM and format_named(capture) != "pcapng":
            points = len(self.points)
            problem = f"-w {escape(capture)} is a pcap with one interface, for {points} --tap"
            raise click.UsageError(f"{problem}; write a .pcapng")

    def _check_files(self, names: Sequence[str]) -> None:
        """Raise ``click.UsageError`` if a file would be written twice, or is also read."""
        files = [file for file in map(self.of, names) if file]
        if twice := next((file for file in files if files.count(file) > 1), None):
            raise click.UsageError(f"{escape(twice)} would be written twice")
        for file in () if self.is_output else files:
            if any(_is_one(name, file) for name in names):
                raise click.UsageError(f"{escape(file)} is a SCENARIO; -w would write over it")

    def of(self, name: str) -> str | None:
        """Return the file to write for the scenario ``name``."""
        if self.capture is None or not self.is_folder:
            return self.capture
        word = STANDARD_INPUT if name == STREAM else name
        stem, _ = os.path.splitext(os.path.basename(word))
        return os.path.join(self.capture, f"{stem}.pcapng")

    @property
    def is_folder(self) -> bool:
        """Whether the capture is a folder, with a file for each scenario."""
        capture = self.capture or ""
        return capture.endswith(_SEPARATORS) or os.path.isdir(capture)

    def prepare(self) -> None:
        """Create the folder if necessary; raise ``CaptureError`` if that fails."""
        if self.capture is None or not self.is_folder:
            return
        try:
            os.makedirs(self.capture, exist_ok=True)
        except OSError as error:
            raise CaptureError(f"{escape(self.capture)}: {error.strerror or error}") from error

    @property
    def is_output(self) -> bool:
        """Whether frames go to standard output, so that results go to standard error."""
        return self.capture == STREAM


def _is_one(name: str, file: str) -> bool:
    """Return whether ``file`` is the file that the scenario ``name`` is read from."""
    with suppress(OSError, ValueError):  # one does not exist, or is not a possible name
        return os.path.isfile(file) and os.path.samefile(0 if name == STREAM else name, file)
    return False


_SECOND = 1_000_000_000
_PASSED = ("passed", "green")
_FAILED = ("FAILED", "bold red")


class Results:
    """Prints the results of scenarios, JSON after the last one.

    With ``counters``, each is followed by its counters that are not zero.
    """

    def __init__(self, to: TextIO, *, as_json: bool, quiet: bool, counters: bool = False) -> None:
        self._to = to
        self._quiet = quiet
        self._counters = counters
        self._objects: list[dict[str, object]] | None = [] if as_json else None
        self._total: TrafficSummary | None = None
        self._mistakes: list[dict[str, object]] = []
        self._more = 0
        self._passed = self._failed = 0
        self._ports: Mapping[str, PortCounts] = {}

    def add(self, outcome: "Outcome") -> None:
        """Add the outcome of one scenario."""
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
                self._say(f"  {escape(failure.text(outcome.scenario.source))}")
            self._count(outcome.counters if self._counters else {})
            self._to.flush()

    def add_unable(self) -> None:
        """Count a scenario that cannot be run here as failed."""
        self._failed += 1

    def _count(self, counters: "Mapping[str, int]") -> None:
        """Print a line for each counter that is not zero."""
        rows = [(escape(name), f"{count:,}") for name, count in counters.items() if count]
        wide = max((len(name) for name, _ in rows), default=0)
        right = max((len(count) for _, count in rows), default=0)
        for name, count in rows:
            self._say(f"  {name:<{wide}}  {count:>{right}}")

    def mistaken(self, error: "ScenarioError", hint: str) -> None:
        """Add the mistakes of a scenario; ``hint`` is a similar name of a shipped one."""
        self._mistakes += [_mistake(mistake, hint) for mistake in error.mistakes]
        self._more += error.more

    def conclude(self) -> int:
        """Print the summary; return the exit status."""
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
        said = f"{plural(outcome.frames, 'frame')}, {time:.9f} s"
        scenario = outcome.scenario
        return (
            f"{self._painted(*style)}  {escape(scenario.source)}: {escape(scenario.name)} ({said})"
        )

    def _painted(self, text: str, style: str) -> str:
        """Return ``text`` in colour, in a terminal."""
        if not use_color(self._to):
            return text
        from rich.style import Style

        return Style.parse(style).render(text)


_OF_PORTS = {
    "marks": "{} marked",
    "drops": "{} dropped",
    "stops": "{} pauses requested",
    "pauses": "paused {} times",
}
"""The text for each count of a port that is not zero."""


def _port_rows(ports: "Mapping[str, PortCounts]") -> Iterator[tuple[str, str]]:
    """Yield a row for each port of a switch with counts that are not zero."""
    for name, counts in ports.items():
        found = counts._asdict()
        said = [words.format(f"{found[key]:,}") for key, words in _OF_PORTS.items() if found[key]]
        if said:
            yield f"port {escape(name)}", ", ".join(said)


def _object(outcome: "Outcome") -> dict[str, object]:
    """Return an outcome as a JSON object."""
    from rdmawire.traffic.scenario.consistency import hints

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


_USAGE = 2


def _complete(_ctx: click.Context, _argument: click.Parameter, start: str) -> list[CompletionItem]:
    """Return shipped scenarios that begin with ``start``, and files, for shell completion."""
    from rdmawire.traffic.scenario import shipped

    found = [CompletionItem(name) for name in shipped() if name.startswith(start)]
    return [*found, CompletionItem(start, type="file")]


@click.command(
    "run",
    cls=Command,
    examples=(
        "rdmawire run --list",
        "rdmawire run lost-first -w lost-first.pcapng",
        "rdmawire run lost-first -w - | tshark -r -",
        "rdmawire run --all -w captures/",
        "rdmawire run mine.yaml --tap leaf:server --arrived -w server.pcap",
        "rdmawire run mine.yaml --tap client --tap leaf:server -w both.pcapng",
        "rdmawire run --show lost-first > mine.yaml",
        "rdmawire run --all --quiet",
        "rdmawire run --quiet --counters mine.yaml",
        "rdmawire run --bug server=short-writes findings/NAME/scenario.yaml",
        "rdmawire run --json mine.yaml | jq '.scenarios[].failures'",
        "rdmawire run --keys queue",
        "rdmawire run --schema > scenario.schema.json",
    ),
)
@click.argument("scenarios", nargs=-1, metavar="[SCENARIO]...", shell_complete=_complete)
@option(
    "Input", "-r", "--read", "more", multiple=True, metavar="FILE",
    help="Run FILE; the same as a SCENARIO argument. Repeatable.",
)  # fmt: skip
@option("Input", "--all", "every", is_flag=True, help="Run all shipped scenarios.")
@option(
    "Input", "--seed", type=IntegerType(0, (1 << 64) - 1),
    help="Seed of everything random, in place of the seed of each SCENARIO.",
)  # fmt: skip
@option(
    "Input", "--bug", "bugs", multiple=True, metavar="HOST=NAME",
    help="Plant a bug in the adapter of HOST, as `rdmawire fuzz run --bug NAME` does. Repeatable.",
)  # fmt: skip
@option("Input", "--check", is_flag=True, help="Only read each SCENARIO and report its mistakes.")
@options.written(
    "capture",
    "Write the frames that hosts send to a .pcap or .pcapng, also compressed; to a .pcapng for "
    "each SCENARIO in a folder (a name that ends in / is created); or to standard output, -.",
)
@option(
    "Output", "--tap", "points", metavar="POINT", multiple=True,
    help="Have -w take the frames of a link (client-leaf), a host, or a port of a switch "
    "(leaf:server). Repeatable with a .pcapng.",
)  # fmt: skip
@option(
    "Output", "--arrived", is_flag=True,
    help="Have -w take the frames that arrive at --tap POINT, not those sent there.",
)  # fmt: skip
@options.text_or_json("Print one JSON object with all results.")
@option(
    "Output", "--counters", is_flag=True,
    help="Print every counter that is not 0, by its name in 'expect: counters'.",
)  # fmt: skip
@option("Output", "-q", "--quiet", is_flag=True, help="Print failures only.")
@options.PROGRESS
@option("Look up", "--list", "listing", is_flag=True, help="List the shipped scenarios.")
@option("Look up", "--show", is_flag=True, help="Print the text of each SCENARIO.")
@option(
    "Look up", "--keys", metavar="[WORD]", is_flag=False, flag_value="",
    help="List the keys, counters and events of scenarios whose names contain WORD.",
)  # fmt: skip
@option("Look up", "--schema", is_flag=True, help="Print the JSON Schema of scenarios.")
def command(
    scenarios: tuple[str, ...],
    *,
    listing: bool,
    show: bool,
    every: bool,
    check: bool,
    schema: bool,
    more: tuple[str, ...],
    keys: str | None,
    capture: str | None,
    points: tuple[str, ...],
    arrived: bool,
    seed: int | None,
    bugs: tuple[str, ...],
    as_json: bool,
    counters: bool,
    quiet: bool,
    progress: bool | None,
) -> int:
    """Run each SCENARIO: a YAML file, - for standard input, or the name of a shipped one.

    Hosts, adapters, GPUs, links, switches and faults are virtual, and so is time: the same scenario
    gives the same frames, byte for byte. A name in --list always means the shipped scenario; write
    ./NAME for a file of that name. Exit status: 0 if all expectations hold, 1 if not, 2 for a
    mistake in a file.
    """
    check_compatible(click.get_current_context())
    if keys is not None:
        return print_keys(keys)
    if schema or listing:
        return print_schema() if schema else print_list()
    names = _names(more + scenarios, every=every)
    target = CaptureTarget(capture and by_own_name(capture), points, arrived=arrived)
    target.check(names)
    said_to = sys.stderr if target.is_output else sys.stdout
    results = Results(said_to, as_json=as_json, quiet=quiet, counters=counters)
    if show:
        return max(_print_text(name, results) for name in names)
    read = _read_all(names, seed, results)
    for scenario in read or ():
        _report_hints(scenario, _hints(scenario))
    if read is None:
        results.conclude()
        return _USAGE
    if check:
        _report_valid(read, quiet=quiet or as_json)
        return results.conclude()
    rules = _rules(bugs, read)
    target.prepare()
    drawn = progress if progress is not None else sys.stderr.isatty()
    for name, scenario in zip(names, read, strict=True):
        outcome = _outcome(scenario, target.of(name), target, rules, drawn=drawn)
        _report(scenario, outcome, results)
    return results.conclude()


def _report(scenario: "Scenario", outcome: "Outcome | CollectiveError", results: Results) -> None:
    """Report the outcome of a scenario, or why it cannot be run here."""
    if isinstance(outcome, CollectiveError):
        complain(f"{escape(scenario.source)}: {outcome}")
        results.add_unable()
        return
    results.add(outcome)
    _report_hints(scenario, outcome.hints)


def _names(scenarios: tuple[str, ...], *, every: bool) -> tuple[str, ...]:
    """Return the scenarios to run; raise ``click.UsageError`` if there are none."""
    from rdmawire.traffic.scenario import shipped

    names = (*(shipped() if every else ()), *scenarios)
    if not names:
        raise click.UsageError("no SCENARIO is given; --list names the shipped ones")
    return names


def _is_shipped(word: str) -> bool:
    """Return whether ``word`` is a shipped scenario; a file of that name does not count."""
    from rdmawire.traffic.scenario import shipped

    return word in shipped()


def _nearest(word: str) -> str:
    """Return the shipped scenario with the most similar name, or an empty string."""
    from rdmawire.terminal import closest_names
    from rdmawire.traffic.scenario import shipped

    return next(iter(closest_names(word, list(shipped()))), "")


def _print_text(word: str, results: Results) -> int:
    """Print the text of a scenario; return the exit status."""
    from rdmawire.traffic.scenario.document import ScenarioError

    try:
        print_text(text_of_word(word, shipped=_is_shipped(word)))
    except ScenarioError as error:
        return _complain_of(word, error, results)
    return 0


def _complain_of(word: str, error: "ScenarioError", results: Results) -> int:
    """Report the mistakes of a scenario, one per line; return the exit status."""
    missing = word != STREAM and not os.path.exists(word)
    near = _nearest(word) if missing else ""
    where = f"; did you mean the shipped {near!r}?" if near else "; --list names the shipped ones"
    for line in error.lines:
        complain(f"{line}{where if missing else ''}")
    results.mistaken(error, near)
    return _USAGE


def _read_all(names: Sequence[str], seed: int | None, results: Results) -> "list[Scenario] | None":
    """Read all scenarios; report their mistakes, and return ``None`` if there are any."""
    from rdmawire.traffic.scenario.document import ScenarioError

    read = []
    for name in names:
        try:
            read.append(_scenario(name))
        except ScenarioError as error:
            _complain_of(name, error, results)
    if len(read) < len(names):
        return None
    return read if seed is None else [one.model_copy(update={"seed": seed}) for one in read]


def _scenario(word: str) -> "Scenario":
    from rdmawire.traffic.scenario import read_scenario, read_scenario_text, read_shipped

    if word == STREAM:
        return read_scenario_text(bytes_of_input(), STANDARD_INPUT)
    return read_shipped(word) if _is_shipped(word) else read_scenario(word)


def _hints(scenario: "Scenario") -> "Iterable[Hint]":
    from rdmawire.traffic.scenario.consistency import hints

    return hints(scenario)


def _report_hints(scenario: "Scenario", hints: "Iterable[Hint]") -> None:
    """Report on standard error what is odd but valid."""
    for hint in hints:
        complain(hint.text(scenario.source))


def _report_valid(read: Sequence["Scenario"], *, quiet: bool) -> None:
    for scenario in () if quiet else read:
        steps = plural(len(scenario.steps), "step")
        said = f"{steps}, {plural(len(scenario.expectations), 'expectation')}"
        click.echo(f"{escape(scenario.source)}: {escape(scenario.name)} ({said})")


def _rules(bugs: Sequence[str], read: Sequence["Scenario"]) -> "dict[str, Rules]":
    """Return the rules of hosts' adapters; raise ``click.BadParameter`` for a bad ``--bug``."""
    found = {}
    for text in bugs:
        host, _, name = text.partition("=")
        if not (host and name):
            raise _bad_bug(f"{quote(text)} is no HOST=NAME, such as server=short-writes")
        for scenario in read:
            _check_host(host, scenario)
        found[host] = _planted(name)
    return found


def _check_host(host: str, scenario: "Scenario") -> None:
    known = [each.name for each in scenario.hosts]
    if host not in known:
        where = escape(scenario.source)
        raise _bad_bug(f"{where} has no host {quote(host)}: hosts are {', '.join(known)}")


def _planted(name: str) -> "Rules":
    from rdmawire.errors import FuzzError
    from rdmawire.fuzz.planted_bugs import planted_rules

    try:
        return planted_rules(name)
    except FuzzError as error:
        raise _bad_bug(str(error)) from None


def _bad_bug(message: str) -> click.BadParameter:
    return click.BadParameter(message, param_hint="--bug")


def _outcome(
    scenario: "Scenario",
    capture: str | None,
    target: CaptureTarget,
    rules: "Mapping[str, Rules]",
    *,
    drawn: bool,
) -> "Outcome | CollectiveError":
    """Run a scenario; return the error if that cannot be done without NumPy."""
    from rdmawire.traffic.scenario import play
    from rdmawire.traffic.scenario.runner.observer import UnknownPoint

    start = perf_counter()
    with late_bar(scenario.name, wanted=drawn) as report:
        try:
            outcome = play(
                scenario,
                capture=capture,
                points=target.points,
                arrived=target.arrived,
                progress=report,
                rules=rules,
            )
        except UnknownPoint as error:
            raise click.BadParameter(str(error), param_hint="--tap") from None
        except CollectiveError as error:
            return error
    summary = outcome.summary._replace(wall_s=perf_counter() - start)
    return replace(outcome, summary=summary)
