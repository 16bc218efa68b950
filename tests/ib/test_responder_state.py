"""The responder's state: what is pending, what is kept, and what a reset leaves."""

from typing import cast

import pytest

from rdmawire.errors import MemoryFault
from rdmawire.fabric.pair import Pair
from rdmawire.ib.responder_state import (
    NO_MESSAGE,
    NO_RECEIVE,
    Acknowledge,
    AtomicResponse,
    ReadResponse,
    Resource,
    ResponderContext,
)
from rdmawire.ib.responses import _touched, keep_all
from rdmawire.memory.key import Grant
from rdmawire.verbs.sge import NOTHING, Piece
from rdmawire.wire.ib import RETH, Ack, Nak
from rdmawire.wire.opcode import Opcode
from tests.ib.stage import PATIENT, Stage, key_of, nak_of

READ, WRITE = Opcode.RC_RDMA_READ_REQUEST, Opcode.RC_RDMA_WRITE_ONLY
MTU = 1024
STATE = (
    *("ack_due", "before_responses", "cnps_due", "epsn", "incoming", "msn", "reads", "recv"),
    *("refused", "response_end", "sends_last_responses", "starved", "target", "denied"),
)


def values(context: ResponderContext) -> dict[str, object]:
    found = {name: getattr(context, name) for name in STATE}
    return found | {"pending": list(context.pending), "resources": list(context.resources)}


def piece(stage: Stage, length: int = MTU) -> Piece:
    """Memory of the server that a READ reads."""
    stage.request(READ, key_of(stage.server.region, length), psn=stage.server.qp.inbound.epsn)
    pending = stage.server.qp.inbound.pending[-1]
    assert isinstance(pending, ReadResponse)
    return pending.target


def test_a_new_context_owes_nothing() -> None:
    context = ResponderContext()
    assert values(context) == {
        **dict.fromkeys(("ack_due", "refused", "sends_last_responses", "starved"), False),
        **dict.fromkeys(("cnps_due", "epsn", "msn", "reads", "response_end"), 0),
        "before_responses": 0xFF_FFFF,
        "incoming": NO_MESSAGE,
        "recv": NO_RECEIVE,
        "target": NOTHING,
        "denied": None,
        "pending": [],
        "resources": [],
    }


def test_a_reset_leaves_the_state_of_a_new_context() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    context = ResponderContext()
    context.target = piece(stage)
    context.queue_response(ReadResponse(7, 1, 1, context.target))
    context.remember(Resource(int(READ), 7, 1, MTU, RETH()), 4)
    context.ack_due = context.sends_last_responses = context.starved = context.refused = True
    context.cnps_due, context.msn, context.epsn = 3, 9, 8
    context.reset(0)
    assert values(context) == values(ResponderContext())


def test_the_fifth_nak_replaces_four_that_are_pending() -> None:
    context = ResponderContext()
    for nak in (Nak.PSN_SEQUENCE_ERROR, Nak.INVALID_REQUEST, Nak.REMOTE_ACCESS_ERROR):
        context.refuse(Ack.NAK, nak)
    context.refuse(Ack.RNR_NAK, 5)
    assert len(context.pending) == 4
    context.refuse(Ack.RNR_NAK, 6)
    (last,) = context.pending
    assert isinstance(last, Acknowledge)
    assert (last.ack, last.value) == (Ack.RNR_NAK, 6)


@pytest.mark.parametrize(("length", "packets"), [(0, 0), (1, 1), (MTU, 1), (2 * MTU + 1, 3)])
def test_payload_that_is_kept_whole_counts_in_packets(length: int, packets: int) -> None:
    read = ReadResponse(0, 0, 4, NOTHING)
    read.whole = bytes(length)
    assert read.packets_kept(MTU) == packets
    read.kept = {0: b"", 2: b""}
    assert read.packets_kept(MTU) == packets + 2


def test_a_payload_is_kept_once_and_not_without_access() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    target = piece(stage, 2 * MTU)
    read = ReadResponse(0, 0, 2, target)
    assert [read.keep(0, MTU), read.keep(0, MTU)] == [True, False]
    stage.server.nic.memory.dereg_mr(stage.server.region.region)
    assert not read.keep(1, MTU)
    assert list(read.kept) == [0]


class HalfPresent:
    """A grant of memory whose first half cannot be read."""

    generation = 0

    def read(self, address: int, length: int) -> bytes:
        if address < MTU:
            raise MemoryFault("absent", address, length)
        return bytes(length)


def test_a_read_that_cannot_be_kept_does_not_hinder_the_others() -> None:
    qp = Stage(Pair(attributes=PATIENT)).server.qp
    grant = cast("Grant", HalfPresent())
    for psn in range(2):
        target = Piece(grant, psn * MTU, MTU, 0, 0)
        qp.inbound.queue_response(ReadResponse(psn, 0, 1, target))
    keep_all(qp, grant)
    kept = [read.whole for read in qp.inbound.pending if isinstance(read, ReadResponse)]
    assert kept == [None, bytes(MTU)]


@pytest.mark.parametrize("whole", [None, b""])
def test_a_read_that_is_kept_is_not_kept_again(whole: bytes | None) -> None:
    stage = Stage(Pair(attributes=PATIENT))
    read = ReadResponse(0, 0, 1, piece(stage))
    change = read.target.memory.footprint(read.target.address, MTU)
    assert _touched(read, change, MTU) == range(1)
    read.whole, read.all_kept = whole, whole is None
    assert not _touched(read, change, MTU)


def test_a_read_response_is_the_next_frame_only_if_it_is_the_first_that_is_due() -> None:
    context = ResponderContext()
    assert not context.gives_data
    context.queue_response(ReadResponse(0, 0, 1, NOTHING))
    assert context.gives_data
    context.cnps_due = 1
    assert not context.gives_data
    context = ResponderContext()
    context.queue_response(AtomicResponse(0, 0, 0))
    context.queue_response(ReadResponse(1, 0, 1, NOTHING))
    assert not context.gives_data


def test_an_ack_after_a_read_has_the_psn_before_it_unless_acks_cover_reads() -> None:
    context = ResponderContext()
    context.reset(10)
    context.move_past(3)
    assert (context.epsn, context.ack_psn) == (13, 9)
    context.move_past(2, by_ack=True)
    assert (context.epsn, context.ack_psn) == (15, 14)


def test_a_nak_after_a_read_is_not_sent_if_the_read_breaks_off() -> None:
    """The NAK of the READ has a PSN before it, and the peer needs only the first."""
    stage = Stage(Pair(attributes=PATIENT))
    region = stage.server.region
    stage.request(READ, key_of(region, 4 * MTU), psn=100)
    stage.request(WRITE, RETH(region.address, region.rkey ^ 1, 4), payload=b"1234", psn=104)
    stage.server.nic.memory.dereg_mr(region.region)
    stage.drive()
    assert nak_of(stage) == (Nak.REMOTE_ACCESS_ERROR, 100)
    assert not stage.server.qp.inbound.pending


def test_a_duplicate_of_the_last_packet_of_a_read_may_request_its_bytes_alone() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    region = stage.server.region
    stage.request(READ, key_of(region, 3 * MTU + 10), psn=100)
    stage.drive()
    before = len(stage.by(stage.server))
    address = region.address + 3 * MTU
    stage.request(READ, RETH(address, region.rkey, 11), psn=103)
    stage.drive()
    assert len(stage.by(stage.server)) == before
    stage.request(READ, RETH(address, region.rkey, 10), psn=103)
    stage.drive()
    assert stage.psns(stage.server)[before:] == [103]
