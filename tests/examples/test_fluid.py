"""Where the fluid model of DCQCN comes to rest."""

from itertools import pairwise

import pytest

from examples.fluid import Fluid
from rdmawire.fabric.switch_config import Marking
from rdmawire.ib.congestion.dcqcn import DcqcnParameters
from rdmawire.units import gbps

KNOWN = DcqcnParameters()
FRAME = 1000
MARKING = Marking(5_000, 200_000, 0.01)


def fluid(flows: int) -> Fluid:
    return Fluid(KNOWN, flows, gbps(40), FRAME)


@pytest.mark.parametrize("flows", [2, 4, 8])
def test_few_marks_are_as_many_as_the_published_approximation_says(flows: int) -> None:
    """ECN or Delay, equation 11: the cube root of what follows, where few frames are marked."""
    capacity, additive = gbps(40) / 8 / FRAME, KNOWN.additive / 8 / FRAME
    interval, timer = 50e-6, KNOWN.rate_timer * 1e-9
    steps = FRAME / KNOWN.byte_counter + flows / (timer * capacity)
    cube = additive * flows**2 / (interval * capacity**2) * steps**2
    assert fluid(flows).marked() == pytest.approx(cube ** (1 / 3), rel=0.25)


def test_more_flows_mean_more_marks_and_a_longer_queue() -> None:
    marks = [fluid(flows).marked() for flows in (1, 2, 4, 8, 16)]
    queues = [fluid(flows).queue(MARKING) for flows in (1, 2, 4, 8)]
    assert all(fewer < more < 1 for fewer, more in pairwise(marks))
    assert all(5_000 < shorter < longer < 200_000 for shorter, longer in pairwise(queues))


def test_shares_are_equal_and_fill_the_link() -> None:
    assert fluid(8).share == gbps(5)


def test_what_is_marked_too_rarely_fills_the_queue_to_the_end() -> None:
    assert fluid(8).queue(Marking(5_000, 200_000, 0.001)) == 200_000
    assert fluid(8).queue(Marking(5_000, 200_000, 0.0)) == 200_000
