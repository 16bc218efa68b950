"""Shared receive queues beside a plain list; sizes, and the limit that tells once."""

from errno import EBUSY, EINVAL, ENOMEM

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from rdmawire.errors import VerbsError
from rdmawire.fabric.pair import CAP, Pair, connect
from rdmawire.ib.qp import QPInit
from rdmawire.memory.key import ProtectionDomain
from rdmawire.verbs.async_event import Event, SRQLimitReached
from rdmawire.verbs.cq import CompletionQueue
from rdmawire.verbs.enums import QPState, QPType, WCStatus
from rdmawire.verbs.profile import IBTA, RXE, Profile
from rdmawire.verbs.qp_attr import QPAttributes, QPAttrMask
from rdmawire.verbs.srq import SharedReceiveQueue, SRQType, XRCReceiver
from rdmawire.verbs.wr import RecvWR, SendOpcode, SendWR, Sge

PD = ProtectionDomain(1)
LIMIT_EVENT = SRQLimitReached(5)


def shared(
    events: list[Event], max_wr: int = 4, max_sge: int = 2, xrc: XRCReceiver | None = None
) -> SharedReceiveQueue:
    return SharedReceiveQueue(5, PD, max_wr, max_sge, events.append, profile=RXE, xrc=xrc)


def filled(count: int, events: list[Event]) -> SharedReceiveQueue:
    srq = shared(events, max_wr=8)
    for wr_id in range(count):
        srq.post_recv(RecvWR(wr_id=wr_id))
    return srq


def test_receives_are_taken_as_they_were_posted() -> None:
    srq = filled(3, [])
    taken = [srq.take() for _ in range(4)]
    assert [wr and wr.wr_id for wr in taken] == [0, 1, 2, None]


def test_a_full_queue_is_out_of_memory() -> None:
    srq = filled(8, [])
    with pytest.raises(VerbsError, match="full: max_wr 8") as caught:
        srq.post_recv(RecvWR())
    assert (caught.value.errno, len(srq)) == (ENOMEM, 8)


def test_receives_of_a_shared_queue_hold_their_slots_until_they_are_polled() -> None:
    """From whichever completion queues: those of other queue pairs wait for theirs."""
    pair = Pair()
    server = pair.server
    srq = server.nic.create_srq(server.pd, 2)
    other = server.nic.create_cq(8)
    ends = []
    for cq in (server.cq, other):
        init = QPInit(server.pd, cq, cq, CAP, srq)
        qp = server.nic.create_qp(QPType.RC, init)
        peer = pair.client.nic.create_qp(
            QPType.RC, QPInit(pair.client.pd, pair.client.cq, pair.client.cq, CAP)
        )
        connect(pair.client, peer, server, qp)
        ends.append(peer)
    server.nic.post_srq_recv(srq, [RecvWR()] * 2)
    for peer in ends:
        pair.client.nic.post_send(peer, [SendWR(SendOpcode.SEND)])
    pair.drive()
    with pytest.raises(VerbsError, match="2 of them taken and not polled from a CQ"):
        server.nic.post_srq_recv(srq, [RecvWR()])
    assert (len(srq), srq.free) == (0, 0)
    assert other.poll(8)
    assert srq.free == 1
    assert server.cq.poll(8)
    server.nic.post_srq_recv(srq, [RecvWR()] * 2)


@pytest.mark.parametrize("end", ["reset", "destroy"])
def test_a_receive_of_half_a_message_is_given_up_with_its_queue_pair(end: str) -> None:
    pair = Pair()
    server = pair.server
    srq = server.nic.create_srq(server.pd, 1)
    qp = server.nic.create_qp(QPType.RC, QPInit(server.pd, server.cq, server.cq, CAP, srq))
    client = pair.client
    peer = client.nic.create_qp(QPType.RC, QPInit(client.pd, client.cq, client.cq, CAP))
    connect(client, peer, server, qp)
    sink = server.buffer(4000)
    server.nic.post_srq_recv(srq, [RecvWR((sink.sge(),))])
    client.nic.post_send(peer, [SendWR(SendOpcode.SEND, (client.buffer(4000).sge(),))])
    for frame in client.nic.transmit(0)[:2]:
        server.nic.receive(frame, 0)
    assert (len(srq), srq.free) == (0, 0)
    if end == "reset":
        server.nic.modify_qp(qp, QPAttributes(QPState.RESET), QPAttrMask.STATE)
    else:
        server.nic.destroy_qp(qp)
    assert srq.free == 1


