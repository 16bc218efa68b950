"""What kernels of Linux do otherwise, where the learned machines do not show it; their mistakes."""

from dataclasses import replace

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.host import Registered
from rdmawire.fabric.link import Link
from rdmawire.fabric.pair import Pair
from rdmawire.ib.rx_parser import Drop
from rdmawire.units import us
from rdmawire.verbs.enums import QPState, QPType, WCFlags, WCStatus
from rdmawire.verbs.profile import BUGS_6_1, BUGS_6_12, IBTA, RXE, RXE_6_1, RXE_6_12, Bug, Profile
from rdmawire.verbs.wr import LONGEST_MESSAGE, SendOpcode, SendWR
from rdmawire.wire.header import Header
from rdmawire.wire.ib import AETH, FETH, NO_CREDITS, RETH, Ack, AtomicAckETH, AtomicETH, Nak
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from tests.ib.stage import PATIENT, Stage, climb, go, key_of, nak_of, only, outcomes, statuses

MTU = 1024
READ = Opcode.RC_RDMA_READ_REQUEST
LINUX = [RXE_6_1, RXE_6_12]


def stage_of(profile: Profile, *bugs: Bug) -> Stage:
    return Stage(Pair(attributes=PATIENT, profile=replace(profile, bugs=frozenset(bugs))))


def read(stage: Stage, length: int, psn: int, offset: int = 0) -> None:
    there = stage.server.region
    stage.request(READ, RETH(there.address + offset, there.rkey, length), psn=psn)
    stage.drive()


def atomic(stage: Stage, opcode: Opcode, psn: int) -> None:
    there = stage.server.region
    stage.request(opcode, AtomicETH(there.address, there.rkey, 7, 0), psn=psn)
    stage.drive()


def originals(stage: Stage) -> list[int]:
    found = (sent.packet.header(AtomicAckETH) for sent in stage.by(stage.server))
    return [header.origremdt for header in found if header is not None]


def test_rxe_is_the_newest_kernels() -> None:
    assert replace(RXE, name=RXE_6_12.name) == RXE_6_12


@pytest.mark.parametrize(
    ("profile", "nak"),
    [
        (IBTA, Nak.INVALID_REQUEST),
        (RXE_6_12, Nak.INVALID_REQUEST),
        (RXE_6_1, Nak.REMOTE_ACCESS_ERROR),
    ],
)
@pytest.mark.parametrize(
    ("opcode", "payload"), [(READ, b""), (Opcode.RC_RDMA_WRITE_FIRST, bytes(MTU))]
)
def test_more_than_the_longest_message(
    profile: Profile, nak: Nak, opcode: Opcode, payload: bytes
) -> None:
    stage = stage_of(profile)
    stage.request(
        opcode, key_of(stage.server.region, LONGEST_MESSAGE + 1), payload=payload, psn=100
    )
    stage.drive()
    assert nak_of(stage) == (nak, 100)


def test_linux_6_1_does_not_know_placement() -> None:
    stage = stage_of(RXE_6_1)
    there = key_of(stage.server.region, 8)
    stage.request(Opcode.RC_ATOMIC_WRITE, there, payload=bytes(8), psn=100)
    stage.request(Opcode.RC_FLUSH, FETH(plt=1), there, psn=100)
    stage.drive()
    assert stage.sent == []
    assert stage.server.nic.drops == {Drop.MALFORMED: 2}
    assert stage.server.qp.state is QPState.RTS


@pytest.mark.parametrize("opcode", [SendOpcode.FLUSH, SendOpcode.ATOMIC_WRITE])
def test_linux_6_1_takes_no_such_work(opcode: SendOpcode) -> None:
    for profile in (RXE_6_12, RXE_6_1):
        stage = stage_of(profile)
        there = stage.server.region
        sges = (stage.client.region.sge(8),) if opcode is SendOpcode.ATOMIC_WRITE else ()
        work = SendWR(
            opcode, sges, remote_address=there.address, rkey=there.rkey, placement=1, length=8
        )
        if profile is RXE_6_1:
            with pytest.raises(VerbsError, match=opcode.name):
                stage.client.nic.post_send(stage.client.qp, (work,))
        else:
            stage.client.nic.post_send(stage.client.qp, (work,))


