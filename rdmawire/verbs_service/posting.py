"""Work records of a context's ring become work requests of the engine.

Records for one queue that follow each other are posted together. A record that no library writes is
a :class:`RingError`. Work that only the engine can find invalid completes with an error.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from mmap import mmap
from operator import length_hint
from struct import Struct
from typing import Final, TypeVar

from rdmawire.errors import VerbsError
from rdmawire.ib import QueuePair
from rdmawire.ib.doorbell import post_invalid, post_invalid_receive
from rdmawire.ib.post_checks import check_send, enqueue_receives, enqueue_short
from rdmawire.ib.service import SERVICES
from rdmawire.live import now
from rdmawire.memory import Bind, MemoryWindow, Region
from rdmawire.memory.key import LOCAL_WRITE
from rdmawire.verbs import (
    FENCE,
    SIGNALED,
    SOLICITED,
    VERBS,
    AddressHandle,
    BindMW,
    Local,
    QPType,
    RecvWR,
    SendFlags,
    SendOpcode,
    SendWR,
    Sge,
)
from rdmawire.verbs_service.context import Context, CqHandle, SrqHandle
from rdmawire.verbs_service.protocol import (
    MAX_INLINE_DATA,
    MAX_SGE,
    NOTIFY_CQ,
    PAD,
    POST_RECV,
    POST_SEND,
    POST_SRQ_RECV,
    SGE,
    WORK_REQUEST,
)
from rdmawire.verbs_service.ring import MAX_BATCH, RingError

_RECORD: Final = WORK_REQUEST.struct
_SIZE: Final = _RECORD.size
_SGE: Final = SGE.struct
_ONE_SGE: Final = _SIZE + _SGE.size
_FIRST_FIELDS: Final = Struct("=IIIIQIIQII64xQII")
"""A record up to ``sge_count``, and its first SGE."""
_HEAD: Final = Struct("=III")
_PADDING: Final = Struct("=II")
_MIN_PAD: Final = 8
_INLINE: Final = SendFlags.INLINE.value
_new = tuple.__new__
W = TypeVar("W", SendWR, RecvWR)


def _flags_of(kind: QPType, opcode: int) -> int:
    """The flags that an operation of a queue pair type has; providers ignore the others."""
    verb = VERBS[opcode]
    fenced = SERVICES[kind].reliable or verb.ends_use
    source = verb.local is Local.SOURCE
    return SIGNALED | FENCE * fenced | SOLICITED * verb.takes_receive | _INLINE * source


Known = dict[int, tuple[int, int]]

_KNOWN: Final[dict[QPType, Known]] = {
    kind: {opcode.value: (opcode, _flags_of(kind, opcode)) for opcode in SendOpcode}
    for kind in SERVICES
}
"""The engine's opcode, and the flags that the operation has, by queue pair type and opcode."""

_LONG: Final = frozenset(
    {
        SendOpcode.ATOMIC_CMP_AND_SWP.value,
        SendOpcode.ATOMIC_FETCH_AND_ADD.value,
        SendOpcode.BIND_MW.value,
        SendOpcode.FLUSH.value,
    }
)
"""Operations that need the last fields of a record."""

_SHORT: Final = frozenset(
    {
        SendOpcode.RDMA_WRITE.value,
        SendOpcode.RDMA_WRITE_WITH_IMM.value,
        SendOpcode.SEND.value,
        SendOpcode.SEND_WITH_IMM.value,
        SendOpcode.RDMA_READ.value,
    }
)
"""Operations of which a record's first fields are always valid."""

_SHORT_SOURCES: Final = _SHORT - {SendOpcode.RDMA_READ.value}
"""Those of them that send local memory or inline bytes."""

_LONG_TYPES: Final = frozenset({QPType.UD, QPType.XRC_INI})
"""Queue pairs whose work needs the last fields of a record."""


MAX_BYTES: Final = 4 << 20
"""Bytes of messages after which no more work is taken at once, so that others are not delayed:
a message that is sent without packets is copied at once."""


class Records:
    """Records in the bytes of a ring: all end before ``end``.

    Those that begin before ``limit`` are taken at once. ``size`` counts the bytes of the messages
    that were taken.
    """

    __slots__ = ("data", "end", "limit", "size")

    def __init__(self, data: mmap, limit: int, end: int) -> None:
        self.data = data
        self.limit = limit
        self.end = end
        self.size = 0


