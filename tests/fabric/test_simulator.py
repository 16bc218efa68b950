"""The clock, the links and the taps, with ports that do as they are told."""

import sys
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.errors import FabricError
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.link import Arrival, Chances, Link
from rdmawire.fabric.pair import Pair
from rdmawire.fabric.port_queue import MAX_WAITING, Mac
from rdmawire.fabric.simulator import Port, SimulationLimit, Simulator
from rdmawire.units import gbps, ms, seconds, us
from tools.bench.fabric import QPS, Cluster
from tools.bench.scale import measured

A, B, C, GROUP = (bytes((2, 0, 0, 0, 0, n)) for n in (1, 2, 3, 4))
GROUP = b"\x01\x00\x5e" + GROUP[3:]


class Recorder:
    """Sends what it is given, one burst a list, and keeps what comes, with its time."""

    def __init__(self, *bursts: list[bytes], alarms: tuple[int, ...] = ()) -> None:
        self.bursts = list(bursts)
        self.alarms = list(alarms)
        self.received: list[tuple[int, bytes]] = []
        self.rung: list[int] = []

    def receive(self, frame: bytes, now: int) -> None:
        self.received.append((now, frame))

    def transmit(self, now: int) -> list[bytes]:
        return self.bursts.pop(0) if self.bursts else []

    def next_timer(self) -> int | None:
        return self.alarms[0] if self.alarms else None

    def handle_timer(self, now: int) -> None:
        self.rung.append(now)
        self.alarms.pop(0)


class Echo(Recorder):
    """Sends back whatever comes, for ever."""

    def receive(self, frame: bytes, now: int) -> None:
        self.bursts.append([frame[6:12] + frame[:6]])


def joined(*ports: Recorder, link: Link | None = None, **limits: int) -> Simulator:
    simulator, link = Simulator(**limits), Link() if link is None else link
    for port, mac in zip(ports, (A, B, C), strict=False):
        simulator.attach(port, mac, link)
    return simulator


def numbered(count: int) -> list[bytes]:
    return [B + A + bytes((n,)) for n in range(1, count + 1)]


def test_units_are_nanoseconds() -> None:
    assert (us(1.5), ms(2), seconds(1)) == (1_500, 2_000_000, 1_000_000_000)


def test_frames_arrive_in_order_after_the_latency() -> None:
    sender, receiver = Recorder(numbered(3)), Recorder()
    simulator = joined(sender, receiver, link=Link(us(1)))
    simulator.run()
    assert receiver.received == [(us(1), frame) for frame in numbered(3)]
    assert simulator.now == us(1)


@pytest.mark.parametrize("together", [1, 3])
def test_the_time_of_the_last_arrival_is_known_when_timers_go_on(together: int) -> None:
    sender, receiver = Recorder(numbered(together)), Recorder(alarms=(us(50),))
    simulator = joined(sender, receiver, link=Link(us(1)))
    assert simulator.last_arrival == 0
    simulator.run()
    assert (simulator.last_arrival, simulator.now) == (us(1), us(50))


def test_each_port_receives_its_own_frames_and_all_receive_multicast() -> None:
    frames = [C + A + b"to C", GROUP + A + b"to all", B + A + b"to B"]
    sender, b, c = Recorder(frames), Recorder(), Recorder()
    joined(sender, b, c).run()
    assert [frame for _, frame in b.received] == [frames[1], frames[2]]
    assert [frame for _, frame in c.received] == [frames[0], frames[1]]
    assert sender.received == []


def test_a_frame_to_an_unknown_address_is_flooded() -> None:
    sender, b, c = Recorder([b"nobody" + A]), Recorder(), Recorder()
    joined(sender, b, c).run()
    assert len(b.received) == len(c.received) == 1


def test_links_keep_their_frames_apart() -> None:
    ports = [Recorder([GROUP + A]), Recorder(), Recorder()]
    simulator, first, second = Simulator(), Link(), Link()
    for port, mac, link in zip(ports, (A, B, C), (first, first, second), strict=True):
        simulator.attach(port, mac, link)
    simulator.run()
    assert len(ports[1].received) == 1
    assert ports[2].received == []


