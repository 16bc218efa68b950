"""An extended transport header that no standard has, in one file: a table, an opcode and rows."""

from dataclasses import replace
from pathlib import Path

import pytest

from rdmawire.capture import LinkType
from rdmawire.columns import read_columns
from rdmawire.decode import with_opcodes
from rdmawire.dissect import Dissector, Selection, as_object, tree
from rdmawire.dissect.select import FieldError
from rdmawire.errors import VerbsError, WireError
from rdmawire.fabric.field import Fields
from rdmawire.fabric.pair import Pair
from rdmawire.filter import Filter, FilterError
from rdmawire.ib import checks, execute
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.rules import SEND, ExtendedHeader, RequestRule, Rules
from rdmawire.ib.rx_parser import Arrival
from rdmawire.ib.service import Fault
from rdmawire.ib.standard_rules import STANDARD, with_work
from rdmawire.traffic.edit import EditError, Editor, text
from rdmawire.verbs.enums import QPType, WCOpcode, WCStatus
from rdmawire.verbs.wr import SendOpcode, SendWR, Verb
from rdmawire.wire import roce
from rdmawire.wire.header import Header, bits
from rdmawire.wire.ib import BTH
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import LAYOUTS, Packet
from rdmawire.wire.show import HEX
from rdmawire.wire.tables import known_headers, tables


class TagETH(Header):
    """Tag Extended Transport Header: a number that the responder matches."""

    tag: int = bits(24, "", HEX)
    scope: int = bits(8)


SEND_TAGGED = 0x18
"""An opcode of RC that the standard leaves free."""
TAGGED_WORK = 0x40
OPCODES = LAYOUTS.with_opcode(SEND_TAGGED, "RC_SEND_TAGGED", TagETH)


