"""Traffic of many hosts: who talks to whom, where they are, and what the switch does to it."""

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.capture import Record
from rdmawire.fabric.link import bit_times, duration
from rdmawire.traffic.generate import endpoints as blend
from rdmawire.traffic.generate.generator import _repeats
from rdmawire.traffic.generate.spec import (
    MAX_HOSTS,
    MAX_QPS,
    Address,
    CapturePoint,
    Sizes,
    SpecError,
    TrafficSpec,
    Verb,
)
from rdmawire.wire import roce
from rdmawire.wire.inet import ECN, UDP, Ethernet, IPv4, IPv6
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.roce import Frame
from tests.traffic.generate.made import Made, made, short_rounds

SMALL = Sizes.parse("64")
Host = tuple[bytes, bytes]
"""Ethernet and IP address."""
REQUESTS = (Opcode.RC_RDMA_WRITE_ONLY, Opcode.RC_RDMA_READ_REQUEST, Opcode.RC_SEND_ONLY)


def ends(frame: Frame) -> tuple[Host, Host]:
    """Who sent a frame, and to whom."""
    ethernet, network = frame.headers[:2]
    assert isinstance(ethernet, Ethernet)
    assert isinstance(network, IPv4 | IPv6)
    return (ethernet.src, _packed(network.src)), (ethernet.dst, _packed(network.dst))


def _packed(address: int | bytes) -> bytes:
    return address if isinstance(address, bytes) else address.to_bytes(4, "big")


def usual(number: int, *, ipv6: bool = False) -> Host:
    """Where a host is if nothing else is asked for."""
    ip = bytes((0xFD, *bytes(14), number)) if ipv6 else bytes((10, 0, 0, number))
    return bytes((2, 0, 0, 0, 0, number)), ip


# Who talks to whom.


