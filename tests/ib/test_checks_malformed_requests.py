"""Reserved opcodes, and payloads that the operation does not have. IBA 9.7.4.1.4, 9.7.4.1.6."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.fabric.pair import Pair
from rdmawire.ib.rx_parser import Drop
from rdmawire.ib.service import Fault
from rdmawire.verbs.async_event import InvalidRequest
from rdmawire.verbs.enums import QPState, QPType, WCStatus
from rdmawire.verbs.profile import IBTA, RXE, Profile
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH, FETH, Ack, AtomicETH, Nak
from rdmawire.wire.opcode import SHAPES, Opcode, Service
from rdmawire.wire.packet import Packet
from tests.effort import examples
from tests.ib.stage import PATIENT, Stage, events, key_of, nak_of, outcomes

RESERVED = [opcode for opcode in range(Service.RC << 5, 1 << 5) if opcode not in SHAPES]


def stage_of(profile: Profile = IBTA) -> Stage:
    return Stage(Pair(attributes=PATIENT, profile=profile))


def ask(
    stage: Stage, opcode: int, *more: Header, payload: bytes = b"", padcnt: int = 0, psn: int = 100
) -> None:
    """Hand the server a request of any build."""
    bth = BTH(opcode=opcode, psn=psn, padcnt=padcnt, destqp=stage.server.qp.qp_num, ackreq=1)
    good = stage.frame_of(Packet.make(Opcode.RC_SEND_ONLY))
    packet = Packet(bth.replace(pkey=0xFFFF), more, payload, bytes(padcnt))
    stage.server.nic.receive(good._replace(packet=packet).seal().build(), stage.now)
    stage.drive()


def _read(stage: Stage) -> tuple[Header, ...]:
    return (key_of(stage.server.region, 8),)


def _atomic(stage: Stage) -> tuple[Header, ...]:
    there = stage.server.region
    return (AtomicETH(there.address, there.rkey, 1, 0),)


def _flush(stage: Stage) -> tuple[Header, ...]:
    return (FETH(plt=1), key_of(stage.server.region, 8))


WITH_PAYLOAD = {
    "READ": (Opcode.RC_RDMA_READ_REQUEST, _read, bytes(4), 0),
    "READ with pad": (Opcode.RC_RDMA_READ_REQUEST, _read, bytes(3), 1),
    "CMP_SWAP": (Opcode.RC_CMP_SWAP, _atomic, bytes(8), 0),
    "FETCH_ADD": (Opcode.RC_FETCH_ADD, _atomic, bytes(1024), 0),
    "FLUSH": (Opcode.RC_FLUSH, _flush, bytes(4), 0),
    "ATOMIC WRITE of four bytes": (Opcode.RC_ATOMIC_WRITE, _read, bytes(4), 0),
    "ATOMIC WRITE of none": (Opcode.RC_ATOMIC_WRITE, _read, b"", 0),
}


@pytest.mark.parametrize("opcode", RESERVED, ids=hex)
def test_a_reserved_opcode_is_answered_with_a_nak(opcode: int) -> None:
    stage = stage_of()
    ask(stage, opcode, payload=bytes(16))
    assert nak_of(stage) == (Nak.INVALID_REQUEST, 100)
    assert stage.server.qp.state is QPState.ERR
    assert events(stage.server) == [InvalidRequest(stage.server.qp.qp_num, 100, Fault.OP_VALID)]


@pytest.mark.parametrize("name", WITH_PAYLOAD)
def test_a_payload_where_none_belongs_is_answered_with_a_nak(name: str) -> None:
    opcode, headers, payload, padcnt = WITH_PAYLOAD[name]
    stage = stage_of()
    ask(stage, opcode, *headers(stage), payload=payload, padcnt=padcnt)
    assert nak_of(stage) == (Nak.INVALID_REQUEST, 100)
    assert stage.server.qp.state is QPState.ERR
    assert events(stage.server) == [InvalidRequest(stage.server.qp.qp_num, 100, Fault.LENGTH)]
    assert stage.server.region.read(8) == bytes(8)


def test_the_event_has_the_reason_opcode_or_length() -> None:
    for opcode, headers, fault in (
        (RESERVED[0], lambda _: (), Fault.OP_VALID),
        (Opcode.RC_RDMA_READ_REQUEST, _read, Fault.LENGTH),
    ):
        stage = stage_of()
        ask(stage, opcode, *headers(stage), payload=bytes(4))
        (told,) = events(stage.server)
        assert isinstance(told, InvalidRequest)
        assert told.fault is fault


def test_the_peer_learns_of_it() -> None:
    stage = stage_of()
    stage.client.write(b"12345678", to=stage.server.region)
    stage.client.nic.transmit(0)  # lost; its place is taken
    ask(stage, RESERVED[0])
    assert outcomes(stage.client) == [(1, WCStatus.REM_INV_REQ_ERR)]


@pytest.mark.parametrize("name", WITH_PAYLOAD)
def test_soft_roce_is_silent(name: str) -> None:
    opcode, headers, payload, padcnt = WITH_PAYLOAD[name]
    # A FLUSH comes with the standard's ICRC, so that its payload alone is wrong.
    stage = stage_of(replace(RXE, flush_icrc_covers_headers_twice=False))
    ask(stage, opcode, *headers(stage), payload=payload, padcnt=padcnt)
    ask(stage, RESERVED[-1], payload=bytes(16))
    assert stage.sent == []
    assert stage.server.nic.drops == {Drop.MALFORMED: 2}
    assert stage.server.qp.state is QPState.RTS


def test_behind_a_gap_it_is_a_gap() -> None:
    stage = stage_of()
    ask(stage, RESERVED[0], psn=101)
    assert nak_of(stage) == (Nak.PSN_SEQUENCE_ERROR, 100)
    assert stage.server.qp.state is QPState.RTS


def test_repeated_it_repeats_nothing() -> None:
    stage = stage_of()
    stage.request(Opcode.RC_RDMA_READ_REQUEST, *_read(stage), psn=100)
    stage.drive()
    stage.sent.clear()
    ask(stage, Opcode.RC_RDMA_READ_REQUEST, *_read(stage), payload=bytes(4), psn=100)
    ask(stage, RESERVED[0], psn=99)
    assert stage.sent == []
    assert stage.server.nic.drops == {Drop.FORGOTTEN: 2}
    assert stage.server.qp.state is QPState.RTS


def test_a_bad_icrc_is_a_bad_icrc() -> None:
    stage = stage_of()
    good = stage.frame_of(Packet.make(Opcode.RC_SEND_ONLY))
    bth = good.packet.bth.replace(opcode=RESERVED[0])
    frame = good._replace(packet=Packet(bth)).seal().build()
    stage.server.nic.receive(frame[:-1] + bytes([frame[-1] ^ 1]), 0)
    assert stage.server.nic.drops == {Drop.ICRC: 1}


@pytest.mark.parametrize(("kind", "reserved"), [(QPType.UC, 0x3F), (QPType.UD, 0x7F)])
def test_what_does_not_acknowledge_drops_it(kind: QPType, reserved: int) -> None:
    stage = Stage(Pair(kind=kind, attributes=PATIENT))
    for opcode in (reserved, RESERVED[0]):
        ask(stage, opcode)
    assert stage.sent == []
    assert sum(stage.server.nic.drops.values()) == 2
    assert stage.server.qp.state is QPState.RTS


@settings(max_examples=examples(150))
@given(
    opcode=st.integers(0, 255),
    words=st.integers(0, 20),
    padcnt=st.integers(0, 3),
    rxe=st.booleans(),
)
def test_any_opcode_with_any_length_is_answered_or_dropped(
    opcode: int, words: int, padcnt: int, rxe: bool
) -> None:
    stage = stage_of(RXE if rxe else IBTA)
    payload = bytes(max(4 * words - padcnt, 0))
    for psn in (101, 100, 99):
        ask(stage, opcode, payload=payload, padcnt=padcnt, psn=psn)
    for sent in stage.sent:
        assert sent.packet.bth.opcode in (Opcode.RC_ACKNOWLEDGE, *_RESPONSES)
    assert all(aeth.ack in (Ack.ACK, Ack.RNR_NAK, Ack.NAK) for aeth in stage.aeths(stage.server))


_RESPONSES = (Opcode.RC_RDMA_READ_RESPONSE_ONLY, Opcode.RC_ATOMIC_ACKNOWLEDGE)
