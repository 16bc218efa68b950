"""Congestion control at work: paced frames, marks that become CNPs, CNPs that cut, round trips."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.fault import Faults, Rule
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.link import Arrival, Link
from rdmawire.fabric.pair import Pair
from rdmawire.ib.congestion.base import GIGABIT, SECOND
from rdmawire.ib.congestion.dcqcn import CNP_INTERVAL, Dcqcn, DcqcnParameters
from rdmawire.units import ms, us
from rdmawire.verbs.enums import QPType, WCStatus
from rdmawire.wire import roce
from rdmawire.wire.ib import AETH
from rdmawire.wire.inet import ECN, IPv4
from rdmawire.wire.opcode import Opcode

LENGTH = 40 * 1024


class Marking(Link):
    """A link that marks what a test chooses, by the numbers of frames, and keeps them all."""

    def __init__(self, chosen: Callable[[int], bool] = lambda _: False, **link: object) -> None:
        super().__init__(us(1), **link)  # type: ignore[arg-type]
        self.chosen = chosen
        self.carried: list[tuple[int, roce.Frame]] = []

    def carry(self, frame: Envelope, now: int) -> list[Arrival]:
        parsed = roce.parse(frame.data)
        self.carried.append((now, parsed))
        request = parsed.packet.bth.opcode != Opcode.CNP and parsed.packet.header(AETH) is None
        if request and self.chosen(len(self.carried)):
            frame = frame.altered(_marked(parsed))
        return super().carry(frame, now)

    def times(self, *opcodes: Opcode) -> list[int]:
        """When frames of these opcodes went."""
        return [time for time, frame in self.carried if frame.packet.bth.opcode in opcodes]


def _marked(frame: roce.Frame) -> bytes:
    headers = tuple(h.replace(ecn=ECN.CE) if isinstance(h, IPv4) else h for h in frame.headers)
    return frame.replace(headers=headers).seal().build()


class Watched(Dcqcn):
    """A scheme that keeps the round trips that it was told of, and its lowest rate."""

    def __init__(self) -> None:
        super().__init__(DcqcnParameters(line_rate=8 * GIGABIT))
        self.rtts: list[int] = []
        self.lowest = self.rate

    def notified(self, now: int) -> None:
        super().notified(now)
        self.lowest = min(self.lowest, self.rate)

    def acknowledged(self, rtt: int, now: int) -> None:
        self.rtts.append(rtt)
        super().acknowledged(rtt, now)


@pytest.mark.parametrize(("wanted", "seen"), [(None, (0, 0)), (48 << 2, (48, 0)), (0xBF, (47, 3))])
def test_cnps_may_have_a_traffic_class_of_their_own(
    wanted: int | None, seen: tuple[int, int]
) -> None:
    link = Marking(lambda _: True)
    pair, _ = governed(link)
    pair.server.nic.notify_congestion(pair.server.qp, traffic_class=wanted)
    pair.client.write(bytes(100), to=pair.server.region)
    pair.drive()
    (cnp,) = (frame for _, frame in link.carried if frame.packet.bth.opcode == Opcode.CNP)
    assert {(h.dscp, h.ecn) for h in cnp.headers if isinstance(h, IPv4)} == {seen}
    assert cnp.seal() == cnp
    others = [frame for _, frame in link.carried if frame is not cnp]
    assert {h.dscp for frame in others for h in frame.headers if isinstance(h, IPv4)} == {0}


def governed(link: Marking, kind: QPType = QPType.RC) -> tuple[Pair, Watched]:
    """A pair whose client is governed, and whose server tells of marks."""
    pair, scheme = Pair(link=link, kind=kind), Watched()
    pair.client.nic.control_congestion(pair.client.qp, scheme)
    pair.server.nic.notify_congestion(pair.server.qp)
    return pair, scheme


def test_frames_go_at_the_rate() -> None:
    link = Marking()
    pair, _ = governed(link)
    pair.client.write(bytes(LENGTH), to=pair.server.region)
    pair.drive()
    times = link.times(Opcode.RC_RDMA_WRITE_MIDDLE)
    gaps = {later - sooner for sooner, later in pairwise(times)}
    assert gaps == {1024 + 54 + 4}  # ns, at 8 bits a ns
    assert pair.server.region.read(LENGTH) == bytes(LENGTH)


def read_from(link: Marking) -> tuple[Pair, Watched]:
    """A pair whose client has read a long message from a server that is governed."""
    pair, scheme = Pair(link=link), Watched()
    pair.server.nic.control_congestion(pair.server.qp, scheme)
    pair.client.nic.notify_congestion(pair.client.qp)
    there = pair.server.filled(bytes(range(256)) * (LENGTH // 256))
    got = pair.client.read(LENGTH, of=there)
    pair.drive()
    assert got.buffer.read(LENGTH) == there.read(LENGTH)
    assert [done.status for done in pair.client.poll()] == [WCStatus.SUCCESS]
    return pair, scheme


def test_read_responses_go_at_the_rate() -> None:
    link = Marking()
    read_from(link)
    times = link.times(Opcode.RC_RDMA_READ_RESPONSE_MIDDLE)
    gaps = {later - sooner for sooner, later in pairwise(times)}
    assert gaps == {1024 + 54 + 4}  # ns, at 8 bits a ns


def test_marked_read_responses_slow_the_responder() -> None:
    link = Marking(lambda number: number > 3)
    pair, scheme = read_from(link)
    assert pair.server.qp.cnps == len(link.times(Opcode.CNP)) > 0
    assert scheme.lowest <= 4 * GIGABIT


def test_acks_do_not_wait_for_the_rate() -> None:
    link = Marking()
    pair, _ = governed(link)
    pair.client.write(bytes(LENGTH), to=pair.server.region)
    for _ in range(5):
        pair.server.write(b"short", to=pair.client.region)
    pair.drive(until=us(3))
    acks = link.times(Opcode.RC_ACKNOWLEDGE)
    assert acks
    assert acks[0] < us(2)


@pytest.mark.parametrize("kind", [QPType.RC, QPType.UC])
def test_a_mark_becomes_a_cnp_and_cuts_the_rate(kind: QPType) -> None:
    link = Marking(lambda number: number == 3)
    pair, scheme = governed(link, kind)
    pair.client.write(bytes(LENGTH), to=pair.server.region)
    pair.drive(until=us(20))
    assert len(link.times(Opcode.CNP)) == 1
    assert pair.client.qp.cnps == 1
    assert scheme.rate == 4 * GIGABIT


def test_marks_in_an_interval_cause_one_cnp() -> None:
    link = Marking(lambda _: True)
    pair, scheme = governed(link)
    for _ in range(40):
        pair.client.write(bytes(LENGTH), to=pair.server.region)
    pair.drive()
    times = link.times(Opcode.CNP)
    assert len(times) > 5
    assert all(later - sooner >= CNP_INTERVAL for sooner, later in pairwise(times))
    assert pair.client.qp.cnps == len(times)
    assert scheme.lowest < 1 * GIGABIT
    assert [done.status for done in pair.client.poll()] == [WCStatus.SUCCESS] * 40


def test_two_notification_points_send_cnps_for_their_own_marks_only() -> None:
    link = Link(us(1))
    link.faults = Faults([Rule("set", {"ip.ihl": 5}, field="ip.ecn", value=ECN.CE)])
    pair = Pair(link=link)
    for end in pair.client, pair.server:
        end.nic.notify_congestion(end.qp, interval=0)
    pair.client.write(b"marked", to=pair.server.region)
    pair.drive()
    assert pair.client.qp.cnps == 1  # of the WRITE
    assert pair.server.qp.cnps == 1  # of its ACK


def test_without_marks_the_rate_comes_back_and_nothing_waits() -> None:
    link = Marking(lambda number: number == 1)
    pair, scheme = governed(link)
    pair.client.write(bytes(LENGTH), to=pair.server.region)
    pair.drive(until=ms(5))
    assert scheme.rate == 8 * GIGABIT
    assert pair.client.nic.next_timer() is None


def test_round_trips_are_those_of_the_link() -> None:
    link = Marking()
    pair, scheme = governed(link)
    for _ in range(3):
        pair.client.write(b"ping", to=pair.server.region)
        pair.drive()
    assert scheme.rtts == [us(2)] * 3


def test_what_was_sent_twice_measures_nothing() -> None:
    link = Marking(drop={1})
    pair, scheme = governed(link)
    pair.client.write(b"lost", to=pair.server.region)
    pair.drive()
    assert not scheme.rtts
    assert [done.status for done in pair.client.poll()] == [WCStatus.SUCCESS]


def test_without_notification_marks_cause_no_cnp() -> None:
    link = Marking(lambda _: True)
    pair = Pair(link=link)
    pair.client.write(bytes(LENGTH), to=pair.server.region)
    pair.drive()
    assert not link.times(Opcode.CNP)
    assert pair.server.region.read(LENGTH) == bytes(LENGTH)


def test_the_rate_holds_over_a_second() -> None:
    link = Marking()
    pair, scheme = governed(link)
    for _ in range(10):
        pair.client.write(bytes(LENGTH), to=pair.server.region)
    pair.drive()
    size = sum(len(frame.build()) for _, frame in link.carried[:-1])
    assert size * 8 * SECOND <= link.carried[-1][0] * scheme.rate * 1.05


def test_a_queue_pair_that_is_destroyed_sends_no_more() -> None:
    link = Marking()
    pair, _ = governed(link)
    pair.client.write(bytes(LENGTH), to=pair.server.region)
    pair.drive(until=us(5))
    pair.client.nic.destroy_qp(pair.client.qp)
    sent = len(link.carried)
    pair.drive()
    assert len(link.carried) == sent
    assert pair.client.nic.next_timer() is None


def test_a_datagram_queue_pair_has_no_peer_to_notify_of_marks() -> None:
    pair = Pair(kind=QPType.UD)
    with pytest.raises(VerbsError, match="no peer to notify"):
        pair.server.nic.notify_congestion(pair.server.qp)
