"""The envelope: a frame keeps its number from its sender to its receivers, whatever befalls it."""

from collections.abc import Sequence
from copy import deepcopy

import pytest

from rdmawire.fabric.fault import Faults, Rule
from rdmawire.fabric.frame import MAX_REDIRECTS, Envelope
from rdmawire.fabric.link import Link
from rdmawire.fabric.network import Cable, Network, row
from rdmawire.fabric.pair import Pair
from rdmawire.fabric.switch_config import Marking, SwitchSettings
from rdmawire.units import gbps, us
from tests.fabric.talker import Talker, frames_of, mac_of

CABLE = Cable(us(1), gbps(10))
TRUNK = Cable(us(1), gbps(1))
"""Slower, so that frames queue for it."""


def two_hosts(frames: Sequence[bytes], settings: SwitchSettings | None = None) -> Network:
    """Two hosts with two switches between them; the first has frames to send."""
    network = Network(settings=settings)
    ends = {"a": Talker(1, frames), "b": Talker(2)}
    row(network, ends, switches=2, edge=CABLE, trunk=TRUNK)
    return network


def seen_at(network: Network, where: str, *, arrivals: bool = False) -> list[Envelope]:
    seen: list[Envelope] = []
    network.tap(where, lambda frame, _: seen.append(frame), arrivals=arrivals)
    return seen


def test_frames_are_numbered_by_their_sender_and_count_the_links_they_take() -> None:
    network = two_hosts(frames_of(1, 2, 3))
    sent, trunk = seen_at(network, "a"), seen_at(network, "s1:s2")
    arrived = seen_at(network, "b", arrivals=True)
    network.simulator.run()
    for frames, hops in (sent, 1), (trunk, 2), (arrived, 3):
        assert [(one.id, one.origin, one.hops) for one in frames] == [
            (number, mac_of(1), hops) for number in (1, 2, 3)
        ]


def test_equal_bytes_are_different_frames() -> None:
    (frame,) = frames_of(1, 2, 1)
    network = two_hosts([frame] * 3)
    arrived = seen_at(network, "b", arrivals=True)
    network.simulator.run()
    assert [(one.id, one.data) for one in arrived] == [(number, frame) for number in (1, 2, 3)]


def test_a_mark_changes_bytes_and_not_the_number() -> None:
    network = two_hosts(frames_of(1, 2, 9), SwitchSettings(marking={0: Marking(0, 0)}))
    sent, arrived = seen_at(network, "a"), seen_at(network, "b", arrivals=True)
    network.simulator.run()
    assert [one.id for one in sent] == [one.id for one in arrived]
    changed = [one.data != other.data for one, other in zip(sent, arrived, strict=True)]
    assert sum(changed) == network.ports["s1:s2"].marks[0] > 0
    assert all(not one.faults for one in arrived)


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ([Rule("duplicate")], [("duplicated",), ("duplicated",)]),
        ([Rule("delay", by=7), Rule("mark")], [("delayed", "marked")]),
        ([Rule("delay", by=7, nth=2), Rule("drop", nth=9)], [()]),
    ],
)
def test_it_says_what_faults_did(rules: list[Rule], words: list[tuple[str, ...]]) -> None:
    network = two_hosts(frames_of(1, 2, 1))
    network.set_faults("a-s1", *rules)
    sent, arrived = seen_at(network, "a"), seen_at(network, "b", arrivals=True)
    network.simulator.run()
    assert [one.faults for one in sent] == [()]
    assert [(one.id, one.faults) for one in arrived] == [(1, faults) for faults in words]


def test_faults_of_all_links_are_said_one_after_the_other() -> None:
    network = two_hosts(frames_of(1, 2, 1))
    network.set_faults("a-s1", Rule("delay", by=1))
    network.set_faults("s1-s2", Rule("set", field="bth.psn", value=9))
    arrived = seen_at(network, "b", arrivals=True)
    network.simulator.run()
    assert [one.faults for one in arrived] == [("delayed", "rewritten")]


def test_faults_change_addresses_a_few_times_and_no_more() -> None:
    away = Faults([Rule("set", field="eth.dst", value=mac_of(3))])
    home = Faults([Rule("set", field="eth.dst", value=mac_of(2))])
    frame, turns = Envelope(frames_of(1, 2, 1)[0], 1, mac_of(1)), 0
    for number in range(1, 2 * MAX_REDIRECTS):
        arrivals = Link(faults=away if number % 2 else home).carry(frame, 0)
        if not arrivals:
            break
        turns, frame = turns + 1, arrivals[0].frame
        assert (frame.id, frame.redirects) == (1, turns)
    assert turns == MAX_REDIRECTS
    assert Link(faults=Faults([Rule("delay")])).carry(frame, 0)


def test_copies_of_a_world_number_frames_alike() -> None:
    pair = Pair(Link(us(1), rate=gbps(10)))
    pair.client.write(bytes(9000), to=pair.server.region)
    pair.drive(us(2))
    other = deepcopy(pair)
    found = []
    for one in (pair, other):
        seen: list[tuple[int, bytes, int]] = []
        one.simulator.on_arrival.append(
            lambda frame, now, seen=seen: seen.append((frame.id, frame.data, now))  # type: ignore[misc]
        )
        one.drive()
        found.append(seen)
    assert found[0] == found[1] != []


def test_engines_see_bytes() -> None:
    network = two_hosts(frames_of(1, 2, 1))
    network.simulator.run()
    assert [type(received.frame) for received in network.hosts["b"].received] == [bytes]  # type: ignore[attr-defined]


def test_it_has_a_text() -> None:
    frame = Envelope(bytes(60), 7, mac_of(1), 2, 0, ("delayed",))
    assert repr(frame) == "<Envelope 7: 60 bytes from 02:00:00:00:00:01, 2 hops, delayed>"
    assert repr(Envelope(b"")) == "<Envelope 0: 0 bytes from nowhere, 0 hops>"
