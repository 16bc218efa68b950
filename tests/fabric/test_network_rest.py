"""Nothing goes round: any network comes to rest, whatever befalls its frames."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.fabric.fault import ACTIONS, Rule
from rdmawire.fabric.frame import MAX_REDIRECTS
from rdmawire.fabric.link import Link
from rdmawire.fabric.network import Cable, Network, leaf_spine
from rdmawire.fabric.pfc import GROUP, pfc_frame, quanta_of
from rdmawire.fabric.simulator import Simulator
from rdmawire.fabric.switch_config import KIB, Marking, Pausing, SwitchSettings
from rdmawire.units import gbps, us
from rdmawire.wire.inet import ECN
from tests.effort import examples
from tests.fabric.talker import Talker, frame_of, frames_of, mac_of

CABLE = Cable(us(1), gbps(100))
EVENTS = 20_000
BROADCAST = b"\xff" * 6
NOBODY = mac_of(99)
OF_A_SWITCH = b"\x06" + bytes(5)
SETTINGS = SwitchSettings(
    marking={0: Marking(0, 4 * KIB)}, pausing={0: Pausing(2 * KIB, KIB, 64 * KIB)}, addresses=3
)


def ring(size: int, *talkers: Talker) -> Network:
    """So many switches in a ring, and a host on each of the first ones."""
    network = Network(Simulator(event_limit=EVENTS))
    for number in range(size):
        network.add_switch(f"s{number}")
    for number in range(size):
        network.join(f"s{number}", f"s{(number + 1) % size}", CABLE.link())
    for number, talker in enumerate(talkers):
        network.add_host(f"h{number}", talker)
        network.join(f"h{number}", f"s{number}", CABLE.link())
    return network


def control(destination: bytes, opcode: int) -> bytes:
    """A MAC control frame."""
    return (destination + mac_of(1) + b"\x88\x08" + opcode.to_bytes(2, "big")).ljust(60, b"\0")


def test_without_ways_frames_take_a_tree_and_reach_everybody_once() -> None:
    talkers = Talker(1, [frame_of(1, 99)]), Talker(2), Talker(3)
    network = ring(3, *talkers)
    network.simulator.run()
    assert [len(talker.received) for talker in talkers] == [0, 1, 1]
    talkers[1].frames.extend(frames_of(2, 1, 3))
    network.simulator.run()
    assert [len(talker.received) for talker in talkers] == [3, 1, 1]


@pytest.mark.parametrize("destination", [BROADCAST, b"\x01\0\x5e\0\0\1", NOBODY])
def test_groups_and_unknown_addresses_reach_everybody_once_on_equal_paths(
    destination: bytes,
) -> None:
    network, machines = (
        Network(Simulator(event_limit=EVENTS)),
        {f"h{n}": Talker(n) for n in range(6)},
    )
    leaf_spine(network, machines, leaves=3, spines=3, edge=CABLE, trunk=CABLE)
    machines["h0"].frames.append(destination + frame_of(0, 1)[6:])
    network.simulator.run()
    assert [len(machine.received) for machine in machines.values()] == [0, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    "frame",
    [
        control(GROUP, 0x7777),
        control(NOBODY, 1),
        control(mac_of(2), 0x101),
        pfc_frame(mac_of(1), 0, 9)[:20],
        frame_of(1, 2)[:13],
        frame_of(1, 2)[:3],
        b"",
        OF_A_SWITCH + frame_of(1, 2)[6:],
    ],
)
def test_mac_control_runts_and_what_is_for_a_switch_go_nowhere(frame: bytes) -> None:
    one, two = Talker(1, [frame]), Talker(2)
    network = ring(3, one, two)
    network.simulator.run()
    assert not one.received
    assert not two.received
    assert sum(switch.stranded for switch in network.switches.values()) == 1


def test_a_pause_is_heeded_behind_one_that_was_cut_short() -> None:
    pause = pfc_frame(mac_of(1), 0, 100)
    assert quanta_of(pause[:20]) is None
    network = ring(3, Talker(1, [pause[:20], pause]))
    network.simulator.run()
    assert network.ports["s0:h0"].egress.pauses[0] == 1


@pytest.mark.parametrize("do", ["corrupt", "truncate"])
def test_a_pause_with_a_bad_fcs_is_lost(do: str) -> None:
    pause = pfc_frame(mac_of(1), 0, 100)
    network = ring(3, Talker(1, [pause]), Talker(2))
    rule = Rule(do)
    network.set_faults("h0-s0", rule)
    network.simulator.run()
    assert rule.hits == 1
    assert network.switches["s0"].stranded == network.ports["s0:h0"].egress.pauses[0] == 0


def test_a_frame_that_was_cut_short_cannot_be_marked() -> None:
    network = Network(settings=SETTINGS)
    network.add_switch("s")
    talkers = Talker(1, frames_of(1, 2, 20)), Talker(2)
    for name, talker in zip(("a", "b"), talkers, strict=True):
        network.add_host(name, talker)
        network.join(name, "s", Link(rate=gbps(100 if name == "a" else 10)))
    network.set_faults("a-s", Rule("truncate", by=len(frame_of(1, 2)) - 20))
    network.simulator.run()
    assert {len(received.frame) for received in talkers[1].received} == {20}


def test_who_has_a_frame_sent_round_a_ring_loses_it_in_the_end() -> None:
    talkers = [Talker(number) for number in range(1, 4)]
    talkers[0].frames.append(frame_of(1, 2))
    network = ring(3, *talkers)
    network.find_routes()
    rules = {}
    for number in range(3):
        after = mac_of((number + 2) % 3 + 1)
        rules[number] = (
            Rule("set", field="eth.dst", value=after),
            Rule("set", field="ip.ecn", value=ECN.ECT_0),
        )
        network.set_faults(f"s{number}-s{(number + 1) % 3}", *rules[number])
    network.simulator.run()
    assert sum(rule.hits for pair in rules.values() for rule in pair) == MAX_REDIRECTS + 1
    assert not any(talker.received for talker in talkers)


class Plan(NamedTuple):
    """A network to be: links by the numbers of switches, hosts by theirs, faults by links."""

    trunks: list[tuple[int, int]]
    homes: list[int]
    frames: list[bytes]
    rules: list[list[Callable[[], Rule]]]
    settings: SwitchSettings
    ways: bool


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    count = draw(st.integers(2, 5))
    pairs = [(one, other) for one in range(count) for other in range(one)]
    trunks = draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    homes = draw(st.lists(st.integers(0, count - 1), min_size=2, max_size=4))
    rules = draw(st.lists(st.lists(_RULES, max_size=3), min_size=1, max_size=8))
    frames = draw(st.lists(_FRAMES, min_size=1, max_size=4))
    some = draw(st.sampled_from([SETTINGS, SwitchSettings()]))
    return Plan(trunks, homes, frames, rules, some, draw(st.booleans()))


_ADDRESSES = st.sampled_from([BROADCAST, NOBODY, OF_A_SWITCH, GROUP, *map(mac_of, range(1, 5))])
_SEALED: st.SearchStrategy[dict[str, object]] = st.fixed_dictionaries(
    {"anywhere": st.just(True), "seal": st.booleans()}
)
_OPTIONS: dict[str, st.SearchStrategy[dict[str, object]]] = {
    "drop": st.just({"chance": 0.2}),
    "duplicate": st.just({"chance": 0.1}),
    "delay": st.just({}),
    "reorder": st.just({}),
    "corrupt": _SEALED,
    "truncate": st.fixed_dictionaries({"by": st.integers(1, 1050), "seal": st.booleans()}),
    "mark": st.just({}),
    "set": st.one_of(
        st.fixed_dictionaries(
            {"field": st.sampled_from(["eth.dst", "eth.src"]), "value": _ADDRESSES}
        ),
        st.just({"field": "eth.type", "value": 0x8808}),
        st.just({"field": "ip.ecn", "value": ECN.ECT_0}),
    ),
}


@st.composite
def _rule(draw: st.DrawFn) -> Callable[[], Rule]:
    do = draw(st.sampled_from(sorted(_OPTIONS)))
    options = draw(_OPTIONS[do])
    return lambda: Rule(do, **options)  # type: ignore[arg-type]


_RULES = _rule()
_FRAMES = st.one_of(
    st.builds(lambda mac, source: mac + frame_of(source, 2)[6:], _ADDRESSES, st.integers(1, 4)),
    st.builds(control, _ADDRESSES, st.sampled_from([1, 0x101, 7])),
    st.just(pfc_frame(mac_of(1), 0, 0xFFFF)),
    st.binary(max_size=20),
)


def laid(plan: Plan) -> Network:
    """The network of a plan, each of whose hosts has all frames to send."""
    network = Network(Simulator(event_limit=EVENTS), settings=plan.settings)
    for number in {*plan.homes, *(end for trunk in plan.trunks for end in trunk)}:
        network.add_switch(f"s{number}")
    for one, other in plan.trunks:
        network.join(f"s{one}", f"s{other}", CABLE.link())
    for number, home in enumerate(plan.homes, 1):
        network.add_host(f"h{number}", Talker(number, plan.frames))
        network.join(f"h{number}", f"s{home}", CABLE.link())
    for name, rules in zip(network.links, plan.rules, strict=False):
        network.set_faults(name, *(rule() for rule in rules))
    if plan.ways:
        network.find_routes()
    return network


@settings(max_examples=examples(80))
@given(plans())
def test_any_network_comes_to_rest_with_any_faults(plan: Plan) -> None:
    network = laid(plan)
    network.simulator.run()
    waiting = [len(port.egress) for port in network.ports.values()]
    assert waiting == [0] * len(waiting)


def test_all_faults_are_tried() -> None:
    assert _OPTIONS.keys() == ACTIONS.keys()
