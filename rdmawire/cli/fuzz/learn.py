"""`rdmawire fuzz learn`: state machines of adapters, drawn and compared."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
from click.core import ParameterSource

from rdmawire.cli.command import Command, IntegerType, PathType, option
from rdmawire.cli.fuzz.learn_files import (
    check_output,
    make_folder,
    read_agreed_file,
    read_machine,
    write_output,
)
from rdmawire.cli.streams import complain
from rdmawire.errors import FuzzError
from rdmawire.terminal import escape, plural, quote, shorten, suggest

if TYPE_CHECKING:
    from rdmawire.fuzz.learn.compare import Agreed, MachineDifference
    from rdmawire.fuzz.learn.learner import Learned, LearnProgress, Plan, System
    from rdmawire.fuzz.learn.machine import MealyMachine
    from rdmawire.fuzz.learn.responder_case import Judged

_FORMATS: Final = ("dot", "mermaid", "json")
_MAX_NAMES: Final = 300
"""Characters of a list of inputs."""
_MAX_LINE: Final = 1000
"""Characters of a message about an option, which may repeat its value."""


class _Subject(NamedTuple):
    """What is compared: a system that is learned, of ``spec``, or the machine of a file."""

    name: str
    system: "System | None" = None
    spec: dict[str, Any] | None = None
    machine: "MealyMachine | None" = None


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


class _Results(NamedTuple):
    """What becomes of machines and differences."""

    form: str
    path: Path | None
    folder: Path | None
    agreed: "frozenset[Agreed]"


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
@option("Comparison", "--agreed", metavar="FILE",
        type=PathType(path_type=Path, exists=True, dir_okay=False),
        help="File of differences that are not reported: on each line an input and the outputs of "
        "both.")  # fmt: skip
@option("Comparison", "--findings", "folder", metavar="FOLDER",
        type=PathType(path_type=Path, file_okay=False),
        help="Save differences that violate the standard as findings.")  # fmt: skip
@option("Learning", "--algorithm", type=click.Choice(["kv", "lsharp"]), default="kv",
        show_default=True,
        help="Learning algorithm: Kearns-Vazirani (kv) or L# (lsharp).")  # fmt: skip
@option("Learning", "--depth", type=IntegerType(0, 3), default=1, show_default=True,
        help="The machine is correct if the target has at most this number of states "
        "more.")  # fmt: skip
@option("Learning", "--seed", type=IntegerType(0, 2**64 - 1), default=1, show_default=True,
        help="Seed of the random walks.")  # fmt: skip
@option("Output", "--format", "form", type=click.Choice(_FORMATS), default="dot",
        show_default=True, help="Graphviz, a Mermaid diagram, or JSON.")  # fmt: skip
@option("Output", "-o", "--output", "path", metavar="FILE",
        type=PathType(path_type=Path, dir_okay=False),
        help="Write the machine to a file, not to standard output. With --against, it is "
        "written only to a file.")  # fmt: skip
@option("Output", "--list", "lists", is_flag=True,
        help="List the roles and their inputs, or those of --role.")  # fmt: skip
def command(
    *,
    profile: str | None,
    bug: str | None,
    service: str | None,
    role: str,
    inputs: str | None,
    psn: int | None,
    against: str | None,
    agreed: Path | None,
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
    machines answer differently are printed. Before it is printed, each is played three times on
    every adapter that was learned.

    Exit status: 0 if there is no difference, 1 for differences, or for an adapter that answers the
    same sequence in two ways, 2 for a usage error.
    """
    from rdmawire.fuzz.learn.learner import NonDeterminismError, Plan

    given = _given_options()
    spec = {"kind": "engine", **_given(profile=profile, bug=bug, service=service)}
    request = _Request(role, inputs, psn, seed, Plan(algorithm=algorithm, depth=depth))
    try:
        if lists:
            _check_list(given)
            _print_roles(role if "role" in given else None)
            return 0
        _check_options(given, role)
        subjects = _subjects(request, spec, against)
        results = _Results(form, path, folder, _agreed(agreed))
        _check_places(results)
        sides = _learned(request, subjects)
        _write(sides[0].machine, results, shows=against is None)
        return _compare(request, sides, results) if against is not None else 0
    except NonDeterminismError as error:
        complain(str(error))
        return 1
    except FuzzError as error:
        complain(shorten(str(error), _MAX_LINE))
        return 2


