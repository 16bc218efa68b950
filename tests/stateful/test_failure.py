"""Work that fails: in its turn, by the status that the standard names, and all behind it flushed.

Good work stands before what fails, and more behind it. What was before is done; what fails is
told even if it was not signalled; what is behind does nothing. IBA 9.9.2, 9.9.3, 10.3.1, 10.8.3.3.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import VerbsError
from rdmawire.fabric.link import Chances
from rdmawire.memory.access import Access
from rdmawire.memory.fast import FastRegistration
from rdmawire.memory.mw import Bind, MemoryWindow, bind_window
from rdmawire.nic.attribute import QPAttributes, QPAttrMask
from rdmawire.nic.completion import WCOpcode, WCStatus, WorkCompletion
from rdmawire.nic.event import (
    AccessViolation,
    CommunicationEstablished,
    Event,
    InvalidRequest,
)
from rdmawire.nic.profile import IBTA, RXE, Profile, named
from rdmawire.nic.state import QPState
from rdmawire.nic.work import BindMW, RecvWR, RegMR, SendFlags, SendOpcode, SendWR, Sge
from rdmawire.wire.management import MTU
from tests.stateful.connection import PATIENCE, Lan, connect, flows_between, lan, reliable
from tests.stateful.effort import searching
from tests.stateful.flow import NUMBERS, SOURCE, Flow, Way
from tests.stateful.words import PSNS

_W, _O = WCStatus, SendOpcode
MTU_256 = 256
LENGTHS = st.sampled_from([0, 1, MTU_256, MTU_256 + 1, 3 * MTU_256])


@dataclass(frozen=True)
class Failure:
    """What is wrong, and what follows: for the work, the peer, the peer's receive and its owner."""

    work: Callable[[Flow], SendWR]
    status: WCStatus
    peer_fails: bool = False
    receive: WCStatus | None = None
    event: type[Event] | None = None
    receives: Callable[[Flow], RecvWR | None] = lambda _: None
    attributes: QPAttributes = PATIENCE


def _remote(flow: Flow, opcode: SendOpcode, size: int, at: int = 0) -> SendWR:
    """Good work on the peer's target, ``at`` so far from its start."""
    way = flow.ways[0]
    sink = opcode in (_O.RDMA_READ, _O.ATOMIC_CMP_AND_SWP, _O.ATOMIC_FETCH_AND_ADD)
    area = flow.sender.sink if sink else flow.sender.source
    sges = (Sge(area.region.iova, size, area.region.lkey),)
    return SendWR(opcode, sges, remote_address=way.iova + at, rkey=way.rkey)


def _keyed(opcode: SendOpcode, length: int, area: str) -> Callable[[Flow], SendWR]:
    """Work that uses the key of another area of the peer's."""

    def work(flow: Flow) -> SendWR:
        region = getattr(flow.receiver, area).region
        wr = _remote(flow, opcode, length)
        return wr._replace(rkey=region.rkey, remote_address=region.iova)

    return work


def _local(opcode: SendOpcode, make: Callable[[Flow], Sge]) -> Callable[[Flow], SendWR]:
    """Work with a wrong piece of local memory."""
    return lambda flow: _remote(flow, opcode, 8)._replace(sges=(make(flow),))


def _past_the_end(flow: Flow) -> Sge:
    region = flow.sender.source.region
    return Sge(region.end - 7, 8, region.lkey)


def _past_the_start(flow: Flow) -> Sge:
    region = flow.sender.source.region
    return Sge(region.iova - 1, 8, region.lkey)


def _of_no_key(flow: Flow) -> Sge:
    return Sge(flow.sender.source.region.iova, 8, flow.sender.source.region.lkey + 1)


def _not_writable(flow: Flow) -> Sge:
    return flow.sender.source.take([8])[0]


def _of_the_peer(flow: Flow) -> Sge:
    return flow.receiver.inbox.take([8])[0]._replace(lkey=0xDEAD)


def _short_receive(flow: Flow) -> RecvWR:
    return RecvWR(flow.receiver.inbox.take([99]), next(NUMBERS))


