"""Which two flows are the directions of one connection: who acknowledges whose PSNs.

An acknowledge and the first packet of a response have the PSN of a request that runs the other
way, shortly before. Each response is held against the last requests with its PSN between the same
two addresses; every flow that one of them is of gets a vote. The flow that all of a connection's
responses belong to gets a vote each time, others only by chance. UD says its source QP itself, and
CM says both; what CM says counts where nobody acknowledges, as in UC.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from rdmawire.stats.address import OTHER, Addresses
from rdmawire.stats.circle import Numbers
from rdmawire.stats.flow import FLOW_BITS, FLOWS, REST, Flows, Grouped, Key
from rdmawire.stats.opcodes import BEGINS, IS_REQUEST

_CANDIDATES = 8
"""Requests with a response's PSN that are looked at, the last ones before it."""
_SETTLED = 64
"""Votes that settle the matter if no other flow has a quarter of them."""
_VOTES = 1 << 18
"""Pairs of flows whose votes are counted."""
_PSN_BITS = 24


class Pairing:
    """Counts votes, and says which flows belong together."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._votes: dict[int, Counter[int]] = defaultdict(Counter)
        self._nearest: Counter[tuple[int, int]] = Counter()
        self._settled = np.zeros(FLOWS, np.bool_)
        self._settled[REST] = True
        self._told: dict[Key, Key] = {}

    def tell(self, one: Key, other: Key) -> None:
        """What CM says: two flows are of one connection."""
        if len(self._told) < FLOWS:
            self._told[one] = other

    def add(self, found: Grouped) -> None:
        """Let the responses of a block vote."""
        opcode = found.packets.opcode
        asks = IS_REQUEST[opcode] & (found.flow != REST)
        answers = BEGINS[opcode] & ~self._settled[found.flow]
        lane = self._lanes(found, asks, answers)
        if lane is None:
            return
        which = np.flatnonzero((asks | answers) & (lane >= 0))
        key = lane[which] << _PSN_BITS | found.packets.psn[which]
        order = np.lexsort((found.rows[which], key))
        self._vote(found, which[order], key[order], answers)

    def _lanes(
        self, found: Grouped, asks: NDArray[np.bool_], answers: NDArray[np.bool_]
    ) -> Numbers | None:
        """For each packet the pair of addresses that its request goes along; -1 for none.

        ``None`` if no response could have its request here.
        """
        pair = found.packets.pair
        asked = {int(number) for number in np.unique(pair[asks])} - {OTHER}
        back = np.full(OTHER + 1, -1, np.int64)
        for number in np.unique(pair[answers]):
            turned = self._addresses.back(int(number))
            back[number] = turned if turned in asked else -1
        if not (back >= 0).any():
            return None
        wanted = np.zeros(OTHER + 1, np.bool_)
        wanted[back[back >= 0]] = True
        return np.where(answers, back[pair], np.where(wanted[pair], pair, -1))

    def _vote(
        self, found: Grouped, rows: Numbers, key: Numbers, answers: NDArray[np.bool_]
    ) -> None:
        flow, answering = found.flow[rows], answers[rows]
        distances = range(1, _CANDIDATES + 1)
        self._count([_cast(flow, key, answering, distance) for distance in distances])

    def _count(self, cast: list[Numbers]) -> None:
        for flow, other, votes in _counted(cast[0]):
            self._nearest[flow, other] += votes
        touched = set()
        for flow, other, votes in _counted(np.concatenate(cast)):
            if len(self._nearest) < _VOTES:
                self._votes[flow][other] += votes
                touched.add(flow)
        for flow in touched:
            (_, most), *others = self._votes[flow].most_common(2)
            self._settled[flow] = most >= _SETTLED and all(4 * n < most for _, n in others)

    def pairs(self, flows: Flows) -> dict[int, int]:
        """For each flow that has one, the flow back."""
        found: dict[int, int] = {}
        for one, other in [*self._by_source(flows), *self._by_votes(), *self._by_cm(flows)]:
            if one not in found and other not in found:
                found[one], found[other] = other, one
        return found

    def _by_votes(self) -> Iterator[tuple[int, int]]:
        """The likeliest first: the most votes either way; of equals those met first."""
        both: Counter[tuple[int, int]] = Counter()
        nearest: Counter[tuple[int, int]] = Counter()
        for flow, votes in self._votes.items():
            for other, count in votes.items():
                ends = min(flow, other), max(flow, other)
                both[ends] += count
                nearest[ends] += self._nearest[flow, other]
        yield from sorted(both, key=lambda ends: (-both[ends], -nearest[ends], ends))

    def _by_source(self, flows: Flows) -> Iterator[tuple[int, int]]:
        for flow, key in enumerate(flows.keys):
            if key.source:
                back = Key(self._addresses.back(key.pair), key.source, key.destination)
                other = flows.find(back)
                if other >= 0:
                    yield flow, other

    def _by_cm(self, flows: Flows) -> Iterator[tuple[int, int]]:
        for one, other in self._told.items():
            ends = flows.find(one), flows.find(other)
            if min(ends) >= 0:
                yield ends


def _cast(flow: Numbers, key: Numbers, answering: NDArray[np.bool_], distance: int) -> Numbers:
    """The votes of responses for requests with their key, so many places before them.

    A vote is two flows in one number: that of the response, then that of the request.
    """
    behind, ahead = slice(distance, None), slice(None, -distance)
    hit = answering[behind] & ~answering[ahead] & (key[behind] == key[ahead])
    votes: Numbers = flow[behind][hit] << FLOW_BITS | flow[ahead][hit]
    return votes


def _counted(cast: Numbers) -> Iterator[tuple[int, int, int]]:
    """Each pair of flows that got votes, and how many."""
    pairs, counts = np.unique(cast, return_counts=True)
    for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
        yield *divmod(pair, FLOWS), count
