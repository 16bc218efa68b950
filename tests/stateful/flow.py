"""One direction of a reliable connection beside its model: work in order, each exactly once.

The model does what the standard says at once, in the order of posting. Memory, completions and
receives of the adapters are compared with it when all is at rest.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from rdmawire.fabric.host import ALL_ACCESS
from rdmawire.fabric.simulator import Simulator
from rdmawire.ib.qp import QueuePair
from rdmawire.memory.key import Access
from rdmawire.memory.mw import MemoryWindow
from rdmawire.memory.region import Region
from rdmawire.verbs.enums import WCFlags, WCOpcode, WCStatus, WorkCompletion
from rdmawire.verbs.srq import SharedReceiveQueue
from rdmawire.verbs.wr import VERBS, RecvWR, SendFlags, SendOpcode, SendWR, Sge
from tests.stateful.arena import Area, Arena

TARGET = 40_000
SOURCE = 20_000
SINK = 60_000
INBOX = 160_000
ARENA = 300_000

INLINE = SendFlags.INLINE
NUMBERS = count(1)
"""Of work requests, over all queue pairs: none comes twice."""


class Place:
    """One end of a connection: a queue pair, with memory of its own for each purpose."""

    def __init__(self, arena: Arena, qp: QueuePair, srq: SharedReceiveQueue | None = None) -> None:
        self.arena = arena
        self.host = arena.host
        self.qp = qp
        self.srq = srq
        self.target = arena.area(TARGET, ALL_ACCESS)
        self.source = arena.area(SOURCE, 0)
        self.sink = arena.area(SINK, Access.LOCAL_WRITE)
        self.inbox = arena.area(INBOX, Access.LOCAL_WRITE)


@dataclass(eq=False)
class Way:
    """A key to ``length`` bytes of the peer's target: for the key they begin at ``iova``."""

    grant: Region | MemoryWindow
    rkey: int
    iova: int
    memory: int
    length: int


class Message(NamedTuple):
    """What a receive should report. ``data`` is ``None`` if it places nothing."""

    opcode: WCOpcode
    length: int
    data: bytes | None
    imm: int | None
    invalidated: int | None


@dataclass(eq=False)
class Reading:
    """A READ that is not complete, and what it may find: memory at its turn, and since.

    Behind a fence nothing is done before it is complete, so that it finds nothing of that.
    """

    sges: tuple[Sge, ...]
    address: int
    length: int
    fenced: bool = False
    seen: list[bytes] = field(default_factory=list)


