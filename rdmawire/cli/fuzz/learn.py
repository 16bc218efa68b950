"""`rdmawire fuzz learn`: state machines of adapters, drawn and compared."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from rdmawire.cli.command import Command, IntegerType, option
from rdmawire.cli.streams import complain
from rdmawire.errors import FuzzError
from rdmawire.terminal import escape, plural, shorten, suggest

if TYPE_CHECKING:
    from rdmawire.fuzz.learn.compare import Agreed, MachineDifference
    from rdmawire.fuzz.learn.learner import Learned, Plan, Progress, System
    from rdmawire.fuzz.learn.machine import MealyMachine
    from rdmawire.fuzz.learn.responder_case import Judged

_FORMATS: Final = ("dot", "mermaid", "json")
_MAX_FILE: Final = 64 << 20
"""Bytes of a machine's file that are read at most."""
_MAX_MESSAGE: Final = 300
"""Characters of a message about the contents of a file."""


class _Side(NamedTuple):
    """One of the machines that are compared. ``system`` is ``None`` for a machine of a file."""

    name: str
    machine: "MealyMachine"
    system: "System | None" = None
    spec: dict[str, Any] | None = None


class _Request(NamedTuple):
    """What is learned, and how."""

    role: str
    inputs: str | None
    psn: int | None
    seed: int
    plan: "Plan"


@click.command(
    "learn",
    cls=Command,
    examples=(
        "rdmawire fuzz learn --inputs messages --format mermaid",
        "rdmawire fuzz learn --profile rxe --against ibta",
        "rdmawire fuzz learn -o responder.dot",
        "rdmawire fuzz learn --against responder.dot --findings findings",
        "rdmawire fuzz learn --inputs WRITE_FIRST,WRITE_LAST,GAP,DUP",
    ),
)
@option("Target", "--profile", metavar="NAME", help="Profile of the adapter.  [default: ibta]")
@option("Target", "--bug", metavar="NAME", help="Planted bug of the adapter.")
@option("Target", "--service", metavar="NAME",
        help="Transport service: rc, uc, ud or xrc.  [default: rc]")  # fmt: skip
@option("Target", "--role", metavar="NAME", default="responder", show_default=True,
        help="Which state machine is learned; --list has the roles.")  # fmt: skip
@option("Target", "--inputs", metavar="NAMES",
        help="A set of inputs, or inputs separated by commas; --list has them.")  # fmt: skip
@option("Target", "--psn", type=IntegerType(0, 2**24 - 1), help="First PSN.  [default: 1000]")
@option("Comparison", "--against", metavar="NAME|FILE",
        help="Compare with another profile, or with the machine in a file.")  # fmt: skip
@option("Comparison", "--agreed", metavar="FILE", type=click.File("r", encoding="utf-8"),
        help="Differences to go on past: lines of an input and both outputs.")  # fmt: skip
@option("Comparison", "--findings", "folder", metavar="FOLDER",
        type=click.Path(path_type=Path, file_okay=False),
        help="Save differences that violate the standard as findings.")  # fmt: skip
@option("Learning", "--algorithm", type=click.Choice(["kv", "lsharp"]), default="kv",
        show_default=True, help="KV or L#.")  # fmt: skip
@option("Learning", "--depth", type=IntegerType(0, 3), default=1, show_default=True,
        help="The machine is proved for targets with at most this many states more.")  # fmt: skip
@option("Learning", "--seed", type=IntegerType(0, 2**64 - 1), default=1, show_default=True,
        help="Seed of the random walks.")  # fmt: skip
@option("Output", "--format", "form", type=click.Choice(_FORMATS), default="dot",
        show_default=True, help="Graphviz, a Mermaid diagram, or JSON.")  # fmt: skip
@option("Output", "-o", "--output", "path", metavar="FILE",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Write the machine to a file, not to standard output. With --against, it is "
        "written only to a file.")  # fmt: skip