# Options.


def _given_options() -> dict[str, str]:
    """Return the options that the command was called with, by parameter."""
    context = click.get_current_context()
    return {
        str(one.name): one.opts[-1]
        for one in context.command.params
        if context.get_parameter_source(str(one.name)) is ParameterSource.COMMANDLINE
    }


def _check_list(given: dict[str, str]) -> None:
    """Raise ``UsageError`` for options that --list does not need."""
    if more := [name for one, name in given.items() if one not in ("lists", "role")]:
        raise click.UsageError(
            f"--list has no use for {', '.join(more)}: it lists roles and their inputs, with "
            "--role those of one"
        )


_NEEDS: Final = {
    "agreed": ("against", "--against NAME|FILE, what to compare with"),
    "folder": ("against", "--against NAME|FILE, what to compare with"),
}
"""Options that have no use without another one: its parameter, and what to add."""


def _check_options(given: dict[str, str], name: str) -> None:
    """Raise ``UsageError`` for options that have no use without others or in a role."""
    from rdmawire.fuzz.learn.systems import role

    for one, (other, what) in _NEEDS.items():
        if one in given and other not in given:
            raise click.UsageError(f"{given[one]} has no use alone: add {what}")
    if "form" in given and "against" in given and "path" not in given:
        raise click.UsageError(
            "--format has no use with --against alone, which writes no machine: add -o FILE"
        )
    if "folder" in given and role(name).judge is None:
        raise click.UsageError(
            f"--findings has no use with --role {name}: only what a responder does differently "
            "is judged by the standard"
        )


def _given(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}


def _print_roles(name: str | None) -> None:
    """List all roles, or one."""
    from rdmawire.fuzz.learn.systems import ROLES, role

    roles = ROLES if name is None else {name: role(name)}
    for one, found in roles.items():
        click.echo(f"{one}: {found.about}")
        width = max(map(len, found.alphabets))
        for inputs, about in found.alphabets.items():
            click.echo(f"  {inputs:<{width}}  {about}")


def _agreed(path: Path | None) -> "frozenset[Agreed]":
    return frozenset() if path is None else read_agreed_file(path)


def _check_places(results: _Results) -> None:
    """Raise :class:`FuzzError` if the files of a call cannot be written."""
    if results.path is not None:
        check_output(results.path)
    if results.folder is not None:
        make_folder(results.folder)


def _subjects(request: _Request, spec: dict[str, Any], against: str | None) -> list[_Subject]:
    """Return the system that is learned, and what to compare it with."""
    from rdmawire.fuzz.learn.systems import role

    found = role(request.role)
    system = found.system(spec, request.inputs, request.psn)
    one = _Subject(_name(spec), system, spec)
    if against is None:
        return [one]
    if _is_machine(against):
        machine = read_machine(Path(against))
        _check_inputs(system, against, machine)
        return [one, _Subject(against, machine=machine)]
    _check_profile(against)
    other_spec = {**spec, "profile": against}
    other_spec.pop("bug", None)
    other = found.system(other_spec, request.inputs, request.psn)
    return [one, _Subject(_name(other_spec), other, other_spec)]


def _is_machine(against: str) -> bool:
    """Whether --against names a file; what has the name of a profile may be something else."""
    from rdmawire.verbs.profile import PROFILES

    is_other = os.path.exists(against) and not os.path.isdir(against)
    return os.path.isfile(against) or (is_other and against not in PROFILES)


def _check_inputs(system: "System", name: str, machine: "MealyMachine") -> None:
    if not set(system.inputs) & set(machine.inputs):
        raise FuzzError(
            f"{name}: its inputs ({_names(machine.inputs)}) are none of those that are learned "
            f"({_names(system.inputs)})"
        )


def _names(inputs: Sequence[str]) -> str:
    return shorten(", ".join(inputs), _MAX_NAMES)


def _check_profile(name: str) -> None:
    from rdmawire.verbs.profile import PROFILES

    if name not in PROFILES:
        found = "this is a folder" if os.path.isdir(name) else "there is no such file"
        raise FuzzError(
            f"--against: {found}, and no profile is named {quote(name)}{suggest(name, PROFILES)}: "
            f"name the file of a machine, or one of {', '.join(PROFILES)}"
        )