@pytest.mark.parametrize("kind", [QPType.RC, QPType.UC])
@pytest.mark.parametrize("profile", [IBTA, RXE_6_1, RXE_6_12])
def test_linux_sets_the_grh_flag_of_each_receive(profile: Profile, kind: QPType) -> None:
    stage = Stage(Pair(kind=kind, attributes=PATIENT, profile=profile))
    stage.server.receive(8)
    stage.client.send(b"12345678")
    stage.drive()
    assert bool(only(stage.server).wc_flags & WCFlags.GRH) is profile.receives_have_grh


@pytest.mark.parametrize("profile", LINUX)
def test_linux_reads_again_anywhere_in_what_was_read(profile: Profile) -> None:
    stage = stage_of(profile)
    stage.server.region.write(bytes(range(250)) * 10)
    read(stage, 2 * MTU, psn=100)
    stage.sent.clear()
    read(stage, 8, psn=101, offset=16)
    assert [sent.packet.payload for sent in stage.by(stage.server)] == [bytes(range(16, 24))]
    stage.sent.clear()
    read(stage, 8, psn=101, offset=2 * MTU)
    assert stage.sent == []


@pytest.mark.parametrize("profile", LINUX)
@pytest.mark.parametrize("grows", [False, True])
def test_a_read_again_that_grows_takes_the_psn_of_the_next_request(
    profile: Profile, grows: bool
) -> None:
    stage = stage_of(profile, *([Bug.READ_GROWS] if grows else []))
    read(stage, 2 * MTU, psn=100)
    stage.sent.clear()
    read(stage, 2 * MTU, psn=101)
    assert stage.psns(stage.server) == ([101, 102] if grows else [])
    write = key_of(stage.server.region, 4)
    stage.request(Opcode.RC_RDMA_WRITE_ONLY, write, payload=b"next", psn=102, ackreq=1)
    stage.drive()
    assert stage.server.region.read(4) == (bytes(4) if grows else b"next")


@pytest.mark.parametrize("profile", [IBTA, *LINUX])
@pytest.mark.parametrize("mistaken", [False, True])
def test_an_atomic_again_is_compared_with_the_first_one(profile: Profile, mistaken: bool) -> None:
    stage = stage_of(profile, *([Bug.ATOMIC_FROM_ANY] if mistaken else []))
    atomic(stage, Opcode.RC_CMP_SWAP, psn=100)
    atomic(stage, Opcode.RC_FETCH_ADD, psn=100)
    assert originals(stage) == [0] * (1 + mistaken)


@pytest.mark.parametrize("profile", [IBTA, *LINUX])
@pytest.mark.parametrize("mistaken", [False, True])
def test_an_atomic_again_is_no_read(profile: Profile, mistaken: bool) -> None:
    stage = stage_of(profile, *([Bug.ATOMIC_FROM_READ] if mistaken else []))
    read(stage, 8, psn=100)
    atomic(stage, Opcode.RC_FETCH_ADD, psn=100)
    assert originals(stage) == [stage.server.region.address] * mistaken


@pytest.mark.parametrize("forgotten", [False, True])
def test_an_empty_read_again_is_answered_but_for_a_mistake(forgotten: bool) -> None:
    stage = stage_of(RXE_6_12, *([Bug.EMPTY_READ_FORGOTTEN] if forgotten else []))
    read(stage, 0, psn=100)
    assert stage.psns(stage.server) == [100]
    stage.sent.clear()
    read(stage, 0, psn=100)
    assert stage.psns(stage.server) == ([] if forgotten else [100])


@pytest.mark.parametrize("forgets", [False, True])
def test_an_atomic_write_sent_again_names_its_address_but_for_a_mistake(forgets: bool) -> None:
    profile = replace(RXE_6_12, bugs=frozenset({Bug.ATOMIC_WRITE_FORGETS} if forgets else ()))
    stage = Stage(Pair(Link(us(1), drop={1}), profile=profile))
    there = stage.server.region
    stage.client.atomic_write(b"12345678", to=there)
    stage.drive()
    headers = [sent.packet.header(RETH) for sent in stage.by(stage.client)]
    assert [header.va for header in headers if header] == [
        there.address,
        0 if forgets else there.address,
    ]
    assert there.read(8) == (bytes(8) if forgets else b"12345678")