@option("Output", "--list", "lists", is_flag=True, help="List the roles and their inputs.")
def command(
    *,
    profile: str | None,
    bug: str | None,
    service: str | None,
    role: str,
    inputs: str | None,
    psn: int | None,
    against: str | None,
    agreed: Any,
    folder: Path | None,
    algorithm: str,
    depth: int,
    seed: int,
    form: str,
    path: Path | None,
    lists: bool,
) -> int:
    """Learn a state machine of an adapter from its answers, and draw or compare it.

    Each sequence of inputs is played on a fresh queue pair. The machine has a transition for each
    state and input, with what the adapter answers. With --against, the shortest sequences that two
    machines answer differently are printed; each is played three times on both before.

    Exit status: 0 if there is no difference, 1 for differences, or for an adapter that answers the
    same sequence in two ways, 2 for a usage error.
    """
    from rdmawire.fuzz.learn.learner import NonDeterminismError, Plan

    if lists:
        _print_roles()
        return 0
    spec = {"kind": "engine", **_given(profile=profile, bug=bug, service=service)}
    request = _Request(role, inputs, psn, seed, Plan(algorithm=algorithm, depth=depth))
    try:
        sides = _learned(request, spec, against)
        _write(sides[0].machine, form, path, shows=against is None)
        return _compare(request, sides, agreed, folder) if against is not None else 0
    except NonDeterminismError as error:
        complain(str(error))
        return 1
    except FuzzError as error:
        complain(str(error))
        return 2


def _given(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}


def _print_roles() -> None:
    from rdmawire.fuzz.learn.systems import ROLES

    for name, found in ROLES.items():
        click.echo(f"{name}: {found.about}")
        width = max(map(len, found.alphabets))
        for inputs, about in found.alphabets.items():
            click.echo(f"  {inputs:<{width}}  {about}")


# Learning.


def _learned(request: _Request, spec: dict[str, Any], against: str | None) -> list[_Side]:
    """Learn the machine, and the one to compare it with."""
    from rdmawire.fuzz.learn.systems import role

    found = role(request.role)
    system = found.system(spec, request.inputs, request.psn)
    if against is None:
        return [_Side(_name(spec), _learn(request, system), system, spec)]
    if (other := _read_machine(Path(against))) is not None:
        machine = _learn(request, system, other)
        return [_Side(_name(spec), machine, system, spec), _Side(against, other)]
    _check_profile(against)
    other_spec = {**spec, "profile": against}
    other_spec.pop("bug", None)
    other_system = found.system(other_spec, request.inputs, request.psn)
    machines = _learn_both(request, system, other_system)
    return [
        _Side(_name(spec), machines[0], system, spec),
        _Side(_name(other_spec), machines[1], other_system, other_spec),
    ]


def _check_profile(name: str) -> None:
    from rdmawire.verbs.profile import PROFILES

    if name not in PROFILES:
        raise FuzzError(
            f"--against: there is no such file, and no profile is named {name!r}"
            f"{suggest(name, PROFILES)}: {', '.join(PROFILES)}"
        )


def _name(spec: dict[str, Any]) -> str:
    bug = f", bug {spec['bug']}" if "bug" in spec else ""
    return f"{spec.get('profile', 'ibta')}{bug}"


def _learn(
    request: _Request, system: "System", other: "MealyMachine | None" = None
) -> "MealyMachine":
    from dataclasses import replace
    from random import Random

    from rdmawire.fuzz.learn.learner import learn

    plan = replace(request.plan, machines=() if other is None else (other,))
    began = monotonic()
    with _line() as show:
        done = learn(system, random=Random(request.seed), plan=plan, progress=show)  # noqa: S311
    _report(system, done, request.seed, monotonic() - began)
    return done.machine


def _learn_both(
    request: _Request, one: "System", other: "System"
) -> tuple["MealyMachine", "MealyMachine"]:
    from rdmawire.fuzz.learn.compare import learn_both

    began = monotonic()
    with _line() as show:
        both = learn_both(one, other, seed=request.seed, plan=request.plan, progress=show)
    for system, done in zip((one, other), both, strict=True):
        _report(system, done, request.seed, monotonic() - began)
    return both[0].machine, both[1].machine


def _report(system: "System", done: "Learned", seed: int, seconds: float) -> None:
    click.echo(
        f"{escape(system.name)}: {plural(len(done.machine), 'state')}, "
        f"{plural(len(done.machine.inputs), 'input')}; {done.queries:,} sequences of "
        f"{done.steps:,} inputs, {seconds:.1f} s; seed {seed}",
        err=True,
    )


@contextmanager
def _line() -> Iterator[Callable[["Progress"], None]]:
    """Show a line of progress on standard error while the context lasts, in a terminal."""
    from rich.console import Console

    console = Console(file=sys.stderr)
    if not console.is_interactive:
        yield lambda _: None
        return
    with console.status("starting") as status:
        yield lambda progress: status.update(
            f"{progress.queries:,} sequences, {plural(progress.states, 'state')}"
        )