def _bad_receive(flow: Flow) -> RecvWR:
    (sge,) = flow.receiver.inbox.take([1000])
    return RecvWR((sge._replace(lkey=sge.lkey + 1),), next(NUMBERS))


def _receive_one_short(flow: Flow) -> RecvWR:
    return RecvWR(flow.receiver.inbox.take([4 * MTU_256 - 1]), next(NUMBERS))


def _good_receive(flow: Flow) -> RecvWR:
    return RecvWR(flow.receiver.inbox.take([1000]), next(NUMBERS))


def _receive_in_read_only(flow: Flow) -> RecvWR:
    return RecvWR(flow.receiver.source.take([1000]), next(NUMBERS))


def _bad_bind(flow: Flow) -> SendWR:
    place = flow.sender
    window = place.host.nic.memory.alloc_mw(place.host.pd, 2)
    bind = Bind(place.source.region.iova, 8, Access.REMOTE_READ, rkey=window.key + 2)
    return SendWR(_O.BIND_MW, bind=BindMW(window, place.source.region, bind))


def _bad_registration(flow: Flow) -> SendWR:
    place = flow.sender
    region = place.host.nic.memory.alloc_mr(place.host.pd, 1)
    pages = [place.arena.memory.base, place.arena.memory.base + 4096]
    registration = FastRegistration(region.key, 0, 8192, Access.LOCAL_WRITE, pages)
    return SendWR(_O.REG_MR, reg=RegMR(region, registration))


def _refused(work: Callable[[Flow], SendWR]) -> Failure:
    return Failure(work, _W.REM_ACCESS_ERR, peer_fails=True, event=AccessViolation)


def _invalid(work: Callable[[Flow], SendWR]) -> Failure:
    return Failure(work, _W.REM_INV_REQ_ERR, peer_fails=True, event=InvalidRequest)


def _without(right: int, opcode: SendOpcode) -> Failure:
    """The peer's queue pair does not have the right."""
    allowed = PATIENCE.qp_access_flags & ~right
    return Failure(
        lambda flow: _remote(flow, opcode, 8),
        _W.REM_INV_REQ_ERR,
        peer_fails=True,
        event=InvalidRequest,
        attributes=PATIENCE._replace(qp_access_flags=allowed),
    )