OK = AETH(ack=Ack.ACK, value=NO_CREDITS)


def respond(stage: Stage, opcode: Opcode, *more: Header, psn: int, payload: bytes = b"") -> None:
    """Hand the client a forged response."""
    stage.deliver(Packet.make(opcode, *more, payload=payload, psn=psn), by=stage.server)


def reading(length: int, *bugs: Bug) -> tuple[Stage, Registered]:
    """A soft-RoCE that has sent a READ with PSN 101, and the memory that it reads into."""
    stage = stage_of(RXE_6_12, *bugs)
    stage.client.write(b"data", to=stage.server.region)
    sink = stage.client.read(length, of=stage.server.region).buffer
    stage.client.nic.transmit(0)
    respond(stage, Opcode.RC_ACKNOWLEDGE, OK, psn=100)
    assert statuses(stage.client) == [WCStatus.SUCCESS]
    return stage, sink


@pytest.mark.parametrize("mistaken", [False, True])
@pytest.mark.parametrize("code", [OK, AETH(ack=Ack.ACK, value=3, msn=1)], ids=["plain", "credits"])
def test_an_old_ack_between_responses_fails_the_connection_by_a_mistake(
    code: AETH, mistaken: bool
) -> None:
    stage, sink = reading(3 * MTU, *([Bug.OLD_ACK_BREAKS_READ] if mistaken else []))
    respond(stage, Opcode.RC_RDMA_READ_RESPONSE_FIRST, OK, psn=101, payload=b"1" * MTU)
    respond(stage, Opcode.RC_ACKNOWLEDGE, code, psn=100)
    assert stage.client.qp.state is QPState.RTS
    respond(stage, Opcode.RC_RDMA_READ_RESPONSE_MIDDLE, psn=102, payload=b"2" * MTU)
    assert stage.client.qp.state is (QPState.ERR if mistaken else QPState.RTS)
    respond(stage, Opcode.RC_RDMA_READ_RESPONSE_LAST, OK, psn=103, payload=b"3" * MTU)
    assert statuses(stage.client) == [WCStatus.SUCCESS]
    placed = sink.read(3 * MTU)
    assert placed == b"1" * MTU + (bytes(2 * MTU) if mistaken else b"2" * MTU + b"3" * MTU)


@pytest.mark.parametrize("packets", [2, 3])
def test_responses_that_begin_anew_after_an_old_ack_are_placed(packets: int) -> None:
    stage, sink = reading(packets * MTU, *BUGS_6_12)
    respond(stage, Opcode.RC_RDMA_READ_RESPONSE_FIRST, OK, psn=101, payload=b"1" * MTU)
    respond(stage, Opcode.RC_ACKNOWLEDGE, OK, psn=100)
    if packets == 2:
        respond(stage, Opcode.RC_RDMA_READ_RESPONSE_ONLY, OK, psn=102, payload=b"2" * MTU)
    else:
        respond(stage, Opcode.RC_RDMA_READ_RESPONSE_FIRST, OK, psn=102, payload=b"2" * MTU)
        respond(stage, Opcode.RC_RDMA_READ_RESPONSE_LAST, OK, psn=103, payload=b"3" * MTU)
    assert statuses(stage.client) == [WCStatus.SUCCESS]
    assert sink.read(packets * MTU) == b"".join(b"%d" % n * MTU for n in range(1, packets + 1))
    assert stage.client.qp.state is QPState.RTS


