"""Work records of a context's ring become work requests of the engine.

Records for one queue that follow each other are posted together. What a library cannot have written
is a :class:`RingError`. Work that only the engine finds invalid completes with an error.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from mmap import mmap
from operator import length_hint
from struct import Struct
from typing import Final

from rdmawire.errors import VerbsError
from rdmawire.ib import QueuePair
from rdmawire.ib.doorbell import post_invalid, post_invalid_receive
from rdmawire.ib.service import SERVICES
from rdmawire.memory import Bind, MemoryWindow, Region
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
from rdmawire.verbs_service.context import Context, SrqHandle
from rdmawire.verbs_service.protocol import (
    MAX_INLINE_DATA,
    MAX_SGE,
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
_SHORT: Final = Struct("=IIIIQIIQII64xQII")
"""A record up to ``sge_count``, and its first SGE."""
_MIN_PAD: Final = 8
_INLINE: Final = SendFlags.INLINE.value
_new = tuple.__new__


def _flags_of(kind: QPType, opcode: int) -> int:
    """The flags that mean something for work on a queue pair; providers ignore the others."""
    verb = VERBS[opcode]
    fenced = SERVICES[kind].reliable or verb.ends_use
    source = verb.local is Local.SOURCE
    return SIGNALED | FENCE * fenced | SOLICITED * verb.takes_receive | _INLINE * source


_KNOWN: Final = {
    kind: {opcode.value: (opcode, _flags_of(kind, opcode)) for opcode in SendOpcode}
    for kind in SERVICES
}
"""The operations, and which flags mean something, by queue pair type and opcode."""

_LONG: Final = frozenset(
    {
        SendOpcode.ATOMIC_CMP_AND_SWP.value,
        SendOpcode.ATOMIC_FETCH_AND_ADD.value,
        SendOpcode.BIND_MW.value,
        SendOpcode.FLUSH.value,
    }
)
"""Operations that need the last fields of a record."""

_LONG_TYPES: Final = frozenset({QPType.UD, QPType.XRC_INI})
"""Queue pairs whose work needs the last fields of a record."""


def take_work(context: Context) -> bool:
    """Post the work that is in the ring, at most :data:`MAX_BATCH` bytes. Return whether any was.

    Raises :class:`RingError` for records that no library writes.
    """
    ring = context.ring
    at, size = ring.ready()
    if not size:
        return False
    start, most, end = at, min(at + MAX_BATCH, at + size), at + size
    data, read = ring.map, _SHORT.unpack_from
    queue: tuple[int, int] = (0, 0)
    sends: _Sends | None = None
    receives: _Receives | _SharedReceives | None = None
    while at < most:
        length, kind, number, opcode, wr_id, flags, imm, remote, rkey, sges, *sge = read(data, at)
        if length % 8 or not (_MIN_PAD if kind == PAD else _SIZE) <= length <= end - at:
            raise RingError(f"a work record of {length} bytes, {end - at} are there")
        if kind == PAD:
            at += length
            continue
        if queue != (kind, number):
            _post(sends, receives)
            queue = kind, number
            sends, receives = _begin(context, kind, number)
        if receives is not None:
            _check_length(length, sges)
            pieces = (_new(Sge, sge),) if sges == 1 else _sges(data, at, sges)
            receives.works.append(_new(RecvWR, (pieces, wr_id)))
            at += length
            continue
        assert sends is not None
        if sends.is_short and sges == 1 and opcode not in _LONG and not flags & _INLINE:
            _check_length(length, 1)
            known, mask = sends.known.get(opcode, _UNKNOWN)
            fields = (known, (_new(Sge, sge),), wr_id, flags & mask, remote, rkey, imm, imm)
            sends.works.append(_new(SendWR, fields + _REST))
        else:
            sends.works.append(_long(context, sends, data, at, length))
        at += length
    _post(sends, receives)
    ring.taken(at - start)
    return True


def _begin(
    context: Context, kind: int, number: int
) -> tuple["_Sends | None", "_Receives | _SharedReceives | None"]:
    """Collect work of a kind for a queue."""
    if kind == POST_SEND:
        return _Sends(context, number), None
    if kind == POST_RECV:
        return None, _Receives(context, number)
    if kind == POST_SRQ_RECV:
        return None, _SharedReceives(context, number)
    raise RingError(f"a work record of kind {kind}")


def _post(sends: "_Sends | None", receives: "_Receives | _SharedReceives | None") -> None:
    """Post what was collected."""
    if sends is not None:
        sends.post()
    if receives is not None:
        receives.post()


_UNKNOWN: Final = (-1, 0)
_REST: Final = tuple(SendWR(0))[8:]


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


class _Sends:
    """Send work for one queue pair, in order."""

    def __init__(self, context: Context, number: int) -> None:
        self._nic = context.nic
        self._qp = _queue_pair(context, number)
        self.known = _KNOWN[self._qp.type]
        self.is_short = self._qp.type not in _LONG_TYPES
        self.works: list[SendWR] = []

    def post(self) -> None:
        """Post it. What is refused completes with an error, in order."""
        works = iter(self.works)
        while True:
            try:
                self._nic.post_send(self._qp, works)
                return
            except VerbsError:
                post_invalid(self._qp, self.works[~length_hint(works)].wr_id)


class _Receives:
    """Receives for one queue pair, in order."""

    def __init__(self, context: Context, number: int) -> None:
        self._nic = context.nic
        self._qp = _queue_pair(context, number)
        self.works: list[RecvWR] = []

    def post(self) -> None:
        """Post them. What is refused completes with an error, in order."""
        works = iter(self.works)
        while True:
            try:
                self._nic.post_recv(self._qp, works)
                return
            except VerbsError:
                post_invalid_receive(self._qp, self.works[~length_hint(works)].wr_id)


class _SharedReceives:
    """Receives for one SRQ, in order."""

    def __init__(self, context: Context, handle: int) -> None:
        self._nic = context.nic
        with _nonsense():
            self._srq = context.find(handle, SrqHandle).srq
        self.works: list[RecvWR] = []

    def post(self) -> None:
        """Post them. No queue pair could complete an invalid one: it is a :class:`RingError`."""
        with _nonsense():
            self._nic.post_srq_recv(self._srq, self.works)


def _queue_pair(context: Context, number: int) -> QueuePair:
    qp = context.qps.get(number)
    if qp is None:
        raise RingError(f"work for QP {number:#x}, which the context does not have")
    return qp


@contextmanager
def _nonsense() -> Iterator[None]:
    """Raise :class:`RingError` for a ``VerbsError``: the library checks this."""
    try:
        yield
    except VerbsError as error:
        raise RingError(error.reason) from error


def _long(context: Context, sends: _Sends, data: mmap, at: int, length: int) -> SendWR:
    """A send work request from all fields of its record."""
    (
        _, _, _, opcode, wr_id, flags, imm, remote, rkey, sge_count, compare_add, swap, ah,
        remote_qpn, remote_qkey, remote_srqn, inline_length, mw, mr, mw_access, bind_address,
        bind_length,
    ) = _RECORD.unpack_from(data, at)  # fmt: skip
    known, mask = sends.known.get(opcode, _UNKNOWN)
    inline: bytes = b""
    sges: tuple[Sge, ...] = ()
    if flags & _INLINE:
        if inline_length > MAX_INLINE_DATA or _SIZE + inline_length > length:
            raise RingError(f"{inline_length} bytes inline in a record of {length}")
        inline = data[at + _SIZE : at + _SIZE + inline_length]
    else:
        _check_length(length, sge_count)
        sges = _sges(data, at, sge_count)
    bind = path = None
    with _nonsense():
        if opcode == SendOpcode.BIND_MW:
            bind = _bind(context, mw, mr, Bind(bind_address, bind_length, mw_access, rkey=rkey))
        if ah:
            path = context.find(ah, AddressHandle)
    is_flush = opcode == SendOpcode.FLUSH
    return SendWR(
        known,
        sges,
        wr_id,
        flags & mask,
        remote,
        rkey,
        imm,
        imm,
        compare_add,
        swap,
        path,
        remote_qpn,
        remote_qkey,
        remote_srqn,
        placement=mw_access & 0xFF if is_flush else 0,
        selectivity=mw_access >> 8 if is_flush else 0,
        length=bind_length if is_flush else 0,
        inline=inline,
        bind=bind,
    )


def _bind(context: Context, window: int, region: int, bind: Bind) -> BindMW:
    found = context.find_optional(region, Region)
    return BindMW(context.find(window, MemoryWindow), found, bind)