FAILURES: Final[dict[str, Failure]] = {
    "source with no key": Failure(_local(_O.SEND, _of_no_key), _W.LOC_PROT_ERR),
    "source past its end": Failure(_local(_O.RDMA_WRITE, _past_the_end), _W.LOC_PROT_ERR),
    "source before its start": Failure(_local(_O.RDMA_WRITE, _past_the_start), _W.LOC_PROT_ERR),
    "source of the peer": Failure(_local(_O.SEND, _of_the_peer), _W.LOC_PROT_ERR),
    "READ into read-only": Failure(_local(_O.RDMA_READ, _not_writable), _W.LOC_PROT_ERR),
    "atomic into read-only": Failure(
        _local(_O.ATOMIC_FETCH_AND_ADD, _not_writable), _W.LOC_PROT_ERR
    ),
    "bind without the right": Failure(_bad_bind, _W.MW_BIND_ERR),
    "registration too long": Failure(_bad_registration, _W.LOC_QP_OP_ERR),
    "invalidation of no key": Failure(
        lambda _: SendWR(_O.LOCAL_INV, invalidate_rkey=0xDEAD), _W.LOC_QP_OP_ERR
    ),
    "WRITE with no key": _refused(
        lambda flow: _remote(flow, _O.RDMA_WRITE, 8)._replace(rkey=0xDEAD)
    ),
    "WRITE past the end": _refused(
        lambda flow: _remote(flow, _O.RDMA_WRITE, 8, flow.ways[0].length - 7)
    ),
    "long WRITE past the end": _refused(
        lambda flow: _remote(flow, _O.RDMA_WRITE, 4 * MTU_256, flow.ways[0].length - MTU_256)
    ),
    "WRITE before the start": _refused(lambda flow: _remote(flow, _O.RDMA_WRITE, 8, -1)),
    "WRITE round 64 bits": _refused(
        lambda flow: _remote(flow, _O.RDMA_WRITE, 8)._replace(remote_address=(1 << 64) - 4)
    ),
    "WRITE without the right": _refused(_keyed(_O.RDMA_WRITE, 8, "source")),
    "WRITE to local memory": _refused(_keyed(_O.RDMA_WRITE, 8, "inbox")),
    "READ with no key": _refused(lambda flow: _remote(flow, _O.RDMA_READ, 8)._replace(rkey=0xDEAD)),
    "READ past the end": _refused(
        lambda flow: _remote(flow, _O.RDMA_READ, 800, flow.ways[0].length - 799)
    ),
    "READ without the right": _refused(_keyed(_O.RDMA_READ, 8, "inbox")),
    "atomic without the right": _refused(_keyed(_O.ATOMIC_FETCH_AND_ADD, 8, "inbox")),
    "ATOMIC WRITE without the right": _refused(_keyed(_O.ATOMIC_WRITE, 8, "inbox")),
    "atomic past the end": _refused(
        lambda flow: _remote(flow, _O.ATOMIC_CMP_AND_SWP, 8, flow.ways[0].length)
    ),
    "atomic misaligned": _invalid(lambda flow: _remote(flow, _O.ATOMIC_CMP_AND_SWP, 8, 4)),
    "ATOMIC WRITE misaligned": _invalid(lambda flow: _remote(flow, _O.ATOMIC_WRITE, 8, 1)),
    "queue pair without WRITE": _without(Access.REMOTE_WRITE, _O.RDMA_WRITE),
    "queue pair without READ": _without(Access.REMOTE_READ, _O.RDMA_READ),
    "queue pair without atomics": _without(Access.REMOTE_ATOMIC, _O.ATOMIC_CMP_AND_SWP),
    "FLUSH without a placement": _invalid(
        lambda flow: _remote(flow, _O.FLUSH, 0)._replace(length=8)
    ),
    "SEND too long": Failure(
        lambda flow: _remote(flow, _O.SEND, 100),
        _W.REM_INV_REQ_ERR,
        peer_fails=True,
        receive=_W.LOC_LEN_ERR,
        receives=_short_receive,
    ),
    "long SEND too long": Failure(
        lambda flow: _remote(flow, _O.SEND, 4 * MTU_256),
        _W.REM_INV_REQ_ERR,
        peer_fails=True,
        receive=_W.LOC_LEN_ERR,
        receives=_receive_one_short,
    ),
    "receive with no key": Failure(
        lambda flow: _remote(flow, _O.SEND, 8),
        _W.REM_OP_ERR,
        peer_fails=True,
        receive=_W.LOC_PROT_ERR,
        receives=_bad_receive,
    ),
    "receive in read-only": Failure(
        lambda flow: _remote(flow, _O.SEND, 8),
        _W.REM_OP_ERR,
        peer_fails=True,
        receive=_W.LOC_PROT_ERR,
        receives=_receive_in_read_only,
    ),
    "no receive": Failure(
        lambda flow: _remote(flow, _O.SEND, 8),
        _W.RNR_RETRY_EXC_ERR,
        attributes=PATIENCE._replace(rnr_retry=2),
    ),
    "no receive for a long SEND": Failure(
        lambda flow: _remote(flow, _O.SEND, 5 * MTU_256),
        _W.RNR_RETRY_EXC_ERR,
        attributes=PATIENCE._replace(rnr_retry=0),
    ),
    "no receive for an immediate": Failure(
        lambda flow: _remote(flow, _O.RDMA_WRITE_WITH_IMM, 0),
        _W.RNR_RETRY_EXC_ERR,
        attributes=PATIENCE._replace(rnr_retry=1),
    ),
}


