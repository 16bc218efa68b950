"""`rdmawire run`: scenarios of virtual hosts, played, captured and checked."""

import os
import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from rdmawire.capture.source import STANDARD_INPUT, STREAM
from rdmawire.cli.option import WholeNumber
from rdmawire.cli.progress import late_bar
from rdmawire.cli.streams import complain
from rdmawire.cli.verdicts import Results
from rdmawire.errors import CaptureError
from rdmawire.screen import safe

if TYPE_CHECKING:
    from rdmawire.traffic.scenario.model import Scenario
    from rdmawire.traffic.scenario.playing.outcome import Outcome

_MISTAKEN = 2
_MOST_SHOWN = 1 << 20
_FOLDER = "captures/"
_SEPARATORS = tuple(filter(None, (os.sep, os.altsep)))


def _complete(_ctx: click.Context, _argument: click.Parameter, start: str) -> list[CompletionItem]:
    """Shipped scenarios that begin like this, and files."""
    from rdmawire.traffic.scenario.shipped import shipped

    found = [CompletionItem(name) for name in shipped() if name.startswith(start)]
    return [*found, CompletionItem(start, type="file")]


@click.command("run")
@click.argument("scenarios", nargs=-1, metavar="[SCENARIO]...", shell_complete=_complete)
@click.option("--list", "listing", is_flag=True, help="List the scenarios that come with rdmawire.")
@click.option("--show", is_flag=True, help="Print what stands in each SCENARIO.")
@click.option("--all", "every", is_flag=True, help="Run all that come with rdmawire.")
@click.option("--check", is_flag=True, help="Only read each SCENARIO, and say what is amiss.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of scenarios, for editors.")
@click.option(
    "-w", "--write", "capture", metavar="FILE",
    help="Write what hosts send: a .pcap or .pcapng, packed or not; a folder for a .pcapng of each "
    "SCENARIO (with a / behind its name it is made if need be); or - for standard output.",
)  # fmt: skip
@click.option(
    "--tap", "point", metavar="POINT",
    help="Have -w take frames of a link (client-leaf), a host, or a switch's port (leaf:server).",
)  # fmt: skip
@click.option("--arrived", is_flag=True, help="Have -w take frames where they arrive.")
@click.option(
    "--seed", type=WholeNumber(0, (1 << 64) - 1), help="What chance is made of, not the file's."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with all results.")
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
    capture: str | None,
    point: str | None,
    arrived: bool,
    seed: int | None,
    as_json: bool,
    quiet: bool,
    progress: bool | None,
) -> int:
    """Play each SCENARIO: a YAML file, - for standard input, or one that comes with rdmawire.

    Hosts, adapters, GPUs, links, switches and faults are virtual, and so is time: the same
    scenario gives the same frames, octet by octet. What it expects is checked. Exit status: 0 if
    all came so, 1 if not, 2 for a mistake in a file.

    \b
    Examples:
      rdmawire run --list
      rdmawire run lost-first -w lost-first.pcapng
      rdmawire run lost-first -w - | tshark -r -
      rdmawire run --all -w captures/
      rdmawire run mine.yaml --tap leaf:server --arrived -w server.pcap
      rdmawire run --show lost-first > mine.yaml
      rdmawire run --all --quiet
      rdmawire run --json mine.yaml | jq '.scenarios[].failures'
      rdmawire run --schema > scenario.schema.json
    """  # noqa: D301 - click keeps the lines behind a backspace
    if schema or listing:
        return _print_schema() if schema else _print_list()
    names = _names(scenarios, every=every)
    if show:
        return max(_print_text(name) for name in names)
    target = Target(capture, point, arrived=arrived)
    target.check(names)
    found = [_read(name, seed) for name in names]
    read = [scenario for scenario in found if scenario is not None]
    if len(read) < len(found):
        return _MISTAKEN
    if check:
        return _say_fine(read, quiet=quiet)
    target.prepare()
    said_to = sys.stderr if target.is_output else sys.stdout
    results = Results(said_to, as_json=as_json, quiet=quiet)
    drawn = progress if progress is not None else sys.stderr.isatty()
    for scenario in read:
        results.add(_played(scenario, target, drawn=drawn))
    return results.conclude()


