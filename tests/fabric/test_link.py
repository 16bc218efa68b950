"""Links are refused when they are made, if they make no sense: not at the first frame."""

from random import Random
from typing import Any

import pytest

from rdmawire.errors import FabricError
from rdmawire.fabric.link import Chances, Link
from rdmawire.units import gbps, us

NAN = float("nan")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"drop": 5}, "Chances.drop: 5 is not a number from 0 to 1"),
        ({"drop": -0.1}, "Chances.drop: -0.1 .* is not a number from 0 to 1"),
        ({"duplicate": NAN}, "Chances.duplicate: nan .* is not a number from 0 to 1"),
        ({"delay": "1%"}, "Chances.delay: '1%' .* is not a number from 0 to 1"),
        ({"delay": 0.5, "max_delay": 0}, "max_delay: 0 is not a number of nanoseconds from 1"),
        ({"max_delay": 1.5}, "max_delay: 1.5 .* is not a number of nanoseconds from 1"),
        ({"random": 7}, "Chances.random: 7 is not of type Random"),
    ],
)
def test_chances_that_make_no_sense(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(FabricError, match=reason):
        Chances(**{"random": Random(0)} | given)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"latency": -5}, "Link.latency: -5 is not a number of nanoseconds from 0"),
        ({"latency": 1.5}, "Link.latency: 1.5 .* is not a number of nanoseconds from 0"),
        ({"latency": None}, "Link.latency: None .* is not a number of nanoseconds from 0"),
        ({"rate": 0}, "Link.rate: 0 is not a number of bits a second from 1"),
        ({"rate": 1e9}, "Link.rate: 1000000000.0 .* is not a number of bits a second from 1"),
        ({"mtu": 0}, "Link.mtu: 0 is not a number of bytes from 1"),
        ({"drop": {0}}, "Link.drop: 0 is not a frame's number from 1 .*; frames are named by"),
        ({"drop": "1%"}, "Link.drop: '1%' .* is not a collection; .* chances=Chances.* by share"),
        ({"drop": 0.01}, "Link.drop: 0.01 .* is not a collection; .* chances=Chances.* by share"),
        ({"drop": None}, "Link.drop: None .* is not a collection"),
        ({"duplicate": [1, 2.0]}, "Link.duplicate: 2.0 .* is not a frame's number from 1"),
        ({"delay": {1: -1}}, "Link.delay: -1 is not a number of nanoseconds from 0"),
        ({"delay": {0: 1}}, "Link.delay: 0 is not a frame's number from 1"),
        ({"delay": 0.5}, "Link.delay: 0.5 .* is not a mapping"),
        ({"chances": 0.1}, "Link.chances: 0.1 .* is not of type Chances"),
    ],
)
def test_links_that_make_no_sense(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(FabricError, match=reason):
        Link(**given)


def test_what_links_may_be() -> None:
    chances = Chances(Random(0), drop=0, duplicate=1.0, delay=0.5, max_delay=1)
    link = Link(us(1), rate=gbps(100), drop=range(1, 9), duplicate=[9], delay={10: 0})
    assert link.drop == {1, 2, 3, 4, 5, 6, 7, 8}
    assert Link(chances=chances, mtu=1, rate=None, delay=None).chances is chances
