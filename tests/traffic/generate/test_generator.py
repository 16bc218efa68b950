"""What stands in generated captures, frame by frame."""

from collections import Counter
from itertools import pairwise
from typing import Any, TypeVar

import pytest

from rdmawire.fabric.link import bit_times, duration
from rdmawire.traffic.generate.endpoints import PAGE
from rdmawire.traffic.generate.spec import CapturePoint, Sizes, TrafficSpec, Verb
from rdmawire.traffic.summary import Moved
from rdmawire.units import gbps
from rdmawire.verbs.ah import udp_source_port
from rdmawire.wire.ib import AETH, DETH, RETH, Ack, AtomicAckETH
from rdmawire.wire.inet import ECN, UDP, VLAN, Ethernet, IPv4, IPv6
from rdmawire.wire.opcode import Opcode, Service
from rdmawire.wire.roce import Frame
from rdmawire.wire.serial import MODULUS, add, distance
from tests.traffic.generate.made import made

SIZE = Sizes.parse
P = TypeVar("P")
CLIENT = b"\x02\0\0\0\0\1"


def piece(frame: Frame, kind: type[P]) -> P:
    return next(one for one in frame.headers if isinstance(one, kind))


@pytest.mark.parametrize("verb", list(Verb))
@pytest.mark.parametrize("ipv6", [False, True])
def test_every_checksum_is_good_and_times_go_on(verb: Verb, ipv6: bool) -> None:
    one = made(TrafficSpec(verb=verb, count=40, qps=3, ipv6=ipv6))
    for frame in one.frames:
        assert frame.icrc == frame.expected_icrc()
        assert frame.seal() == frame
        assert isinstance(frame.headers[1], IPv6 if ipv6 else IPv4)
    times = [record.time_ns for record in one.records]
    assert times == sorted(times)
    assert one.summary.frames == len(one.records)
    assert one.summary.frame_bytes == sum(len(record.data) for record in one.records)


OPCODES = {
    Verb.WRITE: {Opcode.RC_RDMA_WRITE_ONLY, Opcode.RC_ACKNOWLEDGE},
    Verb.SEND: {Opcode.RC_SEND_ONLY, Opcode.RC_ACKNOWLEDGE},
    Verb.READ: {Opcode.RC_RDMA_READ_REQUEST, Opcode.RC_RDMA_READ_RESPONSE_ONLY},
    Verb.ATOMIC: {Opcode.RC_FETCH_ADD, Opcode.RC_CMP_SWAP, Opcode.RC_ATOMIC_ACKNOWLEDGE},
    Verb.UD: {Opcode.UD_SEND_ONLY},
    Verb.CNP: {Opcode.CNP},
    Verb.CM: {Opcode.UD_SEND_ONLY},
}


@pytest.mark.parametrize("verb", list(OPCODES))
def test_each_verb_has_its_opcodes(verb: Verb) -> None:
    sizes = None if verb in {Verb.ATOMIC, Verb.CNP, Verb.CM} else SIZE("100")
    one = made(TrafficSpec(verb=verb, sizes=sizes, count=30))
    assert {bth.opcode for bth in one.bths} == OPCODES[verb]
    assert one.summary.messages == (0 if verb in {Verb.CNP, Verb.CM} else 30)
    assert one.summary.mads == (5 * 30 if verb is Verb.CM else 0)
    assert one.summary.cnps == (30 if verb is Verb.CNP else 0)


def test_a_mix_has_everything() -> None:
    bths = made(TrafficSpec(verb=Verb.MIX, frames=3000)).bths
    services = Counter(bth.opcode >> 5 for bth in bths)
    assert set(services) == {Service.RC, Service.UD}
    kinds = {Opcode(bth.opcode).name.partition("_")[2] for bth in bths}
    for word in ("WRITE", "WITH_IMMEDIATE", "SEND", "READ_REQUEST", "FETCH_ADD", "CMP_SWAP"):
        assert any(word in kind for kind in kinds)


