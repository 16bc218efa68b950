"""Connections within one process: whole messages are copied from memory to memory, without packets.

Where no frame between two adapters can be seen or lost, their packets need not be built.
:class:`LocalConnection` has the effects of the packets: the checks of keys, the accesses to memory,
receives and completions, PSNs, MSNs and counters. It sends only messages that succeed, and only
while nothing else is pending on the connection. All other work is left to the requester, which
sends packets.

The counters are those of packets to a peer that acknowledges all messages of one call with one ACK,
as the standard allows (IBA 9.7.5.1.2).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeGuard

from rdmawire.errors import MemoryFault
from rdmawire.ib.device import Device
from rdmawire.ib.encapsulation import PLAIN
from rdmawire.ib.execute import NO_DATAGRAM
from rdmawire.ib.qp import NOT_RECEIVED, QueuePair
from rdmawire.ib.requester import OPERANDS
from rdmawire.ib.responder import REQUESTS, establish
from rdmawire.ib.responder_state import NO_MESSAGE, NO_RECEIVE, Resource
from rdmawire.ib.rules import RequestRule
from rdmawire.ib.rx_parser import Flow
from rdmawire.ib.send_queue import NO_PSN, Wqe
from rdmawire.ib.service import SERVICES, Outbound
from rdmawire.ib.tx_template import TxTemplate, word_offset
from rdmawire.memory.address_space import ATOMIC_SIZE, added, swapped, write_result
from rdmawire.memory.key import LOCAL_WRITE, REMOTE_WRITE, Grant, KeyFault, ProtectionDomain
from rdmawire.memory.region import Region
from rdmawire.verbs.enums import SUCCESS, QPType, WCFlags, WorkCompletion
from rdmawire.verbs.sge import Gather, Inline, Piece, gather, piece
from rdmawire.verbs.wr import (
    INLINE,
    SIGNALED,
    SOLICITED,
    VERBS,
    RecvWR,
    SendOpcode,
    SendWR,
    Sge,
    Verb,
)
from rdmawire.wire.ib import AETH, ICRC, RETH, AtomicAckETH, AtomicETH, ImmDt
from rdmawire.wire.serial import MODULUS

MAX_MESSAGE: Final = 16 << 20
"""Maximum bytes of a message: longer ones are sent in packets, so that others are not delayed."""
MAX_BYTES: Final = 4 << 20
"""Bytes of posted work after which other queue pairs are served."""
_CHUNK: Final = 1 << 18
"""Bytes that are copied at once: few enough for the processor's cache."""

_WITH_IMM: Final = WCFlags.WITH_IMM.value
_new = tuple.__new__
Source = Piece | Gather | Inline


class Kind(NamedTuple):
    """An operation of one transport service: how it is sent, and the headers of its packets.

    ``send`` returns ``False`` if packets must do the work. ``opcode`` is that of a message of one
    packet, ``only`` the bytes of its extended headers; ``several`` are those of a message of
    several packets in all.
    """

    send: "Callable[[LocalConnection, SendWR, Kind], bool]"
    verb: Verb
    role: RequestRule
    opcode: int
    has_imm: bool
    only: int
    several: int


