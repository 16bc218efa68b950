"""Rules are values: a copy with one row replaced changes one adapter, and no other."""

from copy import deepcopy
from dataclasses import replace
from inspect import signature

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.pair import Pair
from rdmawire.ib import checks
from rdmawire.ib.admission import other_partition
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.responder_state import Answer, AtomicResponse
from rdmawire.ib.retransmit import fail
from rdmawire.ib.rules import RequestRule, Rules
from rdmawire.ib.rx_parser import Arrival, other_tver
from rdmawire.ib.send_queue import Wqe
from rdmawire.ib.service import Fault, Reaction
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.memory.key import Access
from rdmawire.verbs.enums import QPType, WCStatus
from rdmawire.verbs.qp_attr import QPAttrMask
from rdmawire.verbs.wr import SendOpcode, SendWR
from rdmawire.wire import roce
from rdmawire.wire.header import Header
from rdmawire.wire.ib import AETH, RETH, Ack, AtomicAckETH, Nak
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from tests.ib.stage import Stage, nak_of, outcomes


class Calls:
    """A step that counts its calls and does what the standard's step does."""

    def __init__(self) -> None:
        self.by: list[QueuePair] = []

    def check_rkey(self, qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
        self.by.append(qp)
        return checks.check_rkey(qp, role, request)


def written(pair: Pair, data: bytes = b"data") -> WCStatus:
    """The status of a WRITE from the client to the server."""
    pair.client.write(data, to=pair.server.region)
    pair.drive()
    (done,) = pair.client.poll()
    return done.status


def test_a_step_is_replaced_in_one_adapter_alone() -> None:
    calls = Calls()
    rules = STANDARD.with_step(checks.check_rkey, calls.check_rkey)
    pair = Pair(peer_rules=rules)
    assert written(pair) is WCStatus.SUCCESS
    assert calls.by == [pair.server.qp]
    pair.server.write(b"back", to=pair.client.region)
    pair.drive()
    assert written(Pair()) is WCStatus.SUCCESS
    assert calls.by == [pair.server.qp]


def test_an_adapter_without_a_check_is_a_planted_bug() -> None:
    def skip(_: QueuePair, __: RequestRule, ___: Arrival) -> Fault | None:
        return None

    def refused(rules: Rules) -> Pair:
        pair = Pair(peer_rules=rules)
        qp = pair.server.qp
        none = qp.attributes._replace(qp_access_flags=Access(0))
        pair.server.nic.modify_qp(qp, none, QPAttrMask.ACCESS_FLAGS)
        return pair

    assert written(refused(STANDARD)) is WCStatus.REM_INV_REQ_ERR
    assert written(refused(STANDARD.with_step(checks.check_op_valid, skip))) is WCStatus.SUCCESS


def test_a_reaction_is_replaced_for_one_type_of_queue_pair() -> None:
    quirk = Reaction(nak=Nak.REMOTE_OPERATIONAL_ERROR, fatal=True)
    rules = STANDARD.with_reaction(QPType.RC, Fault.RKEY, quirk)
    assert rules.services[QPType.UC] is STANDARD.services[QPType.UC]
    for each, code in ((rules, quirk.nak), (STANDARD, Nak.REMOTE_ACCESS_ERROR)):
        stage = Stage(Pair(peer_rules=each))
        stage.client.write(b"data", to=stage.server.region, offset=1 << 30)
        stage.drive()
        assert nak_of(stage)[0] == code


def test_a_nak_may_have_a_code_that_the_standard_reserves() -> None:
    code = 9
    ends = {code: WCStatus.REM_ABORT_ERR}

    def refused(qp: QueuePair, value: int) -> None:
        wqe = qp.sq.oldest()
        assert wqe is not None
        fail(qp, wqe, ends[value])

    odd = STANDARD.with_reaction(QPType.RC, Fault.RKEY, Reaction(nak=code, fatal=True))
    knowing = replace(STANDARD, refusals={**STANDARD.refusals, Ack.NAK: refused})
    for rules, status in ((knowing, ends[code]), (STANDARD, WCStatus.BAD_RESP_ERR)):
        stage = Stage(Pair(rules=rules, peer_rules=odd))
        stage.client.write(b"data", to=stage.server.region, offset=1 << 30)
        stage.drive()
        assert nak_of(stage)[0] == code
        assert [done.status for done in stage.client.poll()] == [status]


def test_a_header_maker_is_replaced_in_one_adapter_alone() -> None:
    def swapped(_: QueuePair, wqe: Wqe) -> Header:
        return RETH(wqe.wr.rkey, wqe.wr.remote_address % (1 << 32), wqe.length)

    row = replace(STANDARD.headers[RETH], make=swapped)
    pair = Pair(rules=STANDARD.with_header(RETH, row), peer_rules=STANDARD)
    assert written(pair) is WCStatus.REM_ACCESS_ERR
    assert written(Pair()) is WCStatus.SUCCESS


def test_the_header_of_an_ack_is_replaced_in_one_adapter_alone() -> None:
    row = STANDARD.headers[AETH]

    def wrong_msn(qp: QueuePair, answer: Answer) -> Header:
        """Every third message is acknowledged with the MSN of the next one."""
        aeth = row.make(qp, answer)
        return aeth.replace(msn=answer.msn + 1) if answer.msn % 3 == 0 else aeth

    def msns(rules: Rules) -> list[int]:
        pair = Pair(peer_rules=rules)
        sent: list[bytes] = []
        pair.simulator.on_sent.append(lambda frame, _: sent.append(frame.data))
        assert [written(pair) for _ in range(7)] == [WCStatus.SUCCESS] * 7
        packets = [roce.parse(frame).packet for frame in sent]
        return [aeth.msn for packet in packets if (aeth := packet.header(AETH))]

    quirk = STANDARD.with_header(AETH, replace(row, make=wrong_msn))
    assert msns(quirk) == [1, 2, 4, 4, 5, 7, 7]
    assert msns(STANDARD) == [1, 2, 3, 4, 5, 6, 7]


def test_headers_of_read_and_atomic_responses_are_rows_too() -> None:
    def odd(_: QueuePair, answer: AtomicResponse) -> Header:
        return AtomicAckETH(answer.original + 1)

    row = replace(STANDARD.headers[AtomicAckETH], make=odd)
    for rules, value in ((STANDARD.with_header(AtomicAckETH, row), 6), (STANDARD, 5)):
        pair = Pair(peer_rules=rules)
        pair.server.region.write((5).to_bytes(8, "little"))
        done = pair.client.fetch_add(1, of=pair.server.region)
        pair.drive()
        assert int.from_bytes(done.buffer.read(), "little") == value

    def refuse(_: QueuePair, answer: Answer) -> Header:
        return AETH(ack=Ack.NAK, value=Nak.REMOTE_OPERATIONAL_ERROR, msn=answer.msn)

    row = replace(STANDARD.headers[AETH], make=refuse)
    pair = Pair(peer_rules=STANDARD.with_header(AETH, row))
    assert written(pair) is WCStatus.REM_OP_ERR


def test_rules_are_shown_in_a_line() -> None:
    assert repr(STANDARD) == "<Rules: 13 types of work, 52 request opcodes>"
    assert len(str(signature(Pair))) < 5000


def test_a_request_is_taken_by_another_role() -> None:
    standard = STANDARD.requests[QPType.RC]
    write, read = Opcode.RC_RDMA_WRITE_ONLY, Opcode.RC_RDMA_READ_REQUEST
    deaf = replace(standard[write], steps=(checks.check_psn_and_op_seq, lambda *_: Fault.OP_VALID))
    rules = STANDARD.with_request(QPType.RC, write, deaf)
    assert rules.requests[QPType.RC][read] is standard[read]
    assert written(Pair(peer_rules=rules)) is WCStatus.REM_INV_REQ_ERR
    assert written(Pair()) is WCStatus.SUCCESS


def test_posting_checks_are_those_of_the_adapter() -> None:
    sends = {**STANDARD.post_checks[QPType.RC], SendOpcode.RDMA_WRITE: ()}
    rules = replace(STANDARD, post_checks={**STANDARD.post_checks, QPType.RC: sends})
    wr = SendWR(SendOpcode.RDMA_WRITE, rkey=1 << 32)
    lax, strict = Pair(rules=rules), Pair()
    lax.client.nic.post_send(lax.client.qp, (wr,))
    with pytest.raises(VerbsError, match="rkey 4294967296 does not fit 32 bits"):
        strict.client.nic.post_send(strict.client.qp, (wr,))


def test_a_step_that_no_request_has_is_refused() -> None:
    with pytest.raises(ValueError, match="no request has the step check_rkey"):
        STANDARD.with_step(Calls().check_rkey, checks.check_rkey)


def test_copies_of_an_adapter_share_its_rules() -> None:
    pair = Pair()
    assert deepcopy(pair).server.nic.device.rules is STANDARD


def test_checks_of_frames_and_packets_are_rows() -> None:
    """The server accepts a packet of another transport version, or of another partition."""

    def accepts(*_: object) -> bool:
        return False

    quirks = {
        "tver": STANDARD.with_frame_check(other_tver, accepts),
        "pkey": STANDARD.with_packet_check(other_partition, accepts),
    }
    values = {"tver": 1, "pkey": 0x8001}
    for field, rules in quirks.items():
        for each in (rules, STANDARD):
            stage = Stage(Pair(peer_rules=each))
            plain = Packet.make(Opcode.RC_SEND_ONLY, psn=100)
            wrong = plain.replace(bth=plain.bth.replace(**{field: values[field]}))
            stage.server.receive(4)
            stage.server.nic.receive(stage.forge(wrong), 0)
            assert len(outcomes(stage.server)) == (each is rules)


def test_a_check_that_is_no_row_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no check other_partition"):
        STANDARD.with_frame_check(other_partition, other_tver)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="there is no check other_tver"):
        STANDARD.with_packet_check(other_tver, other_partition)  # type: ignore[arg-type]
