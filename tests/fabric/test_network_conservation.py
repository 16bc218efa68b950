"""Whatever the switches, the links and the faults: each frame arrives, or is counted as lost."""

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.fabric.fault import Rule
from rdmawire.fabric.network import Cable, Network, leaf_spine
from rdmawire.fabric.switch_config import KIB, Marking, Pausing, SwitchSettings
from rdmawire.units import gbps, us
from rdmawire.wire.inet import ECN
from tests.fabric.talker import Talker, frame_of

HOSTS = 4
PRIORITIES = 3

sizes = st.integers(2, 64).map(lambda n: n * KIB)


@st.composite
def pausings(draw: st.DrawFn) -> Pausing:
    xon, more, headroom = draw(sizes), draw(sizes), draw(st.sampled_from([0, 4 * KIB, 64 * KIB]))
    return Pausing(xon + more, xon, headroom)


@st.composite
def markings(draw: st.DrawFn) -> Marking:
    kmin = draw(sizes)
    return Marking(kmin, kmin + draw(sizes), draw(st.floats(0, 1)), draw(st.booleans()))


switches = st.builds(
    SwitchSettings,
    buffer=st.integers(4, 512).map(lambda n: n * KIB),
    queue=st.integers(2, 256).map(lambda n: n * KIB),
    marking=st.dictionaries(st.integers(0, PRIORITIES - 1), markings()),
    pausing=st.dictionaries(st.integers(0, PRIORITIES - 1), pausings()),
    scheduling=st.sampled_from(["strict", "round_robin"]),
    seed=st.integers(0, 9),
)
cables = st.builds(
    Cable, st.integers(0, us(5)), st.sampled_from([gbps(1), gbps(10), gbps(100)]), st.none()
)
talks = st.lists(
    st.tuples(
        st.integers(1, HOSTS),
        st.integers(1, HOSTS),
        st.integers(0, PRIORITIES - 1),
        st.integers(0, 1000),
    ).filter(lambda talk: talk[0] != talk[1]),
    max_size=80,
)


def built(chosen: SwitchSettings, edge: Cable, trunk: Cable, said: list[Any]) -> Network:
    network = Network(settings=chosen, seed=1)
    talkers = {f"h{n}": Talker(n) for n in range(1, HOSTS + 1)}
    leaf_spine(network, talkers, leaves=2, spines=2, edge=edge, trunk=trunk)
    for psn, (source, destination, priority, size) in enumerate(said):
        frame = frame_of(source, destination, psn, dscp=priority << 3, size=size)
        talkers[f"h{source}"].frames.append(frame)
    return network


@settings(max_examples=40, deadline=None)
@given(switches, cables, cables, talks, st.floats(0, 0.5))
def test_frames_and_marks_are_accounted_for(
    chosen: SwitchSettings, edge: Cable, trunk: Cable, said: list[Any], loss: float
) -> None:
    network = built(chosen, edge, trunk, said)
    rule = Rule("drop", {"eth.type": 0x0800}, chance=loss)
    network.set_faults("leaf1-spine1", rule)
    network.simulator.run()
    received = [h for talker in network.hosts.values() for h in talker.received]  # type: ignore[attr-defined]
    dropped = sum(port.drops.total() for port in network.ports.values())
    assert len(received) + dropped + rule.hits == len(said)
    marks = sum(port.marks.total() for port in network.ports.values())
    carried = sum(h.frame[15] & 3 == ECN.CE for h in received)
    assert carried <= marks <= carried + dropped + rule.hits
    assert all(switch.buffer.used == 0 for switch in network.switches.values())
    assert all(switch.buffer.peak <= chosen.buffer for switch in network.switches.values())


@settings(max_examples=30, deadline=None)
@given(switches, cables, cables, talks)
def test_frames_of_a_flow_stay_in_order(
    chosen: SwitchSettings, edge: Cable, trunk: Cable, said: list[Any]
) -> None:
    network = built(chosen, edge, trunk, said)
    network.simulator.run()
    for talker in network.hosts.values():
        flows: dict[tuple[bytes, int], list[int]] = {}
        for received in talker.received:  # type: ignore[attr-defined]
            key = received.frame[6:12], received.frame[15] >> 2
            flows.setdefault(key, []).append(received.psn)
        assert all(psns == sorted(psns) for psns in flows.values())


@settings(max_examples=30, deadline=None)
@given(cables, cables, talks)
def test_with_pauses_and_headroom_nothing_is_lost(
    edge: Cable, trunk: Cable, said: list[Any]
) -> None:
    """Headroom: what two latencies of at most 5 us at 100 Gb/s bring, and frames on both sides."""
    pausing = dict.fromkeys(range(PRIORITIES), Pausing(4 * KIB, 2 * KIB, 130 * KIB))
    network = built(SwitchSettings(queue=2 * KIB, pausing=pausing), edge, trunk, said)
    network.simulator.run()
    counts = Counter(len(talker.received) for talker in network.hosts.values())  # type: ignore[attr-defined]
    assert sum(number * times for number, times in counts.items()) == len(said)
    assert sum(port.drops.total() for port in network.ports.values()) == 0
