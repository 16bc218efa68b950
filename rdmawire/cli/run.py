"""`rdmawire run`: scenarios of virtual hosts, played, captured and checked."""

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

from rdmawire.capture.source import STANDARD_INPUT, STREAM
from rdmawire.capture.writer import format_named
from rdmawire.cli import options
from rdmawire.cli.options import OnceCommand, WholeNumber, check_together
from rdmawire.cli.progress import late_bar
from rdmawire.cli.streams import by_own_name, check_suffix, complain, print_text
from rdmawire.cli.table import as_object, write_summary
from rdmawire.errors import CaptureError
from rdmawire.terminal import escape, plural, quote

if TYPE_CHECKING:
    from rdmawire.traffic.scenario.document import Mistake, ScenarioError
    from rdmawire.traffic.scenario.hints import Hint
    from rdmawire.traffic.scenario.runner.failure import Failure
    from rdmawire.traffic.scenario.runner.outcome import Outcome, PortCounts
    from rdmawire.traffic.summary import Summary
if TYPE_CHECKING:
    from rdmawire.traffic.scenario.document import ScenarioError
    from rdmawire.traffic.scenario.hints import Hint
    from rdmawire.traffic.scenario.model import Scenario
    from rdmawire.traffic.scenario.runner.outcome import Outcome


def print_list() -> int:
    """The scenarios that come with rdmawire."""
    from rdmawire.traffic.scenario.shipped import read_shipped, shipped

    names = list(shipped())
    width = max(map(len, names))
    for name in names:
        click.echo(f"{name:<{width}}  {read_shipped(name).name}")
    return 0


def print_schema() -> int:
    """The JSON Schema of scenarios."""
    from rdmawire.traffic.scenario.reader import json_schema

    click.echo(json.dumps(json_schema(), indent=1))
    return 0


def print_keys(word: str) -> int:
    """Keys, counters and words with this in their name, or in that of what they are of."""
    from rdmawire.terminal import closest_names
    from rdmawire.traffic.scenario.listing import listed_rows

    every = list(listed_rows())
    rows = [row for row in every if row.has(word)]
    if not rows:
        near = next(iter(closest_names(word, [row.name for row in every])), "")
        meant = f"; did you mean {near!r}?" if near else ""
        raise click.UsageError(f"nothing of scenarios has {quote(word)} in its name{meant}")
    width = max(len(row.name) for row in rows)
    for of, group in groupby(rows, key=attrgetter("of")):
        click.echo(of)
        for row in group:
            click.echo(f"  {row.name:<{width}}  {row.line}".rstrip())
    return 0


def text_of_word(word: str, *, shipped: bool) -> str:
    """What stands in a scenario; ``ScenarioError`` where that is no text, or too long."""
    from rdmawire.traffic.scenario.reader import read_bytes, text_of_bytes
    from rdmawire.traffic.scenario.shipped import text_of

    if shipped:
        return text_of(word)
    if word == STREAM:
        return text_of_bytes(bytes_of_input(), STANDARD_INPUT)
    return text_of_bytes(read_bytes(word), word)


def bytes_of_input() -> bytes:
    """What standard input has, one byte more than a scenario may have at the most."""
    from rdmawire.traffic.scenario.document import MAX_BYTES

    return sys.stdin.buffer.read(MAX_BYTES + 1)


_FOLDER = "captures/"
_SEPARATORS = tuple(filter(None, (os.sep, os.altsep)))


@dataclass(frozen=True, slots=True)
class Target:
    """Where frames are written to, and those of which points; all that hosts send, if none."""

    capture: str | None
    points: tuple[str, ...]
    _: KW_ONLY
    arrived: bool

    def check(self, names: Sequence[str]) -> None:
        """:class:`click.UsageError` for options that say nothing together."""
        if self.capture is None and (self.points or self.arrived):
            raise click.UsageError("--tap and --arrived say what -w FILE takes; name one")
        if self.arrived and not self.points:
            raise click.UsageError(
                "--arrived needs a --tap POINT where frames arrive: a link, a host, a switch's port"
            )
        if self.capture and len(names) > 1 and not self.is_folder:
            said = f"-w {escape(self.capture)} is one file, for {len(names)} scenarios"
            raise click.UsageError(f"{said}; name a folder, such as {_FOLDER}")
        self._check_files(names)
        if self.capture is not None and not self.is_folder:
            check_suffix(self.capture)
            self._check_room(self.capture)

    def _check_room(self, capture: str) -> None:
        """Only a pcapng says which point a frame is of."""
        if len(self.points) > 1 and capture != STREAM and format_named(capture) != "pcapng":
            points = len(self.points)
            said = f"-w {escape(capture)} is a pcap and has one interface, for {points} --tap"
            raise click.UsageError(f"{said}; write a .pcapng")

    def _check_files(self, names: Sequence[str]) -> None:
        """No file is written twice, and none that is read."""
        files = [file for file in map(self.of, names) if file]
        if twice := next((file for file in files if files.count(file) > 1), None):
            raise click.UsageError(f"{escape(twice)} would be written twice")
        for file in () if self.is_output else files:
            if any(_is_one(name, file) for name in names):
                raise click.UsageError(f"{escape(file)} is a SCENARIO; -w would write over it")

    def of(self, name: str) -> str | None:
        """The file of one scenario, by the word that asked for it."""
        if self.capture is None or not self.is_folder:
            return self.capture
        word = STANDARD_INPUT if name == STREAM else name
        stem, _ = os.path.splitext(os.path.basename(word))
        return os.path.join(self.capture, f"{stem}.pcapng")

    @property
    def is_folder(self) -> bool:
        """Whether it is one, or has the name of one: each scenario has its own file then."""
        capture = self.capture or ""
        return capture.endswith(_SEPARATORS) or os.path.isdir(capture)

    def prepare(self) -> None:
        """Make the folder if it is not there; ``CaptureError`` if it cannot be made."""
        if self.capture is None or not self.is_folder:
            return
        try:
            os.makedirs(self.capture, exist_ok=True)
        except OSError as error:
            raise CaptureError(f"{escape(self.capture)}: {error.strerror or error}") from error

    @property
    def is_output(self) -> bool:
        """Whether frames go to standard output, so that all else has to go elsewhere."""
        return self.capture == STREAM


