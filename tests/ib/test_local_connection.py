"""Messages without packets leave what their packets leave: memory, completions, state, counters."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.ib import Nic
from rdmawire.ib.local_connection import MAX_MESSAGE
from rdmawire.ib.local_peer import LocalConnections
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.memory.page import Path
from rdmawire.verbs.async_event import CommunicationEstablished
from rdmawire.verbs.enums import QPState, QPType, WCStatus
from rdmawire.verbs.profile import BUGS_6_1, IBTA, RXE_6_1
from rdmawire.verbs.qp_attr import QP_TRANSITIONS, QPAttributes, QPAttrMask
from rdmawire.verbs.wr import SendFlags, SendOpcode, SendWR
from rdmawire.wire.management import MTU
from tests.effort import examples
from tests.ib.bursts import (
    ATOMICS,
    Action,
    Arm,
    Place,
    Poll,
    PostRecv,
    PostSend,
    Setup,
    Wait,
    Work,
    World,
    send_wr,
)
from tests.ib.test_engine_bursts import drawn_work, drawn_works

PROFILE = replace(IBTA, frees_slots_at_poll=False, end_to_end_credits=False)
SETUP = Setup(profile=PROFILE)
WRITE, SEND, READ = SendOpcode.RDMA_WRITE, SendOpcode.SEND, SendOpcode.RDMA_READ


class Linked(World):
    """A world whose frames arrive at once. ``locally``: messages need no packets where possible.

    ``holds``: the requester knows that too.
    """

    def __init__(self, setup: Setup, *, locally: bool = False, holds: bool = False) -> None:
        super().__init__(setup)
        nics = {side.mac: side.nic for side in self.sides}
        self.local = [LocalConnections(nics if locally else {}) for _ in self.sides]
        self.holds = holds
        self.sent_locally = 0

    def do(self, action: Action) -> int:
        """Do one action, and deliver all frames. Return how many messages needed no packets."""
        sent = self._send_locally(action) if isinstance(action, PostSend) else 0
        if isinstance(action, PostSend):
            action = action._replace(works=action.works[sent:])
        self.act(action, bursts=True)
        self.deliver()
        return sent

    def _send_locally(self, action: PostSend) -> int:
        """Send work without packets, as much as possible; return how many messages."""
        own, other = self.sides[action.side], self.sides[1 - action.side]
        qp = own.qps[action.qp % len(own.qps)]
        connection = self.local[action.side].of(qp)
        if connection is None:
            return 0
        posted = own.posted
        sent = connection.send([send_wr(own, other, work) for work in action.works], self.now)
        own.posted = posted + sent
        self.sent_locally += sent
        if not self.holds:
            qp.local = None
        return sent

    def deliver(self) -> None:
        """Deliver frames of both sides until there are none."""
        for _ in range(64):
            moved = False
            for side, other in (self.sides, self.sides[::-1]):
                frames = side.nic.transmit(self.now, 1 << 16)
                other.nic.receive_all(frames, self.now)
                moved = moved or bool(frames)
            if not moved:
                return
        raise AssertionError("frames without end")


def seen(world: World, *, counters: bool) -> list[object]:
    """What is left, without the number of accesses to memory: packets need more of them.

    Without ``counters`` also without those of the port.
    """
    log = world.finish(bursts=True)
    ends = [list(end) for end in log[-2:] if isinstance(end, list)]
    for end in ends:
        del end[_TRANSACTIONS if counters else _PORT]
    return [*(entry for entry in log[:-2] if not _is_frames(entry)), *ends]


def _mixes_reads(works: Sequence[Work]) -> bool:
    """Whether READs or atomics come before other work: then ACKs depend on turns."""
    return len({work.opcode is READ or work.opcode in ATOMICS for work in works}) > 1


def _has_several_acks(works: Sequence[Work]) -> bool:
    """Whether the packets of this work are more than a peer acknowledges with one ACK."""
    return sum(max(-(-work.size // 256), 1) for work in works) > PROFILE.packets_in_flight


_TRANSACTIONS = slice(6, 7)
_PORT = slice(6, 11)


def _is_frames(entry: object) -> bool:
    return isinstance(entry, list) and all(isinstance(one, bytes) for one in entry)


def both(setup: Setup, actions: list[Action]) -> Linked:
    """Check that packets leave the same, and return the world without them."""
    locally, by_packets = Linked(setup, locally=True), Linked(setup)
    mixed = False
    for action in actions:
        sent = locally.do(action)
        if not isinstance(action, PostSend):
            by_packets.do(action)
            continue
        mixed = mixed or _mixes_reads(action.works) or _has_several_acks(action.works)
        for works in (action.works[:sent], action.works[sent:]):
            by_packets.do(action._replace(works=works))
    assert not by_packets.sent_locally
    worlds = (seen(world, counters=not mixed) for world in (locally, by_packets))
    for one, other in zip(*worlds, strict=True):
        assert one == other
    return locally


def drawn_action(random: Random, kind: QPType) -> Action:
    side, qp, chosen = random.randrange(2), random.randrange(3), random.randrange(10)
    if chosen < 5:
        return PostSend(side, qp, drawn_works(random, kind))
    if chosen < 8:
        size = random.choice((0, 64, 256, 2600, 2600, 2600, 2600, -64, random.choice((1, 64))))
        return PostRecv(side, qp, [size] * random.randint(1, 20))
    if chosen == 8:
        return Poll(side, random.randrange(20))
    return random.choice((Arm(side), Arm(side, solicited_only=True), Wait()))


@pytest.mark.parametrize("kind", [QPType.RC, QPType.UC])
@settings(max_examples=examples(50))
@given(seed=st.integers(0, 2**32))
def test_messages_leave_what_their_packets_leave(kind: QPType, seed: int) -> None:
    random = Random(seed)
    setup = Setup(
        kind=kind,
        qps=random.randint(1, 3),
        max_send_wr=64,
        max_recv_wr=random.choice((3, 64, 64)),
        cqe=random.choice((5, 512, 512)),
        profile=PROFILE,
        first_psn=random.choice((100, (1 << 24) - 5)),
    )
    both(setup, [drawn_action(random, kind) for _ in range(random.randrange(24))])


@given(seed=st.integers(0, 2**32))
def test_atomics_leave_what_their_packets_leave(seed: int) -> None:
    random = Random(seed)
    setup = Setup(profile=PROFILE, max_send_wr=64, first_psn=random.choice((100, (1 << 24) - 5)))
    actions: list[Action] = [PostRecv(side, 0, [2600] * 20) for side in (0, 1)]
    for _ in range(random.randrange(1, 12)):
        works = [drawn_atomic(random) for _ in range(random.randrange(1, 12))]
        if random.random() < 0.5:
            works += drawn_works(random, QPType.RC)
        actions.append(PostSend(random.randrange(2), 0, works))
    both(setup, actions)


def drawn_atomic(random: Random) -> Work:
    flags = random.choice((0, SendFlags.SIGNALED, SendFlags.SIGNALED | SendFlags.FENCE))
    wrong = random.choice((Place.SPLIT, Place.BEYOND, Place.WRONG_LKEY, Place.WRONG_RKEY))
    return Work(random.choice(ATOMICS), 8, flags, random.choice((*[Place.OWN] * 20, wrong)))


@pytest.mark.parametrize("opcode", ATOMICS)
def test_atomics_need_no_packets(opcode: SendOpcode) -> None:
    world = both(SETUP, [PostSend(side, 0, [Work(opcode, 8)] * 4) for side in (0, 1, 0)])
    assert world.sent_locally == 12


@pytest.mark.parametrize("kind", [QPType.RC, QPType.UC])
@given(seed=st.integers(0, 2**32))
def test_work_that_waits_for_packets_leaves_what_packets_leave(kind: QPType, seed: int) -> None:
    random = Random(seed)
    setup = Setup(kind=kind, profile=PROFILE)
    worlds = Linked(setup, locally=True, holds=True), Linked(setup)
    for side in (0, 1):
        works = [drawn_work(random, kind) for _ in range(40)]
        good = [work for work in works if work.place in _GOOD and work.opcode is not READ]
        for world in worlds:
            world.do(PostRecv(1 - side, 0, [2600] * 40))
            for start in range(0, len(good), 8):
                world.do(PostSend(side, 0, good[start : start + 8]))
    one, other = (world.finish(bursts=True)[-2:] for world in worlds)
    for end, by_packets in zip(one, other, strict=True):
        assert isinstance(end, list)
        assert isinstance(by_packets, list)
        assert end[:_DROPS] == by_packets[:_DROPS]
        assert end[_PORT.stop :] == by_packets[_PORT.stop :]


_DROPS = 4
_GOOD = (Place.OWN, Place.SPLIT, Place.INLINE)


@pytest.mark.parametrize("size", [1, 3, 256, 257, 2600])
@pytest.mark.parametrize("opcode", [SEND, SendOpcode.SEND_WITH_IMM, WRITE, READ])
def test_no_packet_is_sent(opcode: SendOpcode, size: int) -> None:
    world = both(SETUP, [PostRecv(1, 0, [2600] * 4), PostSend(0, 0, [Work(opcode, size)] * 4)])
    assert world.sent_locally == 4


@pytest.mark.parametrize("opcode", [SEND, WRITE, SendOpcode.RDMA_WRITE_WITH_IMM])
def test_empty_messages_need_no_packets(opcode: SendOpcode) -> None:
    world = both(SETUP, [PostRecv(1, 0, [64] * 4), PostSend(0, 0, [Work(opcode, 0)] * 4)])
    assert world.sent_locally == 4


@pytest.mark.parametrize("place", [Place.SPLIT, Place.INLINE])
def test_several_sges_and_inline_bytes_need_no_packets(place: Place) -> None:
    works = [Work(SEND, 200, place=place), Work(WRITE, 200, place=place)]
    world = both(SETUP, [PostRecv(1, 0, [-64 - 200]), PostSend(0, 0, works)])
    assert world.sent_locally == 2


@pytest.mark.parametrize(
    ("work", "status"),
    [
        (Work(WRITE, 64, place=Place.WRONG_LKEY), WCStatus.LOC_PROT_ERR),
        (Work(WRITE, 64, place=Place.WRONG_RKEY), WCStatus.REM_ACCESS_ERR),
        (Work(READ, 64, place=Place.WRONG_RKEY), WCStatus.REM_ACCESS_ERR),
        (Work(SEND, 64, place=Place.BEYOND), WCStatus.LOC_PROT_ERR),
        (Work(SEND, 2601), WCStatus.REM_INV_REQ_ERR),
    ],
)
def test_work_that_fails_is_left_to_packets(work: Work, status: WCStatus) -> None:
    good = Work(WRITE, 64)
    world = both(SETUP, [PostRecv(1, 0, [2600]), PostSend(0, 0, [good, good, work, good])])
    assert world.sent_locally == 2
    end = world.log[-2]
    assert isinstance(end, list)
    statuses = [done.status for done in end[1]]
    assert statuses == [WCStatus.SUCCESS] * 2 + [status, WCStatus.WR_FLUSH_ERR]


def test_a_send_without_a_receive_waits_in_packets() -> None:
    works = [Work(SEND, 64)] * 3
    world = both(SETUP, [PostRecv(1, 0, [64]), PostSend(0, 0, works), PostRecv(1, 0, [64] * 2)])
    assert world.sent_locally == 1


def test_posted_work_needs_no_packets_once_what_is_in_flight_has_its_responses() -> None:
    world = Linked(SETUP, locally=True)
    one, other = world.sides
    assert world.local[0].of(one.qps[0]) is not None
    world.act(PostSend(0, 0, [Work(SEND, 300), *[Work(WRITE, 300)] * 6]), bursts=True)
    sent = one.nic.transmit(0)
    assert len(sent) == 2  # the SEND, which finds no receive
    world.act(PostRecv(1, 0, [300]), bursts=True)
    other.nic.receive_all(sent, 0)
    one.nic.receive_all(other.nic.transmit(0), 0)
    assert one.nic.transmit(0) == []
    assert [done.status for done in one.cq.poll(10)] == [WCStatus.SUCCESS] * 7


def test_both_directions_need_no_packets() -> None:
    posts = [PostSend(side, 0, [Work(WRITE, 300)] * 5) for side in (0, 1, 0, 1)]
    assert both(SETUP, [*posts]).sent_locally == 20


@pytest.mark.parametrize(
    "setup",
    [
        Setup(profile=IBTA),
        Setup(profile=replace(RXE_6_1, frees_slots_at_poll=False)),
        Setup(profile=replace(PROFILE, bugs=BUGS_6_1)),
        SETUP._replace(rules=replace(STANDARD)),
        SETUP._replace(mtus=(MTU.MTU_256, MTU.MTU_512)),
        SETUP._replace(kind=QPType.UD),
    ],
    ids=["slots freed by polls", "credits", "bugs", "other rules", "unequal MTUs", "datagrams"],
)
def test_these_queue_pairs_send_packets(setup: Setup) -> None:
    world = Linked(setup, locally=True)
    qp = world.sides[0].qps[0]
    connection = world.local[0].of(qp)
    work = send_wr(*world.sides, Work(SEND, 64))
    world.act(PostRecv(1, 0, [64]), bursts=True)
    assert connection is None or not connection.send([work], 0)


@pytest.mark.parametrize("locally", [True, False])
def test_the_first_message_to_a_peer_in_rtr_is_reported(locally: bool) -> None:
    world = Linked(SETUP, locally=locally)
    other = world.sides[1]
    attributes = other.qps[0].attributes
    reset(other.qps[0])
    for before, state in ((QPState.RESET, QPState.INIT), (QPState.INIT, QPState.RTR)):
        needed = QP_TRANSITIONS[QPType.RC, before, state].required | QPAttrMask.STATE
        other.qps[0].modify(attributes._replace(qp_state=state), needed)
    for _ in range(3):
        world.do(PostSend(0, 0, [Work(WRITE, 64)]))
    assert world.sent_locally == 3 * locally
    assert other.events() == [CommunicationEstablished(other.qps[0].qp_num)]


def reset(side_qp: QueuePair) -> None:
    side_qp.modify(QPAttributes(qp_state=QPState.RESET), QPAttrMask.STATE)


@pytest.mark.parametrize("side", [0, 1])
def test_a_connection_ends_with_a_change_of_either_queue_pair(side: int) -> None:
    world = Linked(SETUP, locally=True)
    connection = world.local[0].of(world.sides[0].qps[0])
    assert connection is not None
    assert connection.holds
    reset(world.sides[side].qps[0])
    assert not connection.holds
    assert connection.send_posted() == 0
    found = world.local[0].of(world.sides[0].qps[0])
    assert found is not connection
    assert found is None or found.send([send_wr(*world.sides, Work(WRITE, 64))], 0) == 0


def test_a_search_that_found_nothing_is_repeated_now_and_then() -> None:
    world = Linked(SETUP, locally=True)
    nics: dict[bytes, Nic] = {}
    local, qp = LocalConnections(nics), world.sides[0].qps[0]
    assert local.of(qp) is None
    nics |= {side.mac: side.nic for side in world.sides}
    found = [local.of(qp) is not None for _ in range(65)]
    assert found == [False] * 63 + [True] * 2
    local.forget(qp.qp_num)
    assert local.of(qp) is not None


def test_a_closed_port_sends_packets_that_are_discarded() -> None:
    world = Linked(SETUP, locally=True)
    connection = world.local[0].of(world.sides[0].qps[0])
    assert connection is not None
    world.sides[1].nic.up = False
    assert not connection.holds
    assert world.local[0].of(world.sides[0].qps[0]) is None


def test_a_long_message_is_copied_in_parts() -> None:
    world = Linked(SETUP, locally=True)
    (one, other), size = world.sides, (1 << 19) + 5
    source, sink = one.buffer(size), other.buffer(size)
    data = Random(1).randbytes(size)
    source.write(data)
    connection = world.local[0].of(one.qps[0])
    assert connection is not None
    wr = SendWR(WRITE, (source.sge(size, 0),), 1, SendFlags.SIGNALED, sink.address, sink.rkey)
    assert connection.send([wr], 0) == 1
    assert sink.read() == data
    counter = one.nic.memory.counter[Path.HOST]
    assert counter.bytes == size


def test_the_longest_messages_are_sent_in_packets() -> None:
    world = Linked(SETUP, locally=True)
    one, other = world.sides
    source, sink = one.buffer(MAX_MESSAGE + 1), other.buffer(MAX_MESSAGE + 1)
    connection = world.local[0].of(one.qps[0])
    assert connection is not None
    for size, sent in ((MAX_MESSAGE + 1, 0), (MAX_MESSAGE, 1)):
        wr = SendWR(WRITE, (source.sge(size, 0),), 1, SendFlags.SIGNALED, sink.address, sink.rkey)
        assert connection.send([wr], 0) == sent
