"""Eight write to one: DCQCN as its authors have it, TIMELY, and neither.

``RDMAWIRE_EFFORT=2`` and more runs the published settings for longer: frames of 1 KiB.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest

from examples.fairness import jain
from examples.fluid import Fluid
from examples.incast import (
    LOSSLESS,
    MARKING,
    PAUSING,
    SWITCH,
    Incast,
    Plan,
    per_byte,
    with_dcqcn,
    with_timely,
)
from examples.stream import bytes_in
from rdmawire.fabric.fault import Rule
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.switch_config import Marking
from rdmawire.ib.congestion.base import GIGABIT
from rdmawire.ib.congestion.dcqcn import CNP_INTERVAL, Dcqcn, DcqcnParameters
from rdmawire.traffic.summary import FrameCounter
from rdmawire.units import gbps, ms, seconds, us
from rdmawire.wire import roce
from rdmawire.wire.inet import ECN
from rdmawire.wire.management import MTU
from rdmawire.wire.opcode import Opcode
from tests.effort import EFFORT

LONG = EFFORT > 1
CHOSEN = MTU.MTU_1024 if LONG else MTU.MTU_4096
HEADERS = 58
"""Ethernet to BTH, and ICRC."""
WIRE = 24
"""Preamble, FCS and gap."""
END = ms(24 + 12 * min(EFFORT, 8)) if LONG else ms(24)


def mean(values: Iterable[float]) -> float:
    found = [*values]
    return sum(found) / len(found)


def later(values: list[float]) -> list[float]:
    """The second half."""
    return values[len(values) // 2 :]


def test_dcqcn_converges_to_fair_shares_of_a_full_link_and_the_queue_of_the_model() -> None:
    rate, frame = gbps(40), CHOSEN.bytes + HEADERS
    marking = per_byte(MARKING, CHOSEN)
    incast = Incast(with_dcqcn(Plan(rate=rate, mtu=CHOSEN)))
    incast.run(until=END)
    shares = [mean(later(rates)) for rates in incast.rates]
    full = rate * frame / (frame + WIRE)
    assert sum(shares) > 0.97 * full
    assert jain(shares) > (0.98 if LONG else 0.95)
    assert all(share == pytest.approx(full / 8, rel=0.35) for share in shares)
    expected = Fluid(DcqcnParameters(), 8, full, frame).queue(marking)
    assert mean(later(incast.queue)) == pytest.approx(expected, rel=0.3)
    assert max(later(incast.queue)) < 1.1 * marking.kmax
    assert incast.drops == incast.pauses == 0


@pytest.mark.slow
def test_flows_that_come_late_get_their_share() -> None:
    """Four begin, four more join them: all eight share alike in the end."""
    rate = gbps(40)
    incast = Incast(with_dcqcn(Plan(rate=rate, mtu=MTU.MTU_4096)))
    early, late = incast.streams[:4], incast.streams[4:]
    for stream in early:
        stream.write(bytes_in(ms(20), rate))

    def join() -> None:
        for number, stream in enumerate(late, 5):
            stream.write(bytes_in(ms(20), rate))
            incast.network.wake(f"h{number}")

    incast.network.simulator.call_at(ms(5), join)
    incast.sampler.begin(ms(20))
    incast.network.simulator.run(ms(20))
    before = [mean(rates[30:50]) for rates in incast.rates]
    after = [mean(rates[120:]) for rates in incast.rates]
    assert before[4:] == [0] * 4
    assert jain(before[:4]) > 0.95
    assert jain(after) > 0.95
    assert sum(after) > 0.95 * rate


def test_without_control_the_switch_must_pause_and_its_queue_is_full() -> None:
    incast = Incast(Plan(rate=gbps(10), mtu=MTU.MTU_4096))
    incast.run(until=ms(6))
    assert mean(later(incast.queue)) == pytest.approx(8 * PAUSING.xoff, rel=0.1)
    assert incast.pauses > 8
    assert incast.drops == 0


@pytest.mark.slow
def test_timely_fills_the_link_with_a_queue_shorter_than_its_thresholds() -> None:
    """It promises no fair shares: ECN or Delay, section 4, finds that none are sure."""
    rate = gbps(10)
    incast = Incast(with_timely(Plan(rate=rate, mtu=MTU.MTU_4096)))
    incast.run(until=ms(80))
    last = slice(3 * len(incast.queue) // 4, None)
    waits = [data * 8 * seconds(1) / rate for data in incast.queue[last]]
    assert sum(mean(rates[last]) for rates in incast.rates) > 0.85 * rate
    assert mean(waits) < us(50)  # T_low
    assert max(waits) < us(500)  # T_high
    assert incast.drops == incast.pauses == 0
    assert all(stream.qp.cnps == 0 for stream in incast.streams)


class Counting(Dcqcn):
    """DCQCN that counts how often it was cut."""

    def __init__(self) -> None:
        super().__init__(DcqcnParameters(line_rate=10 * GIGABIT))
        self.cuts = 0

    def notified(self, now: int) -> None:
        before = self.rate
        super().notified(now)
        self.cuts += self.rate < before or self.rate == self.parameters.min_rate


class NotificationPoint:
    """What the sink should tell: a tap on what arrives there, and the rule of the paper."""

    def __init__(self) -> None:
        self.owed: Counter[int] = Counter()
        self._told: dict[int, int] = {}

    def __call__(self, frame: Envelope, now: int) -> None:
        if frame.data[15] & 3 == ECN.CE:
            qpn = roce.parse(frame.data).packet.bth.destqp
            if now >= self._told.get(qpn, 0) + CNP_INTERVAL or qpn not in self._told:
                self._told[qpn] = now
                self.owed[qpn] += 1


@pytest.mark.parametrize(
    ("lossy", "departing"), [pytest.param(False, True, marks=pytest.mark.slow), (True, False)]
)
def test_marks_cnps_and_cuts_add_up(lossy: bool, departing: bool) -> None:
    settings = replace(SWITCH, marking={LOSSLESS: Marking(20_000, 60_000, 0.2, departing)})
    incast = Incast(Plan(senders=4, rate=gbps(10), scheme=Counting, settings=settings))
    lost_marks = Rule(
        "drop", {"ip.ecn": ECN.CE, "bth.opcode": Opcode.RC_RDMA_WRITE_MIDDLE}, chance=0.1
    )
    lost_cnps = Rule("drop", {"bth.opcode": Opcode.CNP}, chance=0.2)
    if lossy:
        incast.network.set_faults("sink-s1", lost_marks, lost_cnps)
    sent, heard, point = FrameCounter(), FrameCounter(), NotificationPoint()
    incast.network.tap("sink", sent)
    incast.network.tap("sink", heard, arrivals=True)
    incast.network.tap("sink", point, arrivals=True)
    incast.run(until=ms(3))
    incast.network.simulator.run()
    marks = sum(port.marks.total() for port in incast.network.ports.values())
    assert marks > 100
    assert (lost_marks.hits > 0) == (lost_cnps.hits > 0) == lossy
    assert heard.marks == marks - lost_marks.hits
    assert sent.cnps == point.owed.total() > 20
    received = sum(stream.qp.cnps for stream in incast.streams)
    assert received == sent.cnps - lost_cnps.hits
    assert received == sum(cuts(stream.scheme) for stream in incast.streams)


def cuts(scheme: object) -> int:
    assert isinstance(scheme, Counting)
    return scheme.cuts


def test_the_same_seed_gives_the_same_curves_and_another_gives_others() -> None:
    curves = []
    for seed in (1, 1, 2):
        plan = Plan(senders=3, rate=gbps(10), seed=seed)
        incast = Incast(with_dcqcn(plan, Marking(5_000, 50_000, 0.1)))
        incast.run(until=ms(1.5))
        curves.append((incast.queue, incast.rates))
    assert curves[0] == curves[1] != curves[2]