def _is_one(name: str, file: str) -> bool:
    """Whether a file, by whatever name, is what a scenario is read from."""
    with suppress(OSError, ValueError):  # one of the two is not there yet, or no name of a file
        return os.path.isfile(file) and os.path.samefile(0 if name == STREAM else name, file)
    return False


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
                self._say(f"  {escape(failure.text(outcome.scenario.source))}")
            self._count(outcome.counters if self._counters else {})
            self._to.flush()

    def _count(self, counters: "Mapping[str, int]") -> None:
        """A line for each counter that is not zero."""
        rows = [(escape(name), f"{count:,}") for name, count in counters.items() if count]
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
        return (
            f"{self._painted(*style)}  {escape(scenario.source)}: {escape(scenario.name)} ({said})"
        )

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
            yield f"port {escape(name)}", ", ".join(said)


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


_MISTAKEN = 2


def _complete(_ctx: click.Context, _argument: click.Parameter, start: str) -> list[CompletionItem]:
    """Shipped scenarios that begin like this, and files."""
    from rdmawire.traffic.scenario.shipped import shipped

    found = [CompletionItem(name) for name in shipped() if name.startswith(start)]
    return [*found, CompletionItem(start, type="file")]


@click.command("run", cls=OnceCommand)
@click.argument("scenarios", nargs=-1, metavar="[SCENARIO]...", shell_complete=_complete)
@click.option("--list", "listing", is_flag=True, help="List the scenarios that come with rdmawire.")
@click.option("--show", is_flag=True, help="Print what stands in each SCENARIO.")
@click.option("--all", "every", is_flag=True, help="Run all that come with rdmawire.")
@click.option("--check", is_flag=True, help="Only read each SCENARIO, and say what is amiss.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of scenarios, for editors.")
@click.option(
    "--keys", metavar="[WORD]", is_flag=False, flag_value="",
    help="Print what a scenario may say: keys, counters, events; those with WORD in their name.",
)  # fmt: skip
@click.option(
    "-r", "--read", "more", multiple=True, metavar="FILE",
    help="Another SCENARIO, as tshark asks for files.",
)  # fmt: skip
@options.written(
    "capture",
    "Write what hosts send: a .pcap or .pcapng, packed or not; a folder for a .pcapng of each "
    "SCENARIO (with a / behind its name it is made if need be); or - for a pcapng to standard "
    "output.",
)
@click.option(
    "--tap", "points", metavar="POINT", multiple=True,
    help="Have -w take frames as they pass a link (client-leaf), a host, or a switch's port "
    "(leaf:server). Several in one .pcapng, if given more than once.",
)  # fmt: skip
@click.option(
    "--arrived", is_flag=True,
    help="Have -w take what arrives at the --tap POINT instead of what is sent there.",
)  # fmt: skip
@click.option(
    "--seed", type=WholeNumber(0, (1 << 64) - 1), help="What chance is made of, not the file's."
)
@options.text_or_json("Print one JSON object with all results.")
@click.option(
    "--counters", is_flag=True,
    help="Print every counter that is not 0, by the names that 'expect: counters' has.",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Only say what failed.")
@click.option("--progress/--no-progress", default=None, help="A progress bar for long runs.")
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
    as_json: bool,
    counters: bool,
    quiet: bool,
    progress: bool | None,
) -> int:
    """Play each SCENARIO: a YAML file, - for standard input, or one that comes with rdmawire.

    A name of --list always means that one: a file that is called the same is ./NAME.

    Hosts, adapters, GPUs, links, switches and faults are virtual, and so is time: the same
    scenario gives the same frames, byte by byte. What it expects is checked. Exit status: 0 if
    all came so, 1 if not, 2 for a mistake in a file.

    \b
    Examples:
      rdmawire run --list
      rdmawire run lost-first -w lost-first.pcapng
      rdmawire run lost-first -w - | tshark -r -
      rdmawire run --all -w captures/
      rdmawire run mine.yaml --tap leaf:server --arrived -w server.pcap
      rdmawire run mine.yaml --tap client --tap leaf:server -w both.pcapng
      rdmawire run --show lost-first > mine.yaml
      rdmawire run --all --quiet
      rdmawire run --quiet --counters mine.yaml
      rdmawire run --json mine.yaml | jq '.scenarios[].failures'
      rdmawire run --keys queue
      rdmawire run --schema > scenario.schema.json
    """  # noqa: D301 - click keeps the lines behind a backspace
    check_together(click.get_current_context())
    if keys is not None:
        return print_keys(keys)
    if schema or listing:
        return print_schema() if schema else print_list()
    names = _names(more + scenarios, every=every)
    target = Target(capture and by_own_name(capture), points, arrived=arrived)
    target.check(names)
    said_to = sys.stderr if target.is_output else sys.stdout
    results = Results(said_to, as_json=as_json, quiet=quiet, counters=counters)
    if show:
        return max(_print_text(name, results) for name in names)
    read = _read_all(names, seed, results)
    for scenario in read or ():
        _say_odd(scenario, _hints(scenario))
    if read is None:
        results.conclude()
        return _MISTAKEN
    if check:
        _say_fine(read, quiet=quiet or as_json)
        return results.conclude()
    target.prepare()
    drawn = progress if progress is not None else sys.stderr.isatty()
    for name, scenario in zip(names, read, strict=True):
        outcome = _played(scenario, target.of(name), target, drawn=drawn)
        results.add(outcome)
        _say_odd(scenario, outcome.hints)
    return results.conclude()