def test_a_frame_to_oneself_comes_back_and_touches_no_link() -> None:
    sender, other, link = Recorder([A + A + b"me"]), Recorder(), Link(us(1), drop={1})
    joined(sender, other, link=link).run()
    assert sender.received == [(0, A + A + b"me")]
    assert (other.received, link.frames) == ([], 0)


def test_faults_are_by_number_of_frame() -> None:
    link = Link(us(1), drop={1}, duplicate={2}, delay={3: us(5)})
    sender, receiver = Recorder(numbered(4)), Recorder()
    joined(sender, receiver, link=link).run()
    one = us(1)
    assert [(time, frame[-1]) for time, frame in receiver.received] == [
        (one, 2), (one, 2), (one, 4), (us(6), 3),
    ]  # fmt: skip


def test_both_directions_share_the_numbers() -> None:
    a, b = Recorder([B + A]), Recorder([A + B])
    link = Link(drop={2})
    joined(a, b, link=link).run()
    assert (len(a.received), len(b.received), link.frames) == (0, 1, 2)


@given(st.integers(0, 1 << 32), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_the_same_seed_gives_the_same_faults(
    seed: int, drop: float, duplicate: float, delay: float
) -> None:
    def carried() -> list[list[Arrival]]:
        chances = Chances(Random(seed), drop, duplicate, delay, max_delay=us(3))
        link = Link(us(1), chances=chances)
        return [link.carry(frame, 7) for frame in frames]

    frames = [Envelope(frame) for frame in numbered(20)]
    found = carried()
    assert found == carried()
    for arrivals in found:
        assert len(arrivals) <= 2
        assert all(us(1) + 7 <= time <= us(4) + 7 for time, _ in arrivals)


def test_certain_faults_are_certain_and_impossible_ones_never_come() -> None:
    lost = Link(chances=Chances(Random(1), drop=1.0))
    twice = Link(chances=Chances(Random(1), duplicate=1.0))
    plain = Link(chances=Chances(Random(1)))
    for frame in map(Envelope, numbered(50)):
        assert lost.carry(frame, 0) == []
        copies = twice.carry(frame, 0)
        assert [(time, one.data) for time, one in copies] == [(0, frame.data)] * 2
        assert [one.faults for _, one in copies] == [("duplicated",)] * 2
        assert plain.carry(frame, 0) == [Arrival(0, frame)]


def test_timers_fire_at_their_time_and_in_turn() -> None:
    a, b = Recorder(alarms=(us(5), us(9))), Recorder(alarms=(us(7),))
    simulator = joined(a, b)
    simulator.run()
    assert (a.rung, b.rung, simulator.now) == ([us(5), us(9)], [us(7)], us(9))


def test_a_timer_that_is_overdue_fires_at_once() -> None:
    port = Recorder()
    simulator = joined(port)
    simulator.run(us(4))
    port.alarms = [us(1)]
    simulator.run()
    assert port.rung == [us(4)]


def test_up_to_a_time_and_no_further() -> None:
    sender, receiver = Recorder(numbered(1)), Recorder(alarms=(us(3),))
    simulator = joined(sender, receiver, link=Link(us(2)))
    simulator.run(us(2) - 1)
    assert (simulator.now, receiver.received) == (us(2) - 1, [])
    simulator.run(us(2))
    assert (simulator.now, len(receiver.received)) == (us(2), 1)
    simulator.run()
    assert receiver.rung == [us(3)]


def test_what_never_rests_ends_with_the_events() -> None:
    simulator = joined(Recorder(numbered(1)), Echo(), event_limit=100)
    simulator._attachments[0].port = Echo([B + A])
    with pytest.raises(SimulationLimit, match="not at rest after 100 events, at 0 ns"):
        simulator.run()


def test_what_lasts_too_long_ends_with_the_time() -> None:
    simulator = joined(Recorder(alarms=(us(1), us(11))), time_limit=us(10))
    with pytest.raises(
        SimulationLimit, match="not at rest after 10000 ns: next is due at 11000 ns"
    ):
        simulator.run()
    assert simulator.now == us(1)


def test_the_limits_are_of_one_run() -> None:
    simulator = joined(Recorder(*([f] for f in numbered(3))), Recorder(), event_limit=6)
    simulator.run()
    simulator._attachments[0].port.bursts = [[f] for f in numbered(3)]  # type: ignore[attr-defined]
    simulator.run()


def test_taps_see_what_was_sent_and_what_arrived() -> None:
    sent: list[tuple[int, bytes]] = []
    arrived: list[tuple[int, bytes]] = []
    simulator = joined(Recorder(numbered(3)), Recorder(), link=Link(us(1), drop={2}))
    simulator.on_sent.append(lambda frame, now: sent.append((now, frame.data)))
    simulator.on_arrival.append(lambda frame, now: arrived.append((now, frame.data)))
    simulator.run()
    assert [(now, frame[-1]) for now, frame in sent] == [(0, 1), (0, 2), (0, 3)]
    assert [(now, frame[-1]) for now, frame in arrived] == [(us(1), 1), (us(1), 3)]


class Sleeper(Recorder):
    """Counts how often it is asked for anything."""

    asked = 0

    def transmit(self, now: int) -> list[bytes]:
        self.asked += 1
        return super().transmit(now)

    def next_timer(self) -> int | None:
        self.asked += 1
        return super().next_timer()


def test_who_has_nothing_to_do_is_asked_once_a_run() -> None:
    simulator, sleepers = Simulator(), [Sleeper(alarms=(seconds(1),)) for _ in range(500)]
    for number, sleeper in enumerate(sleepers):
        simulator.attach(sleeper, b"\2\1" + number.to_bytes(4, "big"), Link(us(1)))
    talk = Link(us(1))
    simulator.attach(Recorder(*([frame] for frame in numbered(200))), A, talk)
    simulator.attach(receiver := Recorder(), B, talk)
    simulator.run(ms(1))
    assert len(receiver.received) == 200
    assert {sleeper.asked for sleeper in sleepers} == {2}


class Restless(Recorder):
    """Moves its alarm on with each frame, and never lets it ring before all were received."""

    def receive(self, frame: bytes, now: int) -> None:
        super().receive(frame, now)
        self.alarms = [now + ms(1)]


def test_alarms_that_move_on_do_not_pile_up() -> None:
    simulator, link = Simulator(), Link()
    receiver = Restless()
    frames = numbered(250) * 4
    link.delay = {number: number * 100 for number in range(1, 1001)}
    simulator.attach(Recorder(frames), A, link)
    simulator.attach(receiver, B, link)
    most = 0

    def note(_: Envelope, __: int) -> None:
        nonlocal most
        most = max(most, simulator._queue.timers())

    simulator.on_arrival.append(note)
    simulator.run()
    assert most <= 2
    assert receiver.rung == [100_000 + ms(1)]


def test_appointments_are_kept_in_order_and_can_be_called_off() -> None:
    simulator, kept = Simulator(), []
    for time, name in ((us(2), "c"), (us(1), "a"), (us(1), "b")):
        simulator.call_at(time, lambda name=name: kept.append((simulator.now, name)))  # type: ignore[misc]
    simulator.call_at(us(9), lambda: kept.append((0, "never"))).cancel()
    simulator.run()
    assert kept == [(us(1), "a"), (us(1), "b"), (us(2), "c")]
    assert simulator.now == us(2)


def test_an_appointment_that_is_overdue_is_kept_at_once() -> None:
    simulator, kept = Simulator(), []
    simulator.run(us(5))
    simulator.call_at(us(1), lambda: kept.append(simulator.now))
    simulator.run()
    assert kept == [us(5)]


def test_taps_of_one_link_and_of_one_port() -> None:
    simulator, first, second = Simulator(), Link(us(1)), Link(us(1))
    seen: list[tuple[str, int]] = []
    for port, mac, link in ((Recorder(numbered(1)), A, first), (Recorder(), B, first)):
        station = simulator.attach(port, mac, link)
        station.on_sent.append(lambda _, now, mac=mac: seen.append((f"from {mac[5]}", now)))  # type: ignore[misc]
        station.on_arrival.append(lambda _, now, mac=mac: seen.append((f"at {mac[5]}", now)))  # type: ignore[misc]
    simulator.attach(Recorder([GROUP + C]), C, second)
    simulator.segment(first).on_sent.append(lambda _, now: seen.append(("sent", now)))
    simulator.segment(first).on_arrival.append(lambda _, now: seen.append(("there", now)))
    simulator.run()
    assert seen == [("sent", 0), ("from 1", 0), ("there", us(1)), ("at 2", us(1))]


@pytest.mark.parametrize("time", [None, "x", 1.5, float("nan")])
def test_times_are_whole_numbers(time: object) -> None:
    simulator = Simulator()
    with pytest.raises(FabricError, match=r"Simulator.time: .* is not of type int"):
        simulator.call_at(time, lambda: None)  # type: ignore[arg-type]
    with pytest.raises(
        FabricError, match=r"Simulator.time_limit: .* is not a number of nanoseconds"
    ):
        Simulator(time_limit=time)  # type: ignore[arg-type]
    with pytest.raises(FabricError, match=r"Simulator.event_limit: .* is not a number of events"):
        Simulator(event_limit=time)  # type: ignore[arg-type]
    if time is not None:
        with pytest.raises(FabricError, match=r"Simulator.until: .* is not of type int"):
            simulator.run(time)  # type: ignore[arg-type]
    simulator.run()
    assert simulator.now == 0


class Greedy(Recorder):
    """Keeps how many frames it was given at once."""

    def __init__(self) -> None:
        super().__init__()
        self.together: list[int] = []

    def receive(self, frame: bytes, now: int) -> None:
        super().receive(frame, now)
        self.together.append(1)

    def receive_all(self, frames: Sequence[bytes], now: int) -> None:
        self.received.extend((now, frame) for frame in frames)
        self.together.append(len(frames))


def receivers(frames: list[bytes], link: Link, *, tapped: bool = False) -> tuple[Greedy, Greedy]:
    """Two ports that receive what a third sends in one burst."""
    simulator, ports = Simulator(), (Greedy(), Greedy())
    if tapped:
        simulator.on_arrival.append(lambda *_: None)
    for port, mac in zip((Recorder(frames), *ports), (A, B, C), strict=True):
        simulator.attach(port, mac, link)
    simulator.run()
    return ports


def test_a_burst_is_one_delivery_on_a_wire_without_a_rate() -> None:
    receiver, _ = receivers(numbered(5), Link(us(1)))
    assert receiver.together == [5]
    assert receiver.received == [(us(1), frame) for frame in numbered(5)]


def test_each_tap_gets_all_frames() -> None:
    frames = [GROUP + A + bytes((n,)) for n in range(3)]
    assert [one.together for one in receivers(frames, Link())] == [[3], [3]]


def test_frames_to_different_stations_do_not_wait_for_each_other() -> None:
    one, two = numbered(2)
    frames = [one, C + A + b"other", two]
    assert [one.together for one in receivers(frames, Link())] == [[1, 1], [1]]


@pytest.mark.parametrize(
    ("link", "tapped"), [(Link(us(1)), True), (Link(us(1), delay={1: 3, 2: 2, 3: 1}), False)]
)
def test_ports_with_taps_or_several_arrival_times_get_frames_one_by_one(
    link: Link, tapped: bool
) -> None:
    receiver, _ = receivers(numbered(3), link, tapped=tapped)
    assert receiver.together == [1, 1, 1]


class OneByOne:
    """An adapter that takes frames one at a time only."""

    def __init__(self, nic: Port) -> None:
        self.receive, self.transmit = nic.receive, nic.transmit
        self.next_timer, self.handle_timer = nic.next_timer, nic.handle_timer


def spoken(lengths: list[int], drop: list[int], *, together: bool) -> list[tuple[int, bytes]]:
    """All that a client and a server say of WRITEs, SENDs and READs of these lengths."""
    pair = Pair(Link(us(1), drop=drop))
    if not together:
        simulator = Simulator()
        for end in (pair.client, pair.server):
            end.simulator = simulator
            simulator.attach(OneByOne(end.nic), end.mac, pair.link)
        pair.simulator = simulator
    said: list[tuple[int, bytes]] = []
    pair.simulator.on_sent.append(lambda frame, now: said.append((now, frame.data)))
    for length in lengths:
        pair.client.write(bytes(length), to=pair.server.region)
        pair.server.receive(length)
        pair.client.send(b"\7" * length)
        pair.client.read(length, of=pair.server.region)
    pair.drive()
    return said


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from([0, 1, 1024, 1025, 5_000, 60_000]), min_size=1, max_size=4),
    st.lists(st.integers(1, 60), max_size=3),
)
def test_an_adapter_responds_the_same_to_frames_alone_and_together(
    lengths: list[int], drop: list[int]
) -> None:
    assert spoken(lengths, drop, together=True) == spoken(lengths, drop, together=False)


