"""Two adapters and lists of actions, which are done in bursts or one by one.

Both ways have to give the same frames, completions, events, counters and memory. One by one means:
each work request is posted alone, each frame is received alone, and no code for runs is used.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from enum import Enum
from functools import cache
from typing import Any, NamedTuple
from unittest.mock import patch

from rdmawire.errors import VerbsError
from rdmawire.fabric.host import Host
from rdmawire.fabric.pair import ATTRIBUTES
from rdmawire.ib import requester, responder_state
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.ib.rules import Rules
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.memory.page import Path
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.profile import IBTA, Profile
from rdmawire.verbs.qp_attr import QPCap
from rdmawire.verbs.wr import RecvWR, SendFlags, SendOpcode, SendWR, Sge
from rdmawire.wire.management import MTU

SIZE = 1 << 17
SLOT = 3000
"""Bytes between the memory of two work requests: some of it lies across the border of a page."""
SLOTS = SIZE // SLOT
"""More than one action posts: a READ without a fence may be placed before or after the memory of
work behind it is read."""


class Place(Enum):
    """The memory of a work request."""

    OWN = "memory of one SGE"
    SPLIT = "memory of two SGEs"
    INLINE = "bytes in the work request"
    WRONG_LKEY = "memory with an invalid L_Key"
    WRONG_RKEY = "remote memory with an invalid R_Key"
    BEYOND = "memory beyond the end of the region"


ATOMICS = SendOpcode.ATOMIC_CMP_AND_SWP, SendOpcode.ATOMIC_FETCH_AND_ADD


class Work(NamedTuple):
    """A work request of ``size`` bytes: 8 for an atomic."""

    opcode: SendOpcode
    size: int
    flags: int = SendFlags.SIGNALED
    place: Place = Place.OWN


class PostSend(NamedTuple):
    """Post work on queue pair ``qp`` of a side (0 or 1)."""

    side: int
    qp: int
    works: Sequence[Work]


class PostRecv(NamedTuple):
    """Post receives of ``sizes`` bytes."""

    side: int
    qp: int
    sizes: Sequence[int]


class Move(NamedTuple):
    """Deliver at most ``most`` frames of a side; each of ``faults`` changes the list of frames."""

    side: int
    most: int = 256
    faults: Sequence[tuple[str, int]] = ()


class Poll(NamedTuple):
    """Poll at most ``most`` completions of a side."""

    side: int
    most: int


class Arm(NamedTuple):
    """Request a completion event of a side's CQ."""

    side: int
    solicited_only: bool = False


class Wait(NamedTuple):
    """Let time pass until the next timer of either side."""


Action = PostSend | PostRecv | Move | Poll | Arm | Wait


class Setup(NamedTuple):
    """How the adapters are set up: both sides are equal, but for the MTU."""

    kind: QPType = QPType.RC
    qps: int = 1
    mtus: tuple[MTU, MTU] = (MTU.MTU_256, MTU.MTU_256)
    max_send_wr: int = 64
    max_recv_wr: int = 64
    cqe: int = 512
    profile: Profile = IBTA
    rules: Rules = STANDARD
    first_psn: int = 100
    in_flight: int | None = None


class Side(Host):
    """A host with queue pairs that share a CQ, and one region."""

    def __init__(self, number: int, setup: Setup) -> None:
        super().__init__(number, profile=setup.profile, rules=setup.rules)
        self.cq = self.nic.create_cq(setup.cqe)
        cap = QPCap(setup.max_send_wr, setup.max_recv_wr, 2, 2, 256)
        init = QPInit(self.pd, self.cq, self.cq, cap)
        self.qps = [self.nic.create_qp(setup.kind, init) for _ in range(setup.qps)]
        self.data = self.buffer(SIZE)
        self.data.write(_bytes(number))
        self.posted = 0

    def place(self) -> int:
        """An offset, another one for each work request."""
        self.posted += 1
        return self.posted % SLOTS * SLOT


@cache
def _bytes(number: int) -> bytes:
    """What the memory of a host holds at the start."""
    return bytes((number + index * 7) % 251 for index in range(SIZE))