@pytest.mark.parametrize("window", [1, 16, 100])
def test_a_window_bounds_what_is_not_acknowledged(window: int) -> None:
    one = made(
        TrafficSpec(verb=Verb.WRITE, sizes=SIZE("64k"), count=20, latency=10_000, window=window)
    )
    first = one.bths[0].psn
    acked, most = first, 0
    for bth in one.bths:
        if bth.opcode == Opcode.RC_ACKNOWLEDGE:
            acked = add(bth.psn, 1)
        else:
            most = max(most, distance(acked, add(bth.psn, 1)))
    assert 1 <= most <= window
    assert (one.summary.messages, one.summary.retransmits) == (20, 0)


def test_where_nothing_is_lost_nothing_is_sent_again() -> None:
    summary = made(TrafficSpec(verb=Verb.MIX, sizes=SIZE("1M"), count=10, seed=1)).summary
    assert (summary.messages, summary.retransmits, summary.naks) == (10, 0, 0)


def test_exactly_so_many_frames() -> None:
    for frames in (1, 2, 999, 5000):
        for loss in (0.0, 0.01):
            one = made(TrafficSpec(verb=Verb.WRITE, frames=frames, loss=loss))
            assert len(one.records) == one.summary.frames == frames


def test_queue_pairs_take_turns_each_with_its_own_number_psn_and_port() -> None:
    one = made(TrafficSpec(verb=Verb.WRITE, sizes=SIZE("64"), count=40, qps=8))
    requests = list(one.of(Opcode.RC_RDMA_WRITE_ONLY))
    turns = [frame.packet.bth.destqp for frame in requests]
    assert len(set(turns)) == 8
    answers = {frame.packet.bth.destqp for frame in one.of(Opcode.RC_ACKNOWLEDGE)}
    assert len(answers) == 8
    ports = {frame.packet.bth.destqp: piece(frame, UDP).srcport for frame in requests}
    assert len(set(ports.values())) == 8
    lawful = {udp_source_port(0, mine, peers) for mine in answers for peers in turns}
    assert set(ports.values()) <= lawful
    assert len({frame.packet.bth.psn for frame in requests[:8]}) == 8


@pytest.mark.parametrize(("qps", "least"), [(64, 64), (256, 254)])
def test_of_hundreds_of_queue_pairs_a_few_share_a_source_port(qps: int, least: int) -> None:
    one = made(TrafficSpec(verb=Verb.WRITE, sizes=SIZE("64"), count=qps, qps=qps))
    ports = {frame.packet.bth.destqp: piece(frame, UDP).srcport for frame in one.frames}
    assert len(ports) == 2 * qps
    assert least <= len(set(ports.values())) <= qps


def test_psns_follow_one_another_and_wrap() -> None:
    one = made(TrafficSpec(verb=Verb.WRITE, sizes=SIZE("4k"), count=300, psn=MODULUS - 500))
    psns = [bth.psn for bth in one.bths if bth.opcode != Opcode.RC_ACKNOWLEDGE]
    assert psns[0] == MODULUS - 500
    assert all(then == add(now, 1) for now, then in pairwise(psns))
    assert psns[-1] < 1000


def test_msns_count_messages() -> None:
    one = made(TrafficSpec(verb=Verb.SEND, sizes=SIZE("64"), count=1500))
    msns = [frame.packet.header(AETH) for frame in one.of(Opcode.RC_ACKNOWLEDGE)]
    assert [aeth.msn for aeth in msns if aeth] == list(range(1, 1501))


def test_atomics_return_what_those_before_them_left() -> None:
    one = made(TrafficSpec(verb=Verb.ATOMIC, count=2000))
    adds = [bth.opcode == Opcode.RC_FETCH_ADD for bth in one.bths if bth.ackreq]
    answers = [frame.packet.header(AtomicAckETH) for frame in one.of(Opcode.RC_ATOMIC_ACKNOWLEDGE)]
    originals = [answer.origremdt for answer in answers if answer]
    assert len(originals) == len(adds) == 2000
    steps = {
        (then - now) % (1 << 64)
        for added, (now, then) in zip(adds, pairwise(originals), strict=False)
        if added
    }
    stays = [
        then == now
        for added, (now, then) in zip(adds, pairwise(originals), strict=False)
        if not added
    ]
    assert len(steps) == 1
    assert all(stays)