def test_a_receive_of_too_many_pieces_is_invalid() -> None:
    srq = shared([], max_sge=2)
    piece = Sge(0, 1, 1)
    srq.post_recv(RecvWR((piece, piece)))
    with pytest.raises(VerbsError, match="3 SGEs, at most 2 are allowed") as caught:
        srq.post_recv(RecvWR((piece, piece, piece)))
    assert (caught.value.errno, len(srq)) == (EINVAL, 1)


@pytest.mark.parametrize(
    ("max_wr", "max_sge"), [(0, 1), (-1, 1), (RXE.max_srq_wr + 1, 1), (1, 28), (1, -1)]
)
def test_sizes_end_at_the_devices_limit(max_wr: int, max_sge: int) -> None:
    with pytest.raises(VerbsError, match=r"max_(wr|sge): .* is not an integer") as caught:
        shared([], max_wr, max_sge)
    assert caught.value.errno == EINVAL


def test_an_xrc_queue_knows_its_domain_and_where_receives_complete() -> None:
    cq = CompletionQueue(1, 4, print)
    assert shared([]).type is SRQType.BASIC
    srq = shared([], xrc=XRCReceiver(domain=2, cq=cq))
    assert srq.type is SRQType.XRC
    assert srq.xrc == (2, cq)


def test_the_limit_is_one_event_when_fewer_receives_are_left() -> None:
    events: list[Event] = []
    srq = filled(4, events)
    srq.modify(limit=3)
    srq.take()
    assert events == []
    srq.take()
    srq.take()
    assert events == [LIMIT_EVENT]
    assert srq.limit == 0


def test_a_limit_that_is_passed_already_is_an_event_at_once() -> None:
    events: list[Event] = []
    srq = filled(2, events)
    srq.modify(limit=3)
    assert (events, srq.limit) == ([LIMIT_EVENT], 0)


@pytest.mark.parametrize(
    ("max_wr", "limit", "reason"),
    [
        (2, None, "less than the 3 held"),
        (0, None, "max_wr: 0 is not an integer"),
        (RXE.max_srq_wr + 1, None, "is not an integer"),
        (None, 9, "srq_limit: 9 is not an integer from 0 to 8"),
        (None, -1, "srq_limit: -1"),
        (4, 5, "srq_limit: 5 is not an integer from 0 to 4"),
    ],
)
def test_modifying_is_all_or_nothing(max_wr: int | None, limit: int | None, reason: str) -> None:
    srq = filled(3, [])
    srq.modify(limit=2)
    with pytest.raises(VerbsError, match=reason) as caught:
        srq.modify(max_wr, limit)
    assert (caught.value.errno, srq.max_wr, srq.limit) == (EINVAL, 8, 2)


def test_a_queue_is_resized_and_its_limit_armed_in_one_step() -> None:
    events: list[Event] = []
    srq = filled(6, events)
    srq.modify(max_wr=6, limit=6)
    assert (srq.max_wr, srq.limit, events) == (6, 6, [])


def test_only_an_unused_queue_may_go() -> None:
    srq = shared([])
    srq.check_unused()
    srq.qps.add(17)
    with pytest.raises(VerbsError, match="used by 1") as caught:
        srq.check_unused()
    assert caught.value.errno == EBUSY


RECEIVED, LOST = (WCStatus.SUCCESS, WCStatus.SUCCESS), (WCStatus.REM_OP_ERR, WCStatus.LOC_PROT_ERR)
IN_DOMAIN_OF = {
    (IBTA, "queue"): RECEIVED,
    (IBTA, "queue pair"): LOST,
    (RXE, "queue"): LOST,
    (RXE, "queue pair"): RECEIVED,
}