class World:
    """Two sides, and a log of all that can be seen of them."""

    def __init__(self, setup: Setup) -> None:
        self.sides = Side(1, setup), Side(2, setup)
        self.now = 0
        self.log: list[object] = []
        for index in range(setup.qps):
            for side in self.sides:
                self._connect(side, index, setup)

    def _connect(self, side: Side, index: int, setup: Setup) -> None:
        number = self.sides.index(side)
        peer, qp = self.sides[1 - number], side.qps[index]
        psns = (setup.first_psn, ATTRIBUTES.rq_psn)
        attributes = ATTRIBUTES._replace(
            sq_psn=psns[number],
            rq_psn=psns[1 - number],
            path_mtu=setup.mtus[number],
            timeout=8,
            ah=side.path_to(peer),
            dest_qp_num=peer.qps[index].qp_num,
        )
        side.bring_up(qp, attributes)
        if setup.in_flight is not None and qp.service.reliable:
            side.nic.limit_in_flight(qp, setup.in_flight)

    def act(self, action: Action, *, bursts: bool) -> None:
        """Do one action, and log what it shows."""
        match action:
            case PostSend(side, qp, works):
                own, other = self.sides[side], self.sides[1 - side]
                made = [send_wr(own, other, work) for work in works]
                self._post(own.nic.post_send, own.qps[qp % len(own.qps)], made, bursts=bursts)
            case PostRecv(side, qp, sizes):
                own = self.sides[side]
                wrs = [_recv_wr(own, size) for size in sizes]
                self._post(own.nic.post_recv, own.qps[qp % len(own.qps)], wrs, bursts=bursts)
            case Move(side, most, faults):
                self._move(side, most, faults, bursts=bursts)
            case Poll(side, most):
                self.log.append(self.sides[side].cq.poll(most))
            case Arm(side, solicited_only):
                self.sides[side].cq.req_notify(solicited_only)
            case Wait():
                self._wait()

    def _post(
        self, post: Callable[[QueuePair, Any], None], qp: QueuePair, work: Any, *, bursts: bool
    ) -> None:
        try:
            for one in [work] if bursts else work:
                post(qp, one)
        except VerbsError as error:
            self.log.append(str(error))

    def _move(
        self, side: int, most: int, faults: Sequence[tuple[str, int]], *, bursts: bool
    ) -> None:
        frames = self.sides[side].nic.transmit(self.now, most)
        self.log.append(frames)
        frames = list(frames)
        for fault, at in faults:
            if frames:
                _FAULTS[fault](frames, at % len(frames))
        nic = self.sides[1 - side].nic
        if bursts:
            nic.receive_all(frames, self.now)
        else:
            for frame in frames:
                nic.receive(frame, self.now)

    def _wait(self) -> None:
        times = [side.nic.next_timer() for side in self.sides]
        self.log.append(times)
        due = [time for time in times if time is not None]
        self.now = max(self.now, min(due, default=self.now))
        for side in self.sides:
            side.nic.handle_timer(self.now)

    def finish(self, *, bursts: bool) -> list[object]:
        """Move frames and wait, until nothing happens or often enough; return the log."""
        for _ in range(12):
            before = len(self.log)
            for side in (0, 1, 0, 1):
                self.act(Move(side), bursts=bursts)
            if not any(self.log[before:]):
                self.act(Wait(), bursts=bursts)
        self.log += [_seen(each) for each in self.sides]
        return self.log


def send_wr(own: Side, other: Side, work: Work) -> SendWR:
    offset, size, place = own.place(), work.size, work.place
    sges: tuple[Sge, ...] = (own.data.sge(size, offset),)
    flags, inline = int(work.flags), b""
    reads = work.opcode is SendOpcode.RDMA_READ or work.opcode in ATOMICS
    if place is Place.SPLIT:
        half = size // 2
        sges = own.data.sge(half, offset), own.data.sge(size - half, offset + 7)
    elif place is Place.INLINE and not reads:
        sges, inline, flags = (), bytes(size % 257), flags | int(SendFlags.INLINE)
    elif place is Place.WRONG_LKEY:
        sges = (sges[0]._replace(lkey=own.data.region.lkey + 1),)
    elif place is Place.BEYOND:
        sges = (sges[0]._replace(address=own.data.address + SIZE - size + 1),)
    remote, number = other.data, own.posted
    rkey = remote.rkey + (place is Place.WRONG_RKEY)
    address = remote.address + (number * 1777) % (SIZE - size)
    if work.opcode in ATOMICS:
        address -= address % size
        return SendWR(
            work.opcode, sges, number, flags, address, rkey, compare_add=number % 2, swap=number
        )
    return SendWR(work.opcode, sges, number, flags, address, rkey, imm_data=number, inline=inline)