def take_work(context: Context) -> bool:
    """Post the work that is in the ring, at most :data:`MAX_BATCH` bytes. Return whether any was.

    Receives are posted last: the peer waits for the sends, and answers after it has received
    them. Raises :class:`RingError` for records that no library writes.
    """
    ring = context.ring
    start, size = ring.ready()
    if not size:
        return False
    at, records = start, Records(ring.map, min(start + MAX_BATCH, start + size), start + size)
    receives: list[tuple[QueuePair, list[RecvWR]]] = []
    while at < records.limit and records.size < MAX_BYTES:
        length, kind, queue = _HEAD.unpack_from(ring.map, at)
        if kind == POST_RECV:
            works, at = _receives(POST_RECV, queue, records, at)
            receives.append((_queue_pair(context, queue), works))
        elif kind == PAD:
            _check_size(records, at, length, _MIN_PAD)
            at += length
        elif kind in _TAKERS:
            at = _TAKERS[kind](context, queue, records, at)
        else:
            raise RingError(f"a work record of kind {kind}")
    for qp, works in receives:
        _post_receives(context, qp, works)
    ring.taken(at - start)
    return True


def take_receives(context: Context) -> bool:
    """Post the receives that are in the ring before their turn. Return whether there were any.

    A message that arrives may need a receive that was posted before the message, to a ring whose
    turn comes later. The sends in that ring are not taken: only the order within one queue
    matters. Records of receives become padding. Invalid records are left to :func:`take_work`.
    """
    ring, found = context.ring, False
    with suppress(RingError):
        start, size = ring.ready()
        found = _take_each_receive(context, start, size)
        start, size = ring.ready(size)
        found = _take_each_receive(context, start, size) or found
    return found


def _take_each_receive(context: Context, at: int, size: int) -> bool:
    """Post the receives among ``size`` bytes of records from ``at`` on."""
    records, found = Records(context.ring.map, at + size, at + size), False
    while at < records.end:
        length, kind, queue = _HEAD.unpack_from(records.data, at)
        end = at + length
        _check_size(records, at, length, _MIN_PAD)
        if kind in _RECEIVERS:
            end = _TAKERS[kind](context, queue, records, at)
            _PADDING.pack_into(records.data, at, end - at, PAD)
            found = True
        at = end
    return found


def _check_size(records: Records, at: int, length: int, minimum: int) -> None:
    left = records.end - at
    if length % 8 or not minimum <= length <= left:
        raise RingError(f"a work record of {length} bytes, {left} are there")


def _take_sends(context: Context, queue: int, records: Records, at: int) -> int:
    """Post the send work of one queue pair from ``at`` on; return the offset behind it."""
    qp = _queue_pair(context, queue)
    known, is_short, are_short = _KNOWN[qp.type], qp.type not in _LONG_TYPES, True
    data, limit, end, size = records.data, records.limit, records.end, records.size
    read = _FIRST_FIELDS.unpack_from
    works: list[SendWR] = []
    while at < limit and size < MAX_BYTES:
        length, kind, number, opcode, wr_id, flags, imm, remote, rkey, sges, *sge = read(data, at)
        if number != queue or kind != POST_SEND:
            break
        if length != _ONE_SGE or length > end - at:
            _check_size(records, at, length, _SIZE)
        if sges == 1 and is_short and opcode not in _LONG and not flags & _INLINE:
            if length != _ONE_SGE:
                _check_length(length, 1)
            are_short = are_short and opcode in _SHORT
            opcode, mask = known.get(opcode, _UNKNOWN)
            fields = (opcode, (_new(Sge, sge),), wr_id, flags & mask, remote, rkey, imm, imm)
            works.append(_new(SendWR, fields + _REST))
            size += sge[1]
        elif flags & _INLINE and is_short and opcode in _SHORT_SOURCES:
            inline = _inline(data, at, length)
            opcode, mask = known.get(opcode, _UNKNOWN)
            head = (opcode, (), wr_id, flags & mask, remote, rkey, imm, imm)
            works.append(_new(SendWR, (*head, *_BEFORE_INLINE, inline, *_BEHIND_INLINE)))
            are_short = are_short and len(inline) <= qp.cap.max_inline_data
        else:
            are_short = False
            works.append(_long(context, known, data, at, length))
            size += sum(one[1] for one in works[-1].sges)
        at += length
    records.size = size
    _post_sends(context, qp, works, are_short=are_short)
    return at