@pytest.mark.parametrize("bug", [None, Bug.ACK_COMPLETES_READ])
@pytest.mark.parametrize("packets", [1, 2])
def test_an_ack_in_place_of_the_last_response_completes_a_read_by_a_mistake(
    packets: int, bug: Bug | None
) -> None:
    stage, _ = reading(packets * MTU, *([bug] if bug else []))
    if packets == 2:
        respond(stage, Opcode.RC_RDMA_READ_RESPONSE_FIRST, OK, psn=101, payload=b"1" * MTU)
    stage.sent.clear()
    respond(stage, Opcode.RC_ACKNOWLEDGE, OK, psn=100 + packets)
    stage.client.nic.transmit(0)
    assert statuses(stage.client) == ([WCStatus.SUCCESS] if bug else [])
    assert stage.client.qp.state is QPState.RTS
    assert stage.client.qp.counters.implied_nak_seq_err == (bug is None)
    queue = stage.client.qp.sq
    if bug:
        assert (queue.unacked_psn, queue.in_flight) == (queue.next_psn, 0)
        assert (queue.outstanding_reads, queue.awaited_responses) == (0, 0)


def test_an_ack_in_place_of_an_earlier_response_completes_nothing() -> None:
    stage, _ = reading(2 * MTU, Bug.ACK_COMPLETES_READ)
    respond(stage, Opcode.RC_ACKNOWLEDGE, OK, psn=102)
    assert statuses(stage.client) == []


@pytest.mark.parametrize("mistaken", [False, True])
def test_an_ack_completes_an_atomic_by_a_mistake(mistaken: bool) -> None:
    stage = stage_of(RXE_6_12, *([Bug.ACK_COMPLETES_READ] if mistaken else []))
    stage.client.fetch_add(1, of=stage.server.region)
    stage.client.nic.transmit(0)
    respond(stage, Opcode.RC_ACKNOWLEDGE, OK, psn=100)
    assert statuses(stage.client) == [WCStatus.SUCCESS] * mistaken


@pytest.mark.parametrize(("bugs", "first", "later"), [(BUGS_6_12, 0xFFFFFF, 100), ((), 99, 99)])
def test_the_psn_of_the_last_ack_outlives_a_reset(
    bugs: frozenset[Bug], first: int, later: int
) -> None:
    stage = stage_of(RXE_6_12, *bugs)
    write = key_of(stage.server.region, 4)
    for psn in (99, 100):
        stage.request(Opcode.RC_RDMA_WRITE_ONLY, write, payload=b"once", psn=psn, ackreq=1)
        stage.drive()
    climb(stage.server, QPState.RTS, PATIENT)
    stage.request(Opcode.RC_RDMA_WRITE_ONLY, write, payload=b"once", psn=99, ackreq=1)
    stage.drive()
    assert stage.psns(stage.server) == [first, 100, later]


@pytest.mark.parametrize(
    ("bugs", "posted", "after_packet"),
    [((), 1, 1), (BUGS_6_1, 0, 0), (BUGS_6_12, 0, 1)],
    ids=["right", "6.1", "6.12"],
)
def test_receives_posted_in_err_are_flushed(
    bugs: frozenset[Bug], posted: int, after_packet: int
) -> None:
    stage = stage_of(RXE_6_12, *bugs)
    go(stage.server, QPState.ERR)
    stage.server.receive(8)
    flushed = [(1, WCStatus.WR_FLUSH_ERR)]
    found = outcomes(stage.server)
    assert found == flushed[:posted]
    stage.request(Opcode.RC_SEND_ONLY, payload=b"late", psn=100)
    assert found + outcomes(stage.server) == flushed[:after_packet]


@pytest.mark.parametrize(("profile", "checked"), [(RXE_6_12, True), (RXE_6_1, False)])
def test_the_length_of_a_write_is_checked_where_that_of_a_send_is_not(
    profile: Profile, checked: bool
) -> None:
    for opcode, headers, refused in (
        (Opcode.RC_SEND_FIRST, lambda _: (), checked),
        (Opcode.RC_RDMA_WRITE_FIRST, lambda there: (key_of(there, 3 * MTU),), True),
    ):
        stage = stage_of(profile)
        stage.server.receive(3 * MTU)
        stage.request(opcode, *headers(stage.server.region), payload=bytes(MTU - 4), psn=100)
        stage.drive()
        assert (stage.server.qp.state is QPState.ERR) is refused
