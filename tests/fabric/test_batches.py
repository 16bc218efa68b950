"""Frames that arrive together are handed over together, and nothing else comes of it."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.link import Link
from rdmawire.fabric.pair import Pair
from rdmawire.fabric.port_queue import MAX_WAITING, Mac
from rdmawire.fabric.simulator import Port, Simulator
from rdmawire.units import gbps, us
from tests.fabric.test_simulator import GROUP, A, B, C, Recorder, numbered


class Greedy(Recorder):
    """Keeps how many frames it was given at once."""

    def __init__(self) -> None:
        super().__init__()
        self.together: list[int] = []

    def receive(self, frame: bytes, now: int) -> None:
        super().receive(frame, now)
        self.together.append(1)

    def receive_all(self, frames: Sequence[bytes], now: int) -> None:
        self.heard.extend((now, frame) for frame in frames)
        self.together.append(len(frames))


def hearers(frames: list[bytes], link: Link, *, tapped: bool = False) -> tuple[Greedy, Greedy]:
    """Two that hear what a third sends in one burst."""
    simulator, ports = Simulator(), (Greedy(), Greedy())
    if tapped:
        simulator.on_arrival.append(lambda *_: None)
    for port, mac in zip((Recorder(frames), *ports), (A, B, C), strict=True):
        simulator.attach(port, mac, link)
    simulator.run()
    return ports


def test_a_burst_is_one_delivery_on_a_wire_without_a_rate() -> None:
    hearer, _ = hearers(numbered(5), Link(us(1)))
    assert hearer.together == [5]
    assert hearer.heard == [(us(1), frame) for frame in numbered(5)]


def test_each_hearer_gets_all() -> None:
    frames = [GROUP + A + bytes((n,)) for n in range(3)]
    assert [one.together for one in hearers(frames, Link())] == [[3], [3]]


def test_frames_to_different_stations_do_not_wait_for_each_other() -> None:
    one, two = numbered(2)
    frames = [one, C + A + b"other", two]
    assert [one.together for one in hearers(frames, Link())] == [[1, 1], [1]]


@pytest.mark.parametrize(
    ("link", "tapped"), [(Link(us(1)), True), (Link(us(1), delay={1: 3, 2: 2, 3: 1}), False)]
)
def test_who_is_listened_to_or_hears_at_different_times_gets_one_by_one(
    link: Link, tapped: bool
) -> None:
    hearer, _ = hearers(numbered(3), link, tapped=tapped)
    assert hearer.together == [1, 1, 1]


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
def test_an_adapter_says_the_same_however_it_is_told(lengths: list[int], drop: list[int]) -> None:
    assert spoken(lengths, drop, together=True) == spoken(lengths, drop, together=False)


@given(
    st.integers(0, us(5)),
    st.one_of(st.none(), st.integers(1, gbps(400))),
    st.integers(14, 9_000),
    st.integers(0, us(5)),
)
def test_a_link_without_faults_may_be_asked_for_the_time_alone(
    latency: int, rate: int | None, octets: int, now: int
) -> None:
    link, frame = Link(latency, rate=rate), Envelope(bytes(octets))
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
    sender, hearer = Forthcoming(numbered(3), numbered(2)), Recorder()
    simulator.attach(sender, A, link)
    simulator.attach(hearer, B, link)
    simulator.run()
    assert len(hearer.heard) == 5
    assert sender.asked == 2


def test_a_mac_asks_for_no_more_than_it_keeps() -> None:
    sender = Recorder(*(numbered(100) for _ in range(30)))
    mac = Mac(sender, Link(rate=gbps(10)))
    mac.egress.pause({0: 0xFFFF}, 0)
    assert mac.transmit(0) == []
    assert MAX_WAITING <= len(mac.egress) < MAX_WAITING + 100
