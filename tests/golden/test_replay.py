"""An adapter in the place of either end of a golden case, given no more than the JSON holds.

It gets the frames that the other end was captured sending, and must send what it was captured
sending itself, at the same nanosecond, and end in the same state.
"""

import pytest

from tests.golden.bench import Playback, RecordedCase, case_of, played, read
from tools.make_captures.golden.case import CLIENT, OTHER, SERVER
from tools.make_captures.golden.played import outcome
from tools.make_captures.golden.stage import Stage

CASES = 304
"""All cases that describe each end and its work."""


def replayed(recorded: RecordedCase, who: str) -> Stage:
    """The case with a real adapter at this end, and what was captured of the other."""
    playback = Playback(recorded.by(OTHER[who]))
    return Stage(case_of(recorded, who), {OTHER[who]: playback}).run()


def ends_of(recorded: RecordedCase) -> list[str]:
    """The ends at which there was an adapter."""
    return [who for who in (CLIENT, SERVER) if not recorded.described[who].get("silent")]


@pytest.mark.parametrize("name", played())
def test_either_end_sends_the_recorded_frames(name: str) -> None:
    for recorded in read(name):
        for who in ends_of(recorded):
            stage = replayed(recorded, who)
            sent = [(one.time, one.frame) for one in stage.sent if one.who == who]
            assert sent == recorded.by(who), f"{recorded.name}: the {who}"


@pytest.mark.parametrize("name", played())
def test_either_end_ends_in_the_recorded_state(name: str) -> None:
    for recorded in read(name):
        assert set(recorded.described["comes_to"]) == set(ends_of(recorded))
        for who in ends_of(recorded):
            party = replayed(recorded, who).parties[who]
            assert outcome(party) == recorded.described["comes_to"][who], (
                f"{recorded.name}: the {who}"
            )


def test_no_case_is_left_out() -> None:
    assert sum(len(read(name)) for name in played()) == CASES
    assert {name for name in played() for recorded in read(name) if not ends_of(recorded)} == set()


def test_a_byte_that_differs_is_noticed() -> None:
    recorded = next(recorded for recorded in read("rc") if recorded.name == "rc-read-ipv4")
    changed = recorded.described | {
        "server": recorded.described["server"] | {"memory_rkey": 0x1234_5678}
    }
    stage = replayed(recorded._replace(described=changed), SERVER)
    sent = [(one.time, one.frame) for one in stage.sent if one.who == SERVER]
    assert sent != recorded.by(SERVER)
