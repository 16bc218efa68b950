"""What to examine: a host, a scenario or a capture, by its name or its first bytes."""

import re
from pathlib import Path
from typing import Final, NamedTuple

from rdmawire.doctor.capture import CAPTURE_CHECKS, examine_capture
from rdmawire.doctor.finding import Check, Finding, Subject
from rdmawire.doctor.host import HOST_CHECKS, examine_host, read_live
from rdmawire.doctor.scenario import SCENARIO_CHECKS, examine_scenario
from rdmawire.traffic.scenario import read_scenario_text, read_shipped, shipped
from rdmawire.traffic.scenario.document import MAX_BYTES
from rdmawire.traffic.scenario.topology_file import open_host, parse_topology, shipped_hosts

CHECKS: Final[tuple[Check, ...]] = (*HOST_CHECKS, *SCENARIO_CHECKS, *CAPTURE_CHECKS)
"""All checks."""
THIS: Final = "/sys"
_FIRST: Final = 4096
_SCENARIO: Final = re.compile(r"^hosts[ \t]*:", re.MULTILINE)


class Examination(NamedTuple):
    """What was examined, and what was found; ``notes`` say what could not be read."""

    subject: Subject
    findings: list[Finding]
    notes: list[str]


def examine(source: str) -> Examination:
    """Examine a shipped host or scenario by its name, a file, or a folder as ``/sys``.

    A file is a capture if it is no text, a scenario if it has the key ``hosts``, else the text of a
    host. Raises :class:`~rdmawire.errors.RdmaError` if it cannot be read.
    """
    if source in shipped_hosts() or Path(source).is_dir():
        found = open_host(source)
        live = read_live(Path(source)) if Path(source).resolve() == Path(THIS) else None
        return Examination(Subject.HOST, examine_host(found.machine, live), found.notes)
    if source in shipped() and not Path(source).exists():
        return Examination(Subject.SCENARIO, examine_scenario(read_shipped(source)), [])
    return _examine_file(source)


def _examine_file(source: str) -> Examination:
    try:
        with Path(source).open("rb") as file:
            data = file.read(_FIRST)
            data += file.read(MAX_BYTES + 1 - len(data)) if _is_text(data) else b""
    except (OSError, ValueError):
        open_host(source)  # which says what is wrong with the name
        raise
    if not _is_text(data[:_FIRST]):
        return Examination(Subject.CAPTURE, examine_capture(source), [])
    return examine_text(data, source)


def examine_text(data: bytes, source: str) -> Examination:
    """Examine the text of a scenario or of a host; ``source`` is its name in messages."""
    if _SCENARIO.search(data.decode("utf-8", "replace")):
        scenario = read_scenario_text(data, source)
        return Examination(Subject.SCENARIO, examine_scenario(scenario), [])
    found = parse_topology(data, source)
    return Examination(Subject.HOST, examine_host(found.machine), found.notes)


def _is_text(data: bytes) -> bool:
    """Whether the first bytes of a file are text, of which the last character may be cut."""
    text = data.decode("utf-8", "ignore")
    return "\0" not in text and len(text.encode()) >= len(data) - 3
