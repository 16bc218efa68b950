"""Pauses: they save frames, and stop flows of other paths, too."""

from functools import cache

import pytest

from examples.victim import EDGE, PLANS, Victim
from rdmawire.traffic.summary import FrameCounter
from rdmawire.units import ms

END = ms(4)
BEFORE = slice(2, 9)
AFTER = slice(15, None)
"""Samples before the others begin, and after what that brings has settled."""


class Ran:
    """A plan that was carried out, and the frames of its senders."""

    def __init__(self, name: str) -> None:
        self.sent = FrameCounter()
        self.victim = Victim(PLANS[name])
        for number in range(1, PLANS[name].senders + 1):
            self.victim.network.tap(f"h{number}", self.sent)
        self.victim.run(END)

    def share(self, samples: slice) -> float:
        """What part of its link's rate the victim has."""
        found = self.victim.victim[samples]
        return sum(found) / len(found) / EDGE

    @property
    def completed(self) -> list[int]:
        """Bytes of whole messages that each sender got across."""
        return [stream.completed for stream in self.victim.streams]


ran = cache(Ran)


@pytest.mark.parametrize("name", PLANS)
def test_alone_the_victim_has_its_whole_link(name: str) -> None:
    assert ran(name).share(BEFORE) > 0.97


@pytest.mark.parametrize("name", [name for name in PLANS if name != "no pauses"])
def test_with_pauses_nothing_is_lost_and_nothing_is_sent_again(name: str) -> None:
    assert ran(name).victim.drops == 0
    assert ran(name).sent.retransmits == 0
    assert ran(name).victim.failed == 0


def test_without_pauses_frames_are_lost_and_sent_again_and_less_gets_through() -> None:
    lossy, lossless = ran("no pauses"), ran("pauses")
    assert lossy.victim.drops > 500
    assert lossy.sent.retransmits > 500
    assert sum(lossy.completed) < 0.5 * sum(lossless.completed)


def test_a_pause_stops_flows_of_other_paths_too() -> None:
    """Head-of-line blocking: the victim gets no more than each of four that share a link."""
    stopped = ran("pauses")
    assert stopped.share(AFTER) == pytest.approx(1 / 4, rel=0.1)
    assert stopped.victim.paused("victim") > 0.5 * (END - PLANS["pauses"].begin)
    port = stopped.victim.network.ports["s1:s2"]
    assert port.egress.pauses[3] > 10
    assert stopped.victim.network.ports["s2:cold"].egress.bytes[3] == 0


@pytest.mark.parametrize("name", ["pauses, a priority of its own", "pauses and DCQCN", "no pauses"])
def test_a_flow_that_is_not_behind_them_is_not_stopped(name: str) -> None:
    free = ran(name)
    assert free.share(AFTER) > 0.97
    assert free.victim.paused("victim") == 0


def test_with_dcqcn_senders_slow_down_before_a_pause_is_sent() -> None:
    ports = ran("pauses and DCQCN").victim.network.ports.values()
    assert sum(port.stops.total() for port in ports) == 0
    assert sum(port.marks.total() for port in ports) > 0