def _name(spec: dict[str, Any]) -> str:
    bug = f", bug {spec['bug']}" if "bug" in spec else ""
    return f"{spec.get('profile', 'ibta')}{bug}"


# Learning.


def _learned(request: _Request, subjects: list[_Subject]) -> list[_Side]:
    """Learn the systems."""
    one, *others = subjects
    assert one.system is not None
    if not others or others[0].system is None:
        kept = others[0].machine if others else None
        machines = [_learn(request, one.system, kept), *([kept] if kept is not None else [])]
    else:
        machines = [*_learn_both(request, one.system, others[0].system)]
    return [
        _Side(subject.name, machine, subject.system, subject.spec)
        for subject, machine in zip(subjects, machines, strict=True)
    ]


def _learn(
    request: _Request, system: "System", other: "MealyMachine | None" = None
) -> "MealyMachine":
    from dataclasses import replace
    from random import Random

    from rdmawire.cli.progress import status_line
    from rdmawire.fuzz.learn.learner import learn

    plan = replace(request.plan, machines=() if other is None else (other,))
    began = monotonic()
    with status_line(_progress) as show:
        done = learn(system, random=Random(request.seed), plan=plan, progress=show)  # noqa: S311
    _report(request, system, done, monotonic() - began)
    return done.machine


def _learn_both(
    request: _Request, one: "System", other: "System"
) -> tuple["MealyMachine", "MealyMachine"]:
    from rdmawire.cli.progress import status_line
    from rdmawire.fuzz.learn.compare import learn_both

    began = monotonic()
    with status_line(_progress) as show:
        both = learn_both(one, other, seed=request.seed, plan=request.plan, progress=show)
    for system, done in zip((one, other), both, strict=True):
        _report(request, system, done, monotonic() - began)
    return both[0].machine, both[1].machine


def _report(request: _Request, system: "System", done: "Learned", seconds: float) -> None:
    click.echo(
        f"{request.role} of {escape(system.name)}: {plural(len(done.machine), 'state')}, "
        f"{plural(len(done.machine.inputs), 'input')}; {done.queries:,} sequences of "
        f"{done.steps:,} inputs, {seconds:.1f} s; seed {request.seed}",
        err=True,
    )


def _progress(progress: "LearnProgress") -> str:
    return f"{progress.queries:,} sequences, {plural(progress.states, 'state')}"


def _write(machine: "MealyMachine", results: _Results, *, shows: bool) -> None:
    text = _text(machine, results.form)
    if results.path is not None:
        write_output(results.path, text)
    elif shows:
        click.echo(text, nl=False)


def _text(machine: "MealyMachine", form: str) -> str:
    if form == "dot":
        return machine.as_dot()
    if form == "mermaid":
        return machine.as_mermaid()
    return json.dumps(machine.as_json(), indent=1) + "\n"


# Comparison.


def _compare(request: _Request, sides: list[_Side], results: _Results) -> int:
    from rdmawire.fuzz.learn.compare import differences

    one, other = sides
    count = 0
    for difference in differences(one.machine, other.machine, results.agreed):
        count += 1
        _print_difference(request, difference, sides, results.folder)
    _print_not_compared(one, other)
    _print_without_use(one, other, results.agreed)
    names = f"{escape(one.name)} and {escape(other.name)}"
    click.echo(f"{names}: {plural(count, 'difference')}" if count else f"{names}: no difference")
    return int(count > 0)


def _print_not_compared(one: _Side, other: _Side) -> None:
    """Name the inputs that only one of the machines has."""
    for side, inputs in ((one, other.machine.inputs), (other, one.machine.inputs)):
        if names := [name for name in side.machine.inputs if name not in inputs]:
            alone = escape(_names(names))
            click.echo(f"not compared, only {escape(side.name)} has the inputs: {alone}", err=True)


def _print_without_use(one: _Side, other: _Side, agreed: "frozenset[Agreed]") -> None:
    """Name the agreed differences that the machines do not have."""
    from rdmawire.fuzz.learn.compare import without_use

    if unused := without_use(one.machine, other.machine, agreed):
        shown = shorten("; ".join(map(str, unused)), _MAX_LINE)
        pair = f"{one.name} and {other.name}, in this order"
        complain(f"agreed differences that {pair}, do not have: {shown}")


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
