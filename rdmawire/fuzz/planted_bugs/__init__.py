"""Bugs planted in the software RNIC, to measure fuzzers and to try them.

Each is a copy of the adapter's rules with one row replaced: ``planted("short-writes").rules``.
"""

from typing import Final

from rdmawire.errors import FuzzError
from rdmawire.fuzz.planted_bugs import answer_bugs, memory_bugs, order_bugs, requester_bugs
from rdmawire.fuzz.planted_bugs.bug import PlantedBug
from rdmawire.terminal import suggest

_BUGS: Final = (*memory_bugs.BUGS, *order_bugs.BUGS, *answer_bugs.BUGS, *requester_bugs.BUGS)
PLANTED_BUGS: Final = {bug.name: bug for bug in _BUGS}
"""All planted bugs, by name."""


def planted(name: str) -> PlantedBug:
    """Return the planted bug of this name. Raises :class:`FuzzError` for an unknown name."""
    if name not in PLANTED_BUGS:
        raise FuzzError(
            f"no planted bug is named {name!r}{suggest(name, PLANTED_BUGS)}: see rdmawire fuzz list"
        )
    return PLANTED_BUGS[name]


__all__ = ["PLANTED_BUGS", "PlantedBug", "planted"]
