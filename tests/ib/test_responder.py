"""What is wrong with a request, and what follows at both ends. IBA 9.7.4, 9.7.5.2, 9.9.3."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from rdmawire.fabric.host import Buffer
from rdmawire.fabric.pair import Pair
from rdmawire.ib.service import Fault
from rdmawire.memory.key import Access
from rdmawire.verbs.async_event import AccessViolation, Event, InvalidRequest
from rdmawire.verbs.enums import QPState, WCStatus
from rdmawire.verbs.profile import IBTA, RXE, Profile
from rdmawire.verbs.wr import LONGEST_MESSAGE, RecvWR, SendOpcode, SendWR, Sge
from rdmawire.wire.header import Header
from rdmawire.wire.ib import AETH, FETH, IETH, RETH, Ack, AtomicETH, ImmDt, Nak
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from tests.ib.stage import (
    PATIENT,
    Stage,
    climb,
    events,
    key_of,
    nak_of,
    only,
    outcomes,
    statuses,
    to_remote,
)

MTU = 1024
FULL = bytes(MTU)
LOCAL = Access.LOCAL_WRITE


class Offence(NamedTuple):
    """Forged requests, the last of which breaks a rule, and the NAK for it."""

    nak: Nak
    requests: Callable[[Buffer], tuple[tuple[Opcode, tuple[Header, ...], bytes], ...]]
    event: type[Event] | None = InvalidRequest


def _once(
    opcode: Opcode, header: Callable[[Buffer], tuple[Header, ...]], payload: bytes = b""
) -> Callable[[Buffer], tuple[tuple[Opcode, tuple[Header, ...], bytes], ...]]:
    return lambda there: ((opcode, header(there), payload),)


OFFENCES = {
    "a middle packet of no message": Offence(
        Nak.INVALID_REQUEST, _once(Opcode.RC_SEND_MIDDLE, lambda _: (), FULL)
    ),
    "a last packet of no message": Offence(
        Nak.INVALID_REQUEST, _once(Opcode.RC_RDMA_WRITE_LAST, lambda _: (), b"x")
    ),
    "another message within a message": Offence(
        Nak.INVALID_REQUEST,
        lambda there: (
            (Opcode.RC_RDMA_WRITE_FIRST, (key_of(there, 3 * MTU),), FULL),
            (Opcode.RC_RDMA_READ_REQUEST, (key_of(there, 8),), b""),
        ),
    ),
    "a message that goes on as another one": Offence(
        Nak.INVALID_REQUEST,
        lambda there: (
            (Opcode.RC_RDMA_WRITE_FIRST, (key_of(there, 3 * MTU),), FULL),
            (Opcode.RC_SEND_MIDDLE, (), FULL),
        ),
    ),
    "a first packet that is not full": Offence(
        Nak.INVALID_REQUEST,
        lambda there: ((Opcode.RC_RDMA_WRITE_FIRST, (key_of(there, 3 * MTU),), FULL[:-4]),),
    ),
    "a middle packet that is not full": Offence(
        Nak.INVALID_REQUEST,
        lambda there: (
            (Opcode.RC_RDMA_WRITE_FIRST, (key_of(there, 3 * MTU),), FULL),
            (Opcode.RC_RDMA_WRITE_MIDDLE, (), FULL[:-4]),
        ),
    ),
    "an only packet beyond the path MTU": Offence(
        Nak.INVALID_REQUEST,
        lambda there: ((Opcode.RC_RDMA_WRITE_ONLY, (key_of(there, MTU + 4),), FULL + b"more"),),
    ),
    "an empty last packet": Offence(
        Nak.INVALID_REQUEST,
        lambda there: (
            (Opcode.RC_RDMA_WRITE_FIRST, (key_of(there, MTU + 4),), FULL),
            (Opcode.RC_RDMA_WRITE_LAST, (), b""),
        ),
    ),
    "more bytes than RETH.dmalen": Offence(
        Nak.INVALID_REQUEST,
        lambda there: (
            (Opcode.RC_RDMA_WRITE_FIRST, (key_of(there, MTU + 4),), FULL),
            (Opcode.RC_RDMA_WRITE_LAST, (), b"12345678"),
        ),
    ),
    "fewer bytes than RETH.dmalen": Offence(
        Nak.INVALID_REQUEST,
        lambda there: (
            (Opcode.RC_RDMA_WRITE_FIRST, (key_of(there, MTU + 8),), FULL),
            (Opcode.RC_RDMA_WRITE_LAST, (), b"1234"),
        ),
    ),
    "an only packet of another length than RETH.dmalen": Offence(
        Nak.INVALID_REQUEST,
        _once(Opcode.RC_RDMA_WRITE_ONLY, lambda there: (key_of(there, 8),), b"1234"),
    ),
    "a WRITE of more than 2**31 bytes": Offence(
        Nak.INVALID_REQUEST,
        _once(
            Opcode.RC_RDMA_WRITE_FIRST, lambda there: (key_of(there, LONGEST_MESSAGE + 1),), FULL
        ),
    ),
    "a READ of more than 2**31 bytes": Offence(
        Nak.INVALID_REQUEST,
        _once(Opcode.RC_RDMA_READ_REQUEST, lambda there: (key_of(there, LONGEST_MESSAGE + 1),)),
    ),
    "an atomic at no multiple of eight": Offence(
        Nak.INVALID_REQUEST,
        _once(Opcode.RC_FETCH_ADD, lambda there: (AtomicETH(there.address + 4, there.rkey, 1, 0),)),
    ),
    "an ATOMIC WRITE at no multiple of eight": Offence(
        Nak.INVALID_REQUEST,
        _once(
            Opcode.RC_ATOMIC_WRITE,
            lambda there: (RETH(there.address + 4, there.rkey, 8),),
            b"8 octets",
        ),
    ),
    "a FLUSH to nowhere": Offence(
        Nak.INVALID_REQUEST,
        _once(Opcode.RC_FLUSH, lambda there: (FETH(plt=0), key_of(there, 8))),
    ),
    "no such key": Offence(
        Nak.REMOTE_ACCESS_ERROR,
        _once(Opcode.RC_RDMA_WRITE_ONLY, lambda there: (RETH(there.address, 0xBAD, 4),), b"1234"),
        AccessViolation,
    ),
    "bytes before the region": Offence(
        Nak.REMOTE_ACCESS_ERROR,
        _once(
            Opcode.RC_RDMA_WRITE_ONLY,
            lambda there: (RETH(there.address - 1, there.rkey, 4),),
            b"1234",
        ),
        AccessViolation,
    ),
    "bytes behind the region": Offence(
        Nak.REMOTE_ACCESS_ERROR,
        _once(
            Opcode.RC_RDMA_READ_REQUEST,
            lambda there: (RETH(there.address + 65536 - 3, there.rkey, 4),),
        ),
        AccessViolation,
    ),
    "an address that wraps": Offence(
        Nak.REMOTE_ACCESS_ERROR,
        _once(Opcode.RC_RDMA_READ_REQUEST, lambda there: (RETH(2**64 - 4, there.rkey, 8),)),
        AccessViolation,
    ),
    "an atomic behind the region": Offence(
        Nak.REMOTE_ACCESS_ERROR,
        _once(
            Opcode.RC_CMP_SWAP, lambda there: (AtomicETH(there.address + 65536, there.rkey, 1, 0),)
        ),
        AccessViolation,
    ),
}


@pytest.mark.parametrize("name", OFFENCES)
def test_offences_of_reliable_connections(name: str) -> None:
    """The offence is answered with its NAK, the connection ends, and memory is as it was."""
    nak, requests, event = OFFENCES[name]
    stage = Stage(Pair(attributes=PATIENT))
    server = stage.server
    server.receive(8)
    steps = requests(server.region)
    for index, (opcode, headers, payload) in enumerate(steps):
        stage.request(opcode, *headers, payload=payload, psn=100 + index)
    stage.drive()
    assert nak_of(stage) == (nak, 100 + len(steps) - 1)
    assert server.qp.state is QPState.ERR
    assert outcomes(server) == [(1, WCStatus.WR_FLUSH_ERR)]
    assert [type(told) for told in events(server)] == [event]
    assert server.region.read() == bytes(65536)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("an atomic at no multiple of eight", Fault.MISALIGNED),
        ("a READ of more than 2**31 bytes", Fault.LENGTH),
        ("a FLUSH to nowhere", Fault.OP_VALID),
    ],
)
def test_the_event_has_the_request_and_its_fault(name: str, fault: Fault) -> None:
    stage = Stage(Pair(attributes=PATIENT))
    for opcode, headers, payload in OFFENCES[name].requests(stage.server.region):
        stage.request(opcode, *headers, payload=payload, psn=100)
    (told,) = events(stage.server)
    assert isinstance(told, InvalidRequest)
    assert (told.psn, told.fault) == (100, fault)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no such key", "INVALID_KEY: key 0x00000bad, REMOTE_WRITE of 4 bytes at {0:#x}"),
        ("bytes before the region", "OUT_OF_RANGE: key {1:#010x}, REMOTE_WRITE of 4 bytes at "),
        ("an address that wraps", "REMOTE_READ of 8 bytes at 0xfffffffffffffffc"),
        ("an atomic behind the region", "REMOTE_ATOMIC of 8 bytes at "),
    ],
)
def test_the_event_has_the_access_that_the_key_did_not_allow(name: str, said: str) -> None:
    stage = Stage(Pair(attributes=PATIENT))
    there = stage.server.region
    for opcode, headers, payload in OFFENCES[name].requests(there):
        stage.request(opcode, *headers, payload=payload, psn=100)
    (told,) = events(stage.server)
    assert isinstance(told, AccessViolation)
    assert told.psn == 100
    assert said.format(there.address, there.rkey) in str(told.denied)


@pytest.mark.parametrize(
    ("nak", "status"),
    [
        (Nak.INVALID_REQUEST, WCStatus.REM_INV_REQ_ERR),
        (Nak.REMOTE_ACCESS_ERROR, WCStatus.REM_ACCESS_ERR),
        (Nak.REMOTE_OPERATIONAL_ERROR, WCStatus.REM_OP_ERR),
        (Nak.INVALID_RD_REQUEST, WCStatus.REM_INV_RD_REQ_ERR),
        (17, WCStatus.BAD_RESP_ERR),
    ],
)
def test_each_nak_ends_the_work_it_names_and_flushes_what_is_behind(
    nak: int, status: WCStatus
) -> None:
    stage = Stage(Pair(attributes=PATIENT))
    for _ in range(3):
        stage.client.write(b"hello", to=stage.server.region)
    waiting = stage.client.receive(5)
    stage.client.nic.transmit(0)
    aeth = AETH(ack=Ack.NAK, value=nak, msn=1)
    stage.deliver(Packet.make(Opcode.RC_ACKNOWLEDGE, aeth, psn=101), by=stage.server)
    assert outcomes(stage.client) == [
        (1, WCStatus.SUCCESS),
        (2, status),
        (3, WCStatus.WR_FLUSH_ERR),
        (waiting.wr_id, WCStatus.WR_FLUSH_ERR),
    ]
    assert stage.client.qp.state is QPState.ERR


def test_more_reads_than_agreed_upon_are_refused() -> None:
    stage = Stage(Pair(attributes=PATIENT._replace(max_dest_rd_atomic=2)))
    for psn in (100, 101, 102):
        stage.request(Opcode.RC_RDMA_READ_REQUEST, key_of(stage.server.region, 8), psn=psn)
    stage.drive()
    assert nak_of(stage) == (Nak.INVALID_REQUEST, 102)
    assert stage.server.qp.state is QPState.ERR


@pytest.mark.parametrize(("agreed", "answered"), [(2, 5), (0, 0)])
def test_soft_roce_answers_more_reads_than_agreed_upon_unless_none_were(
    agreed: int, answered: int
) -> None:
    there = PATIENT._replace(max_dest_rd_atomic=agreed)
    stage = Stage(Pair(attributes=there, profile=RXE))
    for psn in (*range(100, 105), 100):
        stage.request(Opcode.RC_RDMA_READ_REQUEST, key_of(stage.server.region, 8), psn=psn)
    stage.drive()
    assert stage.opcodes(stage.server).count(Opcode.RC_RDMA_READ_RESPONSE_ONLY) == answered
    assert (stage.server.qp.state is QPState.ERR) is (not agreed)


@pytest.mark.parametrize("profile", [IBTA, RXE])
def test_so_many_reads_are_not_answered_by_anyone(profile: Profile) -> None:
    stage = Stage(Pair(attributes=PATIENT, profile=profile))
    for psn in range(100, 2000):
        stage.request(Opcode.RC_RDMA_READ_REQUEST, key_of(stage.server.region, 8), psn=psn)
    assert len(stage.server.qp.inbound.pending) <= 4 + 512 + 1
    assert stage.server.qp.state is QPState.ERR


@pytest.mark.parametrize(
    ("profile", "nak", "sender", "receiver"),
    [
        (IBTA, Nak.INVALID_REQUEST, WCStatus.REM_INV_REQ_ERR, WCStatus.LOC_LEN_ERR),
        (RXE, Nak.REMOTE_OPERATIONAL_ERROR, WCStatus.REM_OP_ERR, WCStatus.LOC_QP_OP_ERR),
    ],
)
@pytest.mark.parametrize("length", [9, 2000])
def test_a_message_longer_than_its_receive(
    profile: Profile, nak: Nak, sender: WCStatus, receiver: WCStatus, length: int
) -> None:
    stage = Stage(Pair(attributes=PATIENT, profile=profile))
    stage.server.receive(8)
    stage.server.receive(8)
    stage.client.send(bytes(length))
    stage.drive()
    assert nak_of(stage)[0] == nak
    assert statuses(stage.client) == [sender]
    assert outcomes(stage.server) == [(1, receiver), (2, WCStatus.WR_FLUSH_ERR)]
    assert stage.server.qp.state is stage.client.qp.state is QPState.ERR
    assert events(stage.server) == []


@pytest.mark.parametrize("length", [4, 2000])
def test_a_receive_whose_memory_is_not_the_adapters(length: int) -> None:
    for readable in (False, True):
        stage = Stage(Pair(attributes=PATIENT))
        sge = stage.server.buffer(4096, access=0).sge() if readable else Sge(1, 5000, 0xBAD)
        stage.server.nic.post_recv(stage.server.qp, (RecvWR((sge,), 7),))
        stage.client.send(bytes(length))
        stage.drive()
        assert nak_of(stage) == (Nak.REMOTE_OPERATIONAL_ERROR, 100)
        assert statuses(stage.client) == [WCStatus.REM_OP_ERR]
        assert outcomes(stage.server) == [(7, WCStatus.LOC_PROT_ERR)]


def test_a_refused_message_ends_the_receive_it_took() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    stage.server.receive(4 * MTU)
    stage.server.receive()
    stage.request(Opcode.RC_SEND_FIRST, payload=FULL, psn=100)
    stage.request(Opcode.RC_SEND_LAST, payload=b"", psn=101)
    stage.drive()
    assert outcomes(stage.server) == [(1, WCStatus.REM_INV_REQ_ERR), (2, WCStatus.WR_FLUSH_ERR)]
    assert events(stage.server) == []


def test_the_msn_of_a_nak_counts_the_messages_that_were_executed() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    stage.client.write(b"one", to=stage.server.region)
    stage.client.fetch_add(1, of=stage.server.region)
    stage.client.post(to_remote(SendOpcode.RDMA_WRITE, stage.server.region), stage.client.region)
    bad = SendWR(SendOpcode.RDMA_READ, (stage.client.region.sge(8),), rkey=0xBAD)
    stage.client.post(bad, stage.client.region)
    stage.drive()
    assert [aeth.msn for aeth in stage.aeths(stage.server)][-1] == 3
    assert statuses(stage.client) == [WCStatus.SUCCESS] * 3 + [WCStatus.REM_ACCESS_ERR]


def test_an_immediate_comes_with_its_completion() -> None:
    stage = Stage()
    stage.server.receive(4)
    stage.request(Opcode.RC_SEND_ONLY_WITH_IMMEDIATE, ImmDt(0xDEADBEEF), payload=b"1234", psn=100)
    done = only(stage.server)
    assert (done.imm_data, done.wc_flags, done.byte_len) == (0xDEADBEEF, 2, 4)
    assert done.src_qp == stage.client.qp.qp_num


def test_a_queue_pair_in_rtr_answers_but_does_not_send() -> None:
    stage = Stage()
    climb(stage.server, QPState.RTR)
    read = stage.client.read(3000, of=stage.server.region)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS]
    assert read.buffer.read() == bytes(3000)


@pytest.mark.parametrize("profile", [IBTA, RXE])
def test_a_gap_is_answered_with_one_nak_however_much_comes_behind_it(profile: Profile) -> None:
    stage = Stage(Pair(attributes=PATIENT, profile=profile))
    for psn in (101, 102, 103):
        stage.request(Opcode.RC_SEND_ONLY, payload=b"late", psn=psn)
        stage.drive()
    assert nak_of(stage) == (Nak.PSN_SEQUENCE_ERROR, 100)


@pytest.mark.parametrize(
    ("profile", "naks"), [(IBTA, [Ack.RNR_NAK]), (RXE, [Ack.RNR_NAK, Ack.NAK])]
)
def test_what_comes_behind_a_packet_that_is_to_wait(profile: Profile, naks: list[Ack]) -> None:
    """Linux answers it with a NAK of its own, once; the standard with nothing."""
    stage = Stage(Pair(attributes=PATIENT, profile=profile))
    for psn in (100, 101, 102):
        stage.request(Opcode.RC_SEND_ONLY, payload=b"hello", psn=psn)
        stage.drive()
    assert [aeth.ack for aeth in stage.aeths(stage.server)] == naks


def test_an_ack_that_is_due_goes_before_that_of_a_key_that_is_not_to_be_taken_back() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    stage.server.receive(8)
    write = key_of(stage.server.region, 4)
    stage.request(Opcode.RC_RDMA_WRITE_ONLY, write, payload=b"1234", psn=100, ackreq=1)
    stage.request(Opcode.RC_SEND_ONLY_WITH_INVALIDATE, IETH(0xBAD), payload=b"1234", psn=101)
    stage.drive()
    assert stage.psns(stage.server) == [100, 101]
    assert {aeth.ack for aeth in stage.aeths(stage.server)} == {Ack.ACK}


@pytest.mark.parametrize("length", [LONGEST_MESSAGE, LONGEST_MESSAGE + 1])
@pytest.mark.parametrize(
    ("opcode", "payload"), [(Opcode.RC_RDMA_READ_REQUEST, b""), (Opcode.RC_RDMA_WRITE_FIRST, FULL)]
)
def test_a_message_of_just_2_31_bytes_is_refused_by_its_key_alone(
    opcode: Opcode, payload: bytes, length: int
) -> None:
    stage = Stage(Pair(attributes=PATIENT))
    stage.request(
        opcode, RETH(stage.server.region.address, 0xBAD, length), payload=payload, psn=100
    )
    stage.drive()
    fits = length == LONGEST_MESSAGE
    assert nak_of(stage) == (Nak.REMOTE_ACCESS_ERROR if fits else Nak.INVALID_REQUEST, 100)
