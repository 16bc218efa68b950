"""`rdmawire fuzz run`: campaigns."""

import gc
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from rdmawire.cli import options
from rdmawire.cli.command import Command, IntegerType, PathType, option
from rdmawire.cli.fuzz.campaign_report import CampaignReport, progress_text
from rdmawire.cli.streams import complain
from rdmawire.errors import ClusterError, Ended, FuzzError
from rdmawire.terminal import quote

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from rdmawire.fuzz.campaign import Campaign

_INTERRUPTED: Final = 130
_STORAGE: Final = "HYPOTHESIS_STORAGE_DIRECTORY"
"""The environment variable with the folder of Hypothesis, by default in the current folder."""
_MAX_JOBS: Final = 1024


_UNITS: Final = {"s": 1, "min": 60, "h": 3600}
_TIME: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?) ?(s|min|h)")


def _seconds(ctx: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    """Read a time such as ``60s``, ``10min`` or ``8h``; return seconds."""
    found = None if text is None else _TIME.fullmatch(text)
    seconds = float(found[1]) * _UNITS[found[2]] if found else None
    if text is not None and not seconds:
        said = f"{quote(text)} is not a time above 0, such as 60s, 10min or 8h"
        raise click.BadParameter(said, ctx, parameter)
    return seconds


@click.command(
    "run",
    cls=Command,
    examples=(
        "rdmawire fuzz run --time 60s",
        "rdmawire fuzz run --service ud --time 10min",
        "rdmawire fuzz run --role requester --time 10min",
        "rdmawire fuzz run --profile rxe --runs 100000 --jobs 4 --seed 1",
        "rdmawire fuzz run --profile rxe --accept all --time 60s",
        "rdmawire fuzz run --function mymodule:parse --expected ValueError --time 60s",
        "rdmawire fuzz run --command 'tshark -V -r {pcap}' --time 10min",
        "rdmawire fuzz run codecs --time 10min",
        "rdmawire fuzz run --time 8h --scheduler tcp://10.0.0.1:8786",
    ),
)
@click.argument("target", required=False, metavar="[TARGET]")
@option("Target", "--profile", metavar="NAME", help="Profile of the adapter.  [default: ibta]")
@option("Target", "--role", type=click.Choice(["responder", "requester"]),
        help="Role of the adapter.  [default: responder]")  # fmt: skip
@option(
    "Target",
    "--bug",
    metavar="NAME",
    help="Planted bug of the adapter, such as short-writes: see rdmawire fuzz list.",
)
@option(
    "Target",
    "--service",
    metavar="NAME",
    help="Transport service: rc, uc, ud or xrc.  [default: all in turn]",
)
@option("Target", "--accept", metavar="WHICH",
        help="Differences of the profile that are no findings: those allowed by the standard, all "
        "or none.  [default: allowed]")  # fmt: skip
@option("Target", "--counters", is_flag=True, flag_value="yes", default=None,
        help="Compare counters of the queue pair, too, at the end of each case.")  # fmt: skip
@option("Parser", "--function", metavar="NAME",
        help="Python function that takes bytes, as package.module:function, or a parser of "
        "rdmawire, such as frames or headers.")  # fmt: skip
@option("Parser", "--form", metavar="FORM",
        help="What the function gets: frame, packet, message, segment, linked or stream.  "
        "[default: frame]")  # fmt: skip
@option("Parser", "--expected", metavar="NAME,...",
        help="Exceptions that the function may raise: ValueError, package.module:Error.  "
        "[default: those of rdmawire]")  # fmt: skip
@option("Parser", "--command", metavar="TEXT",
        help="Command that reads a capture; {pcap} is replaced by its path. It is not given to a "
        "shell: for pipes, use sh -c '...'.")  # fmt: skip
@option("Parser", "--statuses", metavar="NUMBER,...",
        help="Exit statuses of the command that are no findings.  [default: 0]")  # fmt: skip
@option("Parser", "--corpus", metavar="FOLDER",
        help="Captures whose frames are mutated.  [default: the shipped test vectors]")  # fmt: skip
@option("Parser", "--libraries", metavar="NAME,...",
        help="What the target codecs compares with: construct, scapy.  "
        "[default: those installed]")  # fmt: skip
@option("Limits", "--time", "seconds", metavar="TIME", callback=_seconds,
        help="Stop after this time, such as 60s, 10min or 8h.")  # fmt: skip
@option("Limits", "--call-time", "call_seconds", metavar="TIME", callback=_seconds,
        help="How long a call of a function, or a run of a command, may take.  [default: 10s, "
        "60s]")  # fmt: skip
@option("Limits", "--runs", type=IntegerType(1, 10**12),
        help="Stop after this number of random cases.")  # fmt: skip
@option("Limits", "--max-findings", type=IntegerType(1, 10**6),
        help="Stop after this number of different findings.")  # fmt: skip
@option("Work", "--seed", type=IntegerType(0, 2**64 - 1),
        help="Seed of all random values.  [default: the folder's, or a random one]")  # fmt: skip
@option("Work", "-j", "--jobs", type=IntegerType(1, _MAX_JOBS), default=1, show_default=True,
        help="Number of processes.")  # fmt: skip
@options.SCHEDULER
@option("Output", "-o", "--output", "folder", metavar="FOLDER", default="findings",
        show_default=True, type=PathType(path_type=Path, file_okay=False),
        help="Folder of the findings. A campaign that began there goes on where it ended, with the "
        "same target, options and seed.")  # fmt: skip
@option("Output", "--json", "as_json", is_flag=True, help="Print a JSON object.")
def command(
    target: str | None,
    *,
    role: str | None,
    seconds: float | None,
    call_seconds: float | None,
    runs: int | None,
    max_findings: int | None,
    seed: int | None,
    jobs: int,
    scheduler: str | None,
    folder: Path,
    as_json: bool,
    **settings: str | None,
) -> int:
    """Play random cases on TARGET until a limit is reached, and keep what violates the standard.

    TARGET is one of `rdmawire fuzz list`, by default the one that the options are for: parser with
    --function, command with --command, else engine. Without a limit it runs until Ctrl-C. Findings
    are written to FOLDER as they come, minimised, each in a folder of its own. A behaviour is an
    opcode with what the standard requires in that state: their number says how much was reached
    since the command was started. A campaign goes on if it is started again with the same TARGET,
    options and FOLDER: --time and --runs then count from there, --max-findings counts all.

    Exit status: 0 if nothing is found, 1 for findings, also those of a campaign that goes on, 2 for
    a usage error or a folder that cannot be written, 130 for Ctrl-C without findings.
    """
    options.check_workers(scheduler)
    spec: dict[str, Any] = {
        "kind": _kind(target or _target(settings, role), role),
        **{name: value for name, value in settings.items() if value is not None},
    }
    if call_seconds is not None:
        spec["seconds"] = call_seconds
    sys.path.append("")  # for a function in a module of this folder
    if spec["kind"] == "state":
        os.environ.setdefault(_STORAGE, os.path.abspath(folder / ".hypothesis"))
    campaign = _campaign(spec, seed, folder)
    campaign.runs, campaign.seconds, campaign.max_findings = runs, seconds, max_findings
    report = CampaignReport(campaign, folder, as_json=as_json)
    try:
        ending = _run(campaign, jobs, scheduler, report)
    except (ClusterError, FuzzError) as error:
        report.end()
        complain(str(error))
        return 2
    report.end()
    if isinstance(ending, Ended):
        raise ending
    if campaign.findings:
        return 1
    return _INTERRUPTED if ending else 0


def _target(settings: Mapping[str, str | None], role: str | None) -> str:
    """Return the target that the options are for."""
    from rdmawire.fuzz.planted_bugs import PLANTED_BUGS

    if settings["function"] is not None:
        return "parser"
    if settings["command"] is not None:
        return "command"
    bug = PLANTED_BUGS.get(settings["bug"] or "")
    return "engine" if bug is None or role else bug.kind


def _hint(spec: Mapping[str, Any]) -> None:
    """Warn of a planted bug that another service or role is known to show."""
    from rdmawire.fuzz.planted_bugs import PLANTED_BUGS

    bug = PLANTED_BUGS.get(spec.get("bug", ""))
    if bug is None or bug.kind not in _ROLES.values() or spec["kind"] not in _ROLES.values():
        return
    service = str(spec.get("service", "all")).lower()
    if service not in ("all", bug.service) or spec["kind"] != bug.kind:
        role = next(role for role, kind in _ROLES.items() if kind == bug.kind)
        shown = f"--role {role} --service {bug.service}"
        complain(f"warning: {bug.name!r} is known to show with {shown}; this may find nothing")


_ROLES: Final = {"responder": "engine", "requester": "requester"}
"""The target of each role of an adapter."""


def _kind(target: str, role: str | None) -> str:
    """Return the target in a role. Raises ``click.UsageError`` for a target without roles."""
    if role is None:
        return target
    if target != _ROLES["responder"]:
        raise click.UsageError(f"--role is for the target engine, not for {quote(target)}")
    return _ROLES[role]


def _campaign(spec: dict[str, Any], seed: int | None, folder: Path) -> "Campaign":
    from rdmawire.fuzz.campaign import Campaign
    from rdmawire.fuzz.campaign_state import seed_of

    try:
        if seed is None:
            seed = seed_of(folder)
        if seed is None:
            seed = int.from_bytes(os.urandom(4), "big")
        with redirect_stdout(sys.stderr):  # of modules that print when they are imported
            return Campaign(spec, seed, folder)
    except FuzzError as error:
        raise click.UsageError(str(error)) from None


def _run(
    campaign: "Campaign", jobs: int, scheduler: str | None, report: CampaignReport
) -> KeyboardInterrupt | Ended | None:
    """Run; return the signal that ended it early. What was found until then is kept.

    Nothing is printed, and no folder is made, before it is known that the target can be fuzzed.
    """
    from rdmawire.cli.progress import status_line

    gc.freeze()  # the garbage collector need not visit what stays
    try:
        with _workers(jobs, scheduler) as (count, executor):
            campaign.check()
            campaign.save()
            report.begin()
            _hint(campaign.spec)
            with status_line(progress_text) as line:
                campaign.run(count, executor, line, lambda finding: report.tell(finding, line))
    except (KeyboardInterrupt, Ended) as error:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the summary is printed all the same
        return error
    return None


@contextmanager
def _workers(jobs: int, scheduler: str | None) -> "Iterator[tuple[int, Executor | None]]":
    """Yield how many processes there are, and the executor of a cluster, if one is named."""
    if scheduler is None:
        yield jobs, None
        return
    from rdmawire.cluster import cluster

    with cluster(scheduler) as found:
        yield found.workers, found.executor