def _post_sends(context: Context, qp: QueuePair, works: list[SendWR], *, are_short: bool) -> None:
    connection = context.local.of(qp)
    if connection is not None:
        checked = works if are_short else _checked(qp, works)
        try:
            connection.send(checked, now())
        except Exception as error:  # perhaps of the peer's context: packets do the rest
            context.failed(error)
        works = works[connection.sent :]
    if works and are_short:
        works = works[enqueue_short(qp, works) :]
    if works:
        _post(context.nic.post_send, post_invalid, qp, works)


def _checked(qp: QueuePair, works: list[SendWR]) -> Iterator[SendWR]:
    """The work requests before the first that must be refused."""
    with suppress(VerbsError):
        for wr in works:
            yield check_send(qp, wr)


def _post(
    post: Callable[[QueuePair, Iterator[W]], None],
    refuse: Callable[[QueuePair, int], None],
    qp: QueuePair,
    works: list[W],
) -> None:
    """Post work requests. Those that are refused complete with an error, in order."""
    rest = iter(works)
    while works:
        try:
            post(qp, rest)
            return
        except VerbsError:
            if len(qp.sq.posted) > 2 * qp.cap.max_send_wr:
                raise RingError(f"more work than QP {qp.qp_num:#x} has room for") from None
            refuse(qp, works[~length_hint(rest)].wr_id)


def _take_receives(context: Context, queue: int, records: Records, at: int) -> int:
    """Post the receives of one queue pair from ``at`` on; return the offset behind them."""
    works, at = _receives(POST_RECV, queue, records, at)
    _post_receives(context, _queue_pair(context, queue), works)
    return at


def _post_receives(context: Context, qp: QueuePair, works: list[RecvWR]) -> None:
    works = works[enqueue_receives(qp, works) :]
    if works:
        _post(context.nic.post_recv, post_invalid_receive, qp, works)


def _take_shared_receives(context: Context, queue: int, records: Records, at: int) -> int:
    """Post the receives of one SRQ from ``at`` on; return the offset behind them.

    No queue pair could complete an invalid one: it raises :class:`RingError`.
    """
    works, at = _receives(POST_SRQ_RECV, queue, records, at)
    with _ring_errors():
        context.nic.post_srq_recv(context.find(queue, SrqHandle).srq, works)
    return at


def _receives(kind: int, queue: int, records: Records, at: int) -> tuple[list[RecvWR], int]:
    """The receives of a queue from ``at`` on, and the offset behind them."""
    data, limit, end = records.data, records.limit, records.end
    read = _FIRST_FIELDS.unpack_from
    works: list[RecvWR] = []
    while at < limit:
        length, found, number, _, wr_id, _, _, _, _, sges, *sge = read(data, at)
        if number != queue or found != kind:
            break
        if sges != 1 or length != _ONE_SGE or length > end - at:
            _check_size(records, at, length, _SIZE)
            _check_length(length, sges)
        pieces = (_new(Sge, sge),) if sges == 1 else _sges(data, at, sges)
        works.append(_new(RecvWR, (pieces, wr_id)))
        at += length
    return works, at


def _notify_cq(context: Context, queue: int, records: Records, at: int) -> int:
    """Report an event of a CQ that was armed with unpolled completions; return the offset behind.

    None is reported while the application has not got an earlier one: it polls again after that.
    """
    length, _, _, _, consumed, _, _, events, *_ = _RECORD.unpack_from(records.data, at)
    _check_length(length, 0)
    _check_size(records, at, length, _SIZE)
    with _ring_errors():
        owner = context.find(queue, CqHandle)
    if owner.channel is not None and events == owner.events_reported & _COUNT_MASK:
        owner.cq.notify_unpolled(consumed, now())
    return at + _SIZE


_TAKERS: Final[dict[int, Callable[[Context, int, Records, int], int]]] = {
    POST_SEND: _take_sends,
    POST_RECV: _take_receives,
    POST_SRQ_RECV: _take_shared_receives,
    NOTIFY_CQ: _notify_cq,
}


_RECEIVERS: Final = frozenset({POST_RECV, POST_SRQ_RECV})

