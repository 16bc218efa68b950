"""Work that fails: in its turn, by the status that the standard names, and all after it flushed.

Valid work is posted before and after what fails. The earlier work is done; what fails has a
completion even if it was not signalled; the later work does nothing.
IBA 9.9.2, 9.9.3, 10.3.1, 10.8.3.3.
"""

from collections.abc import Callable
from random import Random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import VerbsError
from rdmawire.fabric.link import Chances
from rdmawire.memory.key import Access
from rdmawire.memory.mw import Bind, MemoryWindow, bind_window
from rdmawire.verbs.async_event import (
    CommunicationEstablished,
)
from rdmawire.verbs.enums import QPState, WCOpcode, WCStatus, WorkCompletion
from rdmawire.verbs.profile import IBTA, RXE, Profile, named
from rdmawire.verbs.qp_attr import QPAttrMask
from rdmawire.verbs.wr import RecvWR, SendFlags, SendOpcode, SendWR, Sge
from rdmawire.wire.management import MTU
from tests.effort import searching
from tests.stateful.connection import PATIENCE, Lan, connect, flows_between, lan, reliable
from tests.stateful.failures import FAILURES, MTU_256, Failure, remote
from tests.stateful.flow import NUMBERS, SOURCE, Flow, Way
from tests.stateful.strategies import PSNS

_W, _O = WCStatus, SendOpcode
LENGTHS = st.sampled_from([0, 1, MTU_256, MTU_256 + 1, 3 * MTU_256])


class Scene:
    """Two hosts, a flow between them, and what happened there."""

    def __init__(self, failure: Failure, profile: Profile, psn: int) -> None:
        self.lan: Lan = lan(2, [profile, profile], ipv6=False, latency=1000)
        ends = reliable(*self.lan.hosts, shared=False)
        attributes = failure.attributes._replace(path_mtu=MTU.MTU_256)
        connect(*ends, (psn, psn), attributes)
        self.flow, self.back = flows_between(self.lan.simulator, *ends)
        self.flushed: list[int] = []
        self.receive = RecvWR()

    def work(self, kinds: list[int], length: int) -> None:
        """Good work, done by the model."""
        for kind in kinds:
            _GOOD[kind](self.flow, length, SendFlags.SIGNALED if kind % 2 else SendFlags(0))

    def fail(self, failure: Failure, signaled: bool) -> int:
        """The work that fails, and its receive."""
        recv = failure.receives(self.flow)
        if recv is not None:
            place = self.flow.receiver
            place.host.nic.post_recv(place.qp, [recv])
            self.receive = recv
        number = next(NUMBERS)
        flags = SendFlags.SIGNALED if signaled else SendFlags(0)
        self.post(failure.work(self.flow)._replace(wr_id=number, flags=flags))
        return number

    def adopt(self, failure: Failure) -> None:
        """Whole packets of a message may stand in its receive before the one that fails."""
        (sge,) = failure.work(self.flow).sges or (Sge(0, 0, 0),)
        whole = sge.length - 1 - (sge.length - 1) % MTU_256
        if failure.receive is _W.LOC_LEN_ERR and whole > 0:
            data = self.flow.sender.source.read((sge,))[:whole]
            self.flow.receiver.arena.poke(self.receive.sges[0].address, data)

    def post(self, wr: SendWR) -> None:
        sender = self.flow.sender
        sender.host.nic.post_send(sender.qp, [wr])

    def more(self, kinds: list[int]) -> None:
        """Later work, of which nothing is ever done."""
        for kind in kinds:
            opcode = (_O.RDMA_WRITE, _O.SEND, _O.RDMA_READ, _O.ATOMIC_FETCH_AND_ADD)[kind]
            self.flushed.append(next(NUMBERS))
            flags = SendFlags.SIGNALED if kind % 2 else SendFlags(0)
            wr = remote(self.flow, opcode, 8)
            self.post(wr._replace(wr_id=self.flushed[-1], flags=flags))

    def completions(self, place: int) -> list[WorkCompletion]:
        return self.lan.hosts[place].cq.poll(1000)

    def events(self, place: int) -> list[type]:
        """The kinds of events, but for the peer's first word."""
        kinds = [type(event) for event in iter(self.lan.hosts[place].nic.next_event, None)]
        return [kind for kind in kinds if kind is not CommunicationEstablished]


def _send(flow: Flow, length: int, flags: int) -> None:
    flow.post_receive([1000], 3)
    flow.send(flow.sender.source.take([length]), flags, imm=length)


_GOOD: Final[tuple[Callable[[Flow, int, int], None], ...]] = (
    lambda flow, length, flags: flow.write(
        flow.sender.source.take([length]), flags, flow.ways[0], 5
    ),
    _send,
    lambda flow, length, flags: flow.read(
        flow.sender.sink.take([length], 9), flags, flow.ways[0], 3
    ),
    lambda flow, _, flags: flow.fetch_add(
        flow.sender.sink.take([8], 9), flags, flow.ways[0], 8, 77
    ),
)
KINDS = st.lists(st.integers(0, 3), max_size=6)


