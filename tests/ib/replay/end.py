"""Our NIC in the place of one end: its queue pairs, keys and memory are those of the capture."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from rdmawire.ib.engine import Nic
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.memory.address_space import AddressSpace
from rdmawire.memory.region import Region
from rdmawire.verbs.enums import QPState, QPType
from rdmawire.verbs.profile import RXE_6_12, Profile
from rdmawire.verbs.qp_attr import QP_TRANSITIONS, QPAttributes, QPAttrMask, QPCap
from rdmawire.verbs.wr import RecvWR, SendFlags, SendWR, Sge
from rdmawire.wire.ib import DETH
from tests.ib.replay.capture import Seen
from tests.ib.replay.conversation import Pair, Side, path_of
from tests.ib.replay.facts import Options
from tests.ib.replay.memory import GivenKeys, map_ranges
from tests.ib.replay.posted import Answers, Message, messages

LOCAL_SIZE = 1 << 24
MOST = 256
"""Work requests and completions of one queue."""
MAX_PIECES, MAX_INLINE = 3, 64
_ALL_ACCESS = 15
_ACCESS = {QPType.RC: _ALL_ACCESS, QPType.UC: 3, QPType.UD: 0}
_STATES = (QPState.INIT, QPState.RTR, QPState.RTS)


Shape = Callable[[SendWR, Message], SendWR]
"""How a program may post the same work otherwise."""


def plain(wr: SendWR, _: Message) -> SendWR:
    """As the captured programs did: with one piece of memory, or none."""
    return wr


def inline(wr: SendWR, message: Message) -> SendWR:
    """With the bytes in the work request, if they are few."""
    if not 0 < len(message.payload) <= MAX_INLINE:
        return wr
    return wr._replace(sges=(), inline=message.payload, flags=wr.flags | SendFlags.INLINE)


def in_pieces(wr: SendWR, _: Message) -> SendWR:
    """With memory in three pieces, of which the one in the middle is empty."""
    if not wr.sges:
        return wr
    address, length, lkey = wr.sges[0]
    half = length // 2 + 1
    return wr._replace(
        sges=(Sge(address, half, lkey), Sge(0, 0, 0), Sge(address + half, length - half, lkey))
    )


class Posted(NamedTuple):
    """Work that was posted for a message, and where its bytes are."""

    message: Message
    buffer: Sge


class Line:
    """One queue pair of the end, with all that it sends and gets.

    ``first_frames`` are its messages by the number of the frame that began them;
    ``accepted_by_end`` those of the peer that were done, by the PSN that ended them.
    """

    def __init__(self, side: Side, pair: Pair, qp: QueuePair) -> None:
        mtu = 128 << side.mtu(pair)
        self.pair = pair
        self.qp = qp
        self.send_cq, self.recv_cq = qp.send_cq, qp.recv_cq
        self.outgoing = messages(side.of(pair, side.sent, response=False), mtu)
        self.incoming = _by_sender(side.of(pair, side.received, response=False), mtu)
        self.answers_to_us = Answers(side.of(pair, side.received, response=True))
        self.answers_of_ours = Answers(side.of(pair, side.sent, response=True))
        self.first_frames = {one.packets[0].number: one for one in self.outgoing}
        self.accepted_by_end = {one.packets[-1].psn: one for one in self.delivered()}
        self.posted: list[Posted] = []
        self.receives: list[Sge] = []

    def delivered(self) -> list[Message]:
        """The messages to this queue pair that were done; of reliable ones the peer was told."""
        if self.pair.type is not QPType.RC:
            return self.incoming
        return [one for one in self.incoming if self.answers_of_ours.accepted(one)]


def _by_sender(requests: list[Seen], mtu: int) -> list[Message]:
    """Datagrams may come from many queue pairs; each counts its own PSNs."""
    senders = {_sender(seen) for seen in requests}
    found = [
        message
        for sender in senders
        for message in messages((seen for seen in requests if _sender(seen) == sender), mtu)
    ]
    return sorted(found, key=lambda message: message.packets[-1].number)


def _sender(seen: Seen) -> int:
    deth = seen.header(DETH)
    return deth.srcqp if deth else 0


class End:
    """The NIC, and how work and receives get to it."""

    def __init__(
        self, side: Side, options: Options, shape: Shape = plain, profile: Profile = RXE_6_12
    ) -> None:
        self.side = side
        self.options = options
        self.work: list[SendWR] = []
        self._shape = shape
        self.space = AddressSpace()
        self.nic = Nic(side.mac, [side.gid], self.space, profile=profile)
        self.pd = self.nic.alloc_pd()
        self.lines = {pair: Line(side, pair, self._queue_pair(pair)) for pair in side.pairs()}
        self._register()
        self._free = self._buffers = self.space.allocate(LOCAL_SIZE).base
        self.local = self.nic.memory.reg_mr(self.pd, self._buffers, LOCAL_SIZE, 1)

    def _queue_pair(self, pair: Pair) -> QueuePair:
        """The queue pair with the number that Linux gave it: numbers are given in turn."""
        send_cq, recv_cq = self.nic.create_cq(MOST), self.nic.create_cq(MOST)
        cap = QPCap(MOST, MOST, MAX_PIECES, 1, MAX_INLINE)
        while True:
            qp = self.nic.create_qp(pair.type, QPInit(self.pd, send_cq, recv_cq, cap))
            if qp.qp_num == pair.own:
                return qp
            self.nic.destroy_qp(qp)

    def connect(self) -> None:
        """Bring all queue pairs to RTS, as their programs did."""
        for line in self.lines.values():
            attributes = self._attributes(line)
            for state in _STATES:
                needed = QP_TRANSITIONS[line.qp.type, line.qp.state, state].required
                mask = needed | QPAttrMask.STATE
                self.nic.modify_qp(line.qp, attributes._replace(qp_state=state), mask)

    def _attributes(self, line: Line) -> QPAttributes:
        side, pair, options = self.side, line.pair, self.options
        connected = pair.type is not QPType.UD
        return QPAttributes(
            path_mtu=side.mtu(pair),
            qkey=_qkey(line),
            rq_psn=line.incoming[0].psn if line.incoming else 0,
            sq_psn=line.outgoing[0].psn if line.outgoing else 0,
            dest_qp_num=pair.peer,
            qp_access_flags=_ACCESS[pair.type],
            ah=side.path(pair) if connected else None,
            max_rd_atomic=options.max_rd_atomic,
            max_dest_rd_atomic=options.max_rd_atomic,
            min_rnr_timer=options.min_rnr_timer,
            timeout=options.timeout,
            retry_cnt=options.retry_cnt,
            rnr_retry=options.rnr_retry,
        )

    def _register(self) -> None:
        """Register what the peer was told of, or else what it reached, under the same keys."""
        regions = self._regions()
        map_ranges(self.space, regions.values())
        given = GivenKeys(regions)
        self.nic.device.keys = self.nic.memory.keys = given
        self.regions: list[Region] = [
            self.nic.memory.reg_mr(self.pd, start, end - start, _ALL_ACCESS)
            for start, end in regions.values()
        ]

    def _regions(self) -> dict[int, tuple[int, int]]:
        greeting = self.side.capture.greetings.get(self.side.gid)
        if greeting is not None:
            return {greeting.rkey: (greeting.address, greeting.address + greeting.length)}
        found: dict[int, tuple[int, int]] = {}
        for line in self.lines.values():
            for asked in filter(None, (message.range for message in line.incoming)):
                key, start, length = asked
                low, high = found.get(key, (start, start + length))
                found[key] = min(low, start), max(high, start + length)
        return found

    def post(self, line: Line, message: Message, now: int) -> None:
        """Post the work that became this message."""
        buffer = self._allocate(_bytes(message))
        if message.payload:
            self.space.write(buffer.address, message.payload)
        line.posted.append(Posted(message, buffer))
        wr = _work(message, buffer)._replace(wr_id=len(line.posted) - 1)
        self.work.append(self._shape(wr, message))
        self.nic.post_send(line.qp, self.work[-1:])

    def post_receives(self, line: Line, count: int) -> None:
        """Post receives of the length that the program posts."""
        for _ in range(count):
            line.receives.append(self._allocate(self.options.receive_length))
            work = RecvWR((line.receives[-1],), len(line.receives) - 1)
            self.nic.post_recv(line.qp, [work])

    def _allocate(self, length: int) -> Sge:
        address = self._free
        self._free += length
        assert self._free <= self._buffers + LOCAL_SIZE
        return Sge(address, length, self.local.lkey)


def _qkey(line: Line) -> int:
    """What came had the queue pair's own; where nothing comes, any does."""
    deths: Iterable[DETH | None] = (message.deth for message in line.incoming)
    return next((deth.qkey for deth in deths if deth), 0)


def _bytes(message: Message) -> int:
    """Bytes of local memory that the work is about."""
    if message.is_atomic:
        return 8
    if message.is_read and message.reth is not None:
        return message.reth.dmalen
    return len(message.payload)


def _work(message: Message, buffer: Sge) -> SendWR:
    """The work request, from the headers of its message."""
    wr = SendWR(
        message.opcode,
        (buffer,) if buffer.length else (),
        flags=message.flags | 2,
        imm_data=message.immdt,
        invalidate_rkey=message.invalidates,
    )
    if message.range is not None:
        wr = wr._replace(rkey=message.range[0], remote_address=message.range[1])
    if message.atomiceth is not None:
        swap, compare = message.atomiceth.swapdt, message.atomiceth.cmpdt
        is_swap = message.opcode.name == "ATOMIC_CMP_AND_SWP"
        wr = wr._replace(compare_add=compare if is_swap else swap, swap=swap if is_swap else 0)
    if message.deth is not None:
        first = message.packets[0]
        qkey = message.deth.qkey
        wr = wr._replace(ah=path_of(first, 0), remote_qpn=first.qpn, remote_qkey=qkey)
    return wr
