"""Flows are a short way only: each frame becomes what it would become by itself."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from rdmawire.capture import Record
from rdmawire.traffic.edit import Editor, text
from rdmawire.traffic.edit import flow_cache as flow
from rdmawire.traffic.edit.rules import EditRule
from rdmawire.wire.ib import DETH, RETH
from rdmawire.wire.inet import ECN, Ethernet, IPv4
from rdmawire.wire.layout import joined
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.roce import parse
from tests.captures import CAPTURES, EVERY, each_capture
from tests.dissect.mutation import SEED
from tests.traffic.edit.frames import A6, B6, A, B, frame, packet
from tests.traffic.edit.samples import EVERYTHING, edited, records

RULES = [*EVERYTHING.there(), text.assignment("ip.id+=3"), text.assignment("udp.length+=0")]
ONE_OF_EACH = [path for path in EVERY if path.parent.name != "linux"]


def by_itself(one: Record, rules: Sequence[EditRule]) -> bytes:
    return Editor(rules).edit(one.data, one.link_type)


@each_capture(ONE_OF_EACH)
def test_every_frame_becomes_what_it_becomes_by_itself(path: Path) -> None:
    content = records(path)
    together = [one.data for one in edited([*content, *content], RULES)]
    assert together == [by_itself(one, RULES) for one in content] * 2


def mutated(content: list[Record], chance: random.Random) -> list[Record]:
    """Records with a few bytes near their beginning changed, or cut off."""
    damaged = []
    for one in content:
        data = bytearray(one.data)
        for _ in range(chance.choice([0, 1, 1, 4])):
            if data:
                data[chance.randrange(min(len(data), 64))] = chance.randrange(256)
        kept = chance.choice([len(data), chance.randrange(len(data) + 1)])
        damaged.append(one._replace(data=bytes(data[:kept])))
    return damaged


@pytest.mark.parametrize("seed", range(SEED, SEED + 12))
def test_so_do_frames_that_are_damaged(seed: int) -> None:
    chance = random.Random(seed)
    content = mutated(records(chance.choice(EVERY))[:80] * 3, chance)
    chance.shuffle(content)
    together = [one.data for one in edited(content, RULES)]
    assert together == [by_itself(one, RULES) for one in content]


def test_a_length_that_headers_do_not_agree_about_is_no_reason_to_move_an_icrc() -> None:
    editor = Editor([text.psn_offsets(["1"])])
    good = frame(packet(Opcode.RC_SEND_ONLY, payload=bytes(40)))
    editor.edit(good)
    bad = bytearray(good)
    bad[39] += 4  # the length of UDP
    assert editor.edit(bytes(bad)) == Editor(editor.rules).edit(bytes(bad))


def test_a_frame_too_short_for_the_headers_of_its_flow_is_edited_as_far_as_it_goes() -> None:
    editor = Editor([text.psn_offsets(["1"]), text.va_offsets(["16"])])
    whole = frame(packet(Opcode.RC_RDMA_READ_REQUEST, RETH(1, 2, 3), psn=5))
    new = editor.edit(whole)
    for kept in range(len(whole)):
        assert editor.edit(whole[:kept]) == Editor(editor.rules).edit(whole[:kept])
    assert editor.edit(whole[:60])[:54] == new[:54]


FIRST = [
    ("rxe61_vt_rc_v6", 0),  # TCP
    ("rxe61_vt_rc_v6", 7),  # ICMPv6
    ("rxe61_vt_rc_v6", 15),
    ("vxlan", 0),
    ("native", 0),
    ("tagged", 0),
    ("cooked2", 0),
]


@pytest.mark.parametrize(("name", "number"), FIRST)
def test_no_flow_is_learned_from_a_frame_that_ends_too_early(name: str, number: int) -> None:
    (path,) = CAPTURES.rglob(f"{name}.pcap")
    one = records(path)[number]
    halves = ["::/1=8000::/1", "8000::/1=::/1", "0.0.0.0/1=128.0.0.0/1", "128.0.0.0/1=0.0.0.0/1"]
    rules = [text.ips(halves), text.psn_offsets(["1"])]
    wanted = by_itself(one, rules)
    for kept in range(len(one.data)):
        editor = Editor(rules)
        editor.edit(one.data[:kept], one.link_type)
        assert editor.edit(one.data, one.link_type) == wanted


def test_what_is_kept_of_flows_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "MAX_FLOWS", 5)
    editor = Editor([text.psn_offsets(["1"]), text.ecn("ce")])
    for number in [*range(12), *range(12)]:
        for source, destination in ((A, B), (A6, B6)):
            datagram = packet(Opcode.UD_SEND_ONLY, DETH(), destqp=100 + number, psn=number)
            new = parse(editor.edit(frame(datagram, source, destination)))
            assert new.seal() == new
            assert new.packet.bth.psn == number + 1


def test_headers_of_many_lengths_are_dropped_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "MAX_SHAPES", 3)
    editor = Editor([text.ecn("ce")])
    for ihl in [*range(5, 16)] * 2:
        ip = IPv4(ihl=ihl, total_length=ihl * 4, src=A, dst=B, protocol=1)
        data = joined(Ethernet(type=0x0800), ip, bytes(4 * ihl - 20))
        assert IPv4.parse(editor.edit(data), Ethernet.SIZE).ecn == ECN.CE