def test_lost_frames_are_there_where_they_are_sent_and_come_again() -> None:
    wishes = {"verb": Verb.WRITE, "sizes": SIZE("4k"), "count": 800, "loss": 0.01}
    sent, arrived = (made(TrafficSpec(tap=tap, **wishes)) for tap in CapturePoint)  # type: ignore[arg-type]
    assert sent.summary.lost == arrived.summary.lost > 0
    assert sent.summary.retransmits > 0
    assert sent.summary.naks > 0
    assert len(sent.records) - len(arrived.records) == sent.summary.lost
    lost = Counter(r.data for r in sent.records) - Counter(r.data for r in arrived.records)
    assert lost.total() == sent.summary.lost
    psns = {bth.psn for bth in arrived.bths if bth.opcode != Opcode.RC_ACKNOWLEDGE}
    assert len(psns) == 4 * 800
    assert (sent.summary.messages, sent.summary.bytes) == (800, 800 * 4096)


def test_reads_go_on_where_they_were_interrupted() -> None:
    one = made(TrafficSpec(verb=Verb.READ, sizes=SIZE("64k"), count=60, loss=0.01))
    reths = [frame.packet.header(RETH) for frame in one.of(Opcode.RC_RDMA_READ_REQUEST)]
    assert {reth.dmalen for reth in reths if reth} > {65536}
    assert (one.summary.messages, one.summary.bytes) == (60, 60 * 65536)


@pytest.mark.parametrize("vlan", [None, 7])
def test_with_ecn_marks_cause_cnps_and_senders_slow_down(vlan: int | None) -> None:
    calm = made(TrafficSpec(verb=Verb.WRITE, count=800, marks=0.0, vlan=vlan))
    one = made(
        TrafficSpec(verb=Verb.WRITE, count=800, marks=0.02, vlan=vlan, tap=CapturePoint.ARRIVED)
    )
    ecn = Counter(piece(frame, IPv4).ecn for frame in one.frames)
    assert set(ecn) == {ECN.NOT_ECT, ECN.ECT_0, ECN.CE}
    assert ecn[ECN.CE] == one.summary.marks > 0
    assert one.summary.cnps == sum(bth.opcode == Opcode.CNP for bth in one.bths) > 0
    assert one.summary.virtual_ns > 2 * calm.summary.virtual_ns
    assert (calm.summary.marks, calm.summary.cnps) == (0, 0)


def ecn_by_opcode(spec: TrafficSpec) -> dict[str, set[int]]:
    """The ECN codepoints of the packets of each kind."""
    found: dict[str, set[int]] = {}
    for frame in made(spec).frames:
        kind = Opcode(frame.packet.bth.opcode).name
        found.setdefault(kind, set()).add(piece(frame, IPv4).ecn)
    return found


def test_where_frames_are_sent_none_has_a_mark_yet() -> None:
    spec = TrafficSpec(verb=Verb.WRITE, sizes=SIZE("64"), count=600, marks=0.1)
    assert ecn_by_opcode(spec) == {
        "RC_RDMA_WRITE_ONLY": {ECN.ECT_0},
        "RC_ACKNOWLEDGE": {ECN.NOT_ECT},
        "CNP": {ECN.NOT_ECT},
    }
    assert made(spec).summary.marks > 0


def test_what_carries_data_is_capable_of_ecn_and_the_rest_is_not() -> None:
    spec = TrafficSpec(
        verb=Verb.READ, sizes=SIZE("64"), count=600, marks=0.1, tap=CapturePoint.ARRIVED
    )
    assert ecn_by_opcode(spec) == {
        "RC_RDMA_READ_REQUEST": {ECN.NOT_ECT},
        "RC_RDMA_READ_RESPONSE_ONLY": {ECN.ECT_0, ECN.CE},
        "CNP": {ECN.NOT_ECT},
    }