class LocalConnection:
    """One direction of a connection: work of ``qp``, and its effects at ``peer``.

    ``to_peer`` is the flow of the requests, ``back`` that of the responses. ``sent`` counts the
    messages of the last :meth:`send`, also after an exception.
    """

    __slots__ = (
        "_bytes",
        "_kinds",
        "_messages",
        "_packets",
        "_request",
        "_response",
        "back",
        "peer",
        "qp",
        "sent",
        "to_peer",
    )

    def __init__(self, qp: QueuePair, peer: QueuePair, to_peer: Flow, back: Flow) -> None:
        self.qp = qp
        self.peer = peer
        self.to_peer = to_peer
        self.back = back
        self._kinds = KINDS[qp.type]
        self._request = _empty_frame(qp.request_template)
        self._response = _empty_frame(peer.response_template)
        self.sent = self._messages = self._packets = self._bytes = 0

    @property
    def holds(self) -> bool:
        """Whether no queue pair of the two adapters was changed since the connection was found."""
        return bool(self.to_peer.ways) and bool(self.back.ways)

    def may_send(self, opcode: int) -> bool:
        """Whether work with this opcode can be done without packets."""
        return opcode in self._kinds

    def send_posted(self) -> int:
        """Send posted work without packets, the oldest first. Return the number of messages.

        It stops after :data:`MAX_BYTES`.
        """
        posted = self.qp.sq.posted
        if not self.holds:
            return 0
        try:
            return self.send(_new_work(posted), self.qp.device.now, are_posted=True)
        finally:
            sent = self.sent
            for _ in range(sent):
                posted.popleft()
            self.qp.send_slots.held -= sent
            if sent and posted:
                self.qp.wake()

    def send(self, work: Iterable[SendWR], now: int, *, are_posted: bool = False) -> int:
        """Send checked work of ``qp`` at ``now`` (ns), in order. Return the number of messages.

        It stops at the first that needs packets. ``are_posted`` says that ``work`` is in the send
        queue; other work is not sent before it. :attr:`holds` must be true.
        """
        qp = self.qp
        sent = self.sent = free = 0
        if (qp.sq.posted and not are_posted) or not self._is_idle():
            return 0
        qp.device.now = self.peer.device.now = now
        try:
            for wr in work:
                kind = self._kinds.get(wr.opcode)
                if sent == 1:
                    free = 1 + self._free_completions()  # for many messages one check is cheaper
                if kind is None or not (sent < free or self._has_room(wr, kind)):
                    break
                if not kind.send(self, wr, kind):
                    break
                sent += 1
        finally:
            self.sent = sent
            if sent:
                if self.peer.watches:
                    establish(self.peer)
                self._acknowledge()
                qp.unasked = qp.ask_after
                qp.retry_state.reset_retries()
        return sent

    def _free_completions(self) -> int:
        """For how many messages both CQs have room, if each has a completion in both."""
        sends, receives = self.qp.send_cq, self.peer.recv_cq
        room = sends.room
        if sends is receives:
            return room // 2
        return min(room, receives.room)

    def _has_room(self, wr: SendWR, kind: Kind) -> bool:
        """Whether both CQs have room for the completions of one message."""
        sends, receives = self.qp.send_cq, self.peer.recv_cq
        if sends is receives:
            return sends.has_room(2)
        if kind.verb.takes_receive and not receives.has_room(1):
            return False
        return not (wr.flags & SIGNALED or self.qp.signal_all) or sends.has_room(1)

    def _is_idle(self) -> bool:
        """Whether nothing is pending from ``qp`` to ``peer``, and packets would do nothing else."""
        qp, peer = self.qp, self.peer
        queue, inbound = qp.sq, peer.inbound
        if queue.sent or qp.halted or not qp.begins:
            return False
        if qp.watches or qp.governor is not None or not peer.takes_packets:
            return False
        if peer.watches and _is_changed_by_packets(peer):
            return False
        if inbound.pending or inbound.ack_due or inbound.cnps_due:
            return False
        between = inbound.incoming is NO_MESSAGE
        return between and inbound.epsn == queue.next_psn and qp.mtu == peer.mtu

    # Effects of packets.

    def requested(self, wr: SendWR, kind: Kind, length: int) -> None:
        """Count the request packets of a message with ``length`` bytes, and complete the work."""
        mtu = self.qp.mtu
        if length <= mtu:
            packets, headers = 1, kind.only
        else:
            packets, headers = -(-length // mtu), kind.several
        self._messages += 1
        self._packets += packets
        self._bytes += packets * self._request + headers + length + -length % 4
        if wr.flags & SIGNALED or self.qp.signal_all:
            self._report(wr, kind, length)

    def _report(self, wr: SendWR, kind: Kind, length: int) -> None:
        """Complete send work."""
        qp = self.qp
        fields = (wr.wr_id, SUCCESS, kind.verb.completion, 0, length, 0, 0, qp.qp_num)
        qp.send_cq.push(_new(WorkCompletion, fields + NOT_RECEIVED), qp.device.now)

    def received(self, wr: SendWR, kind: Kind, recv: RecvWR, length: int) -> None:
        """Complete the next receive, ``recv``, with ``length`` bytes."""
        peer = self.peer
        _take_receive(peer)
        imm, flags = 0, peer.receive_flags
        if kind.has_imm:
            imm, flags = wr.imm_data, flags | _WITH_IMM
        qp_num, remote = peer.qp_num, peer.dest_qp
        fields = (recv.wr_id, SUCCESS, kind.role.receipt, 0, length, imm, 0, qp_num, remote, flags)
        completion, solicited = _new(WorkCompletion, fields + NO_DATAGRAM), wr.flags & SOLICITED
        peer.recv_cq.push(completion, peer.device.now, solicited != 0)

    def responded(self, wr: SendWR, kind: Kind, asked: Resource, size: int) -> None:
        """Count the packets of a READ or an atomic, and complete it.

        ``asked`` is what the responder remembers of it, without the PSN. The responses have
        ``size`` bytes of payload, with pad, and of extended headers.
        """
        self._acknowledge()
        qp, inbound, packets = self.qp, self.peer.inbound, asked.packets
        requester, responder = qp.device, self.peer.device
        _count(requester, responder, 1, self._request + kind.only)
        _count(responder, requester, packets, packets * self._response + size)
        resource = asked._replace(psn=inbound.epsn)
        inbound.move_past(packets)
        inbound.remember(resource, self.peer.max_dest_rd_atomic)
        self._move(1, packets)
        if wr.flags & SIGNALED or qp.signal_all:
            self._report(wr, kind, asked.length)

    def _acknowledge(self) -> None:
        """Move both ends past the requests that have no response yet, and count their ACK."""
        packets, size = self._packets, self._bytes
        if not packets:
            return
        inbound, requester, responder = self.peer.inbound, self.qp.device, self.peer.device
        _count(requester, responder, packets, size)
        if self.qp.service.reliable:
            _count(responder, requester, 1, self._response + AETH.SIZE)
        inbound.epsn = (inbound.epsn + packets) % MODULUS
        self._move(self._messages, packets)
        self._messages = self._packets = self._bytes = 0

    def _move(self, messages: int, packets: int) -> None:
        """Count messages and PSNs at both ends."""
        queue, inbound = self.qp.sq, self.peer.inbound
        queue.next_psn = queue.unacked_psn = (queue.next_psn + packets) % MODULUS
        queue.ssn = (queue.ssn + messages) % MODULUS
        inbound.msn = (inbound.msn + messages) % MODULUS
        inbound.refused = False


def _copy(source: Source, sink: Piece | Gather) -> bool:
    """Copy a message. Return ``False`` if some of the memory is not mapped."""
    length = source.length
    try:
        for start in range(0, length, _CHUNK):
            sink.write(start, source.read(start, min(length - start, _CHUNK)))
    except MemoryFault:
        return False
    return True


def _new_work(posted: Iterable[Wqe]) -> Iterator[SendWR]:
    """The posted work of which nothing was sent, up to :data:`MAX_BYTES`."""
    size = 0
    for wqe in posted:
        if size >= MAX_BYTES or wqe.psn != NO_PSN or wqe.verb is not VERBS.get(wqe.wr.opcode):
            return
        size += sum(length for _, length, _ in wqe.wr.sges)
        yield wqe.wr


def _is_changed_by_packets(peer: QueuePair) -> bool:
    """Whether a packet of its peer changes the path or encapsulation of a queue pair."""
    return peer.migrating or peer.request_encapsulation is not PLAIN


def _count(sender: Device[QueuePair], receiver: Device[QueuePair], packets: int, size: int) -> None:
    """Count packets from one adapter to the other; ``size`` is the sum of their bytes."""
    sender.xmit_packets += packets
    sender.xmit_bytes += size
    receiver.rcv_packets += packets
    receiver.rcv_bytes += size


def _empty_frame(template: TxTemplate) -> int:
    """Bytes of a frame without extended headers and payload."""
    return word_offset(template.headers) + _PSN_WORD + ICRC.SIZE


_PSN_WORD: Final = 4
"""Bytes of the word with AckReq and PSN, the last one of the BTH."""


def _local(
    qp: QueuePair, pd: ProtectionDomain, sges: tuple[Sge, ...], access: int
) -> Piece | Gather | None:
    """The memory of SGEs, or ``None`` if it is invalid or not plain: packets find out how."""
    memory = gather(qp.device.keys, pd, sges, access)
    if memory.__class__ is Piece:
        return memory if _is_plain(memory.memory) else None
    if memory.__class__ is Gather and all(_is_plain(one.memory) for one in memory.pieces):
        return memory
    return None


def _source(qp: QueuePair, wr: SendWR) -> Source | None:
    """The inline bytes or memory that work sends."""
    return Inline(wr.inline) if wr.flags & INLINE else _local(qp, qp.pd, wr.sges, 0)


def _remote(peer: QueuePair, wr: SendWR, length: int, role: RequestRule) -> Piece | None:
    """The memory of the peer that work names, or ``None`` if it is refused or not plain."""
    if role.access & ~peer.access:
        return None
    granted = peer.device.keys.check(
        wr.rkey, peer.pd, wr.remote_address, length, role.access, peer.qp_num
    )
    return piece(granted, wr.remote_address, length) if _is_plain(granted) else None


def _is_plain(granted: Grant | KeyFault) -> TypeGuard[Region]:
    """Whether accesses only read or write the memory. They may raise ``MemoryFault``."""
    return type(granted) is Region and granted.is_plain


def _next_receive(peer: QueuePair) -> RecvWR | None:
    """The receive that the next message takes, if there is one."""
    if peer.inbound.recv is not NO_RECEIVE:
        return peer.inbound.recv
    if peer.rq:
        return peer.rq[0]
    found = _shared_receive(peer)
    if found is None and peer.device.fetch_receives():
        return peer.rq[0] if peer.rq else _shared_receive(peer)
    return found


def _take_receive(peer: QueuePair) -> None:
    """Remove the next receive, and count it."""
    if peer.inbound.recv is not NO_RECEIVE:
        peer.inbound.recv = NO_RECEIVE
    elif peer.rq:
        peer.rq.popleft()
    else:
        peer.take_receive()
    slots = peer.recv_slots if peer.srq is None else peer.srq.slots
    slots.held -= 1
    peer.counters.rdma_recvs += 1


def _shared_receive(peer: QueuePair) -> RecvWR | None:
    return None if peer.srq is None else peer.srq.oldest


def _send_write(
    connection: LocalConnection, wr: SendWR, kind: Kind, recv: RecvWR | None = None
) -> bool:
    if len(wr.sges) != 1 or not 0 < wr.sges[0][1] <= _CHUNK:
        return _send_other_write(connection, wr, kind, recv)
    qp, peer = connection.qp, connection.peer
    (address, length, lkey), to = wr.sges[0], wr.remote_address
    source = qp.device.keys.check(lkey, qp.pd, address, length, 0)
    sink = peer.device.keys.check(wr.rkey, peer.pd, to, length, REMOTE_WRITE, peer.qp_num)
    if source.__class__ is not Region or sink.__class__ is not Region:
        return False
    if not (source.is_plain and sink.is_plain) or REMOTE_WRITE & ~peer.access:
        return False
    try:
        sink.write(to, source.read(address, length))
    except MemoryFault:
        return False
    peer.counters.rx_write_requests += 1
    if recv is not None:
        connection.received(wr, kind, recv, length)
    connection.requested(wr, kind, length)
    return True


def _send_other_write(
    connection: LocalConnection, wr: SendWR, kind: Kind, recv: RecvWR | None
) -> bool:
    """Send a WRITE of any length, with any number of SGEs, or inline.

    The R_Key of an empty WRITE is not checked: IBA 9.7.4.1.3.
    """
    qp, peer = connection.qp, connection.peer
    source = _source(qp, wr)
    if source is None or source.length > MAX_MESSAGE or kind.role.access & ~peer.access:
        return False
    if source.length:
        sink = _remote(peer, wr, source.length, kind.role)
        if sink is None or not _copy(source, sink):
            return False
    peer.counters.rx_write_requests += 1
    if recv is not None:
        connection.received(wr, kind, recv, source.length)
    connection.requested(wr, kind, source.length)
    return True


def _send_write_with_imm(connection: LocalConnection, wr: SendWR, kind: Kind) -> bool:
    recv = _next_receive(connection.peer)
    return recv is not None and _send_write(connection, wr, kind, recv)


def _send_send(connection: LocalConnection, wr: SendWR, kind: Kind) -> bool:
    recv = _next_receive(connection.peer)
    if recv is None:
        return False
    length = _send_short(connection, wr, recv) or _send_other(connection, wr, recv)
    if length is None:
        return False
    connection.received(wr, kind, recv, length)
    connection.qp.counters.rdma_sends += 1
    connection.requested(wr, kind, length)
    return True


def _send_short(connection: LocalConnection, wr: SendWR, recv: RecvWR) -> int:
    """Copy a message of one SGE, or inline, to one SGE. Return its length; 0 for other messages.

    Most messages are of this kind: it needs few function calls.
    """
    qp, peer = connection.qp, connection.peer
    inline = wr.flags & INLINE
    if len(recv.sges) != 1 or not (inline or len(wr.sges) == 1):
        return 0
    to, size, lkey = recv.sges[0]
    sink = peer.device.keys.check(lkey, peer.recv_pd, to, size, LOCAL_WRITE)
    if sink.__class__ is not Region or not sink.is_plain:
        return 0
    try:
        if inline:
            data: bytes | memoryview = wr.inline
        else:
            address, length, lkey = wr.sges[0]
            source = qp.device.keys.check(lkey, qp.pd, address, length, 0)
            if source.__class__ is not Region or not source.is_plain:
                return 0
            if not 0 < length <= _CHUNK or length > size:
                return 0
            data = source.read(address, length)
        if 0 < len(data) <= size:
            sink.write(to, data)
            return len(data)
    except MemoryFault:
        return 0
    return 0


def _send_other(connection: LocalConnection, wr: SendWR, recv: RecvWR) -> int | None:
    """Copy a message; return its length, or ``None`` if packets must do it."""
    peer = connection.peer
    source = _source(connection.qp, wr)
    sink = _local(peer, peer.recv_pd, recv.sges, LOCAL_WRITE)
    if source is None or sink is None or source.length > min(sink.length, MAX_MESSAGE):
        return None
    return source.length if _copy(source, sink) else None


def _send_read(connection: LocalConnection, wr: SendWR, kind: Kind) -> bool:
    qp, peer = connection.qp, connection.peer
    if not (qp.max_rd_atomic and peer.max_dest_rd_atomic):
        return False
    sink = _local(qp, qp.pd, wr.sges, LOCAL_WRITE)
    if sink is None or not 0 < sink.length <= MAX_MESSAGE:
        return False
    source = _remote(peer, wr, sink.length, kind.role)
    if source is None or not _copy(source, sink):
        return False
    peer.counters.rx_read_requests += 1
    length = sink.length
    packets = -(-length // qp.mtu)
    asked = RETH(wr.remote_address, wr.rkey, length)
    resource = Resource(kind.opcode, NO_PSN, packets, length, asked)
    size = AETH.SIZE * min(packets, 2) + length + -length % 4
    connection.responded(wr, kind, resource, size)
    return True


def _send_atomic(connection: LocalConnection, wr: SendWR, kind: Kind) -> bool:
    """Do an atomic. The sink is written first: if that fails, the target is unchanged."""
    qp, peer, address = connection.qp, connection.peer, wr.remote_address
    if not (qp.max_rd_atomic and peer.max_dest_rd_atomic) or address % ATOMIC_SIZE:
        return False
    sink = _local(qp, qp.pd, wr.sges, LOCAL_WRITE)
    target = _remote(peer, wr, ATOMIC_SIZE, kind.role)
    if sink is None or target is None or sink.length != ATOMIC_SIZE:
        return False
    if target.memory.place(address) % ATOMIC_SIZE:
        return False
    try:
        original, new = _ATOMICS[wr.opcode](target.read(0, ATOMIC_SIZE), wr)
        sink.write(0, original.to_bytes(ATOMIC_SIZE, "little"))
        write_result(target.write, 0, new)
    except MemoryFault:
        return False
    peer.counters.rx_atomic_requests += 1
    asked = AtomicETH(address, wr.rkey, *OPERANDS[wr.opcode](wr))
    resource = Resource(kind.opcode, NO_PSN, 1, ATOMIC_SIZE, asked, original)
    connection.responded(wr, kind, resource, AETH.SIZE + AtomicAckETH.SIZE)
    return True


_ATOMICS: Final[Mapping[int, Callable[[bytes | memoryview, SendWR], tuple[int, bytes]]]] = {
    SendOpcode.ATOMIC_CMP_AND_SWP: lambda old, wr: swapped(old, wr.compare_add, wr.swap),
    SendOpcode.ATOMIC_FETCH_AND_ADD: lambda old, wr: added(old, wr.compare_add),
}
"""The value that an atomic finds in eight bytes, and the bytes that it leaves."""

_SENDERS: Final = {
    SendOpcode.SEND: _send_send,
    SendOpcode.SEND_WITH_IMM: _send_send,
    SendOpcode.RDMA_WRITE: _send_write,
    SendOpcode.RDMA_WRITE_WITH_IMM: _send_write_with_imm,
    SendOpcode.RDMA_READ: _send_read,
    SendOpcode.ATOMIC_CMP_AND_SWP: _send_atomic,
    SendOpcode.ATOMIC_FETCH_AND_ADD: _send_atomic,
}


def _kind(qp_type: QPType, opcode: SendOpcode) -> Kind:
    outbound: Outbound = SERVICES[qp_type].outbound[opcode]
    sizes = {
        number: sum(header.SIZE for header in layout.headers)
        for number, layout in outbound.layouts.items()
    }
    several = sizes.get(outbound.first, 0) + sizes.get(outbound.last, 0)
    role, verb = REQUESTS[qp_type][outbound.only], VERBS[opcode]
    has_imm = ImmDt in role.headers
    return Kind(_SENDERS[opcode], verb, role, outbound.only, has_imm, sizes[outbound.only], several)


def _kinds(qp_type: QPType) -> dict[int, Kind]:
    offered = SERVICES[qp_type].outbound
    return {opcode: _kind(qp_type, opcode) for opcode in _SENDERS if opcode in offered}


KINDS: Final[Mapping[QPType, Mapping[int, Kind]]] = {
    QPType.RC: _kinds(QPType.RC),
    QPType.UC: _kinds(QPType.UC),
}
"""The work that needs no packets, by type of queue pair and opcode."""
