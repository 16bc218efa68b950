"""Switches: forwarding, queues with limits, marks that add up, and what pauses save and cost."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.errors import FabricError, MemoryFault
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.host import Host
from rdmawire.fabric.link import Link
from rdmawire.fabric.network import Network
from rdmawire.fabric.pfc import headroom, quanta_of
from rdmawire.fabric.port_queue import TrafficClass
from rdmawire.fabric.switch import Switch
from rdmawire.fabric.switch_config import KIB, Marking, Pausing, SwitchSettings
from rdmawire.units import gbps, us
from rdmawire.wire import roce
from rdmawire.wire.inet import ECN
from tests.fabric.talker import SIZE, Talker, frame_of, frames_of, mac_of

RATE = gbps(10)
LATENCY = us(1)
LOSSLESS = 3
DSCP = LOSSLESS << 3
OVERHEAD = 58
PAUSING = Pausing(xoff=20 * KIB, xon=10 * KIB, headroom=12 * KIB)
"""Headroom: 2 us at 10 Gb/s are 2.5 KiB, and a frame on each side, of 1 KiB; with room to spare."""


def star(
    *talkers: Talker, settings: SwitchSettings | None = None, slow: int | None = None
) -> Network:
    """All on one switch, called by their numbers; ``slow`` is who has a tenth of the rate."""
    network = Network(settings=settings, seed=5)
    network.add_switch("s")
    for number, talker in enumerate(talkers, 1):
        network.add_host(f"h{number}", talker)
        rate = RATE // 10 if number == slow else RATE
        network.join(f"h{number}", "s", Link(LATENCY, rate=rate))
    return network


def incast(settings: SwitchSettings, count: int = 200) -> tuple[Network, Talker]:
    """Two send to a third at once, each at the full rate."""
    senders = (
        Talker(1, frames_of(1, 3, count, dscp=DSCP)),
        Talker(2, frames_of(2, 3, count, dscp=DSCP)),
    )
    sink = Talker(3)
    network = star(*senders, sink, settings=settings)
    network.find_routes()
    network.simulator.run()
    return network, sink


def test_unknown_addresses_are_flooded_and_then_learnt() -> None:
    talkers = Talker(1, frames_of(1, 2, 2)), Talker(2), Talker(3)
    network = star(*talkers)
    network.simulator.run()
    assert [len(t.received) for t in talkers] == [0, 2, 2]
    talkers[1].frames.extend(frames_of(2, 1, 3))
    network.simulator.run()
    assert [len(t.received) for t in talkers] == [3, 2, 2]
    talkers[0].frames.extend(frames_of(1, 2, 4))
    network.simulator.run()
    assert [len(t.received) for t in talkers] == [3, 6, 2]


def test_an_address_that_moves_is_found_again() -> None:
    one, two, three = Talker(1, frames_of(1, 9, 1)), Talker(2), Talker(3)
    network = star(one, two, three)
    network.simulator.run()
    two.frames.append(frame_of(1, 9))
    network.simulator.run()
    three.frames.append(frame_of(3, 1))
    network.simulator.run()
    assert (len(one.received), len(two.received)) == (1, 2)


def test_groups_go_to_all_and_reserved_addresses_to_nobody() -> None:
    group = b"\x01\x00\x5e\0\0\1" + frame_of(1, 2)[6:]
    reserved = b"\x01\x80\xc2\0\0\x0e" + frame_of(1, 2)[6:]
    talkers = Talker(1, [group, reserved]), Talker(2), Talker(3)
    network = star(*talkers)
    network.simulator.run()
    assert [len(t.received) for t in talkers] == [0, 1, 1]
    assert network.switches["s"].stranded == 1


def test_a_frame_is_stored_then_forwarded() -> None:
    sink = Talker(2)
    network = star(Talker(1, frames_of(1, 2, 1)), sink)
    network.find_routes()
    network.simulator.run()
    (received,) = sink.received
    size = len(received.frame) + 24
    assert received.time == 2 * (LATENCY + -(-size * 8 // 10))


def test_queues_are_bounded_and_what_is_lost_is_counted() -> None:
    network, sink = incast(SwitchSettings(queue=16 * KIB))
    port = network.ports["s:h3"]
    assert port.drops[LOSSLESS] > 0
    assert len(sink.received) + port.drops[LOSSLESS] == 400
    assert network.switches["s"].buffer.peak <= 16 * KIB + 2 * SIZE
    assert network.switches["s"].buffer.used == 0


def test_the_buffer_bounds_all_queues_together() -> None:
    network, sink = incast(SwitchSettings(buffer=10 * KIB))
    assert network.switches["s"].buffer.peak <= 10 * KIB
    assert len(sink.received) + network.ports["s:h3"].drops[LOSSLESS] == 400


def test_pauses_save_what_would_be_lost() -> None:
    small = 64 * KIB
    without, _ = incast(SwitchSettings(buffer=small, queue=small))
    assert without.ports["s:h3"].drops[LOSSLESS] > 0
    network, sink = incast(SwitchSettings(buffer=small, queue=small, pausing={LOSSLESS: PAUSING}))
    assert len(sink.received) == 400
    assert sum(sum(port.drops.values()) for port in network.ports.values()) == 0
    for number in (1, 2):
        stops = network.ports[f"s:h{number}"].stops[LOSSLESS]
        assert 0 < stops == network.macs[f"h{number}"].egress.pauses[LOSSLESS]
    for source in (1, 2):
        psns = [h.psn for h in sink.received if h.frame[6:12] == mac_of(source)]
        assert psns == list(range(200))


def test_pauses_cost_no_throughput_where_all_want_the_same() -> None:
    _, lossy = incast(SwitchSettings())
    _, lossless = incast(SwitchSettings(pausing={LOSSLESS: PAUSING}))
    assert lossless.received[-1].time == lossy.received[-1].time


def test_too_little_headroom_loses_what_is_under_way() -> None:
    network, _ = incast(SwitchSettings(pausing={LOSSLESS: Pausing(20 * KIB, 10 * KIB, 0)}))
    assert network.ports["s:h3"].drops[LOSSLESS] > 0


@pytest.mark.parametrize("beyond", [0, 100, KIB])
def test_a_full_buffer_sends_a_pause_frame(beyond: int) -> None:
    network, sink = incast(SwitchSettings(pausing={LOSSLESS: Pausing(20 * KIB, 10 * KIB, beyond)}))
    for number in (1, 2):
        assert network.ports[f"s:h{number}"].stops[LOSSLESS] > 0
        assert not network.ports[f"s:h{number}"].paused_priorities
    assert len(sink.received) + network.ports["s:h3"].drops[LOSSLESS] == 400


def test_a_buffer_that_is_full_stops_those_who_filled_it() -> None:
    pausing = Pausing(64 * KIB, 32 * KIB, 8 * KIB)
    network, _ = incast(SwitchSettings(buffer=96 * KIB, pausing={LOSSLESS: pausing}))
    assert sum(network.ports[f"s:h{number}"].stops[LOSSLESS] for number in (1, 2)) > 0
    assert not any(port.paused_priorities for port in network.ports.values())


def test_a_frame_that_never_fits_stops_nobody() -> None:
    """Nothing would ever leave that lets its sender go on."""
    network, _ = incast(SwitchSettings(pausing={LOSSLESS: Pausing(100, 50, 0)}))
    assert network.ports["s:h3"].drops[LOSSLESS] == 400
    assert sum(network.ports["s:h1"].stops.values()) == 0


@given(
    st.sampled_from([gbps(1), gbps(10), gbps(100)]),
    st.integers(0, us(5)),
    st.integers(1, 4096),
    st.integers(0, 64 * KIB),
)
@settings(max_examples=25, deadline=None)
def test_with_the_headroom_of_its_links_nothing_is_lost(
    rate: int, latency: int, size: int, xoff: int
) -> None:
    """Both senders receive long frames of other priorities, behind which pauses wait."""
    longest = max(len(frame_of(1, 2, size=size)), len(frame_of(1, 2, size=4096)))
    pausing = Pausing(xoff, xoff // 2, headroom(rate, latency, longest))
    network = Network(settings=SwitchSettings(pausing={LOSSLESS: pausing}), seed=5)
    network.add_switch("s")
    back = [frame for to in (1, 2) for frame in frames_of(3, to, 60, dscp=0, size=4096)]
    own = [frames_of(number, 3, 120, dscp=DSCP, size=size) for number in (1, 2)]
    for number, frames in enumerate((*own, back), 1):
        network.add_host(f"h{number}", Talker(number, frames))
        network.join(f"h{number}", "s", Link(latency, rate=rate))
    network.find_routes()
    network.simulator.run()
    assert sum(sum(port.drops.values()) for port in network.ports.values()) == 0


def test_no_more_than_the_headroom_is_ever_needed() -> None:
    network, _ = incast(SwitchSettings(pausing={LOSSLESS: PAUSING}))
    assert network.switches["s"].buffer.peak <= 2 * (PAUSING.xoff + PAUSING.headroom)


def victim(settings: SwitchSettings) -> tuple[int, Network]:
    """When all is there that host 1 sent to idle host 4, while host 3 is slow (ns)."""
    mixed = [
        frame
        for pair in zip(
            frames_of(1, 3, 100, dscp=DSCP), frames_of(1, 4, 100, dscp=DSCP), strict=True
        )
        for frame in pair
    ]
    talkers = Talker(1, mixed), Talker(2), Talker(3), Talker(4)
    network = star(*talkers, settings=settings, slow=3)
    network.find_routes()
    network.simulator.run()
    assert len(talkers[3].received) == 100
    return talkers[3].received[-1].time, network


def test_who_shares_a_paused_priority_waits_for_the_slowest() -> None:
    free, _ = victim(SwitchSettings())
    blocked, network = victim(SwitchSettings(pausing={LOSSLESS: PAUSING}))
    frame = 8 * (SIZE + OVERHEAD + 24)
    assert free < 200 * frame // 10 + us(10)
    assert blocked > 70 * frame  # at the pace of the slow link, a bit each ns, but for the buffer
    assert network.macs["h1"].egress.paused_ns[LOSSLESS] > blocked // 2


def test_other_priorities_are_not_stopped() -> None:
    frames = frames_of(1, 3, 100, dscp=DSCP)
    talkers = Talker(1, frames), Talker(2), Talker(3), Talker(4)
    talkers[0].frames.extend(frames_of(1, 4, 100, dscp=0))
    network = star(*talkers, settings=SwitchSettings(pausing={LOSSLESS: PAUSING}), slow=3)
    network.find_routes()
    network.simulator.run()
    assert network.macs["h1"].egress.pauses[LOSSLESS] > 0
    assert network.macs["h1"].egress.pauses[0] == 0
    assert talkers[3].received[-1].time < talkers[2].received[-1].time // 2


def test_pauses_spread_from_switch_to_switch() -> None:
    network = Network(settings=SwitchSettings(pausing={LOSSLESS: PAUSING}))
    talkers = [Talker(1, frames_of(1, 2, 300, dscp=DSCP)), Talker(2)]
    for name in ("s1", "s2"):
        network.add_switch(name)
    for name, talker in zip(("a", "b"), talkers, strict=True):
        network.add_host(name, talker)
    network.join("a", "s1", Link(LATENCY, rate=RATE))
    network.join("s1", "s2", Link(LATENCY, rate=RATE))
    network.join("s2", "b", Link(LATENCY, rate=RATE // 10))
    network.find_routes()
    network.simulator.run()
    assert len(talkers[1].received) == 300
    assert network.ports["s1:s2"].egress.pauses[LOSSLESS] > 0
    assert network.macs["a"].egress.pauses[LOSSLESS] > 0


def test_pauses_are_asked_for_again_before_they_end() -> None:
    asked: list[tuple[int, int]] = []

    def note(frame: Envelope, now: int) -> None:
        if quanta := quanta_of(frame.data):
            asked.append((now, quanta[LOSSLESS]))

    settings = SwitchSettings(pausing={LOSSLESS: Pausing(2 * KIB, KIB, 12 * KIB)})
    network = star(Talker(1, frames_of(1, 2, 20, dscp=DSCP)), Talker(2), settings=settings)
    network.find_routes()
    network.ports["s:h2"].egress.pause({LOSSLESS: 0xFFFF}, 0)
    network.ports["s:h2"].egress.pause({LOSSLESS: 0xFFFF}, us(3000))
    network.tap("s:h1", note)
    network.simulator.run()
    longest = 0xFFFF * 512 // 10
    stops = [time for time, quanta in asked if quanta]
    assert len(stops) > 2
    assert all(after - before < longest for before, after in pairwise(stops))
    assert asked[-1][1] == 0


MARKING = Marking(kmin=8 * KIB, kmax=40 * KIB, pmax=0.5)


@pytest.mark.parametrize("departing", [False, True])
def test_marks_add_up(departing: bool) -> None:
    network, sink = incast(
        SwitchSettings(marking={LOSSLESS: replace(MARKING, departing=departing)})
    )
    marks = sum(port.marks[LOSSLESS] for port in network.ports.values())
    found = [roce.parse(received.frame) for received in sink.received]
    assert 0 < marks == sum(frame.headers[1].ecn == ECN.CE for frame in found)  # type: ignore[union-attr]
    assert all(frame.seal() == frame for frame in found)


@pytest.mark.parametrize(("departing", "marked"), [(False, [0, 1, 1]), (True, [1, 1, 0])])
def test_a_mark_says_what_a_frame_found_or_what_it_left(departing: bool, marked: list[int]) -> None:
    """Three come at once: the first finds nothing, the last leaves nothing."""
    sink = Talker(4)
    senders = (Talker(n, frames_of(n, 4, 1)) for n in (1, 2, 3))
    settings = SwitchSettings(marking={0: Marking(0, 1, departing=departing)})
    network = star(*senders, sink, settings=settings)
    network.find_routes()
    network.simulator.run()
    assert [received.frame[15] & 3 == ECN.CE for received in sink.received] == marked


@pytest.mark.parametrize("departing", [False, True])
def test_marks_of_two_switches_add_up_and_none_is_counted_twice(departing: bool) -> None:
    settings = SwitchSettings(marking={0: Marking(KIB, 30 * KIB, 0.3, departing)})
    network, sink = Network(settings=settings, seed=3), Talker(9)
    network.add_switch("s1")
    network.add_switch("s2")
    for number in (1, 2, 3):
        network.add_host(f"h{number}", Talker(number, frames_of(number, 9, 100)))
        network.join(f"h{number}", "s1" if number < 3 else "s2", Link(LATENCY, rate=RATE))
    network.add_host("sink", sink)
    network.join("s1", "s2", Link(LATENCY, rate=RATE))
    network.join("s2", "sink", Link(LATENCY, rate=RATE))
    network.find_routes()
    network.simulator.run()
    first, second = network.ports["s1:s2"].marks[0], network.ports["s2:sink"].marks[0]
    assert min(first, second) > 0
    assert first + second == sum(received.frame[15] & 3 == ECN.CE for received in sink.received)


@pytest.mark.parametrize("departing", [False, True])
@pytest.mark.parametrize("ecn", [ECN.NOT_ECT, ECN.CE])
def test_what_cannot_be_marked_is_not(ecn: ECN, departing: bool) -> None:
    sink = Talker(3)
    senders = (Talker(n, frames_of(n, 3, 50, ecn=ecn)) for n in (1, 2))
    network = star(
        *senders, sink, settings=SwitchSettings(marking={0: Marking(0, 1, 1.0, departing)})
    )
    network.find_routes()
    network.simulator.run()
    assert {received.frame[15] & 3 for received in sink.received} == {ecn}
    assert network.ports["s:h3"].marks[0] == 0


@settings(deadline=None)
@given(st.integers(0, 1000), st.integers(0, 1000), st.floats(0, 1))
def test_the_share_of_marks_grows_from_kmin_to_kmax(low: int, more: int, pmax: float) -> None:
    marking = Marking(low, low + more, pmax)
    shares = [marking.share(data) for data in range(2100)]
    assert shares == sorted(shares)
    assert set(shares[: low + 1]) <= {0.0}
    assert set(shares[low + more + 1 :]) == {1.0}
    assert all(share <= pmax for share in shares[: low + more])


def test_so_many_are_marked_as_the_share_says() -> None:
    marking, random = Marking(0, 1000, 0.4), Random(1)
    found = Counter(marking.marks(500, random) for _ in range(10_000))
    assert 1800 < found[True] < 2200


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (lambda: Marking(2, 1), "kmin <= kmax"),
        (lambda: Marking(1, 2, 1.5), "Marking.pmax: 1.5 .* is not a number from 0 to 1"),
        (lambda: Marking(-1, 2), "Marking.kmin: -1 is not a number of bytes from 0 to"),
        (lambda: Marking(1, 2, float("nan")), "Marking.pmax: nan"),
        (lambda: Marking(1, None), r"Marking.kmax: None \(NoneType\) is not"),  # type: ignore[arg-type]
        (lambda: Pausing(2, 1, -1), "Pausing.headroom: -1 is not a number of bytes"),
        (lambda: Pausing(1, 2, 0), "xon <= xoff"),
        (lambda: SwitchSettings(scheduling="fair"), "'fair' is not one of strict, round_robin"),
        (
            lambda: SwitchSettings(marking={8: MARKING}),
            "Settings.marking: 8 is not a priority from 0 to 7",
        ),
        (lambda: SwitchSettings(marking={0: PAUSING}), "marking: Pausing.* is not of type Marking"),  # type: ignore[dict-item]
        (lambda: SwitchSettings(priorities={0: -1}), "Settings.priorities: -1 is not a priority"),
        (lambda: SwitchSettings(priorities={999: 1}), "999 is not a DSCP from 0 to 63"),
        (lambda: SwitchSettings(priorities=None), "priorities: None .* is not a mapping"),  # type: ignore[arg-type]
        (
            lambda: SwitchSettings(buffer=-1),
            "Settings.buffer: -1 is not a number of bytes from 0 to",
        ),
        (lambda: SwitchSettings(queue=-1), "Settings.queue: -1 is not"),
        (
            lambda: SwitchSettings(addresses=-1),
            "Settings.addresses: -1 is not a number of addresses",
        ),
        (lambda: SwitchSettings(seed="x"), r"Settings.seed: 'x' \(str\) is not of type int"),  # type: ignore[arg-type]
        (lambda: SwitchSettings(scheduling=[]), r"scheduling: \[\] \(list\) is not one of strict"),  # type: ignore[arg-type]
        (lambda: Switch(settings=SwitchSettings(marking={0: MARKING})), "no Random is given"),
        (
            lambda: Switch(settings=SwitchSettings(pausing={0: PAUSING})).add_port(
                mac_of(1), Link()
            ),
            "the link has no rate",
        ),
    ],
)
def test_settings_that_make_no_sense(wrong: object, reason: str) -> None:
    with pytest.raises(FabricError, match=reason):
        wrong()  # type: ignore[operator]


def test_taps_get_counted_frames_with_their_outcome() -> None:
    settings = SwitchSettings(queue=16 * KIB, marking={LOSSLESS: Marking(4 * KIB, 8 * KIB)})
    senders = (Talker(n, frames_of(n, 3, 40, dscp=DSCP)) for n in (1, 2))
    network = star(*senders, Talker(3), settings=settings)
    network.find_routes()
    known: dict[int, bytes] = {}
    told: list[tuple[bytes, bytes]] = []

    def note(frame: Envelope) -> None:
        told.append((known[frame.id], frame.data))
        known[frame.id] = frame.data

    for name in ("h1", "h2"):
        network.tap(name, lambda frame, _: known.update({frame.id: frame.data}))
    network.switches["s"].on_counted.append(note)
    network.simulator.run()
    port = network.ports["s:h3"]
    marked = [became for frame, became in told if became != frame]
    assert len(marked) == port.marks[LOSSLESS] > 0
    assert all(frame[15] & 3 == ECN.CE for frame in marked)
    assert len(told) - len(marked) == port.drops[LOSSLESS] > 0


FRAMES = 5
FRAME_SIZE = len(frame_of(1, 2))


@pytest.mark.parametrize(
    ("marking", "marks"),
    [
        (Marking(0, 0), FRAMES - 1),
        (Marking(2 * FRAME_SIZE, 2 * FRAME_SIZE), FRAMES - 3),
        (Marking(2 * FRAME_SIZE, 2 * FRAME_SIZE + 1), FRAMES - 3),
        (Marking(0, FRAME_SIZE + 1, 0.0), FRAMES - 2),
    ],
)
def test_a_switch_without_a_generator_marks_all_that_no_chance_decides(
    marking: Marking, marks: int
) -> None:
    switch = Switch(settings=SwitchSettings(marking={0: marking}))
    port, lane = switch.add_port(b"\x06" + bytes(5), Link(rate=10)), TrafficClass(0, 0, True)
    for psn in range(FRAMES):
        switch.forward(Envelope(frame_of(1, 2, psn)), lane, port, 0)
    assert port.marks[0] == marks


def test_a_switch_without_a_generator_leaves_nothing_to_chance() -> None:
    with pytest.raises(FabricError, match="no Random is given"):
        Switch(settings=SwitchSettings(marking={0: Marking(0, 2)}))


@pytest.mark.parametrize(
    ("length", "offset"), [(1, 100), (101, 0), (8, -8), (-8, 50), (8, 1 << 40)]
)
def test_what_lies_outside_is_a_fault(length: int, offset: int) -> None:
    buffer = Host().buffer(100)
    with pytest.raises(MemoryFault, match="outside the 100 bytes"):
        buffer.read(length, offset)
    if length > 0:
        with pytest.raises(MemoryFault):
            buffer.write(bytes(length), offset)
    assert buffer.memory.pages.held == 0
    assert buffer.read(0, 100) == b""