def _recv_wr(own: Side, size: int) -> RecvWR:
    """A receive; one of negative size has two SGEs, one of size 1 an invalid key."""
    offset = own.place()
    sge = own.data.sge(abs(size), offset)
    if size == 1:
        return RecvWR((sge._replace(lkey=sge.lkey + 1),), own.posted)
    if size < 0:
        return RecvWR((sge, own.data.sge(100, offset)), own.posted)
    return RecvWR((sge,), own.posted)


def _corrupt(frames: list[bytes], at: int) -> None:
    frames[at] = frames[at][:-1] + bytes((frames[at][-1] ^ 1,))


_FAULTS: dict[str, Callable[[list[bytes], int], None]] = {
    "lose": lambda frames, at: frames.__delitem__(at),
    "repeat": lambda frames, at: frames.insert(at, frames[at]),
    "delay": lambda frames, at: frames.append(frames.pop(at)),
    "corrupt": _corrupt,
    "cut": lambda frames, at: frames.__setitem__(at, frames[at][:-5]),
}
FAULTS = tuple(_FAULTS)


def _seen(side: Side) -> list[object]:
    """All that can be seen of a side at the end."""
    nic, dma = side.nic, side.nic.memory.counter[Path.HOST]
    seen: list[object] = [side.data.read(), side.cq.poll(1 << 20), side.cq.broken, side.events()]
    seen += [dict(nic.drops), dma.bytes, dma.transactions]
    device = nic.device
    seen += [device.rcv_packets, device.rcv_bytes, device.xmit_packets, device.xmit_bytes]
    return seen + [_seen_of_qp(qp) for qp in side.qps]


def _seen_of_qp(qp: QueuePair) -> list[object]:
    queue, inbound, retry = qp.sq, qp.inbound, qp.retry_state
    names = ("next_psn", "unacked_psn", "in_flight", "ssn", "outstanding_reads", "broken")
    return [
        asdict(qp.counters),
        qp.state,
        [getattr(queue, name) for name in (*names, "awaited_responses")],
        [len(queue.posted), len(queue.sent), len(qp.rq), qp.credit_limit, qp.unasked, qp.halted],
        [inbound.epsn, inbound.msn, inbound.ack_due, inbound.refused, inbound.starved],
        [len(inbound.pending), inbound.reads, inbound.incoming.placed],
        [retry.deadline, retry.retries, retry.rnr_retries, retry.retrying, retry.in_rnr_wait],
        [qp.free_sends, qp.free_receives, qp.send_slots.unpolled(), qp.recv_slots.unpolled()],
    ]


@contextmanager
def without_runs() -> Iterator[None]:
    """Process all packets and work one by one."""
    middles = property(lambda _: 0)
    with (
        patch.object(responder_state.ReadResponse, "unchanged_middles", middles),
        patch.object(requester, "_short_messages", lambda *_: 0),
    ):
        yield


def play(setup: Setup, actions: Sequence[Action], *, bursts: bool) -> list[object]:
    """Do the actions, and return all that can be seen."""
    world = World(setup)
    for action in actions:
        world.act(action, bursts=bursts)
    return world.finish(bursts=bursts)


def both(setup: Setup, actions: Sequence[Action]) -> list[object]:
    """Check that bursts do not change what is seen, and return it."""
    together = play(setup, actions, bursts=True)
    with without_runs():
        singly = play(setup, actions, bursts=False)
    for one, other in zip(singly, together, strict=True):
        assert one == other
    return together
