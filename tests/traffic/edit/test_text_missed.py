"""Who has a number that was asked for at the wrong host."""

from collections.abc import Sequence

import pytest

from rdmawire.traffic.edit import Editor, text
from rdmawire.traffic.edit.rules import EditRule
from rdmawire.traffic.edit.text import missed
from rdmawire.wire.ib import RETH
from rdmawire.wire.opcode import Opcode
from tests.traffic.edit.frames import A6, B6, A, B, frame, packet

HOSTS = [bytes([10, 0, 0, number]) for number in range(2, 7)]
READ = packet(Opcode.RC_RDMA_READ_REQUEST, RETH(0x1000, 0x1201, 64))
ELSEWHERE = "no frame has it; 10.0.0.2 has that number"


def reported(rule: EditRule, *frames: bytes) -> list[str]:
    """Return the message about each part of a rule that no frame had."""
    editor = Editor([rule])
    for data in frames:
        assert editor.edit(data) == data
    return [missed(each) for each in rule.unused()]


@pytest.mark.parametrize(
    "rule",
    [
        text.qpns(["17@10.0.0.1=5"]),
        text.rkeys(["0x1201@10.0.0.1=5"]),
        text.va_offsets(["0x1201@10.0.0.1=5"]),
        text.psn_offsets(["17@10.0.0.1=5"]),
    ],
)
def test_a_number_at_the_wrong_host_is_reported_with_the_host_that_has_it(rule: EditRule) -> None:
    assert reported(rule, *[frame(READ)] * 3) == [ELSEWHERE]


@pytest.mark.parametrize(
    ("hosts", "reason"),
    [
        (HOSTS[:0], "no frame has it"),
        (HOSTS[:2], "no frame has it; 10.0.0.2 and 10.0.0.3 have that number"),
        (HOSTS[:3], "no frame has it; 10.0.0.2, 10.0.0.3 and 10.0.0.4 have that number"),
        (HOSTS, "no frame has it; 10.0.0.2, 10.0.0.3, 10.0.0.4 and others have that number"),
    ],
)
def test_of_many_hosts_that_have_it_the_first_are_named(
    hosts: Sequence[bytes], reason: str
) -> None:
    frames = [frame(READ, A, host) for host in hosts]
    assert reported(text.rkeys(["0x1201@10.0.0.1=5"]), *frames, *frames) == [reason]


def test_without_another_host_that_has_the_number_none_is_named() -> None:
    assert reported(text.rkeys(["0x1202@10.0.0.1=5"]), frame(READ)) == ["no frame has it"]
    assert reported(text.rkeys(["0x1202=5"]), frame(READ)) == ["no frame has it"]
    assert reported(text.psn_offsets(["18=5"]), frame(READ)) == ["no frame has it"]


def test_addresses_of_ipv6_are_written_as_usual() -> None:
    found = reported(text.rkeys(["0x1201@10.0.0.1=5"]), frame(READ, A6, B6))
    assert found == ["no frame has it; fd00::2 has that number"]


def test_a_map_for_all_others_changes_them_all_the_same() -> None:
    rule = text.qpns(["17@10.0.0.1=5", "17=6"])
    assert Editor([rule]).edit(frame(READ, A, B)) != frame(READ, A, B)
    assert [missed(each) for each in rule.unused()] == [ELSEWHERE]
