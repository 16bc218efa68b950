"""Bugs planted in the software RNIC and in parsers, to measure fuzzers and to try them.

Each is a copy of the adapter's rules with one row replaced: ``planted_rules("short-writes")``.
"""

from typing import Final

from rdmawire.errors import FuzzError
from rdmawire.fuzz.planted_bugs import (
    admission_bugs,
    answer_bugs,
    cm_bugs,
    memory_bugs,
    mpa_bugs,
    order_bugs,
    parser_bugs,
    pending_bugs,
    requester_bugs,
)
from rdmawire.fuzz.planted_bugs.bug import PARTS, PlantedBug, wrong_part
from rdmawire.ib.rules import Rules
from rdmawire.terminal import quote, suggest

_BUGS: Final = (
    *(
        *memory_bugs.BUGS,
        *order_bugs.BUGS,
        *answer_bugs.BUGS,
        *pending_bugs.BUGS,
        *admission_bugs.BUGS,
    ),
    *(*requester_bugs.BUGS, *cm_bugs.BUGS, *mpa_bugs.BUGS, *parser_bugs.BUGS),
)
PLANTED_BUGS: Final = {bug.name: bug for bug in _BUGS}
"""All planted bugs, by name."""


def planted(name: str) -> PlantedBug:
    """Return the planted bug of this name. Raises :class:`FuzzError` for an unknown name."""
    if name not in PLANTED_BUGS:
        near = suggest(name, PLANTED_BUGS)
        raise FuzzError(f"no planted bug is named {quote(name)}{near}: see rdmawire fuzz list")
    return PLANTED_BUGS[name]


def planted_rules(name: str) -> Rules:
    """Return the rules of an adapter with a planted bug.

    Raises :class:`FuzzError` for an unknown name, and for a bug of a parser, of a reader of MPA or
    of a connection manager.
    """
    bug = planted(name)
    if PARTS[bug.kind] != PARTS["engine"]:
        raise wrong_part(bug, "engine")
    return bug.rules


__all__ = ["PLANTED_BUGS", "PlantedBug", "planted", "planted_rules", "wrong_part"]