@given(st.integers(1, 24), st.integers(1, 24), st.integers(0, 600))
@settings(deadline=None)
def test_every_client_meets_every_server_and_shares_are_equal(
    clients: int, servers: int, more: int
) -> None:
    flows = max(clients, servers) + more
    spec = TrafficSpec(verb=Verb.WRITE, clients=clients, servers=servers, flows=flows)
    pairs = [spec.pair_of(lane) for lane in range(flows)]
    for side, hosts in enumerate((clients, servers)):
        shares = Counter(pair[side] for pair in pairs)
        assert set(shares) == set(range(hosts))
        assert max(shares.values()) - min(shares.values()) <= 1
    met = Counter(pairs)
    assert max(met.values()) == -(-flows // (clients * servers))
    assert len(met) == min(flows, clients * servers)


@pytest.mark.parametrize(
    ("wishes", "flows"),
    [
        ({}, 1),
        ({"qps": 3}, 3),
        ({"flows": 3}, 3),
        ({"clients": 8}, 8),
        ({"clients": 8, "servers": 2, "qps": 3}, 48),
        ({"clients": 8, "servers": 2, "flows": 11}, 11),
    ],
)
def test_qps_count_for_each_pair_of_hosts_and_flows_for_all(
    wishes: dict[str, Any], flows: int
) -> None:
    spec = TrafficSpec(verb=Verb.SEND, sizes=SMALL, count=2 * flows, **wishes)
    assert spec.lanes == flows
    numbers = Counter(frame.packet.bth.destqp for frame in made(spec).of(Opcode.RC_SEND_ONLY))
    assert Counter(numbers.values()) == {2: flows}


def test_without_a_count_each_flow_has_a_message() -> None:
    assert TrafficSpec(verb=Verb.WRITE, clients=2, flows=5000).messages == 5000
    assert TrafficSpec(verb=Verb.WRITE, clients=2, flows=50).messages == 1000
    assert TrafficSpec(verb=Verb.WRITE, qps=5000).messages == 1000


@pytest.mark.parametrize("verb", [Verb.WRITE, Verb.MIX, Verb.CM])
def test_with_one_client_and_one_server_flows_are_their_queue_pairs(verb: Verb) -> None:
    one = made(TrafficSpec(verb=verb, count=30, qps=7))
    other = made(TrafficSpec(verb=verb, count=30, flows=7, clients=1, servers=1))
    assert one.sha256 == other.sha256


# Where they are.


@pytest.mark.parametrize("verb", [verb for verb in Verb if verb is not Verb.CNP])
@pytest.mark.parametrize("ipv6", [False, True])
def test_hosts_have_addresses_of_their_own_and_all_checksums_are_good(
    verb: Verb, ipv6: bool
) -> None:
    one = made(TrafficSpec(verb=verb, clients=3, servers=2, qps=2, count=48, ipv6=ipv6))
    clients = {usual(number, ipv6=ipv6) for number in (1, 2, 3)}
    servers = {usual(number, ipv6=ipv6) for number in (4, 5)}
    met = set()
    for frame in one.frames:
        assert frame.seal() == frame
        assert frame.icrc == frame.expected_icrc()
        met.add(frozenset(ends(frame)))
    assert met == {frozenset((client, server)) for client in clients for server in servers}


def flows_of(one: Made) -> dict[int, set[tuple[Host, Host, int]]]:
    """By queue pair: who sends to it, who owns it, and from which UDP port."""
    found: dict[int, set[tuple[Host, Host, int]]] = {}
    for frame in one.frames:
        (port,) = (each.srcport for each in frame.headers if isinstance(each, UDP))
        found.setdefault(frame.packet.bth.destqp, set()).add((*ends(frame), port))
    return found


@pytest.mark.parametrize("verb", [Verb.WRITE, Verb.READ])
def test_a_flow_has_one_tuple_each_way_and_a_queue_pair_of_its_own_at_both_ends(verb: Verb) -> None:
    spec = TrafficSpec(verb=verb, sizes=SMALL, clients=5, servers=3, flows=40, count=80)
    flows = flows_of(made(spec))
    assert len(flows) == 2 * 40
    assert all(len(tuples) == 1 for tuples in flows.values())
    asked = [ends for (ends,) in flows.values() if ends[1][0][5] > 5]
    wanted = [(usual(client + 1), usual(server + 6)) for client, server in pairs_of(spec)]
    assert Counter(found[:2] for found in asked) == Counter(wanted)


def pairs_of(spec: TrafficSpec) -> list[tuple[int, int]]:
    return [spec.pair_of(lane) for lane in range(spec.lanes)]


def test_addresses_that_are_asked_for_are_those_of_the_first_and_others_follow() -> None:
    client = Address.parse("192.168.0.254/0c:c4:7a:00:00:fe")
    server = Address.parse("192.168.9.1")
    spec = TrafficSpec(verb=Verb.UD, clients=3, servers=2, client=client, server=server, count=6)
    seen = {host for frame in made(spec).frames for host in ends(frame)}
    assert seen == {
        (bytes.fromhex("0cc47a0000fe"), bytes((192, 168, 0, 254))),
        (bytes.fromhex("0cc47a0000ff"), bytes((192, 168, 0, 255))),
        (bytes.fromhex("0cc47a000100"), bytes((192, 168, 1, 0))),
        (bytes((2, 0, 0, 0, 0, 4)), bytes((192, 168, 9, 1))),
        (bytes((2, 0, 0, 0, 0, 5)), bytes((192, 168, 9, 2))),
    }


@pytest.mark.parametrize(
    ("wishes", "said"),
    [
        ({"clients": 0}, "clients: 0 is not an integer from 1 to 253"),
        ({"servers": 254}, "servers: 254 is not an integer from 1 to 253"),
        ({"flows": 0}, "flows: 0 is not an integer from 1 to 16384"),
        ({"clients": 253, "servers": 2}, "at most 254 hosts together, not 255"),
        ({"flows": 4, "qps": 2}, "qps are those of each pair of hosts, flows"),
        ({"clients": 100, "servers": 100, "qps": 2}, "20000 in all are more than 16384"),
        ({"clients": 8, "flows": 7}, "7 flows are too few"),
        ({"servers": 8, "flows": 7}, "7 flows are too few"),
        ({"clients": 8, "count": 7}, "ask for 8 messages or frames, or more"),
        ({"clients": 2, "qps": 4, "frames": 7}, "ask for 8 messages or frames, or more"),
        ({"clients": 9, "server": Address.parse("10.0.0.9")}, "have the same address"),
        (
            {"clients": 9, "server": Address.parse("10.1.0.9/02:00:00:00:00:09")},
            "have the same Ethernet address",
        ),
        (
            {"clients": 2, "client": Address.parse("223.255.255.255")},
            "of the 2 addresses from 223.255.255.255 on, not all are of hosts",
        ),
        (
            {
                "clients": 2,
                "ipv6": True,
                "client": Address.parse("feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            },
            "not all are of hosts",
        ),
        (
            {"clients": 2, "client": Address.parse("10.1.1.1/02:ff:ff:ff:ff:ff")},
            "not all are of hosts",
        ),
    ],
)
def test_hosts_and_flows_that_make_no_sense_say_what_is_allowed(
    wishes: dict[str, Any], said: str
) -> None:
    with pytest.raises(SpecError) as found:
        TrafficSpec(**{"verb": Verb.WRITE, **wishes})
    assert said in str(found.value)


def test_as_many_hosts_as_there_are_addresses() -> None:
    spec = TrafficSpec(verb=Verb.UD, sizes=SMALL, clients=MAX_HOSTS - 4, servers=4, count=1000)
    assert spec.lanes <= MAX_QPS
    seen = {host for frame in made(spec).frames for host in ends(frame)}
    assert seen == {usual(number) for number in range(1, MAX_HOSTS + 1)}


# The switch.


def by_host(records: list[Record], side: int) -> list[list[Record]]:
    """The frames that each host sent (0) or got (1)."""
    found: dict[Host, list[Record]] = {}
    for record in records:
        found.setdefault(ends(roce.parse(record.data))[side], []).append(record)
    return list(found.values())


@pytest.mark.parametrize("tap", list(CapturePoint))
def test_frames_of_each_host_take_their_time_on_its_link(tap: CapturePoint) -> None:
    spec = TrafficSpec(verb=Verb.WRITE, clients=6, servers=2, flows=24, count=240, tap=tap)
    hosts = by_host(made(spec).records, list(CapturePoint).index(tap))
    assert len(hosts) == 8
    for records in hosts:
        for now, then in pairwise(records):
            second = then if tap is CapturePoint.ARRIVED else now
            assert (
                then.time_ns - now.time_ns >= duration(bit_times(len(second.data)), spec.rate) - 1
            )


def test_an_incast_takes_as_long_as_the_link_of_the_one_server() -> None:
    wishes: dict[str, Any] = {"verb": Verb.UD, "sizes": Sizes.parse("1k"), "count": 800}
    one = made(TrafficSpec(clients=8, tap=CapturePoint.ARRIVED, **wishes))
    spread = made(TrafficSpec(clients=8, servers=8, flows=8, tap=CapturePoint.ARRIVED, **wishes))
    assert len(one.records) == len(spread.records) == 800
    frame = duration(bit_times(len(one.records[0].data)), 10**11)
    assert one.records[-1].time_ns >= 799 * frame
    assert spread.records[-1].time_ns < 200 * frame


def test_frames_arrive_once_and_later_by_two_links() -> None:
    wishes: dict[str, Any] = {"verb": Verb.WRITE, "clients": 3, "count": 90, "latency": 5000}
    sent, arrived = (made(TrafficSpec(tap=tap, **wishes)) for tap in CapturePoint)
    assert Counter(r.data for r in sent.records) == Counter(r.data for r in arrived.records)
    assert sent.summary == arrived.summary
    assert arrived.records[0].time_ns > 2 * 5000


@pytest.mark.parametrize("verb", [Verb.UD, Verb.WRITE, Verb.MIX])
def test_no_frame_stays_in_the_switch_when_all_is_done(verb: Verb) -> None:
    wishes: dict[str, Any] = {"verb": verb, "clients": 8, "count": 200, "marks": 0.0}
    sent, arrived = (made(TrafficSpec(tap=tap, rate=10**9, **wishes)) for tap in CapturePoint)
    assert sent.summary.frames == arrived.summary.frames


def test_lost_frames_are_missing_where_they_arrive_and_come_again() -> None:
    wishes: dict[str, Any] = {"verb": Verb.WRITE, "clients": 4, "servers": 2, "loss": 0.02}
    sent, arrived = (made(TrafficSpec(tap=tap, **wishes), name="x.pcapng") for tap in CapturePoint)
    assert sent.summary.lost == arrived.summary.lost > 0
    assert sent.summary.retransmits > 0
    assert len(sent.records) - len(arrived.records) == sent.summary.lost
    assert sum(bool(record.comments) for record in sent.records) == sent.summary.lost
    assert sent.summary.messages == 1000


def test_the_sender_of_a_marked_frame_receives_a_cnp() -> None:
    spec = TrafficSpec(
        verb=Verb.WRITE, clients=4, servers=2, count=600, marks=0.1, tap=CapturePoint.ARRIVED
    )
    one = made(spec)
    marked = {ends(frame) for frame in one.frames if has_mark(frame)}
    told = {ends(frame)[::-1] for frame in one.of(Opcode.CNP)}
    assert told == marked
    assert len(marked) == 8
    assert one.summary.marks == sum(has_mark(frame) for frame in one.frames)


def has_mark(frame: Frame) -> bool:
    return any(each.ecn == ECN.CE for each in frame.headers if isinstance(each, IPv4))


def test_cnps_come_from_each_server_to_each_client() -> None:
    one = made(TrafficSpec(verb=Verb.CNP, clients=3, servers=2, count=12))
    assert Counter(frame.packet.bth.opcode for frame in one.frames) == {Opcode.CNP: 12}
    pairs = Counter(ends(frame) for frame in one.frames)
    wanted = {(usual(server), usual(client)): 2 for server in (4, 5) for client in (1, 2, 3)}
    assert pairs == wanted


@pytest.mark.parametrize("verb", [Verb.WRITE, Verb.READ, Verb.SEND, Verb.ATOMIC, Verb.MIX])
@pytest.mark.parametrize(
    "hosts", [{"clients": 16}, {"servers": 16}, {"clients": 5, "servers": 4, "flows": 200}]
)
@pytest.mark.parametrize("wire", [{"latency": 0}, {"rate": 10**6, "latency": 0}])
def test_where_nothing_is_lost_nothing_is_sent_again(
    verb: Verb, hosts: dict[str, Any], wire: dict[str, Any]
) -> None:
    summary = made(TrafficSpec(verb=verb, count=200, **hosts, **wire)).summary
    assert (summary.messages, summary.retransmits, summary.naks) == (200, 0, 0)


# Rounds.


def test_rounds_of_many_hosts_are_repeated_like_those_of_two() -> None:
    assert _repeats(TrafficSpec(verb=Verb.WRITE, clients=8, flows=100, count=10_000))
    assert not _repeats(
        TrafficSpec(verb=Verb.WRITE, clients=8, flows=100, count=10_000, marks=0.01)
    )


@pytest.mark.parametrize("verb", [Verb.WRITE, Verb.READ, Verb.ATOMIC, Verb.UD, Verb.CNP, Verb.MIX])
@pytest.mark.parametrize("loss", [0.0, 0.002])
def test_both_ways_write_the_same_file(
    monkeypatch: pytest.MonkeyPatch, verb: Verb, loss: float
) -> None:
    short_rounds(monkeypatch)
    spec = TrafficSpec(
        verb=verb,
        clients=4,
        servers=3,
        flows=17,
        loss=0.0 if verb is Verb.CNP else loss,
        frames=3 * 17 * 20 + 5,
        seed=3,
    )
    assert _repeats(spec)
    assert len(blend.messages(spec)) % 17 == 0
    one, other = made(spec), made(spec, at_once=False)
    assert (one.sha256, one.summary) == (other.sha256, other.summary)


def test_the_seed_decides_all() -> None:
    one, same, other = (
        made(TrafficSpec(verb=Verb.MIX, clients=3, servers=2, count=60, loss=0.01, seed=seed))
        for seed in (1, 1, 2)
    )
    assert one.sha256 == same.sha256 != other.sha256
