"""What Hypothesis draws: lengths at the edges, SGEs, flags, faults of the link."""

from itertools import pairwise
from random import Random
from typing import NamedTuple

from hypothesis import strategies as st

from rdmawire.fabric.link import Chances, Link
from rdmawire.memory.page import PAGE_4K
from rdmawire.units import ms, us
from rdmawire.verbs.wr import SendFlags
from rdmawire.wire.management import MTU

MTUS = st.sampled_from(MTU)
PSNS = st.one_of(
    st.sampled_from([0, 1, 0x7FFFFF, 0x800000, 0xFFFFFD, 0xFFFFFE, 0xFFFFFF]),
    st.integers(0, 0xFFFFFF),
)
NUMBERS_32 = st.integers(0, 0xFFFF_FFFF)
NUMBERS_64 = st.one_of(st.sampled_from([0, 1, (1 << 64) - 1]), st.integers(0, (1 << 64) - 1))
FLAGS = st.sampled_from([SendFlags.SIGNALED, SendFlags.SIGNALED, SendFlags(0)]).flatmap(
    lambda signaled: st.sampled_from(
        [
            signaled,
            signaled | SendFlags.FENCE,
            signaled | SendFlags.INLINE,
            signaled | SendFlags.SOLICITED,
        ]
    )
)
MAX_PIECES = 5


class Length(NamedTuple):
    """So many MTUs and bytes more, or fewer."""

    mtus: int
    more: int

    def of(self, mtu: int) -> int:
        return max(self.mtus * mtu + self.more, 0)


LENGTHS = st.one_of(
    st.builds(Length, st.just(0), st.integers(0, 33)),
    st.builds(Length, st.integers(0, 3), st.integers(-4, 4)),
    st.builds(Length, st.integers(0, 3), st.integers(0, 255)),
)
LONGEST = Length(3, 255)
CUTS = st.lists(st.floats(0, 1), max_size=MAX_PIECES - 1)
"""Where a message is cut into pieces, as parts of its length."""


def cut(length: int, cuts: list[float]) -> list[int]:
    """The lengths of the pieces; some may be empty."""
    places = [0, *sorted(round(part * length) for part in cuts), length]
    return [after - before for before, after in pairwise(places)]


class LinkFaults(NamedTuple):
    """What a link does to frames: tenths, and a seed."""

    seed: int
    drop: int
    duplicate: int
    delay: int
    max_delay: int

    @property
    def are_none(self) -> bool:
        return not (self.drop or self.duplicate or self.delay)

    def rule(self, link: Link) -> None:
        """Let it be so from now on."""
        chances = (self.drop / 10, self.duplicate / 10, self.delay / 10)
        link.chances = (
            None if self.are_none else Chances(Random(self.seed), *chances, self.max_delay)
        )


NO_FAULTS = LinkFaults(0, 0, 0, 0, 1)
LINK_FAULTS = st.one_of(
    st.just(NO_FAULTS),
    st.builds(
        LinkFaults,
        st.integers(0, 0xFFFF_FFFF),
        st.integers(0, 3),
        st.integers(0, 3),
        st.integers(0, 5),
        st.sampled_from([us(1), us(20), ms(1), ms(200)]),
    ),
)


class Spot(NamedTuple):
    """A place in memory: so far from a page border, or, of page ``LAST``, from the end."""

    page: int
    delta: int

    def of(self, start: int, room: int) -> int:
        """How far from ``start`` that is, of the ``room`` bytes there."""
        if self.page == LAST:
            return max(room - abs(self.delta), 0)
        border = -start % PAGE_4K + self.page * PAGE_4K
        return min(max(border + self.delta, 0), room)


LAST = 9
SPOTS = st.builds(Spot, st.integers(0, LAST), st.integers(-9, 9))
