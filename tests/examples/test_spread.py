"""Flows over spines: each has one way, and together they take all of them alike."""

from functools import cache

import pytest

from examples.spread import Plan, Spread

FLOWS = 256
SPINES = 4
CRITICAL = 16.27
"""Chi-squared with three degrees of freedom is beyond this once in a thousand times."""


@cache
def spread(hash_seed: int) -> Spread:
    """A run with this seed, made once."""
    found = Spread(Plan(flows=FLOWS, spines=SPINES, hash_seed=hash_seed))
    found.run()
    return found


@pytest.mark.parametrize("hash_seed", [0, 1])
def test_each_flow_takes_one_way_and_all_ways_are_taken_alike(hash_seed: int) -> None:
    found = spread(hash_seed)
    counts = [len(flows) for flows in found.flows.values()]
    assert sum(counts) == len(set.union(*found.flows.values())) == FLOWS
    expected = FLOWS / SPINES
    assert sum((count - expected) ** 2 / expected for count in counts) < CRITICAL
    assert [stream.completed for stream in found.streams] == [found.plan.message] * FLOWS
    assert found.failed == 0


def test_bytes_follow_flows() -> None:
    found = spread(0)
    for spine, flows in found.flows.items():
        assert found.bytes[spine] == len(flows) * sum(found.bytes.values()) // FLOWS


def test_another_seed_splits_flows_otherwise() -> None:
    assert spread(0).flows != spread(1).flows