class Flow:
    """Work that ``sender`` posts, and what it does to ``receiver``."""

    def __init__(self, simulator: Simulator, sender: Place, receiver: Place) -> None:
        self.simulator = simulator
        self.sender = sender
        self.receiver = receiver
        target = receiver.target.region
        self.ways = [Way(target, target.rkey, target.iova, target.iova, target.length)]
        self.done: list[tuple[int, WCStatus, WCOpcode]] = []
        self.messages: deque[Message] = deque()
        self.receives: deque[RecvWR] = deque()
        self.received: list[tuple[int, ...]] = []
        self.readings: list[Reading] = []

    # The sender's side.

    def post(self, wr: SendWR, way: Way | None = None, at: int = 0) -> None:
        """Post work; where it has a ``way``, on the bytes ``at`` so far from its start."""
        wr = wr._replace(wr_id=next(NUMBERS))
        if not VERBS[wr.opcode].takes_receive:
            wr = wr._replace(flags=wr.flags & ~SendFlags.SOLICITED)
        if self.sender.qp.free_sends <= 1:  # or the queue would be full for ever
            wr = wr._replace(flags=wr.flags | SendFlags.SIGNALED)
        if wr.flags & SendFlags.FENCE:
            for reading in self.readings:
                reading.fenced = True
        if way is not None:
            wr = wr._replace(rkey=way.rkey, remote_address=way.iova + at)
        if self.receiver.srq is not None:
            wr = wr._replace(remote_srqn=self.receiver.srq.number)
        self.sender.host.nic.post_send(self.sender.qp, (wr,))
        if wr.flags & SendFlags.SIGNALED:
            self.done.append((wr.wr_id, WCStatus.SUCCESS, VERBS[wr.opcode].completion))

    def sending(self, opcode: SendOpcode, sges: tuple[Sge, ...], flags: int) -> SendWR:
        """Return work that sends these SGEs, or their contents inline if that is allowed.

        Inline bytes are given as such or as pieces, which are read at once.
        """
        data = self.sender.source.read(sges)
        if flags & INLINE and len(data) <= self.sender.qp.cap.max_inline_data:
            named = {"inline": data} if len(sges) % 2 else {"sges": sges}
            return SendWR(opcode, flags=flags)._replace(**named)
        return SendWR(opcode, sges, flags=flags & ~INLINE)

    def send(
        self, sges: tuple[Sge, ...], flags: int, imm: int | None = None, way: Way | None = None
    ) -> None:
        """SEND, with an immediate, or taking ``way`` back, where these are given."""
        data = self.sender.source.read(sges)
        wr = self.sending(SendOpcode.SEND, sges, flags)
        if way is not None:
            self.ways.remove(way)
            # Without the fence, a READ that is asked for again may find the key gone.
            opcode, flags = SendOpcode.SEND_WITH_INV, wr.flags | SendFlags.FENCE
            wr = wr._replace(opcode=opcode, flags=flags, invalidate_rkey=way.rkey)
        elif imm is not None:
            wr = wr._replace(opcode=SendOpcode.SEND_WITH_IMM, imm_data=imm)
        self.post(wr)
        key = None if way is None else way.rkey
        self.messages.append(Message(WCOpcode.RECV, len(data), data, imm, key))

    def write(
        self, sges: tuple[Sge, ...], flags: int, way: Way, at: int, imm: int | None = None
    ) -> None:
        data = self.sender.source.read(sges)
        opcode = SendOpcode.RDMA_WRITE if imm is None else SendOpcode.RDMA_WRITE_WITH_IMM
        self.post(self.sending(opcode, sges, flags)._replace(imm_data=imm or 0), way, at)
        self.change(way.memory + at, data)
        if imm is not None:
            receipt = Message(WCOpcode.RECV_RDMA_WITH_IMM, len(data), None, imm, None)
            self.messages.append(receipt)

    def read(self, sges: tuple[Sge, ...], flags: int, way: Way, at: int) -> None:
        self.post(SendWR(SendOpcode.RDMA_READ, sges, flags=flags & ~INLINE), way, at)
        length = sum(sge.length for sge in sges)
        reading = Reading(sges, way.memory + at, length)
        reading.seen.append(self.receiver.arena.peek(reading.address, length))
        self.readings.append(reading)

    def fetch_add(self, sges: tuple[Sge, ...], flags: int, way: Way, at: int, value: int) -> None:
        wr = SendWR(SendOpcode.ATOMIC_FETCH_AND_ADD, sges, flags=flags & ~INLINE)
        self.post(wr._replace(compare_add=value), way, at)
        before = self._original(sges, way.memory + at)
        self.change(way.memory + at, ((before + value) % (1 << 64)).to_bytes(8, "little"))

    def compare_swap(
        self, sges: tuple[Sge, ...], flags: int, way: Way, at: int, compare: int | None, swap: int
    ) -> None:
        """``compare`` with this, or with what the memory holds if it is ``None``."""
        before = int.from_bytes(self.receiver.arena.peek(way.memory + at, 8), "little")
        wanted = before if compare is None else compare
        wr = SendWR(SendOpcode.ATOMIC_CMP_AND_SWP, sges, flags=flags & ~INLINE)
        self.post(wr._replace(compare_add=wanted, swap=swap), way, at)
        self._original(sges, way.memory + at)
        if before == wanted:
            self.change(way.memory + at, swap.to_bytes(8, "little"))

    def _original(self, sges: tuple[Sge, ...], address: int) -> int:
        """What an atomic brings back: it does so once, whatever is asked again."""
        data = self.receiver.arena.peek(address, 8)
        self.sender.sink.place(sges, data)
        return int.from_bytes(data, "little")

    def atomic_write(self, sges: tuple[Sge, ...], flags: int, way: Way, at: int) -> None:
        self.post(self.sending(SendOpcode.ATOMIC_WRITE, sges, flags), way, at)
        self.change(way.memory + at, self.sender.source.read(sges))

    def flush(self, flags: int, way: Way, at: int, length: int, placement: int, sel: int) -> None:
        wr = SendWR(SendOpcode.FLUSH, flags=flags & ~INLINE, length=length)
        self.post(wr._replace(placement=placement, selectivity=sel), way, at)

    def change(self, address: int, data: bytes) -> None:
        """The peer's memory changes; READs that are under way may see it if they are repeated."""
        arena = self.receiver.arena
        arena.poke(address, data)
        for reading in self.readings:
            now = arena.peek(reading.address, reading.length)
            if not reading.fenced and now != reading.seen[-1]:
                reading.seen.append(now)

    # The receiver's side.

    def post_receive(self, lengths: Sequence[int], gap: int) -> None:
        """Post a receive of pieces of these lengths."""
        place = self.receiver
        recv = RecvWR(place.inbox.take(lengths, gap), next(NUMBERS))
        if place.srq is None:
            place.host.nic.post_recv(place.qp, (recv,))
        else:
            place.host.nic.post_srq_recv(place.srq, (recv,))
        self.receives.append(recv)
        self.match()

    def match(self) -> None:
        """Each message takes the next receive."""
        while self.messages and self.receives:
            recv, message = self.receives.popleft(), self.messages.popleft()
            if message.data is not None:
                fill(self.receiver.inbox, recv.sges, message.data)
            self.received.append(expected_receive(recv.wr_id, message))

    # When all is at rest.

    def check(self, *, strict: bool) -> None:
        """The model's words against the adapters'. ``strict``: no packet was lost or repeated."""
        self.match()
        assert not self.messages
        for reading in self.readings:
            self._check_reading(reading, strict)
        assert not self.sender.qp.sq.under_way
        self.readings.clear()
        self.done.clear()
        self.received.clear()
        if not self.receives:
            self.receiver.inbox.reset()

    def _check_reading(self, reading: Reading, strict: bool) -> None:
        """Each byte is one that stood there between the READ's turn and its end."""
        sink = self.sender.sink
        found = sink.found(reading.sges)
        seen = reading.seen[:1] if strict else reading.seen
        for place, byte in enumerate(found):
            assert any(byte == data[place] for data in seen), f"byte {place} of a READ"
        sink.place(reading.sges, found)


def expected_receive(wr_id: int, message: Message) -> tuple[int, ...]:
    """A receive's completion, as far as it means anything."""
    _, length, _, imm, key = message
    flags = WCFlags.WITH_IMM if imm is not None else WCFlags.WITH_INV if key is not None else 0
    return (wr_id, WCStatus.SUCCESS, message.opcode, length, imm or 0, key or 0, flags)


def found_receive(done: WorkCompletion) -> tuple[int, ...]:
    """The same, of one that came."""
    return (
        done.wr_id,
        done.status,
        done.opcode,
        done.byte_len,
        done.imm_data,
        done.invalidated_rkey,
        done.wc_flags & (WCFlags.WITH_IMM | WCFlags.WITH_INV),
    )


def fill(area: Area, sges: Sequence[Sge], data: bytes) -> None:
    """A message fills the pieces of a receive as far as it goes."""
    for sge in sges:
        area.place((sge._replace(length=min(sge.length, len(data))),), data[: sge.length])
        data = data[sge.length :]
    assert not data
