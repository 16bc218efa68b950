"""Connections that come and go."""

from collections import Counter

import pytest

from rdmawire.ib.cm.gsi import Datagram
from rdmawire.ib.cm.messages import ReceivedMad, read
from rdmawire.ib.encapsulation import gids_of
from rdmawire.traffic.generate import cm as managed
from rdmawire.traffic.generate.cm import Connecting
from rdmawire.traffic.generate.spec import TrafficSpec, Verb
from rdmawire.wire.cm import REP, REQ, CMAttribute
from rdmawire.wire.management import MTU
from rdmawire.wire.roce import Frame
from tests.traffic.generate.made import Made, made


def message(frame: Frame) -> ReceivedMad:
    """A frame's datagram."""
    heard = read(Datagram(*gids_of(frame.headers), frame.packet.payload))
    assert heard is not None
    return heard


def attribute(frame: Frame) -> CMAttribute:
    """What a frame's datagram is."""
    return CMAttribute(message(frame).mad.attribute_id)


def attributes(one: Made) -> list[CMAttribute]:
    return [attribute(frame) for frame in one.frames]


def test_one_connection_is_asked_for_granted_confirmed_and_taken_down() -> None:
    one = made(TrafficSpec(verb=Verb.CM, count=1))
    assert [each.name for each in attributes(one)] == [
        "REQ",
        "REP",
        "RTU",
        "DREQ",
        "DREP",
    ]


@pytest.mark.parametrize(("psn", "mtu"), [(0, 256), (5, 1024), (0xFFFFFF, 4096)])
def test_both_sides_begin_with_the_psn_and_the_mtu_that_are_asked_for(psn: int, mtu: int) -> None:
    one = made(TrafficSpec(verb=Verb.CM, count=2, qps=2, psn=psn, mtu=mtu))
    said = [message(frame).message for frame in one.frames]
    requests = [each for each in said if isinstance(each, REQ)]
    replies = [each for each in said if isinstance(each, REP)]
    assert [each.starting_psn for each in requests] == [psn] * 2
    assert [each.starting_psn for each in replies] == [psn] * 2
    assert [each.path_packet_payload_mtu for each in requests] == [MTU[f"MTU_{mtu}"]] * 2


def test_many_at_a_time() -> None:
    one = made(TrafficSpec(verb=Verb.CM, count=25, qps=10, ipv6=True))
    assert set(Counter(attributes(one)).values()) == {25}
    assert attributes(one)[:10] == attributes(one)[:1] * 10
    assert (one.summary.messages, one.summary.mads, one.summary.refused) == (0, 125, 0)


def test_what_is_lost_is_asked_for_again() -> None:
    one = made(TrafficSpec(verb=Verb.CM, count=30, qps=5, loss=0.2))
    counts = Counter(attributes(one))
    assert one.summary.lost > 0
    assert sum(counts.values()) == len(one.records)
    assert min(counts[kind] for kind in list(counts)[:2]) >= 30
    assert one.summary.virtual_ns > 10**9


def test_exactly_so_many_frames() -> None:
    assert len(made(TrafficSpec(verb=Verb.CM, frames=13)).records) == 13


def test_the_same_seed_gives_the_same_connections() -> None:
    one, same, other = (made(TrafficSpec(verb=Verb.CM, count=3, seed=seed)) for seed in (1, 1, 2))
    assert one.sha256 == same.sha256 != other.sha256


def test_nothing_piles_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(managed, "MAX_WAITING", 8)
    connecting = Connecting(TrafficSpec(verb=Verb.CM, count=40, qps=4))
    held = []
    for _ in range(10):
        connecting.round(4)
        held.append(len(connecting.clients[0].nic.device.qps))
    assert max(held) <= 16
    assert connecting.clients[0].over == 40
    connecting.simulator.run()
    for end in (*connecting.clients, *connecting.servers):
        assert len(end.manager.registry) == 0
        assert list(end.nic.device.qps) == [1]
