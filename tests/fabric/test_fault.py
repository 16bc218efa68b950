"""Faults: each action, which frames rules mean, and what they refuse."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.errors import FabricError
from rdmawire.fabric.fault import ACTIONS, OPTION_BOUNDS, OPTIONS, Faults, Rule
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.link import Delivery, Link
from rdmawire.fabric.pair import Pair
from rdmawire.fabric.simulator import Simulator
from rdmawire.ib.rx_parser import Drop
from rdmawire.units import us
from rdmawire.verbs.enums import WCStatus
from rdmawire.wire import roce
from rdmawire.wire.checksum import ipv4_header_checksum
from rdmawire.wire.header import Header
from rdmawire.wire.inet import ECN, ROCE_PORT, IPv4, IPv6
from rdmawire.wire.opcode import Opcode
from tests.fabric.talker import Talker, frame_of, frames_of

FRAMES = frames_of(1, 2, 10, size=20)
BOTH = pytest.mark.parametrize("ipv6", [False, True])


def with_faults(*rules: Rule, frames: list[bytes] = FRAMES, seed: int = 0) -> list[list[Delivery]]:
    faults = Faults(rules, Random(seed))
    return [faults.apply(Envelope(frame), number) for number, frame in enumerate(frames, 1)]


def lost(*rules: Rule, frames: list[bytes] = FRAMES, seed: int = 0) -> list[int]:
    """Numbers of the frames that were lost."""
    found = with_faults(*rules, frames=frames, seed=seed)
    return [number for number, passings in enumerate(found, 1) if not passings]


def only(rule: Rule, frame: bytes = FRAMES[3]) -> bytes:
    """The one frame that is left of one."""
    ((passing,),) = with_faults(rule, frames=[frame])
    return passing.data


def is_good(frame: bytes) -> bool:
    parsed = roce.parse(frame)
    return parsed.icrc == parsed.expected_icrc()


@pytest.mark.parametrize(
    ("rule", "numbers"),
    [
        (Rule("drop"), list(range(1, 11))),
        (Rule("drop", {"bth.psn": 4}), [5]),
        (Rule("drop", {"bth.psn": {0, 9}}), [1, 10]),
        (Rule("drop", {"bth.psn": range(2, 4), "bth.destqp": 2}), [3, 4]),
        (Rule("drop", {"bth.psn": 4, "bth.destqp": 3}), []),
        (Rule("drop", {"bth.opcode": Opcode.RC_RDMA_WRITE_MIDDLE}, nth=2), [2]),
        (Rule("drop", {"bth.psn": range(5, 10)}, nth={1, 3}), [6, 8]),
        (Rule("drop", nth=2, per=("bth.psn",)), []),
        (Rule("drop", {"frame.number": (1, 7)}), [1, 7]),
        (Rule("drop", {"frame.length": 1}), []),
        (Rule("drop", {"reth.rkey": 0}), []),
        (Rule("drop", {"eth.src": FRAMES[0][6:12]}, nth=1), [1]),
        (Rule("drop", {"ip.src": bytes((10, 0, 0, 1)), "udp.dstport": ROCE_PORT}, nth=10), [10]),
        (Rule("drop", chance=0.0), []),
    ],
)
def test_rules_mean_frames_by_fields_and_turns(rule: Rule, numbers: list[int]) -> None:
    assert lost(rule) == numbers
    assert rule.hits == len(numbers)


def test_a_turn_for_each_psn_is_a_retransmission() -> None:
    again = [*FRAMES[:3], FRAMES[1], FRAMES[1], FRAMES[2]]
    assert lost(Rule("drop", nth=2, per=("bth.psn",)), frames=again) == [4, 6]


def test_chance_is_by_seed() -> None:
    many = frames_of(1, 2, 400, size=0)
    first = lost(Rule("drop", chance=0.25), frames=many, seed=1)
    assert first == lost(Rule("drop", chance=0.25), frames=many, seed=1)
    assert first != lost(Rule("drop", chance=0.25), frames=many, seed=2)
    assert 60 < len(first) < 140


def test_all_rules_that_mean_a_frame_act_on_it() -> None:
    found = with_faults(Rule("duplicate"), Rule("delay", {"bth.psn": 1}, by=7), Rule("drop", nth=9))
    assert found[0] == [Delivery(FRAMES[0], faults=("duplicated",))] * 2
    assert found[1] == [Delivery(FRAMES[1], 7, faults=("duplicated", "delayed"))] * 2
    assert found[8] == []


def test_copies_and_delays() -> None:
    assert with_faults(Rule("duplicate", times=2, wait=5))[0] == [
        Delivery(FRAMES[0], wait, faults=("duplicated",)) for wait in (0, 5, 10)
    ]
    waits = {found[0].wait for found in with_faults(Rule("delay", by=3, most=9))}
    assert waits <= set(range(3, 10))
    assert len(waits) > 1


@BOTH
@pytest.mark.parametrize("checksum", [0, 1])
@pytest.mark.parametrize("byte", [0, 11, 12, -1, -21])
def test_corrupted_frames_are_good_only_if_sealed(ipv6: bool, checksum: int, byte: int) -> None:
    frame = frame_of(1, 2, 5, size=20, ipv6=ipv6, checksum=checksum)
    bad = only(Rule("corrupt", byte=byte, bit=1), frame)
    assert bad != frame
    good = only(Rule("corrupt", byte=byte, bit=1, seal=True), frame)
    begin, end = (54 if not ipv6 else 74) - 12, len(frame) - 4
    assert good[begin:end] == bad[begin:end]
    if byte:  # the opcode that is left has no meaning to be parsed
        assert not is_good(bad)
        assert is_good(good)
        assert roce.parse(good).seal().build() == good


@settings(deadline=None)
@given(st.integers(0, 1 << 32))
def test_corruption_anywhere_turns_one_bit_from_the_bth_to_the_pad(seed: int) -> None:
    ((passing,),) = with_faults(Rule("corrupt", anywhere=True), frames=FRAMES[:1], seed=seed)
    turned = [a ^ b for a, b in zip(passing.data, FRAMES[0], strict=True)]
    assert sum(bits.bit_count() for bits in turned) == 1
    assert any(turned[42:-4])


def test_truncation() -> None:
    assert only(Rule("truncate", by=7)) == FRAMES[3][:-7]
    assert with_faults(Rule("truncate", by=9999))[0] == []
    short = only(Rule("truncate", by=7, seal=True))
    assert is_good(short)
    assert len(roce.parse(short).packet.payload) == 13


@BOTH
def test_marks_leave_all_else_in_order(ipv6: bool) -> None:
    frame = frame_of(1, 2, ipv6=ipv6, dscp=46)
    found = roce.parse(only(Rule("mark"), frame))
    assert found.seal() == found
    ip = found.headers[1]
    assert (ip.ecn, ip.dscp) == (ECN.CE, 46)  # type: ignore[union-attr]
    deaf = frame_of(1, 2, ecn=ECN.NOT_ECT, ipv6=ipv6)
    assert only(Rule("mark"), deaf) == deaf


@settings(deadline=None)
@given(st.integers(0, 63), st.sampled_from([ECN.ECT_0, ECN.ECT_1]), st.integers(0, 1400))
def test_the_checksum_moves_with_the_mark(dscp: int, ecn: int, size: int) -> None:
    marked = only(Rule("mark"), frame_of(1, 2, dscp=dscp, ecn=ecn, size=size))
    assert marked[24:26] == ipv4_header_checksum(marked[14:34]).to_bytes(2, "big")


def test_fields_are_rewritten_by_their_names() -> None:
    frame = frame_of(1, 2, 5, size=20)
    good = only(Rule("set", field="bth.psn", value=77), frame)
    assert is_good(good)
    assert roce.parse(good).packet.bth.psn == 77
    bad = only(Rule("set", field="bth.psn", value=77, seal=False), frame)
    assert not is_good(bad)
    assert only(Rule("set", field="ip.ttl", value=1), frame)[22] == 1
    assert only(Rule("set", field="aeth.msn", value=1), frame) == frame


def test_frames_without_a_packet_have_an_ethernet_header_only() -> None:
    frame = bytes(12) + b"\x88\xb5" + b"some octets"
    assert lost(Rule("drop", {"bth.psn": 0}), frames=[frame]) == []
    assert lost(Rule("drop", {"eth.type": 0x88B5}), frames=[frame]) == [1]
    changed = only(Rule("set", field="eth.type", value=0x88B6), frame)
    assert changed == bytes(12) + b"\x88\xb6" + b"some octets"
    assert only(Rule("corrupt", byte=0, seal=True), frame)[0] == 1


@pytest.mark.parametrize("do", sorted(ACTIONS))
@settings(deadline=None)
@given(frame=st.binary(min_size=1, max_size=80))
def test_every_fault_applies_to_any_bytes(do: str, frame: bytes) -> None:
    options: dict[str, Any] = {"field": "bth.psn", "value": 1} if do == "set" else {}
    for passing in with_faults(Rule(do, **options), frames=[frame])[0]:
        assert len(passing.data) <= len(frame)


@pytest.mark.parametrize(
    ("do", "where", "options", "reason"),
    [
        ("explode", {}, {}, "'explode' is not one of drop, duplicate"),
        ("drop", {}, {"by": 1}, "drop has no option 'by'; it has none"),
        ("delay", {}, {"for": 1}, "delay has no option 'for'; it has by, most"),
        ("set", {}, {"field": "bth.psn"}, "set needs the option 'value'"),
    ],
)
def test_unknown_faults(
    do: str, where: dict[str, int], options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(FabricError, match=reason):
        Rule(do, where, **options)


def test_chances_and_turns_that_there_are_not() -> None:
    with pytest.raises(FabricError, match=r"drop.chance: 1.5 .* is not a number from 0 to 1"):
        Rule("drop", chance=1.5)
    with pytest.raises(FabricError, match=r"drop.nth: 0 is not a turn from 1 to"):
        Rule("drop", nth={0, 1})


@pytest.mark.parametrize(
    ("do", "options", "reason"),
    [
        ("duplicate", {"times": -5}, "duplicate.times: -5 is not an integer from 0 to"),
        ("duplicate", {"wait": None}, r"duplicate.wait: None \(NoneType\) is not a number of nano"),
        ("delay", {"by": -1}, "delay.by: -1 is not a number of nanoseconds from 0 to"),
        ("delay", {"most": 1.5}, r"delay.most: 1.5 \(float\) is not"),
        ("reorder", {"behind": -1}, "reorder.behind: -1 is not"),
        ("corrupt", {"bit": -1}, "corrupt.bit: -1 is not an integer from 0 to 7"),
        ("corrupt", {"bit": 8}, "corrupt.bit: 8 is not"),
        ("corrupt", {"byte": "x"}, "corrupt.byte: 'x' .* is not of type int"),
        ("truncate", {"by": -4}, "truncate.by: -4 is not a number of bytes from 0 to"),
        ("set", {"field": 7, "value": 1}, "set.field: 7 is not of type str"),
        ("set", {"field": "bth.psn", "value": 1 << 24}, "bth.psn: .* does not fit 24 bits"),
        ("set", {"field": "bth.psn", "value": None}, "bth.psn: .* takes a number of 24 bits"),
        ("set", {"field": "ip.dsfield", "value": 256}, "ip.dsfield: 256 is not .* from 0 to 255"),
        ("set", {"field": "ip.hdr_len", "value": 21}, "ip.hdr_len: 21 is no multiple of 4"),
        ("set", {"field": "eth.src", "value": b"123"}, "eth.src: .* takes 6 bytes, found 3"),
        ("drop", {"where": "bth.psn"}, "drop.where: 'bth.psn' .* is not a mapping"),
        (
            "drop",
            {"where": {"bth.psn": None}},
            "drop.where: None .* is not of type int or Collection",
        ),
        ("drop", {"where": {1: 1}}, "drop.where: 1 is not of type str"),
        ("drop", {"nth": None}, "drop.nth: None .* is not a collection"),
        ("drop", {"nth": [1, "x"]}, "drop.nth: 'x' .* is not a turn"),
        ("drop", {"nth": range(1 << 40)}, "drop.nth: 0 is not a turn"),
        ("drop", {"per": "bth.psn", "nth": 1}, "drop.per: 'bth.psn' .* is not a collection"),
        ("drop", {"chance": float("nan")}, "drop.chance: nan"),
        ("drop", {"chance": "x"}, "drop.chance: 'x'"),
        (None, {}, "None .* is not one of drop, "),
        ([], {}, r"\[\] .* is not one of drop, "),
    ],
)
def test_options_that_make_no_sense(do: Any, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(FabricError, match=reason):
        Rule(do, **options)


@pytest.mark.parametrize("rules", [None, 7, "x", ["drop"], [None]])
def test_faults_are_made_of_rules(rules: Any) -> None:
    with pytest.raises(FabricError, match=r"Faults.rules: .* is not of type (Iterable|Rule)"):
        Faults(rules)


def test_every_option_has_a_bound() -> None:
    found = {do: set(options) - {"value"} for do, options in OPTIONS.items()}
    assert found == {do: set(bounds) for do, bounds in OPTION_BOUNDS.items()}


@pytest.mark.parametrize("table", [IPv4, IPv6])
def test_a_number_is_set_whatever_it_means(table: type[Header]) -> None:
    """Lengths and versions with which no receiver finds its way: those are what it must meet."""
    frame = frame_of(0, 1, 2, ipv6=table is IPv6)
    for row in table.rows:
        for value in range(1 << min(row.width, 4)) if not row.is_bytes else ():
            rule = Rule("set", field=f"{table.label}.{row.name}", value=value)
            changed = only(rule, frame)
            again = only(Rule("corrupt", byte=0, seal=True), changed)
            assert len(frame) == len(changed) == len(again)
            if row.name not in ("total_length", "payload_length", "checksum"):
                assert getattr(table.parse(changed, 14), row.name) == value


@pytest.mark.parametrize(
    ("ipv6", "name", "value", "place", "byte"),
    [
        (True, "ipv6.version", 4, 14, 0x40),
        (False, "ip.version", 6, 14, 0x65),
        (False, "ip.ihl", 3, 14, 0x43),
        (False, "ip.ihl", 0, 14, 0x40),
    ],
)
def test_headers_of_no_meaning(ipv6: bool, name: str, value: int, place: int, byte: int) -> None:
    frame = frame_of(0, 1, 2, ipv6=ipv6)
    for seal in (False, True):
        changed = only(Rule("set", field=name, value=value, seal=seal), frame)
        assert changed[place] == byte
        assert len(changed) == len(frame)


def test_unknown_fields() -> None:
    with pytest.raises(FabricError, match=r"'bth\.pns'; the nearest is bth\.psn"):
        Rule("drop", {"bth.pns": 1})
    with pytest.raises(FabricError, match=r"'bth\.foo'; bth has opcode, se"):
        Rule("drop", {"bth.foo": 1})
    with pytest.raises(FabricError, match=r"'tcpp\.port'; the nearest are tcp\.port"):
        Rule("drop", {"tcpp.port": 1})
    with pytest.raises(FabricError, match=r"the nearest are reth\.rkey"):
        Rule("set", field="reth.key", value=1)
    with pytest.raises(FabricError, match=r"ip\.addr is ip\.src and ip\.dst: name one of them"):
        Rule("set", field="ip.addr", value=bytes(4))
    with pytest.raises(FabricError):
        Rule("drop", per=("psn",))


def spoken(*rules: Rule, count: int = 6, latency: int = us(1)) -> Talker:
    """Who received frames that were sent at once over a link with these faults."""
    simulator, receiver = Simulator(), Talker(2)
    link = Link(latency, faults=Faults(rules))
    for talker in (Talker(1, frames_of(1, 2, count, size=0)), receiver):
        simulator.attach(talker, talker.mac, link)
    simulator.run()
    return receiver


def test_a_frame_comes_behind_exactly_so_many() -> None:
    for behind in range(1, 5):
        receiver = spoken(Rule("reorder", {"bth.psn": 1}, behind=behind))
        order = [0, 2, 3, 4, 5]
        order.insert(1 + behind, 1)
        assert receiver.psns == order
        assert {received.time for received in receiver.received} == {us(1)}


def test_frames_that_are_kept_back_overtake_nobody() -> None:
    assert spoken(Rule("reorder", {"bth.psn": {1, 2}})).psns == [0, 3, 1, 2, 4, 5]


def test_lost_frames_overtake_nobody() -> None:
    rules = (Rule("reorder", {"bth.psn": 1}), Rule("drop", {"bth.psn": 2}))
    assert spoken(*rules).psns == [0, 3, 1, 4, 5]


def test_a_frame_that_nothing_overtakes_comes_in_the_end() -> None:
    receiver = spoken(Rule("reorder", {"bth.psn": 5}, most=us(9)))
    assert receiver.psns == [0, 1, 2, 3, 4, 5]
    assert receiver.received[-1].time == us(10)


def test_the_clock_does_not_wait_for_what_was_called_off() -> None:
    simulator, link = (
        Simulator(),
        Link(faults=Faults([Rule("reorder", {"bth.psn": 1}, most=us(50))])),
    )
    for talker in (Talker(1, frames_of(1, 2, 3, size=0)), Talker(2)):
        simulator.attach(talker, talker.mac, link)
    simulator.run()
    assert simulator.now == 0


WRITE_SECOND = {"bth.psn": 101, "bth.opcode": Opcode.RC_RDMA_WRITE_MIDDLE}


@pytest.mark.parametrize(
    "rule",
    [
        Rule("drop", WRITE_SECOND, nth=1),
        Rule("duplicate", WRITE_SECOND, times=3),
        Rule("delay", WRITE_SECOND, nth=1, by=us(20)),
        Rule("reorder", WRITE_SECOND, nth=1),
        Rule("corrupt", WRITE_SECOND, nth=1),
        Rule("truncate", WRITE_SECOND, nth=1),
        Rule("mark", WRITE_SECOND),
        Rule("set", WRITE_SECOND, nth=1, field="bth.psn", value=90),
    ],
    ids=lambda rule: rule.do,
)
def test_a_reliable_connection_outlives_every_fault(rule: Rule) -> None:
    pair = Pair(link=Link(us(1), faults=Faults([rule])))
    data = bytes(range(256)) * 20
    pair.client.write(data, to=pair.server.region)
    pair.drive()
    assert rule.meant > 0
    assert pair.server.region.read(len(data)) == data
    assert [done.status for done in pair.client.poll()] == [WCStatus.SUCCESS]


def test_what_is_sealed_again_is_believed() -> None:
    fault = Rule("corrupt", WRITE_SECOND, byte=-1, seal=True)
    pair = Pair(link=Link(us(1), faults=Faults([fault])))
    pair.client.write(bytes(4096), to=pair.server.region)
    pair.drive()
    assert pair.server.region.read(4096) == bytes(2047) + b"\1" + bytes(2048)
    assert sum(pair.server.nic.device.drops.values()) == 0


def test_what_is_not_sealed_again_is_dropped() -> None:
    pair = Pair(link=Link(us(1), faults=Faults([Rule("corrupt", WRITE_SECOND, nth=1)])))
    pair.client.write(bytes(4096), to=pair.server.region)
    pair.drive()
    assert pair.server.nic.device.drops[Drop.ICRC] == 1


def test_copies_of_copies_are_bounded() -> None:
    some = [Rule("duplicate", times=7)] * 4
    Faults([*some, Rule("drop")])
    with pytest.raises(FabricError, match=r"32768 copies of one frame; 4096 at most"):
        Faults([*some, Rule("duplicate", times=7)])
    with pytest.raises(FabricError, match="copies"):
        Faults([Rule("duplicate", times=1 << 40)])