@pytest.mark.parametrize("device", ["ibta", "rxe"])
@pytest.mark.parametrize("what", FAILURES)
@searching(3)
@given(before=KINDS, after=KINDS, length=LENGTHS, signaled=st.booleans(), psn=PSNS)
def test_failing_work_ends_the_queue_in_order(
    what: str,
    device: str,
    before: list[int],
    after: list[int],
    length: int,
    signaled: bool,
    psn: int,
) -> None:
    failure, profile = FAILURES[what], named(device)
    if failure.attributes.qp_access_flags != PATIENCE.qp_access_flags:
        before = [kind for kind in before if kind == 1]
    scene = Scene(failure, profile, psn)
    scene.work(before, length)
    failed = scene.fail(failure, signaled)
    scene.more(after)
    scene.lan.simulator.run()
    _check_sender(scene, failure, failed, profile)
    _check_receiver(scene, failure, profile)
    for flow in (scene.flow, scene.back):
        flow.check(strict=True)
    scene.adopt(failure)
    for flow in (scene.flow, scene.back):
        flow.sender.arena.check()


def _status(failure: Failure, profile: Profile) -> WCStatus:
    """What fails, with what the device answers to a message that is too long."""
    if failure.receive is _W.LOC_LEN_ERR and profile is RXE:
        return _W.REM_OP_ERR
    if failure in _OF_MANAGEMENT:
        return profile.memory_management_error
    return failure.status


_OF_MANAGEMENT = (FAILURES["registration too long"], FAILURES["invalidation of no key"])


def _receive_status(failure: Failure, profile: Profile) -> WCStatus | None:
    """How its receive ends."""
    if failure.receive is _W.LOC_LEN_ERR and profile is RXE:
        return _W.LOC_QP_OP_ERR
    return failure.receive


def _check_sender(scene: Scene, failure: Failure, failed: int, profile: Profile) -> None:
    qp = scene.flow.sender.qp
    assert qp.state is QPState.ERR
    scene.more([0, 1])  # what is posted now is flushed at once
    found = [(done.wr_id, done.status) for done in scene.completions(0)]
    before = [(number, status) for number, status, _ in scene.flow.done]
    flushed = [(number, _W.WR_FLUSH_ERR) for number in scene.flushed]
    assert found == [*before, (failed, _status(failure, profile)), *flushed]
    assert scene.events(0) == []
    with pytest.raises(VerbsError):
        scene.lan.hosts[0].nic.modify_qp(qp, PATIENCE._replace(qp_state=QPState.RTS), _STATE)


_STATE = QPAttrMask.STATE


def _check_receiver(scene: Scene, failure: Failure, profile: Profile) -> None:
    qp = scene.flow.receiver.qp
    assert qp.state is (QPState.ERR if failure.peer_fails else QPState.RTS)
    scene.flow.match()
    found = scene.completions(1)
    assert all(done.opcode & WCOpcode.RECV for done in found)
    wanted = [told[:2] for told in scene.flow.received]
    broken = [] if failure.receive is None else [_receive_status(failure, profile)]
    count = len(wanted)
    assert [(done.wr_id, done.status) for done in found[:count]] == wanted
    assert [done.status for done in found[count:]] == broken
    assert scene.events(1) == ([] if failure.event is None else [failure.event])


@searching(20)
@given(before=KINDS, after=KINDS, length=LENGTHS, psn=PSNS, retries=st.integers(0, 7))
def test_a_link_that_loses_all_frames_ends_the_queue_in_order(
    before: list[int], after: list[int], length: int, psn: int, retries: int
) -> None:
    failure = Failure(
        lambda flow: remote(flow, _O.RDMA_WRITE, 8),
        _W.RETRY_EXC_ERR,
        attributes=PATIENCE._replace(retry_cnt=retries),
    )
    scene = Scene(failure, IBTA, psn)
    scene.work(before, length)
    scene.lan.simulator.run()
    scene.lan.link.chances = Chances(Random(0), drop=1.0)
    failed = scene.fail(failure, signaled=False)
    scene.more(after)
    scene.lan.simulator.run()
    _check_sender(scene, failure, failed, IBTA)
    _check_receiver(scene, failure, IBTA)