_COUNT_MASK: Final = 0xFFFF_FFFF
"""The library counts events by 32 bits."""
_UNKNOWN: Final = (-1, 0)
_REST: Final = tuple(SendWR(0))[8:]
_INLINE_FIELD: Final = SendWR._fields.index("inline")
_BEFORE_INLINE: Final = tuple(SendWR(0))[8:_INLINE_FIELD]
_BEHIND_INLINE: Final = tuple(SendWR(0))[_INLINE_FIELD + 1 :]
_INLINE_LENGTH: Final = Struct("=I")
_INLINE_LENGTH_AT: Final = WORK_REQUEST.offset("inline_length")


def _inline(data: mmap, at: int, length: int) -> bytes:
    """The inline bytes of the record of ``length`` bytes at ``at``."""
    (size,) = _INLINE_LENGTH.unpack_from(data, at + _INLINE_LENGTH_AT)
    if size > MAX_INLINE_DATA or _SIZE + size > length:
        raise RingError(f"{size} bytes inline in a record of {length}")
    return data[at + _SIZE : at + _SIZE + size]


def _check_length(length: int, sges: int) -> None:
    if length != _SIZE + _SGE.size * sges:
        raise RingError(f"a work record of {length} bytes with {sges} SGEs")


def _sges(data: mmap, at: int, count: int) -> tuple[Sge, ...]:
    """The SGEs behind the record at ``at``."""
    if count > MAX_SGE:
        raise RingError(f"a work record with {count} SGEs: at most {MAX_SGE}")
    first = at + _SIZE
    ends = range(first, first + count * _SGE.size, _SGE.size)
    return tuple(_new(Sge, _SGE.unpack_from(data, place)) for place in ends)


def _queue_pair(context: Context, number: int) -> QueuePair:
    qp = context.qps.get(number)
    if qp is None:
        raise RingError(f"work for QP {number:#x}, which the context does not have")
    return qp


@contextmanager
def _ring_errors() -> Iterator[None]:
    """Raise :class:`RingError` for a ``VerbsError``, since the library checks this."""
    try:
        yield
    except VerbsError as error:
        raise RingError(error.reason) from error


def _long(context: Context, known: Known, data: mmap, at: int, length: int) -> SendWR:
    """A send work request from all fields of its record, which has ``length`` bytes."""
    (
        _, _, _, opcode, wr_id, flags, imm, remote, rkey, sge_count, compare_add, swap, ah,
        remote_qpn, remote_qkey, remote_srqn, _, mw, mr, mw_access, bind_address, bind_length,
    ) = _RECORD.unpack_from(data, at)  # fmt: skip
    inline, sges = _payload(data, at, length, flags, sge_count)
    path = _path(context, ah) if ah else None
    bind, flush = None, (0, 0, 0)
    if opcode == SendOpcode.BIND_MW:
        access = mw_access & ~LOCAL_WRITE  # programs give it; adapters ignore it
        bind = _bind(context, mw, mr, Bind(bind_address, bind_length, access, rkey=rkey))
    elif opcode == SendOpcode.FLUSH:
        flush = mw_access & 0xFF, mw_access >> 8, bind_length  # placement, selectivity, length
    opcode, mask = known.get(opcode, _UNKNOWN)
    return SendWR(
        opcode, sges, wr_id, flags & mask, remote, rkey, imm, imm, compare_add, swap, path,
        remote_qpn, remote_qkey, remote_srqn, *flush, inline, bind,
    )  # fmt: skip


def _payload(
    data: mmap, at: int, length: int, flags: int, sge_count: int
) -> tuple[bytes, tuple[Sge, ...]]:
    """The inline bytes and the SGEs of the record of ``length`` bytes at ``at``."""
    if flags & _INLINE:
        return _inline(data, at, length), ()
    _check_length(length, sge_count)
    return b"", _sges(data, at, sge_count)


def _path(context: Context, handle: int) -> AddressHandle:
    """The address handle of a datagram."""
    with _ring_errors():
        return context.find(handle, AddressHandle)


def _bind(context: Context, window: int, region: int, bind: Bind) -> BindMW:
    """The window and the region of a bind, by their handles; no region to unbind."""
    with _ring_errors():
        found = context.find_optional(region, Region)
        return BindMW(context.find(window, MemoryWindow), found, bind)