@given(
    st.integers(0, us(5)),
    st.one_of(st.none(), st.integers(1, gbps(400))),
    st.integers(14, 9_000),
    st.integers(0, us(5)),
)
def test_a_link_without_faults_may_be_asked_for_the_time_alone(
    latency: int, rate: int | None, size: int, now: int
) -> None:
    link, frame = Link(latency, rate=rate), Envelope(bytes(size))
    time = link.straight(frame, now)
    assert link.carry(frame, now) == [(time, frame)]
    assert link.frames == 2


@pytest.mark.parametrize(
    "link", [Link(drop={1}), Link(mtu=100), Link(duplicate={9}), Link(delay={3: 1})]
)
def test_a_link_with_faults_is_asked_about_each_frame(link: Link) -> None:
    assert link.straight(Envelope(b"frame"), 0) is None
    assert link.frames == 0


class Forthcoming(Recorder):
    """Says whether it has more, and counts how often it is asked."""

    def __init__(self, *bursts: list[bytes]) -> None:
        super().__init__(*bursts)
        self.asked = 0

    @property
    def sends_more(self) -> bool:
        return bool(self.bursts)

    def transmit(self, now: int) -> list[bytes]:
        self.asked += 1
        return super().transmit(now)


def test_who_says_that_it_has_no_more_is_not_asked_when_the_wire_is_free() -> None:
    simulator, link = Simulator(), Link(rate=gbps(10))
    sender, receiver = Forthcoming(numbered(3), numbered(2)), Recorder()
    simulator.attach(sender, A, link)
    simulator.attach(receiver, B, link)
    simulator.run()
    assert len(receiver.received) == 5
    assert sender.asked == 2


def test_a_mac_asks_for_no_more_than_it_keeps() -> None:
    sender = Recorder(*(numbered(100) for _ in range(30)))
    mac = Mac(sender, Link(rate=gbps(10)))
    mac.egress.pause({0: 0xFFFF}, 0)
    assert mac.transmit(0) == []
    assert MAX_WAITING <= len(mac.egress) < MAX_WAITING + 100


GIB = 1 << 30


def calls(nics: int) -> float:
    """Function calls for each frame, of a fabric of so many adapters: the same at each run."""
    cluster, count = Cluster(nics), 0

    def note(_: object, event: str, __: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        frames = cluster.run()
    finally:
        sys.setprofile(None)
    return count / frames


def test_a_frame_costs_no_more_among_more_adapters() -> None:
    assert calls(60) < 1.05 * calls(15)


def test_a_hundred_adapters_take_a_tenth_of_what_a_thousand_may() -> None:
    """1,000 adapters with 10,000 queue pairs fit in 2 GiB; ``make bench`` measures them."""
    alone, hundred = measured(2), measured(100)
    assert hundred.qps == 100 * QPS
    assert hundred.peak - alone.peak < 2 * GIB / 10