def _read_machine(path: Path) -> "MealyMachine | None":
    """Read a machine from a file, Graphviz or JSON; ``None`` if there is no such file."""
    from rdmawire.fuzz.learn.machine import MealyMachine

    if not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE + 1)
    except OSError as error:
        raise FuzzError(f"{path}: cannot read it: {error.strerror or error}") from error
    if len(data) > _MAX_FILE:
        raise FuzzError(f"{path}: more than {_MAX_FILE} bytes")
    try:
        if data.lstrip().startswith(b"{"):
            return MealyMachine.from_json(json.loads(data))
        return MealyMachine.from_dot(data.decode())
    except (FuzzError, ValueError, RecursionError) as error:
        raise FuzzError(f"{path}: {shorten(str(error), _MAX_MESSAGE)}") from None


def _write(machine: "MealyMachine", form: str, path: Path | None, *, shows: bool) -> None:
    text = _text(machine, form)
    if path is None:
        if shows:
            click.echo(text, nl=False)
        return
    try:
        path.write_text(text)
    except OSError as error:
        raise FuzzError(f"{path}: cannot write it: {error.strerror or error}") from error


def _text(machine: "MealyMachine", form: str) -> str:
    if form == "dot":
        return machine.as_dot()
    if form == "mermaid":
        return machine.as_mermaid()
    return json.dumps(machine.as_json(), indent=1) + "\n"


# Comparison.


def _compare(request: _Request, sides: list[_Side], agreed: Any, folder: Path | None) -> int:
    from rdmawire.fuzz.learn.compare import differences

    known: frozenset[Agreed] = frozenset() if agreed is None else _read_agreed(agreed)
    one, other = sides
    count = 0
    for difference in differences(one.machine, other.machine, known):
        count += 1
        _print_difference(request, difference, sides, folder)
    _print_not_compared(one, other)
    names = f"{escape(one.name)} and {escape(other.name)}"
    click.echo(f"{names}: {plural(count, 'difference')}" if count else f"{names}: no difference")
    return int(count > 0)


def _print_not_compared(one: _Side, other: _Side) -> None:
    """Name the inputs that only one of the machines has."""
    for side, inputs in ((one, other.machine.inputs), (other, one.machine.inputs)):
        if names := [name for name in side.machine.inputs if name not in inputs]:
            alone = escape(shorten(", ".join(names), _MAX_MESSAGE))
            click.echo(f"not compared, inputs of {escape(side.name)} alone: {alone}", err=True)


def _read_agreed(file: Any) -> "frozenset[Agreed]":
    from rdmawire.fuzz.learn.compare import read_agreed

    try:
        return read_agreed(file)
    except (FuzzError, UnicodeDecodeError) as error:
        raise FuzzError(f"{file.name}: {shorten(str(error), _MAX_MESSAGE)}") from None


def _print_difference(
    request: _Request, found: "MachineDifference", sides: list[_Side], folder: Path | None
) -> None:
    """Play the sequence again on each system, then print it with the standard's answer."""
    from rdmawire.fuzz.learn.compare import check
    from rdmawire.fuzz.learn.systems import role

    judge = role(request.role).judge
    verdicts: list[tuple[_Side, Judged]] = []
    for side in sides:
        if side.system is not None:
            check(side.system, side.machine, found.word)
            if judge is not None:
                verdicts.append((side, judge(side.system, found.word)))
    click.echo(" ".join(found.word))
    width = max(len(side.name) for side in sides)
    for side, output in zip(sides, (found.one, found.other), strict=True):
        click.echo(f"  {escape(side.name):<{width}}  {escape(output)}")
    if verdicts:
        click.echo(f"  standard: {_required(verdicts[0][1])}")
    if folder is not None:
        for side, verdict in verdicts:
            _save(request, side, verdict, folder)


def _required(verdict: "Judged") -> str:
    expected = verdict.expected
    replies = "; ".join(map(str, expected.replies)) or "no reply"
    return f"{replies} ({expected.why}, {expected.clause})" if expected.clause else replies


def _save(request: _Request, side: _Side, verdict: "Judged", folder: Path) -> None:
    """Save what the last input of a sequence violates as a finding."""
    from rdmawire.fuzz.finding import as_finding, write_finding
    from rdmawire.fuzz.fuzzer import Found, make_fuzzer

    if verdict.violation is None or not verdict.is_shown or side.spec is None:
        return
    spec = {**side.spec, "accept": "none"}
    fuzzer = make_fuzzer(spec)
    found = fuzzer.minimised(Found(verdict.violation, verdict.case.as_json(), 0))
    place = write_finding(folder, as_finding(spec, request.seed, found), fuzzer)
    click.echo(f"  finding:  {escape(str(place))}")
