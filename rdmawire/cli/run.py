"""`rdmawire run`: scenarios of virtual hosts, played, captured and checked."""

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from rdmawire.capture.source import STANDARD_INPUT, STREAM
from rdmawire.cli import common
from rdmawire.cli.once import OnceCommand
from rdmawire.cli.option import WholeNumber
from rdmawire.cli.progress import late_bar
from rdmawire.cli.shown import octets_of_input, print_keys, print_list, print_schema, text_of_word
from rdmawire.cli.streams import complain, print_text
from rdmawire.cli.suffix import by_own_name
from rdmawire.cli.target import Target
from rdmawire.cli.together import check_together
from rdmawire.cli.verdicts import Results
from rdmawire.screen import counted, safe

if TYPE_CHECKING:
    from rdmawire.traffic.scenario.document import ScenarioError
    from rdmawire.traffic.scenario.hints import Hint
    from rdmawire.traffic.scenario.model import Scenario
    from rdmawire.traffic.scenario.playing.outcome import Outcome

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
@common.written(
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
@common.text_or_json("Print one JSON object with all results.")
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
    scenario gives the same frames, octet by octet. What it expects is checked. Exit status: 0 if
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
    from rdmawire.nearest import nearest
    from rdmawire.traffic.scenario.shipped import shipped

    return next(iter(nearest(word, list(shipped()))), "")


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
    return read if seed is None else [replace(scenario, seed=seed) for scenario in read]


def _scenario(word: str) -> "Scenario":
    from rdmawire.traffic.scenario.reader import read_scenario, read_scenario_text
    from rdmawire.traffic.scenario.shipped import read_shipped

    if word == STREAM:
        return read_scenario_text(octets_of_input(), STANDARD_INPUT)
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
        steps = counted(len(scenario.steps), "step")
        said = f"{steps}, {counted(len(scenario.expectations), 'expectation')}"
        click.echo(f"{safe(scenario.source)}: {safe(scenario.name)} ({said})")


def _played(scenario: "Scenario", capture: str | None, target: Target, *, drawn: bool) -> "Outcome":
    from rdmawire.traffic.scenario.play import play
    from rdmawire.traffic.scenario.playing.recording import UnknownPoint

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