@pytest.mark.parametrize("vlan", [None, 5])
@pytest.mark.parametrize("frames", [1, 7, 100])
def test_behind_the_switch_as_many_marks_are_counted_as_stand_there(
    frames: int, vlan: int | None
) -> None:
    spec = TrafficSpec(
        verb=Verb.SEND,
        frames=frames,
        mtu=4096,
        marks=0.5,
        tap=CapturePoint.ARRIVED,
        seed=56,
        vlan=vlan,
    )
    one = made(spec)
    assert len(one.frames) == frames
    assert one.summary.marks == sum(piece(frame, IPv4).ecn == ECN.CE for frame in one.frames)


def test_of_a_mix_only_data_is_marked() -> None:
    found = ecn_by_opcode(
        TrafficSpec(verb=Verb.MIX, count=800, marks=0.3, tap=CapturePoint.ARRIVED)
    )
    marked = {kind for kind, codepoints in found.items() if ECN.CE in codepoints}
    assert {"RC_SEND_ONLY", "RC_RDMA_READ_RESPONSE_ONLY", "UD_SEND_ONLY"} <= marked
    assert marked.isdisjoint({"RC_ACKNOWLEDGE", "RC_ATOMIC_ACKNOWLEDGE", "RC_RDMA_READ_REQUEST"})


@pytest.mark.parametrize(("wish", "dscp"), [({}, 48), ({"cnp_dscp": 26}, 26)])
@pytest.mark.parametrize("ipv6", [False, True])
def test_cnps_have_their_own_dscp_and_the_priority_of_it(
    wish: dict[str, Any], dscp: int, ipv6: bool
) -> None:
    spec = TrafficSpec(
        verb=Verb.SEND,
        count=150,
        marks=0.2,
        vlan=5,
        dscp=10,
        ipv6=ipv6,
        tap=CapturePoint.ARRIVED,
        **wish,
    )
    one = made(spec)
    kinds = {
        (
            frame.packet.bth.opcode == Opcode.CNP,
            (piece(frame, IPv6) if ipv6 else piece(frame, IPv4)).dscp,
            piece(frame, VLAN).priority,
        )
        for frame in one.frames
    }
    assert kinds == {(False, 10, 1), (True, dscp, dscp >> 3)}
    assert all(frame.seal() == frame for frame in one.frames)


def test_without_ecn_no_frame_is_capable_of_it() -> None:
    one = made(TrafficSpec(verb=Verb.MIX, count=50))
    assert {piece(frame, IPv4).ecn for frame in one.frames} == {ECN.NOT_ECT}


def test_cnps_come_from_the_answering_side_and_carry_no_mark() -> None:
    one = made(TrafficSpec(verb=Verb.CNP, count=20, qps=4))
    assert all(bth.becn for bth in one.bths)
    assert {piece(frame, Ethernet).dst for frame in one.frames} == {CLIENT}
    assert {piece(frame, IPv4).ecn for frame in one.frames} == {ECN.NOT_ECT}
    assert {piece(frame, IPv4).dscp for frame in one.frames} == {48}
    assert one.summary.marks == 0


def test_gpu_memory_is_reached_without_a_copy() -> None:
    one = made(TrafficSpec(verb=Verb.WRITE, count=100, gpu=True))
    assert one.summary.paths == {"gpu_direct": Moved(2 * 100 * 4096, 2 * 100 * 4, 0)}
    plain = made(TrafficSpec(verb=Verb.WRITE, count=100))
    assert plain.summary.paths == {"host": Moved(2 * 100 * 4096, 2 * 100 * 4, 0)}