@pytest.mark.parametrize("srq", [False, True])
def test_receives_left_behind_are_flushed_in_order(srq: bool) -> None:
    failure = FAILURES["WRITE with no key"]
    scene = Scene(failure, IBTA, 0)
    place = scene.flow.receiver
    if srq:
        ends = reliable(*scene.lan.hosts, shared=True)
        connect(*ends, (0, 0), PATIENCE._replace(path_mtu=MTU.MTU_256))
        scene.flow = flows_between(scene.lan.simulator, *ends)[0]
        place = scene.flow.receiver
    for _ in range(5):
        scene.flow.post_receive([10], 1)
    scene.fail(failure, signaled=True)
    scene.lan.simulator.run()
    found = [(done.wr_id, done.status) for done in scene.completions(1)]
    left = [] if srq else [(recv.wr_id, _W.WR_FLUSH_ERR) for recv in scene.flow.receives]
    assert found == left
    assert place.qp.state is QPState.ERR


def _ended(scene: Scene) -> list[WCStatus]:
    return [done.status for done in scene.completions(0)]


def _of_a_region(flow: Flow) -> int:
    return flow.receiver.target.region.rkey


def _of_none(_: Flow) -> int:
    return 0xDEAD


def _of_another_queue_pair(flow: Flow) -> int:
    """A window that is bound on a queue pair, which is not the one that is asked."""
    place = flow.receiver
    memory = place.host.nic.memory
    window = memory.alloc_mw(place.host.pd, 2)
    start = place.target.region.iova
    bind = Bind(start, 8, Access.REMOTE_READ, place.qp.qp_num + 1, place.host.pd, window.key + 1)
    return bind_window(memory.keys, window, place.target.region, bind)


@pytest.mark.parametrize("key", [_of_a_region, _of_none, _of_another_queue_pair])
@pytest.mark.parametrize("length", [0, 8, 3 * MTU_256])
def test_a_key_that_the_sender_cannot_take_back(key: Callable[[Flow], int], length: int) -> None:
    """IBA 9.9.3, class J: the message is acknowledged, and the responder ends with an error."""
    scene = Scene(FAILURES["no receive"], IBTA, 0)
    flow = scene.flow
    flow.post_receive([1000], 0)
    rkey = key(flow)
    sges = flow.sender.source.take([length])
    scene.post(SendWR(_O.SEND_WITH_INV, sges, invalidate_rkey=rkey))
    scene.lan.simulator.run()
    assert _ended(scene) == [_W.SUCCESS]
    assert [done.status for done in scene.completions(1)] == [_W.REM_INV_REQ_ERR]
    assert flow.receiver.qp.state is QPState.ERR


def _deregister(flow: Flow) -> None:
    flow.receiver.host.nic.memory.dereg_mr(flow.receiver.target.region)


def _unbind(flow: Flow) -> None:
    """Through the verb, while a message by the window is coming in."""
    memory = flow.receiver.host.nic.memory
    window = flow.ways[-1].grant
    assert isinstance(window, MemoryWindow)
    memory.dealloc_mw(window)


@pytest.mark.parametrize("opcode", [_O.RDMA_WRITE, _O.RDMA_READ])
@pytest.mark.parametrize("window", [False, True])
def test_memory_that_goes_away_in_the_middle_of_a_message(opcode: SendOpcode, window: bool) -> None:
    """The message ends with a NAK, and the memory of the key is not touched any more."""
    scene = Scene(FAILURES["no receive"], IBTA, 0)
    flow, simulator = scene.flow, scene.lan.simulator
    if window:
        _bind_all(flow)
    wr = remote(flow, opcode, 100 * MTU_256)._replace(rkey=flow.ways[-1].rkey)
    area = flow.sender.sink if opcode is _O.RDMA_READ else flow.sender.source
    wr = wr._replace(sges=(Sge(area.region.iova, SOURCE, area.region.lkey),))
    scene.post(wr)
    _until_half_way(scene, opcode)
    before = flow.receiver.arena.found()
    (_unbind if window else _deregister)(flow)
    simulator.run()
    assert _ended(scene) == [_W.REM_ACCESS_ERR]
    assert flow.receiver.qp.state is QPState.ERR
    assert flow.receiver.arena.found() == before


def _bind_all(flow: Flow) -> None:
    """A window over all of the target, on the receiver's queue pair."""
    place, whole = flow.receiver, flow.ways[0]
    memory = place.host.nic.memory
    window = memory.alloc_mw(place.host.pd, 2)
    rights = Access.REMOTE_WRITE | Access.REMOTE_READ
    qpn = place.qp.qp_num
    bind = Bind(whole.iova, whole.length, rights, qpn, place.host.pd, window.key + 1)
    rkey = bind_window(memory.keys, window, place.target.region, bind)
    flow.ways.append(Way(window, rkey, whole.iova, whole.memory, whole.length))


def _until_half_way(scene: Scene, opcode: SendOpcode) -> None:
    """Ten packets of the message are there, and no more."""
    sender, receiver = scene.lan.hosts
    frames = sender.nic.transmit(0)[: 1 if opcode is _O.RDMA_READ else 10]
    for frame in frames:
        receiver.nic.receive(frame, 0)
    if opcode is _O.RDMA_READ:
        for frame in receiver.nic.transmit(0, 10):
            sender.nic.receive(frame, 0)
