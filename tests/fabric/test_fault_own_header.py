"""Faults on frames with a header that no standard has."""

from copy import deepcopy
from random import Random
from typing import Any

import pytest

from rdmawire.decode import PROTOCOLS, opcodes_of, with_opcodes
from rdmawire.errors import FabricError
from rdmawire.fabric.fault import Faults, Rule
from rdmawire.fabric.field import FieldName, Fields
from rdmawire.fabric.link import Link
from rdmawire.fabric.pair import Pair
from rdmawire.ib.rx_parser import Drop
from rdmawire.verbs.enums import WCStatus
from rdmawire.verbs.wr import SendWR
from rdmawire.wire import roce
from rdmawire.wire.header import Header, bits
from rdmawire.wire.packet import LAYOUTS
from rdmawire.wire.tables import known_headers
from tests.ib.test_rules_own_header import (
    OPCODES,
    SEND_TAGGED,
    TAGGED_WORK,
    TagETH,
    Tags,
    rules_with,
)

WITH_TAGS = with_opcodes(OPCODES)


class Tagged:
    """A pair whose link has one rule, and the tags that arrived."""

    def __init__(self, rule: Rule) -> None:
        self.tags = Tags()
        link = Link()
        link.faults = Faults([rule], Random(1), protocols=WITH_TAGS)
        self.rule = rule
        self.pair = Pair(link, rules=rules_with(self.tags))

    def send(self, *tags: int) -> list[WCStatus]:
        client, server = self.pair.client, self.pair.server
        for tag in tags:
            server.receive(5)
            source = client.filled(b"hello")
            client.post(SendWR(TAGGED_WORK, (source.sge(),), imm_data=tag), source)
        self.pair.drive()
        return [done.status for done in client.poll()]


def rule_with_tag(do: str, **options: Any) -> Rule:
    with known_headers(TagETH):
        return Rule(do, {"tageth.tag": 7}, nth=1, per=("rdmawire.tageth.scope",), **options)


def test_a_rule_selects_frames_by_a_field_outside_of_the_block_too() -> None:
    tagged = Tagged(rule_with_tag("drop"))
    assert tagged.send(1, 7, 8) == [WCStatus.SUCCESS] * 3
    assert [tag for tag, _ in tagged.tags.seen] == [1, 7, 8]
    assert tagged.rule.hits == 1


def test_a_value_is_set_and_sealed() -> None:
    with known_headers(TagETH):
        rule = Rule("set", {"bth.opcode": SEND_TAGGED}, field="tageth.scope", value=3)
    tagged = Tagged(rule)
    assert tagged.send(7) == [WCStatus.REM_INV_REQ_ERR]
    assert tagged.tags.seen == [(7, 3)]


@pytest.mark.parametrize("seal", [True, False])
def test_a_payload_is_corrupted(seal: bool) -> None:
    tagged = Tagged(rule_with_tag("corrupt", byte=-8, seal=seal))
    assert tagged.send(7) == [WCStatus.SUCCESS]
    assert tagged.pair.server.nic.drops[Drop.ICRC] == (not seal)


def test_a_payload_is_cut() -> None:
    tagged = Tagged(rule_with_tag("truncate", by=2, seal=True))
    assert tagged.send(7) == [WCStatus.SUCCESS]
    assert [done.byte_len for done in tagged.pair.server.poll()] == [3]


def test_fields_of_a_frame_are_read_and_rewritten() -> None:
    frames: list[bytes] = []
    tagged = Tagged(rule_with_tag("drop"))
    tagged.pair.simulator.on_sent.append(lambda frame, _: frames.append(frame.data))
    tagged.send(9)
    with known_headers(TagETH):
        name = FieldName("tageth.tag")
        fields = Fields(frames[0], protocols=WITH_TAGS)
        assert fields.get("tageth.tag") == fields.get(name) == 9
    assert fields.get(name) == 9
    assert fields.has(deepcopy(name), {9})
    sealed = roce.parse(fields.rewritten(name, 10, seal=True), opcodes=OPCODES)
    assert sealed.packet.header(TagETH) == TagETH(10)
    assert sealed.icrc == sealed.expected_icrc()
    assert Fields(frames[0]).get(name) is None
    with pytest.raises(FabricError, match=r"no field is named 'tageth.tag'"):
        fields.get("tageth.tag")


def test_another_header_with_the_name_has_its_own_fields() -> None:
    class Other(Header, label="tageth"):
        """Another header."""

        tag: int = bits(8)

    found = []
    for table in (TagETH, Other):
        with known_headers(table):
            found.append(FieldName("tageth.tag").by_table)
    assert [list(each) for each in found] == [[TagETH], [Other]]


def test_the_table_of_opcodes_is_that_of_the_protocols() -> None:
    assert opcodes_of(WITH_TAGS) is OPCODES
    assert opcodes_of(PROTOCOLS) is LAYOUTS
    assert opcodes_of({}) is LAYOUTS