class Scene:
    """Two hosts, a flow between them, and what happened there."""

    def __init__(self, failure: Failure, profile: Profile, psn: int) -> None:
        self.lan: Lan = lan(2, [profile, profile], ipv6=False, latency=1000)
        ends = reliable(*self.lan.hosts, shared=False)
        attributes = failure.attributes._replace(path_mtu=MTU.OCTETS_256)
        connect(*ends, (psn, psn), attributes)
        self.flow, self.back = flows_between(self.lan.world, *ends)
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
            place.host.nic.post_recv(place.qp, [recv], 0)
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
        sender.host.nic.post_send(sender.qp, [wr], self.lan.world.now)

    def more(self, kinds: list[int]) -> None:
        """Work behind it, of which nothing is ever done."""
        for kind in kinds:
            opcode = (_O.RDMA_WRITE, _O.SEND, _O.RDMA_READ, _O.ATOMIC_FETCH_AND_ADD)[kind]
            self.flushed.append(next(NUMBERS))
            flags = SendFlags.SIGNALED if kind % 2 else SendFlags(0)
            wr = _remote(self.flow, opcode, 8)
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
@searching(6)
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
    scene.lan.world.run()
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
    return failure.status


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
def test_a_dead_link_ends_the_queue_in_order(
    before: list[int], after: list[int], length: int, psn: int, retries: int
) -> None:
    failure = Failure(
        lambda flow: _remote(flow, _O.RDMA_WRITE, 8),
        _W.RETRY_EXC_ERR,
        attributes=PATIENCE._replace(retry_cnt=retries),
    )
    scene = Scene(failure, IBTA, psn)
    scene.work(before, length)
    scene.lan.world.run()
    scene.lan.link.chances = Chances(Random(0), drop=1.0)
    failed = scene.fail(failure, signaled=False)
    scene.more(after)
    scene.lan.world.run()
    _check_sender(scene, failure, failed, IBTA)
    _check_receiver(scene, failure, IBTA)


@pytest.mark.parametrize("srq", [False, True])
def test_receives_left_behind_are_flushed_in_order(srq: bool) -> None:
    failure = FAILURES["WRITE with no key"]
    scene = Scene(failure, IBTA, 0)
    place = scene.flow.receiver
    if srq:
        ends = reliable(*scene.lan.hosts, shared=True)
        connect(*ends, (0, 0), PATIENCE._replace(path_mtu=MTU.OCTETS_256))
        scene.flow = flows_between(scene.lan.world, *ends)[0]
        place = scene.flow.receiver
    for _ in range(5):
        scene.flow.post_receive([10], 1)
    scene.fail(failure, signaled=True)
    scene.lan.world.run()
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
    bind = Bind(start, 8, Access.REMOTE_READ, place.qp.number + 1, place.host.pd, window.key + 1)
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
    scene.lan.world.run()
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
    """The message ends with a NAK, and what lies behind the key is not touched any more."""
    scene = Scene(FAILURES["no receive"], IBTA, 0)
    flow, world = scene.flow, scene.lan.world
    if window:
        _bind_all(flow)
    wr = _remote(flow, opcode, 100 * MTU_256)._replace(rkey=flow.ways[-1].rkey)
    area = flow.sender.sink if opcode is _O.RDMA_READ else flow.sender.source
    wr = wr._replace(sges=(Sge(area.region.iova, SOURCE, area.region.lkey),))
    scene.post(wr)
    _until_half_way(scene, opcode)
    before = flow.receiver.arena.found()
    (_unbind if window else _deregister)(flow)
    world.run()
    assert _ended(scene) == [_W.REM_OP_ERR]
    assert flow.receiver.qp.state is QPState.ERR
    assert flow.receiver.arena.found() == before


def _bind_all(flow: Flow) -> None:
    """A window over all of the target, on the receiver's queue pair."""
    place, whole = flow.receiver, flow.ways[0]
    memory = place.host.nic.memory
    window = memory.alloc_mw(place.host.pd, 2)
    rights = Access.REMOTE_WRITE | Access.REMOTE_READ
    qpn = place.qp.number
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