class Tags:
    """Notes the tags that come; one that is not expected is an invalid request."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def check_tag(self, _: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
        header: TagETH = request.extended[role.places[TagETH]]
        self.seen.append((header.tag, header.scope))
        return Fault.OP_VALID if header.scope else None


def rules_with(tags: Tags) -> Rules:
    take = (checks.check_psn_and_op_seq, tags.check_tag, checks.check_resource, checks.check_length)
    steps = (*take, execute.place_whole, execute.finish_whole)
    rules = (
        replace(STANDARD, opcodes=OPCODES)
        .with_header(TagETH, ExtendedHeader.of(TagETH, tag="imm_data", scope="placement"))
        .with_request(QPType.RC, SEND_TAGGED, RequestRule(SEND, steps, receipt=WCOpcode.RECV))
    )
    verb = Verb(WCOpcode.SEND, only=SEND_TAGGED, one_packet=True, takes_receive=True)
    return with_work(rules, QPType.RC, TAGGED_WORK, verb)


class Scene:
    """A pair of adapters that know the header, or of which one does not; their frames are kept."""

    def __init__(self, *, server_knows: bool = True) -> None:
        self.tags = Tags()
        rules = rules_with(self.tags)
        self.pair = Pair(rules=rules, peer_rules=rules if server_knows else STANDARD)
        self.frames: list[bytes] = []
        self.pair.simulator.on_sent.append(lambda frame, _: self.frames.append(frame.data))

    def send(self, data: bytes, tag: int, scope: int = 0) -> WCStatus:
        """The status of a tagged SEND."""
        client, server = self.pair.client, self.pair.server
        server.receive(len(data))
        wr = SendWR(TAGGED_WORK, (client.filled(data).sge(),), imm_data=tag, placement=scope)
        client.nic.post_send(client.qp, wr)
        self.pair.drive()
        (done,) = client.poll()
        return done.status


def test_the_requester_fills_it_and_the_responder_reads_it() -> None:
    scene = Scene()
    assert scene.send(b"tagged!", 0xABCDEF) is WCStatus.SUCCESS
    assert scene.tags.seen == [(0xABCDEF, 0)]
    (done,) = scene.pair.server.poll()
    assert (done.opcode, done.byte_len) == (WCOpcode.RECV, 7)
    packet = roce.parse(scene.frames[0], opcodes=OPCODES).packet
    assert packet.extended == (TagETH(0xABCDEF, 0),)
    assert packet.payload == b"tagged!"


def test_a_fault_of_its_step_is_answered_as_others_are() -> None:
    scene = Scene()
    assert scene.send(b"tagged!", 1, scope=7) is WCStatus.REM_INV_REQ_ERR
    assert scene.tags.seen == [(1, 7)]


def test_an_adapter_without_the_row_takes_the_opcode_for_a_reserved_one() -> None:
    scene = Scene(server_knows=False)
    assert scene.send(b"tagged!", 1) is WCStatus.REM_INV_REQ_ERR
    assert scene.tags.seen == []
    with pytest.raises(WireError, match="opcode 0x18 is reserved"):
        roce.parse(scene.frames[0])


def test_work_requests_are_checked_by_its_widths_and_refused_without_the_row() -> None:
    with pytest.raises(VerbsError, match="imm_data 16777216 does not fit 24 bits"):
        Scene().send(b"", 1 << 24)
    plain = Pair().client
    with pytest.raises(VerbsError, match="opcode 64 is not for queue pairs of type RC"):
        plain.nic.post_send(plain.qp, SendWR(TAGGED_WORK))


def test_new_work_is_added_to_that_of_the_service() -> None:
    before = STANDARD.services[QPType.RC]
    after = rules_with(Tags()).services[QPType.RC]
    assert after.verbs == before.verbs | {TAGGED_WORK}
    assert after.outbound.keys() == before.outbound.keys() | {TAGGED_WORK}


def test_rows_that_do_not_fit_one_another_are_refused_by_name() -> None:
    verb = Verb(WCOpcode.SEND, only=SEND_TAGGED, one_packet=True)
    with pytest.raises(WireError, match="opcode 0x18 is reserved"):
        with_work(STANDARD, QPType.RC, TAGGED_WORK, verb)
    known = replace(STANDARD, opcodes=OPCODES)
    with pytest.raises(ValueError, match=r"Rules\.headers has no row for TagETH"):
        with_work(known, QPType.RC, TAGGED_WORK, verb)
    with pytest.raises(ValueError, match=r"Verb\.only is None"):
        with_work(known, QPType.RC, TAGGED_WORK, Verb(WCOpcode.SEND))
    with pytest.raises(ValueError, match="raw packet queue pairs have no opcodes"):
        with_work(known, QPType.RAW_PACKET, TAGGED_WORK, verb)
    with pytest.raises(TypeError, match="TagETH has no row 'tags'; it has tag, scope"):
        ExtendedHeader.of(TagETH, tags="imm_data")
    with pytest.raises(TypeError, match="tag='number': SendWR has no field of this name"):
        ExtendedHeader.of(TagETH, tag="number")


def test_a_header_without_fields_of_the_work_request_has_zeros() -> None:
    tags = Tags()
    rules = rules_with(tags).with_header(TagETH, ExtendedHeader.of(TagETH))
    pair = Pair(rules=with_work(rules, QPType.RC, TAGGED_WORK, rules.verbs[TAGGED_WORK]))
    pair.server.receive(0)
    pair.client.post(SendWR(TAGGED_WORK, imm_data=5))
    pair.drive()
    assert tags.seen == [(0, 0)]


def test_packets_of_the_table_are_the_inverse_of_their_bytes() -> None:
    packet = Packet(BTH(opcode=SEND_TAGGED), (TagETH(5, 6),)).replace(
        payload=b"12345", opcodes=OPCODES
    )
    assert Packet.parse(packet.build(), opcodes=OPCODES) == packet
    with pytest.raises(WireError, match="RC_SEND_TAGGED has TagETH after the BTH, found no header"):
        Packet(BTH(opcode=SEND_TAGGED)).check(OPCODES)
    with pytest.raises(WireError, match="opcode 0x18 is reserved"):
        packet.check()


def test_a_dissection_shows_it() -> None:
    scene = Scene()
    scene.send(b"tagged!", 0xABCDEF)
    dissection = Dissector(protocols=with_opcodes(OPCODES)).dissect(
        scene.frames[0], link_type=LinkType.ETHERNET
    )
    assert TagETH(0xABCDEF, 0) in list(dissection.headers())
    assert dissection.malformed is None
    assert not dissection.bad_checks
    assert str(dissection).split()[6:9] == ["RC_SEND_TAGGED", "qp", "0x000011"]
    bth = next(layer for layer in as_object(dissection)["layers"] if layer["name"] == "bth")
    assert bth["words"] == {"infiniband.bth.opcode": "RC_SEND_TAGGED"}
    assert [line for _, line, name in tree(dissection) if name == "infiniband.bth.opcode"] == [
        "    42    opcode: 24  RC_SEND_TAGGED"
    ]
    plain = Dissector().dissect(scene.frames[0])
    assert "RESERVED opcode 0x18" in str(plain)
    assert plain.malformed is not None
    assert "opcode 0x18 is reserved" in plain.malformed.reason


def test_a_filter_and_an_edit_know_its_fields() -> None:
    scene = Scene()
    scene.send(b"tagged!", 0xABCDEF)
    protocols = with_opcodes(OPCODES)
    with known_headers(TagETH):
        wanted = Filter("rdmawire.tageth.tag == 0xabcdef && infiniband.bth.psn == 100")
        other = Filter("rdmawire.tageth.scope > 0")
        selection = Selection(["rdmawire.tageth.tag"])
        editor = Editor([text.assignment("tageth.scope=9")], protocols=protocols)
    dissector = Dissector(protocols=protocols)
    before, after = scene.frames[0], editor.edit(scene.frames[0])
    shown, edited = dissector.dissect(before), dissector.dissect(after)
    assert (wanted(shown), other(shown), wanted(edited), other(edited)) == (True, False, True, True)
    assert selection.values(shown) == [["0xabcdef"]]
    assert edited.header(TagETH) == TagETH(0xABCDEF, 9)
    assert not edited.bad_checks
    with pytest.raises(FilterError, match=r"no field is named 'rdmawire.tageth.tag'"):
        Filter("rdmawire.tageth.tag == 1")
    with pytest.raises(EditError, match=r"no field is named 'tageth.scope'"):
        text.assignment("tageth.scope=9")


def test_columns_have_its_fields(tmp_path: Path) -> None:
    scene, path = Scene(), tmp_path / "tagged.pcap"
    with scene.pair.captured(path):
        for tag in (5, 0xABCDEF):
            scene.send(b"tagged!", tag, scope=0)
    names = ["infiniband.bth.psn", "rdmawire.tageth.tag"]
    with known_headers(TagETH):
        columns = read_columns(
            path, names, protocols=with_opcodes(OPCODES), where="rdmawire.tageth.scope == 0"
        )
        without = read_columns(path, names)
    assert columns[names[0]].values.tolist() == [100, 101]
    assert columns[names[1]].values.tolist() == [5, 0xABCDEF]
    assert not without[names[1]].valid.any()
    with pytest.raises(FieldError, match=r"no field is named 'rdmawire.tageth.tag'"):
        read_columns(path, names)


def test_an_opcode_of_the_standard_may_have_other_headers_in_one_table(tmp_path: Path) -> None:
    opcode, path = Opcode.RC_SEND_ONLY, tmp_path / "tagged.pcap"
    opcodes = LAYOUTS.with_opcode(opcode, "RC_SEND_ONLY_TAGGED", TagETH)
    rules = replace(rules_with(Tags()), opcodes=opcodes).with_request(
        QPType.RC, opcode, STANDARD.requests[QPType.RC][opcode]
    )
    verb = Verb(WCOpcode.SEND, only=opcode, one_packet=True, takes_receive=True)
    pair = Pair(rules=with_work(rules, QPType.RC, SendOpcode.SEND, verb))
    frames: list[bytes] = []
    pair.simulator.on_sent.append(lambda frame, _: frames.append(frame.data))
    with pair.captured(path):
        pair.server.receive(8)
        pair.client.post(SendWR(SendOpcode.SEND, imm_data=5))
        pair.drive()
    protocols = with_opcodes(opcodes)
    with known_headers(TagETH):
        columns = read_columns(path, ["tageth.tag"], protocols=protocols)
        editor = Editor([text.assignment("tageth.tag+=100")], protocols=protocols)
        fields = Fields(frames[0], protocols=protocols)
        assert (fields.get("tageth.tag"), Fields(frames[0]).get("tageth.tag")) == (5, None)
    assert columns["tageth.tag"].values.tolist() == [5, 0]
    edited = Dissector(protocols=protocols).dissect(editor.edit(frames[0]))
    assert "RC_SEND_ONLY_TAGGED" in str(edited)
    assert edited.header(TagETH) == TagETH(105)
    assert not edited.bad_checks


def test_nothing_is_left_behind() -> None:
    assert SEND_TAGGED not in LAYOUTS
    assert SEND_TAGGED not in STANDARD.requests[QPType.RC]
    assert TagETH not in STANDARD.headers
    assert TagETH not in tables()
    assert OPCODES.name(SEND_TAGGED) == "RC_SEND_TAGGED"
    assert LAYOUTS.name(SEND_TAGGED) == "RESERVED"
    assert LAYOUTS.name(Opcode.RC_SEND_ONLY) == "RC_SEND_ONLY"