@dataclass(frozen=True, slots=True)
class Target:
    """Where frames are written to, and those of which point."""

    capture: str | None
    point: str | None
    _: KW_ONLY
    arrived: bool

    def check(self, names: Sequence[str]) -> None:
        """:class:`click.UsageError` for options that say nothing together."""
        if self.capture is None and (self.point or self.arrived):
            raise click.UsageError("--tap and --arrived say what -w FILE takes; name one")
        if self.arrived and self.point is None:
            raise click.UsageError("--arrived needs a --tap POINT where frames arrive")
        if self.capture and len(names) > 1 and not self.is_folder:
            said = f"-w {safe(self.capture)} is one file, for {len(names)} scenarios"
            raise click.UsageError(f"{said}; name a folder, such as {_FOLDER}")
        files = [self.of(name) for name in names]
        if twice := next((file for file in files if file and files.count(file) > 1), None):
            raise click.UsageError(f"{safe(twice)} would be written twice")

    def of(self, name: str) -> str | None:
        """The file of one scenario, as it was asked for."""
        if self.capture is None or not self.is_folder:
            return self.capture
        stem, _ = os.path.splitext(os.path.basename(name))
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
            raise CaptureError(f"{safe(self.capture)}: {error.strerror or error}") from error

    @property
    def is_output(self) -> bool:
        """Whether frames go to standard output, so that all else has to go elsewhere."""
        return self.capture == STREAM


def _names(scenarios: tuple[str, ...], *, every: bool) -> tuple[str, ...]:
    """All that are asked for."""
    from rdmawire.traffic.scenario.shipped import shipped

    names = (*(shipped() if every else ()), *scenarios)
    if not names:
        raise click.UsageError("no SCENARIO is given; --list has those that come with rdmawire")
    return names


def _print_list() -> int:
    from rdmawire.traffic.scenario.shipped import read_shipped, shipped

    names = list(shipped())
    width = max(map(len, names))
    for name in names:
        click.echo(f"{name:<{width}}  {read_shipped(name).name}")
    return 0


def _print_schema() -> int:
    import json

    from rdmawire.traffic.scenario.json_schema import json_schema

    click.echo(json.dumps(json_schema(), indent=1))
    return 0


def _print_text(word: str) -> int:
    """What stands in the file of a scenario; the exit status."""
    from rdmawire.traffic.scenario.shipped import text_of

    if _is_shipped(word):
        click.echo(text_of(word), nl=False)
        return 0
    try:
        with open(word, encoding="utf-8") as file:
            click.echo(file.read(_MOST_SHOWN), nl=False)
    except (OSError, ValueError) as error:
        complain(f"{word}: {getattr(error, 'strerror', None) or error}{_nearest(word)}")
        return _MISTAKEN
    return 0


def _is_shipped(word: str) -> bool:
    """Whether a word means a scenario that comes with rdmawire: there is no such file."""
    from rdmawire.traffic.scenario.shipped import shipped

    return word in shipped() and not os.path.exists(word)


def _nearest(word: str) -> str:
    """Which shipped scenario a word may have meant that is neither one nor a file."""
    from rdmawire.nearest import nearest
    from rdmawire.traffic.scenario.shipped import shipped

    if word == STREAM or os.path.exists(word):
        return ""
    near = next(iter(nearest(word, list(shipped()))), "")
    return f"; did you mean the shipped {near!r}?" if near else "; --list has the shipped ones"


def _read(word: str, seed: int | None) -> "Scenario | None":
    """A scenario; ``None`` for one with mistakes, which are told, each on a line of its own."""
    from rdmawire.traffic.scenario.form.mistake import ScenarioError

    try:
        scenario = _scenario(word)
    except ScenarioError as error:
        for line in str(error).splitlines():
            complain(f"{line}{_nearest(word)}")
        return None
    return scenario if seed is None else replace(scenario, seed=seed)


def _scenario(word: str) -> "Scenario":
    from rdmawire.traffic.scenario.form.source import MOST_OCTETS
    from rdmawire.traffic.scenario.reader import read_scenario, read_scenario_text
    from rdmawire.traffic.scenario.shipped import read_shipped

    if word == STREAM:
        return read_scenario_text(sys.stdin.buffer.read(MOST_OCTETS + 1), STANDARD_INPUT)
    return read_shipped(word) if _is_shipped(word) else read_scenario(word)


def _say_fine(read: Sequence["Scenario"], *, quiet: bool) -> int:
    for scenario in () if quiet else read:
        steps, expectations = len(scenario.steps), len(scenario.expectations)
        said = f"{steps} steps, {expectations} expectations"
        click.echo(f"{safe(scenario.source)}: {safe(scenario.name)} ({said})")
    return 0


def _played(scenario: "Scenario", target: Target, *, drawn: bool) -> "Outcome":
    from rdmawire.traffic.scenario.play import play
    from rdmawire.traffic.scenario.playing.observe import UnknownPoint

    start = perf_counter()
    with late_bar(scenario.name, wanted=drawn) as told:
        try:
            outcome = play(
                scenario,
                capture=target.of(scenario.source),
                point=target.point,
                arrived=target.arrived,
                progress=told,
            )
        except UnknownPoint as error:
            raise click.BadParameter(str(error), param_hint="--tap") from None
    summary = outcome.summary._replace(wall_s=perf_counter() - start)
    return replace(outcome, summary=summary)
