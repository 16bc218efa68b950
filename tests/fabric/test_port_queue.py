"""The way out of a port: rates to the nanosecond, priorities, and pauses."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.fabric.host import Host
from rdmawire.fabric.link import Link, bit_times, duration, exceeds_mtu
from rdmawire.fabric.network import Network
from rdmawire.fabric.pair import CAP, connect
from rdmawire.fabric.pfc import pfc_frame, quanta_of
from rdmawire.fabric.port_queue import (
    MAX_WAITING,
    Mac,
    PortQueue,
    TrafficClass,
    round_robin,
    strict,
)
from rdmawire.fabric.simulator import Simulator
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.units import gbps, us
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.wr import SendOpcode, SendWR
from rdmawire.wire.inet import Ethernet, EtherType, MACControl, MACControlOpcode, Pause
from tests.fabric.talker import Talker, frame_of, frames_of

MAC = bytes((6, 0, 0, 0, 0, 1))


def taken(egress: PortQueue[bytes], until: int) -> list[tuple[int, bytes]]:
    """All that goes out, and when."""
    found = []
    while (time := egress.next_time()) is not None and time <= until:
        if (item := egress.take(time)) is not None:
            found.append((time, item[0]))
    return found


@pytest.mark.parametrize(
    ("size", "rate", "ns"),
    [
        (60, gbps(1), 672),  # the shortest frame: 84 bytes with preamble, FCS and gap
        (1, gbps(1), 672),
        (1514, gbps(1), 12_304),
        (1514, gbps(100), 124),
        (60, gbps(400), 2),
        (60, None, 0),
    ],
)
def test_frames_take_their_time(size: int, rate: int | None, ns: int) -> None:
    assert duration(bit_times(size), rate) == ns


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(60, 9000), st.sampled_from([1, 7, 25, 100, 400, 800]))
def test_back_to_back_no_fraction_of_a_nanosecond_gets_lost(
    count: int, size: int, rate: int
) -> None:
    egress = PortQueue[bytes](gbps(rate))
    for _ in range(count):
        egress.put(bytes(size), TrafficClass(), size)
    times = [time for time, _ in taken(egress, us(10**9))]
    assert times == [-(-n * bit_times(size) // rate) for n in range(count)]


def test_after_a_rest_the_wire_is_free_at_once() -> None:
    egress = PortQueue[bytes](gbps(1))
    for time in (0, 5_000, 5_001):
        egress.put(bytes(60), TrafficClass(), 60)
        assert (egress.take(time) is None) == (time == 5_001)
    assert egress.next_time() == 5_672


def test_mtu_counts_behind_the_header_and_tags() -> None:
    tag = b"\x81\x00\x00\x05"
    assert not exceeds_mtu(bytes(12) + b"\x08\x00" + bytes(1500), 1500)
    assert exceeds_mtu(bytes(12) + b"\x08\x00" + bytes(1501), 1500)
    assert not exceeds_mtu(bytes(12) + b"\x88\xa8\0\1" + tag + b"\x08\x00" + bytes(1500), 1500)
    assert exceeds_mtu(bytes(12) + tag + b"\x08\x00" + bytes(1501), 1500)


def test_what_is_too_big_for_a_link_is_lost() -> None:
    link, receiver = Link(mtu=500), Talker(2)
    frames = [frame_of(1, 2, 0, size=400), frame_of(1, 2, 1, size=500)]
    assert received(link, frames, receiver) == [0]
    assert (link.oversized, link.frames) == (1, 2)


def received(link: Link, frames: list[bytes], receiver: Talker) -> list[int]:
    simulator = Simulator()
    for talker in (Talker(1, frames), receiver):
        simulator.attach(talker, talker.mac, link)
    simulator.run()
    return receiver.psns


def test_a_link_with_a_rate_spaces_frames() -> None:
    receiver, frames = Talker(2), frames_of(1, 2, 50, size=940)
    size = len(frames[0])
    assert received(Link(us(1), rate=gbps(10)), frames, receiver) == list(range(50))
    each = bit_times(size) / 10
    for n, (time, _) in enumerate(receiver.received):
        assert time - us(1) == pytest.approx((n + 1) * each, abs=2)


def test_both_directions_of_a_link_are_wires_of_their_own() -> None:
    simulator, link = Simulator(), Link(rate=gbps(1))
    one, two = Talker(1, frames_of(1, 2, 5)), Talker(2, frames_of(2, 1, 5))
    for talker in (one, two):
        simulator.attach(talker, talker.mac, link)
    simulator.run()
    assert [h.time for h in one.received] == [h.time for h in two.received]
    assert len(one.received) == 5


def test_schedulers() -> None:
    assert strict(0b1001_0010, 3) == 7
    turns, last = [], 0
    for _ in range(6):
        last = round_robin(0b1001_0010, last)
        turns.append(last)
    assert turns == [7, 4, 1, 7, 4, 1]


def test_priorities_go_first_and_control_before_all() -> None:
    egress = PortQueue[bytes](gbps(1))
    for priority in (0, 3, 7, 3):
        egress.put(bytes((priority,)), TrafficClass(priority), 1)
    egress.put_control(b"control", 7)
    assert [frame for _, frame in taken(egress, us(100))] == [
        b"control",
        b"\7",
        b"\3",
        b"\3",
        b"\0",
    ]


def test_a_pause_stops_its_priority_until_it_ends() -> None:
    egress = PortQueue[bytes](gbps(1))
    egress.pause({3: 10}, now=100)  # 10 quanta of 512 bits: 5,120 ns
    egress.put(b"stopped", TrafficClass(3), 7)
    egress.put(b"free", TrafficClass(2), 4)
    assert not egress.stopped
    assert taken(egress, us(100)) == [(0, b"free"), (5_220, b"stopped")]
    assert (egress.pauses[3], egress.paused_ns[3], egress.paused_ns[2]) == (1, 5_120, 0)


def test_zero_quanta_let_it_go_on_and_more_quanta_stop_it_longer() -> None:
    egress = PortQueue[bytes](gbps(1))
    egress.put(b"frame", TrafficClass(5), 5)
    egress.pause({5: 100}, 0)
    egress.pause({5: 100}, 40_000)
    assert (egress.stopped, egress.next_time()) == (True, 91_200)
    egress.pause({5: 0}, 60_000)
    assert (egress.next_time(), egress.pauses[5], egress.paused_ns[5]) == (0, 1, 60_000)


@settings(deadline=None)
@given(st.integers(0, 7), st.integers(0, 0xFFFF))
def test_pause_frames_have_the_classes_and_times_given(priority: int, quanta: int) -> None:
    frame = pfc_frame(MAC, priority, quanta)
    assert len(frame) == 60
    assert quanta_of(frame) == {priority: quanta}


def test_plain_pause_stops_everything() -> None:
    control = MACControlOpcode(MACControl.PAUSE).build() + Pause(9).build()
    header = Ethernet(pfc_frame(MAC, 0, 0)[:6], MAC, EtherType.MAC_CONTROL).build()
    assert quanta_of(header + control) == dict.fromkeys(range(8), 9)


@settings(deadline=None)
@given(st.binary(max_size=70), st.sampled_from([0, 6, 14, 16]))
def test_any_bytes_are_a_pause_or_none(data: bytes, kept: int) -> None:
    found = quanta_of(pfc_frame(MAC, 1, 1)[:kept] + data)
    assert found is None or all(0 <= value <= 0xFFFF for value in found.values())


def test_an_adapter_obeys_pause_frames_and_does_not_receive_them() -> None:
    talker = Talker(1, [frame_of(1, 2, 0, dscp=24), frame_of(1, 2, 1, dscp=0)])
    mac = Mac(talker, Link(rate=gbps(1)))
    mac.receive(pfc_frame(MAC, 3, 1000), 0)
    assert talker.received == []
    assert [len(mac.transmit(time)) for time in (0, 511_999, 512_000)] == [1, 0, 1]


def test_a_stopped_priority_does_not_stop_others_until_too_much_waits() -> None:
    frames = frames_of(1, 2, 2 * MAX_WAITING, dscp=24, size=0)
    frames.insert(MAX_WAITING // 2, frame_of(1, 2, 9999))
    talker = Talker(1, frames)
    mac = Mac(talker, Link(rate=gbps(100)))
    mac.egress.pause({3: 0xFFFF}, 0)
    seen = [frame for time in range(1000) for frame in mac.transmit(time)]
    assert len(seen) == 1
    assert MAX_WAITING <= len(mac.egress) <= MAX_WAITING + 16


def test_an_adapter_with_too_much_that_is_stopped_waits_for_the_pause_to_end() -> None:
    simulator, link = Simulator(event_limit=4 * MAX_WAITING), Link(rate=gbps(100))
    sender, other = Talker(1, frames_of(1, 2, MAX_WAITING + 100, dscp=24, size=0)), Talker(2)
    other.frames.append(pfc_frame(MAC, 3, 0xFFFF))
    for talker in (sender, other):
        simulator.attach(talker, talker.mac, link)
    simulator.run()
    assert other.psns == list(range(MAX_WAITING + 100))
    assert other.received[-1].time > 0xFFFF * 512 // 100


GIGABIT = 10**9
FRAME = bytes(12) + b"\x08\x00" + bytes(60)


def queue_pair(host: Host) -> QueuePair:
    cq = host.nic.create_cq(64)
    return host.nic.create_qp(QPType.RC, QPInit(host.pd, cq, cq, CAP))


def test_work_that_comes_while_the_wire_is_busy_goes_out_right_behind() -> None:
    network, one, other = Network(), Host(1), Host(2)
    for name, host in (("one", one), ("other", other)):
        network.add_host(name, host)
    network.join("one", "other", Link(10**6, rate=GIGABIT))
    mine, theirs = queue_pair(one), queue_pair(other)
    connect(one, mine, other, theirs)
    source, sink = one.filled(bytes(8192)), other.buffer(8192)
    wr = SendWR(SendOpcode.RDMA_WRITE, (source.sge(),), remote_address=sink.address, rkey=sink.rkey)
    times: list[int] = []
    network.tap("one", lambda _, now: times.append(now))

    def post() -> None:
        one.nic.post_send(mine, (wr,))
        network.wake("one")

    for n in range(4):
        network.simulator.call_at(2_000 * n + 100, post)
    network.simulator.run()
    assert len(times) == 32
    assert max(after - before for before, after in pairwise(times)) < 10_000


class Stub:
    """An adapter that gives one frame at a time, whatever it receives."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def receive(self, frame: bytes, now: int) -> None:
        pass

    def transmit(self, now: int) -> list[bytes]:
        given, self.frames = self.frames[:1], self.frames[1:]
        return given

    def next_timer(self) -> int | None:
        return None

    def handle_timer(self, now: int) -> None:
        pass


def test_what_comes_when_a_pause_ends_is_not_forgotten() -> None:
    stub = Stub()
    mac = Mac(stub, Link(rate=GIGABIT))
    stub.frames = [FRAME]
    mac.receive(pfc_frame(b"\x06" * 6, 0, 1000), 0)
    assert mac.transmit(0) == []
    end = mac.next_timer()
    assert end is not None
    stub.frames = [FRAME]
    assert mac.transmit(end) == [FRAME]
    free = mac.next_timer()
    assert free is not None
    assert mac.transmit(free) == [FRAME]