@pytest.mark.parametrize("verb", [Verb.WRITE, Verb.CM])
def test_tags_and_dscp_are_on_all_frames(verb: Verb) -> None:
    one = made(TrafficSpec(verb=verb, count=20, vlan=100, dscp=26))
    tags = {piece(frame, VLAN) for frame in one.frames}
    assert {(tag.id, tag.priority) for tag in tags} == {(100, 3)}
    assert {piece(frame, IPv4).dscp for frame in one.frames} == {26}


@pytest.mark.parametrize("verb", [Verb.WRITE, Verb.CM, Verb.CNP])
def test_a_priority_that_is_asked_for_stands_in_all_tags(verb: Verb) -> None:
    one = made(TrafficSpec(verb=verb, count=20, vlan=100, dscp=26, pcp=5))
    tags = {piece(frame, VLAN) for frame in one.frames}
    assert {(tag.id, tag.priority) for tag in tags} == {(100, 5)}


def test_frames_come_at_the_rate_of_the_link() -> None:
    spec = TrafficSpec(verb=Verb.UD, sizes=SIZE("1k"), count=200, rate=gbps(25))
    records = made(spec).records
    gap = duration(bit_times(len(records[0].data)), spec.rate)
    gaps = {then.time_ns - now.time_ns for now, then in pairwise(records)}
    assert gaps <= {gap, gap - 1}


def test_frames_arrive_later_by_the_latency() -> None:
    wishes = {"verb": Verb.UD, "count": 10, "latency": 5000}
    sent, arrived = (made(TrafficSpec(tap=tap, **wishes)).records for tap in CapturePoint)  # type: ignore[arg-type]
    assert [record.data for record in sent] == [record.data for record in arrived]
    delays = {there.time_ns - here.time_ns for here, there in zip(sent, arrived, strict=True)}
    assert min(delays) > 5000


def test_datagrams_name_their_sender() -> None:
    one = made(TrafficSpec(verb=Verb.UD, count=30, qps=3))
    deths = [frame.packet.header(DETH) for frame in one.frames]
    assert len({deth.srcqp for deth in deths if deth}) == 3


def test_sizes_are_those_asked_for() -> None:
    one = made(TrafficSpec(verb=Verb.WRITE, sizes=SIZE("0-8,5k"), count=300))
    reths = [frame.packet.header(RETH) for frame in one.frames]
    lengths = {reth.dmalen for reth in reths if reth}
    assert lengths == {*range(9), 5120}


def test_payloads_differ_from_message_to_message_and_seed_to_seed() -> None:
    one, other = (
        made(TrafficSpec(verb=Verb.SEND, sizes=SIZE("64"), count=50, seed=seed)) for seed in (1, 2)
    )
    payloads = [
        {frame.packet.payload for frame in each.of(Opcode.RC_SEND_ONLY)} for each in (one, other)
    ]
    assert min(map(len, payloads)) > 40
    assert payloads[0].isdisjoint(payloads[1])


def test_long_messages_repeat_a_page() -> None:
    one = made(TrafficSpec(verb=Verb.WRITE, sizes=SIZE("256k"), count=1, mtu=4096))
    data = b"".join(f.packet.payload for f in one.frames if not f.packet.header(AETH))
    assert data == data[:PAGE] * 4


def test_acks_say_no_credits_and_nothing_bad() -> None:
    one = made(TrafficSpec(verb=Verb.MIX, count=300))
    aeths = [frame.packet.header(AETH) for frame in one.frames]
    assert {aeth.ack for aeth in aeths if aeth} == {Ack.ACK}
    assert {aeth.value for aeth in aeths if aeth} == {31}


def test_acks_come_behind_what_they_acknowledge() -> None:
    one = made(TrafficSpec(verb=Verb.WRITE, count=200, qps=2))
    last: dict[int, int] = {}
    for frame in one.frames:
        bth, ethernet = frame.packet.bth, piece(frame, Ethernet)
        if ethernet.src == CLIENT:
            last[piece(frame, UDP).srcport] = bth.psn
        else:
            assert distance(bth.psn, last[piece(frame, UDP).srcport]) >= 0
