"""Requests on one line of numbers: what is the same whatever the path MTU is.

A *run* is requests of one flow without a restart in it, see :mod:`.sequence`. Each run of a block
has a stretch of the line of its own, so that all runs are gone through at once.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.stats.circle import Numbers, distances
from rdmawire.stats.flow import FLOWS, Grouped
from rdmawire.stats.opcodes import IS_READ
from rdmawire.wire.management import PATH_MTUS
from rdmawire.wire.serial import MODULUS

MTUS = PATH_MTUS[::-1]
"""The path MTUs that there are. IBA 9.5.1."""
REACH = 1 << 16
"""Numbers that a request may be away from where the one before it ended."""
STRETCH = 1 << 43
"""More numbers than the requests of a block can take."""
_MOST = (MODULUS >> 1) - 1
"""PSNs that a request takes at most: with more, what follows it would not be ahead of it."""


class Run(NamedTuple):
    """Requests of a block, sorted by flow; there is at least one.

    ``place`` is each request's PSN on the line, ``read`` the octets that it reads, ``fresh``
    where counting begins anew, ``first`` where a flow's requests begin in this block.
    """

    flow: Numbers
    read: Numbers
    place: Numbers
    run: Numbers
    fresh: NDArray[np.bool_]
    first: NDArray[np.bool_]

    def of(self, which: NDArray[np.bool_]) -> "Run":
        """Those of some flows."""
        flow, read, place, run, fresh, first = self
        chosen = flow[which], read[which], place[which], run[which]
        return Run(*chosen, fresh[which], first[which])


class Line:
    """Puts requests on the line, and remembers where each flow was."""

    def __init__(self) -> None:
        self._psn = np.full(FLOWS, -1, np.int64)
        self._most = np.zeros(FLOWS, np.int64)
        self.restarts = np.zeros(FLOWS, np.int64)
        self.reads = np.zeros(FLOWS, np.bool_)

    def add(self, found: Grouped) -> Run:
        """The requests of a block."""
        own, flow = found.packets, found.flow
        read = np.where(IS_READ[own.opcode], own.read, 0)
        most = taken(read, MTUS[-1])
        first = np.zeros(len(own), np.bool_)
        first[found.starts] = True
        before = np.where(first, self._psn[flow], np.roll(own.psn, 1))
        allowed = np.where(first, self._most[flow], np.roll(most, 1)) + REACH
        step = np.where(before < 0, 0, distances(before, own.psn))
        restart = (step < -REACH) | (step > allowed)
        self.restarts += np.bincount(flow[restart], minlength=FLOWS)
        fresh = restart | (before < 0)
        self._remember(found, own.psn, most, read)
        return _placed(flow, read, np.where(fresh, 0, step), fresh, first)

    def _remember(self, found: Grouped, psn: Numbers, most: Numbers, read: Numbers) -> None:
        last = np.append(found.starts[1:], len(psn)) - 1
        self._psn[found.flows], self._most[found.flows] = psn[last], most[last]
        self.reads[found.flow[read > MTUS[-1]]] = True


def taken(read: Numbers, mtu: int) -> Numbers:
    """How many PSNs requests take: one, or the packets of a READ's response. IBA 9.7.3.1."""
    return np.clip(-(-read // mtu), 1, _MOST)


def _placed(
    flow: Numbers,
    read: Numbers,
    step: Numbers,
    fresh: NDArray[np.bool_],
    first: NDArray[np.bool_],
) -> Run:
    begins = fresh | first
    run = np.cumsum(begins) - 1
    total = np.cumsum(step)
    at = np.flatnonzero(begins)
    place = total - (total - step)[at][run] + run * STRETCH
    return Run(flow, read, place, run, fresh, first)