def _names(scenarios: tuple[str, ...], *, every: bool) -> tuple[str, ...]:
    """All that are asked for."""
    from rdmawire.traffic.scenario.shipped import shipped

    names = (*(shipped() if every else ()), *scenarios)
    if not names:
        raise click.UsageError("no SCENARIO is given; --list has those that come with rdmawire")
    return names


def _is_shipped(word: str) -> bool:
    """Whether a word means a scenario that comes with rdmawire, whatever files there are."""
    from rdmawire.traffic.scenario.shipped import shipped

    return word in shipped()


def _nearest(word: str) -> str:
    """Which shipped scenario a word may have meant that is neither one nor a file."""
    from rdmawire.terminal import closest_names
    from rdmawire.traffic.scenario.shipped import shipped

    return next(iter(closest_names(word, list(shipped()))), "")


def _print_text(word: str, results: Results) -> int:
    """What stands in the file of a scenario; the exit status."""
    from rdmawire.traffic.scenario.document import ScenarioError

    try:
        print_text(text_of_word(word, shipped=_is_shipped(word)))
    except ScenarioError as error:
        return _complain_of(word, error, results)
    return 0


def _complain_of(word: str, error: "ScenarioError", results: Results) -> int:
    """Tell the mistakes of a scenario, each on a line of its own; the exit status."""
    missing = word != STREAM and not os.path.exists(word)
    near = _nearest(word) if missing else ""
    where = f"; did you mean the shipped {near!r}?" if near else "; --list has the shipped ones"
    for line in error.lines:
        complain(f"{line}{where if missing else ''}")
    results.mistaken(error, near)
    return _MISTAKEN


def _read_all(names: Sequence[str], seed: int | None, results: Results) -> "list[Scenario] | None":
    """All scenarios; ``None`` if there are mistakes in some, which are told."""
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
    from rdmawire.traffic.scenario.reader import read_scenario, read_scenario_text
    from rdmawire.traffic.scenario.shipped import read_shipped

    if word == STREAM:
        return read_scenario_text(bytes_of_input(), STANDARD_INPUT)
    return read_shipped(word) if _is_shipped(word) else read_scenario(word)


def _hints(scenario: "Scenario") -> "Iterable[Hint]":
    from rdmawire.traffic.scenario.hints import hints

    return hints(scenario)


def _say_odd(scenario: "Scenario", hints: "Iterable[Hint]") -> None:
    """Say on standard error what is odd, though no mistake."""
    for hint in hints:
        complain(hint.text(scenario.source))


def _say_fine(read: Sequence["Scenario"], *, quiet: bool) -> None:
    for scenario in () if quiet else read:
        steps = plural(len(scenario.steps), "step")
        said = f"{steps}, {plural(len(scenario.expectations), 'expectation')}"
        click.echo(f"{escape(scenario.source)}: {escape(scenario.name)} ({said})")


def _played(scenario: "Scenario", capture: str | None, target: Target, *, drawn: bool) -> "Outcome":
    from rdmawire.traffic.scenario.runner.observer import UnknownPoint
    from rdmawire.traffic.scenario.runner.play import play

    start = perf_counter()
    with late_bar(scenario.name, wanted=drawn) as told:
        try:
            outcome = play(
                scenario,
                capture=capture,
                points=target.points,
                arrived=target.arrived,
                progress=told,
            )
        except UnknownPoint as error:
            raise click.BadParameter(str(error), param_hint="--tap") from None
    summary = outcome.summary._replace(wall_s=perf_counter() - start)
    return replace(outcome, summary=summary)