@pytest.mark.parametrize("length", [8, 3000])
@pytest.mark.parametrize(("profile", "of"), IN_DOMAIN_OF, ids=lambda one: getattr(one, "name", one))
def test_whose_domain_the_memory_of_a_receive_is_in(profile: Profile, of: str, length: int) -> None:
    """The shared queue's own, for messages of one packet and of several; in soft-RoCE the other."""
    pair = Pair(profile=profile)
    client, server = pair.client, pair.server
    own, other = server.pd, server.nic.alloc_pd()
    srq = server.nic.create_srq(other, 4)
    qp = server.nic.create_qp(QPType.RC, QPInit(own, server.cq, server.cq, CAP, srq))
    asking = client.nic.create_qp(QPType.RC, QPInit(client.pd, client.cq, client.cq, CAP))
    connect(client, asking, server, qp)
    server.pd = other if of == "queue" else own
    server.nic.post_srq_recv(srq, [RecvWR((server.buffer(length).sge(length),))])
    send = SendWR(SendOpcode.SEND, (client.filled(bytes(length)).sge(length),))
    client.nic.post_send(asking, [send])
    pair.drive()
    found = [done.status for end in (client, server) for done in end.poll()]
    assert tuple(found) == IN_DOMAIN_OF[profile, of]


def test_what_peers_reach_is_in_the_domain_of_the_queue_pair() -> None:
    pair = Pair()
    client, server = pair.client, pair.server
    other = server.nic.alloc_pd()
    srq = server.nic.create_srq(other, 4)
    qp = server.nic.create_qp(QPType.RC, QPInit(server.pd, server.cq, server.cq, CAP, srq))
    asking = client.nic.create_qp(QPType.RC, QPInit(client.pd, client.cq, client.cq, CAP))
    connect(client, asking, server, qp)
    memory = server.region
    source = (client.filled(b"8 octets").sge(),)
    write = SendWR(SendOpcode.RDMA_WRITE, source, remote_address=memory.address, rkey=memory.rkey)
    client.nic.post_send(asking, [write])
    pair.drive()
    assert memory.read(8) == b"8 octets"


class Beside(RuleBasedStateMachine):
    """A queue and what it should be: a list with a size and a limit."""

    @initialize(max_wr=st.integers(1, 8), max_sge=st.integers(0, 3))
    def create(self, max_wr: int, max_sge: int) -> None:
        self.events: list[Event] = []
        self.srq = shared(self.events, max_wr, max_sge)
        self.max_wr, self.max_sge, self.limit = max_wr, max_sge, 0
        self.held: list[RecvWR] = []
        self.told = 0

    @rule(wr_id=st.integers(), pieces=st.integers(0, 4))
    def post(self, wr_id: int, pieces: int) -> None:
        wr = RecvWR((Sge(0, 1, 1),) * pieces, wr_id)
        errno = EINVAL if pieces > self.max_sge else ENOMEM if len(self.held) == self.max_wr else 0
        if not errno:
            self.srq.post_recv(wr)
            self.held.append(wr)
            return
        with pytest.raises(VerbsError) as caught:
            self.srq.post_recv(wr)
        assert caught.value.errno == errno

    @rule()
    def take(self) -> None:
        assert self.srq.take() == (self.held[0] if self.held else None)
        self.tell_if_low(taken=bool(self.held))

    @rule(limit=st.integers(-1, 9), max_wr=st.none() | st.integers(0, 9))
    def modify(self, limit: int, max_wr: int | None) -> None:
        size = self.max_wr if max_wr is None else max_wr
        if size < max(1, len(self.held), limit) or limit < 0:
            with pytest.raises(VerbsError):
                self.srq.modify(max_wr, limit)
            return
        self.srq.modify(max_wr, limit)
        self.max_wr, self.limit = size, limit
        self.tell_if_low(taken=False)

    def tell_if_low(self, taken: bool) -> None:
        if taken:
            del self.held[0]
        if len(self.held) < self.limit:
            self.told += 1
            self.limit = 0

    @precondition(lambda self: hasattr(self, "srq"))
    @invariant()
    def agree(self) -> None:
        assert len(self.srq) == len(self.held)
        assert self.events == [LIMIT_EVENT] * self.told
        assert (self.srq.max_wr, self.srq.limit) == (self.max_wr, self.limit)


TestBeside = Beside.TestCase
