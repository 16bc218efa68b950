"""An adapter in the place of either end of a golden case, given no more than the JSON holds.

It gets the frames that the other end was captured sending, and must send what it was captured
sending itself, at the same nanosecond, and come to the same end.
"""

import pytest

from tests.golden.bench import Playback, Told, case_of, played, read
from tools.make_captures.golden.case import CLIENT, OTHER, SERVER
from tools.make_captures.golden.played import outcome
from tools.make_captures.golden.stage import Stage

CASES = 304
"""All cases that describe each end and its work."""


def replayed(told: Told, who: str) -> Stage:
    """The case with a real adapter at this end, and what was captured of the other."""
    playback = Playback(told.by(OTHER[who]))
    return Stage(case_of(told, who), {OTHER[who]: playback}).run()


def ends_of(told: Told) -> list[str]:
    """The ends at which there was an adapter."""
    return [who for who in (CLIENT, SERVER) if not told.told[who].get("silent")]


@pytest.mark.parametrize("name", played())
def test_either_end_sends_what_it_sent(name: str) -> None:
    for told in read(name):
        for who in ends_of(told):
            stage = replayed(told, who)
            sent = [(one.time, one.frame) for one in stage.sent if one.who == who]
            assert sent == told.by(who), f"{told.name}: the {who}"


@pytest.mark.parametrize("name", played())
def test_either_end_comes_to_what_it_came_to(name: str) -> None:
    for told in read(name):
        assert set(told.told["comes_to"]) == set(ends_of(told))
        for who in ends_of(told):
            party = replayed(told, who).parties[who]
            assert outcome(party) == told.told["comes_to"][who], f"{told.name}: the {who}"


def test_no_case_is_left_out() -> None:
    assert sum(len(read(name)) for name in played()) == CASES
    assert {name for name in played() for told in read(name) if not ends_of(told)} == set()


def test_a_byte_that_differs_is_noticed() -> None:
    told = next(told for told in read("rc") if told.name == "rc-read-ipv4")
    changed = told.told | {"server": told.told["server"] | {"memory_rkey": 0x1234_5678}}
    stage = replayed(told._replace(told=changed), SERVER)
    sent = [(one.time, one.frame) for one in stage.sent if one.who == SERVER]
    assert sent != told.by(SERVER)
