"""A client of the verbs service: control calls and rings, used as the C library uses them."""

import os
import socket
from array import array
from collections.abc import Callable, Sequence
from ctypes import addressof, c_char
from mmap import mmap
from pathlib import Path
from typing import NamedTuple

from rdmawire.errors import VerbsError
from rdmawire.verbs_service import protocol
from rdmawire.verbs_service.protocol import (
    AH_ATTR,
    CALLS,
    COMPLETION,
    COPY_BUFFER_BYTES,
    QP_ATTR,
    RING_HEADER,
    SGE,
    WORK_REQUEST,
    WORK_RING_BYTES,
    Call,
)
from tests import waiting

_CALLS = {call.name: call for call in CALLS}
_RECORD, _SGE, _COMPLETION = WORK_REQUEST.struct, SGE.struct, COMPLETION.struct
LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, MW_BIND = 1, 2, 4, 8, 16
ALL = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | MW_BIND
SIGNALED, SOLICITED, INLINE = 2, 4, 8
RC, UC, UD, XRC_INI, XRC_TGT = 2, 3, 4, 9, 10
WRITE, WRITE_IMM, SEND, SEND_IMM, READ, CAS, FAA, LOCAL_INV, BIND_MW, SEND_INV = range(10)
RC_MASKS = (0x39, 0x129181, 0x12E01)
"""The attributes that RC needs on its way to RTS, as ``ibv_qp_attr_mask``."""
SUCCESS, LOC_QP_OP_ERR, LOC_PROT_ERR, FLUSHED, REM_ACCESS_ERR, REM_OP_ERR = 0, 2, 4, 5, 10, 11

Sge = tuple[int, int, int]


class Completion(NamedTuple):
    """The fields of a completion."""

    wr_id: int
    status: int
    opcode: int
    vendor_err: int
    byte_len: int
    imm_data: int
    qp_num: int
    src_qp: int
    wc_flags: int
    pkey_index: int
    slid: int
    sl: int
    dlid_path_bits: int
    reserved: int
    timestamp: int
    srq: int
    flags: int


def wait_until(condition: Callable[[], object]) -> None:
    """Wait for a condition, first by yielding the processor: most become true at once."""
    for _ in range(1000):
        if condition():
            return
        os.sched_yield()
    waiting.wait_until(condition)


class Memory:
    """Memory of this process, with its address."""

    def __init__(self, size: int) -> None:
        self.map = mmap(-1, size)
        self.size = size
        self.address = addressof(c_char.from_buffer(self.map))

    def __getitem__(self, place: slice) -> bytes:
        return self.map[place]

    def __setitem__(self, place: slice, data: bytes) -> None:
        self.map[place] = data

    def unmap(self) -> None:
        """Unmap it: there is nothing at its address then."""
        self.map.close()


class Connection:
    """A control connection that has said hello."""

    def __init__(self, path: Path, *, greet: bool = True) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(waiting.HANG)
        self.socket.connect(os.fspath(path))
        if greet:
            (self.devices,) = self.call("hello", protocol.version())

    def send_message(self, data: bytes, fds: tuple[int, ...] = ()) -> tuple[list[int], list[int]]:
        """Send a message as it is; return the words and descriptors of the reply."""
        socket.send_fds(self.socket, [data], list(fds))
        return self.take_reply()

    def take_reply(self) -> tuple[list[int], list[int]]:
        """The words and descriptors of the next reply."""
        data, found, _, _ = socket.recv_fds(self.socket, 8 * protocol.MAX_WORDS, 8)
        return list(array("Q", data)), found

    def call(self, name: str, *arguments: int, fds: tuple[int, ...] = ()) -> list[int]:
        """Do a call without descriptors in its reply. ``VerbsError`` if it is refused."""
        words, _ = self.call_for_fds(name, *arguments, fds=fds)
        return words

    def call_for_fds(
        self, name: str, *arguments: int, fds: tuple[int, ...] = ()
    ) -> tuple[list[int], list[int]]:
        """Do a call; return the values and descriptors of its reply."""
        call = _CALLS[name]
        words, found = self.send_message(array("Q", (call.number, *arguments)).tobytes(), fds)
        assert words, f"{name}: the service closed the connection"
        if words[0]:
            raise VerbsError(f"{name}: {reason_of(words)}", words[0])
        assert len(words) == 1 + len(call.reply)
        assert len(found) == len(call.reply_fds)
        return words[1:], found

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


def is_reply(words: Sequence[int], call: Call) -> bool:
    """Whether a message has the values of a call, or an errno and a reason in words."""
    if words[0]:
        return reason_of(words) != "" and len(words) <= 1 + protocol.MAX_REASON // 8
    return len(words) == 1 + len(call.reply)


def reason_of(words: Sequence[int]) -> str:
    """The reason in words of a refusal."""
    return array("Q", words[1:]).tobytes().rstrip(b"\0").decode(errors="replace")


class CompletionQueue(NamedTuple):
    """A CQ: its handle and its ring."""

    handle: int
    ring: mmap
    entries: int

    @property
    def words(self) -> memoryview:
        """The counters of the ring."""
        return memoryview(self.ring)[:RING_HEADER].cast("Q")

    def arm(self, kind: int = protocol.ARM_ANY) -> None:
        """Request an event."""
        self.words[protocol.ARMED // 8] = kind

    def poll(self) -> list[Completion]:
        """Consume all completions."""
        words, found = self.words, []
        consumed = words[protocol.CONSUMED // 8]
        for number in range(consumed, words[0]):
            at = RING_HEADER + number % self.entries * _COMPLETION.size
            found.append(Completion._make(_COMPLETION.unpack_from(self.ring, at)))
        words[protocol.CONSUMED // 8] = consumed + len(found)
        return found

    def wait(self, expected: int = 1) -> list[Completion]:
        """Poll until there are ``expected`` completions."""
        found: list[Completion] = []

        def are_there() -> bool:
            found.extend(self.poll())
            return len(found) >= expected

        wait_until(are_there)
        return found


class Region(NamedTuple):
    """A registered region."""

    handle: int
    lkey: int
    rkey: int
    memory: Memory

    def sge(self, offset: int = 0, length: int | None = None) -> Sge:
        """An SGE of ``length`` bytes at ``offset``; up to the end without a length."""
        size = self.memory.size - offset if length is None else length
        return self.memory.address + offset, size, self.lkey


class QueuePair(NamedTuple):
    """A queue pair of a client."""

    handle: int
    number: int


class Client(Connection):
    """A context on a device, in this process."""

    def __init__(self, path: Path, index: int = 0) -> None:
        super().__init__(path)
        values, fds = self.call_for_fds("open_device", index)
        names = ("handle", "copy_thread", *protocol.DEVICE_ATTR)
        self.attr = dict(zip(names, values, strict=True))
        ring, self.doorbell, self.async_events, copy_socket, copy_buffer = fds
        self.ring = mmap(ring, RING_HEADER + WORK_RING_BYTES)
        os.close(ring)
        self.copy_socket = socket.socket(fileno=copy_socket)
        self.copy_buffer = mmap(copy_buffer, COPY_BUFFER_BYTES)
        os.close(copy_buffer)
        self.words = memoryview(self.ring)[:RING_HEADER].cast("Q")
        self.head = 0
        (self.pd,) = self.call("alloc_pd")

    def close(self) -> None:
        """Close the connection and all descriptors."""
        super().close()
        for fd in (self.doorbell, self.async_events):
            os.close(fd)
        self.copy_socket.close()
        self.words.release()
        self.ring.close()
        self.copy_buffer.close()

    # Objects.

    def gid(self, index: int = 0) -> tuple[int, int]:
        """A GID as two integers."""
        first, second, *_ = self.call("query_gid", 1, index)
        return first, second

    def register(self, memory: Memory, access: int = ALL) -> Region:
        """Register memory."""
        size, address = memory.size, memory.address
        mr, lkey, rkey = self.call("reg_mr", self.pd, address, size, address, access, 0)
        return Region(mr, lkey, rkey, memory)

    def buffer(self, size: int, access: int = ALL) -> Region:
        """Allocate and register memory."""
        return self.register(Memory(size), access)

    def create_cq(self, cqe: int = 64, channel: int = 0) -> CompletionQueue:
        """Create a completion queue."""
        (handle, _, entries), (fd,) = self.call_for_fds("create_cq", cqe, channel, 0)
        return _cq(handle, entries, fd)

    def resize_cq(self, cq: CompletionQueue, cqe: int) -> CompletionQueue:
        """Resize a completion queue; return it with its new ring."""
        (_, entries), (fd,) = self.call_for_fds("resize_cq", cq.handle, cqe)
        return _cq(cq.handle, entries, fd)

    def channel(self) -> tuple[int, int]:
        """Return the handle of a new channel, and the descriptor of its events."""
        (handle,), (fd,) = self.call_for_fds("create_comp_channel")
        return handle, fd

    def create_qp(
        self,
        send_cq: CompletionQueue,
        recv_cq: CompletionQueue | None = None,
        kind: int = RC,
        *,
        depth: int = 64,
        srq: int = 0,
        xrcd: int = 0,
        signal_all: bool = False,
    ) -> QueuePair:
        """Create a queue pair in RESET."""
        second = send_cq if recv_cq is None else recv_cq
        words = (self.pd, send_cq.handle, second.handle, srq, xrcd, kind, signal_all, 0)
        values = self.call("create_qp", *words, depth, depth, 4, 4, 256)
        return QueuePair(*values[:2])

    def modify(self, qp: QueuePair, mask: int, **attributes: int) -> None:
        """Modify a queue pair."""
        values = dict.fromkeys(QP_ATTR, 0) | attributes
        self.call("modify_qp", qp.handle, mask, *(values[name] for name in QP_ATTR))

    def query(self, qp: QueuePair) -> dict[str, int]:
        """The attributes of a queue pair."""
        return dict(zip(QP_ATTR, self.call("query_qp", qp.handle), strict=True))

    def bring_up(
        self,
        qp: QueuePair,
        peer: QueuePair,
        gid: tuple[int, int],
        masks: tuple[int, int, int] = RC_MASKS,
        **attributes: int,
    ) -> None:
        """Bring a queue pair to RTS, connected to ``peer`` at ``gid``."""
        common = {
            "qp_access_flags": REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC,
            "port_num": 1,
            "path_mtu": 5,
            "dest_qp_num": peer.number,
            "max_dest_rd_atomic": 4,
            "max_rd_atomic": 4,
            "min_rnr_timer": 1,
            "timeout": 14,
            "retry_cnt": 7,
            "rnr_retry": 7,
            **_path(gid),
        } | attributes
        for state, mask in enumerate(masks, 1):
            self.modify(qp, mask, **common | {"qp_state": state})

    def bring_up_ud(self, qp: QueuePair, qkey: int) -> None:
        """Bring a UD queue pair to RTS."""
        for state, mask in ((1, 0x71), (2, 0x1), (3, 0x10001)):
            self.modify(qp, mask, qp_state=state, qkey=qkey, port_num=1)

    def bring_up_raw(self, qp: QueuePair, states: int = 3) -> None:
        """Bring a raw packet queue pair to RTS, or to RTR by two states, as a work queue."""
        for state in range(1, states + 1):
            self.modify(qp, 0x21 if state == 1 else 0x1, qp_state=state, port_num=1)

    def create_ah(self, gid: tuple[int, int], sgid_index: int = 0) -> int:
        """Create an address handle; return its handle."""
        values = dict.fromkeys(AH_ATTR, 0) | _path(gid) | {"sgid_index": sgid_index}
        (handle,) = self.call("create_ah", self.pd, *(values[name] for name in AH_ATTR))
        return handle

    # Work.

    def write(self, data: bytes) -> None:
        """Write a record to the ring as it is, and ring the doorbell if the service sleeps."""
        at = self.head % WORK_RING_BYTES
        left = WORK_RING_BYTES - at
        if left < len(data):
            self._put(at, left.to_bytes(4, "little") + protocol.PAD.to_bytes(4, "little"), left)
            at = 0
        self._put(at, data, len(data))

    def skip_to(self, place: int) -> None:
        """Skip the ring up to ``place`` bytes from its start, with a record that is no work."""
        size = (place - self.head) % WORK_RING_BYTES
        left = WORK_RING_BYTES - self.head % WORK_RING_BYTES
        for part in (min(left, size), max(size - left, 0)):
            if part:
                data = part.to_bytes(4, "little") + protocol.PAD.to_bytes(4, "little")
                self._put(self.head % WORK_RING_BYTES, data, part)

    def _put(self, at: int, data: bytes, size: int) -> None:
        def has_room() -> bool:
            return self.head + size - self.words[protocol.TAIL // 8] <= WORK_RING_BYTES

        if not has_room():
            wait_until(has_room)
        self.ring[RING_HEADER + at : RING_HEADER + at + len(data)] = data
        self.head += size
        self.words[0] = self.head
        if self.words[protocol.ASLEEP // 8]:
            os.eventfd_write(self.doorbell, 1)

    def send(self, qp: QueuePair, *sges: Sge, **fields: int) -> None:
        """Post send work; a signaled SEND unless ``fields`` say otherwise."""
        wanted = {"opcode": SEND, "flags": SIGNALED} | fields
        self.write(record(protocol.POST_SEND, qp.number, *sges, data=b"", **wanted))

    def send_inline(self, qp: QueuePair, data: bytes, **fields: int) -> None:
        """Post send work with inline data."""
        wanted = {"opcode": SEND, "flags": SIGNALED | INLINE} | fields
        self.write(record(protocol.POST_SEND, qp.number, data=data, **wanted))

    def receive(self, qp: QueuePair, *sges: Sge, wr_id: int = 0) -> None:
        """Post a receive."""
        self.write(record(protocol.POST_RECV, qp.number, *sges, wr_id=wr_id))

    def receive_shared(self, srq: int, *sges: Sge, wr_id: int = 0) -> None:
        """Post a receive to the shared receive queue with this handle."""
        self.write(record(protocol.POST_SRQ_RECV, srq, *sges, wr_id=wr_id))

    def async_event(self) -> tuple[int, int]:
        """Wait for an asynchronous event: its type and object."""
        data = os.read(self.async_events, 16)
        return int.from_bytes(data[:8], "little"), int.from_bytes(data[8:], "little")

    def events(self, count: int) -> list[tuple[int, int]]:
        """The next ``count`` asynchronous events, with no traffic: this client only makes calls."""
        os.set_blocking(self.async_events, False)
        found: list[tuple[int, int]] = []
        for _ in range(_MAX_CALLS):
            self.gid()
            try:
                found.append(self.async_event())
            except BlockingIOError:
                continue
            if len(found) == count:
                return found
        raise AssertionError(f"no other events than {found}")


_MAX_CALLS = 2000


def _cq(handle: int, entries: int, fd: int) -> CompletionQueue:
    ring = mmap(fd, RING_HEADER + entries * _COMPLETION.size)
    os.close(fd)
    return CompletionQueue(handle, ring, entries)


def _path(gid: tuple[int, int]) -> dict[str, int]:
    first, second = gid
    path = {"dgid0": first, "dgid1": second, "is_global": 1}
    return path | {"hop_limit": 64, "ah_port_num": 1}


_FIELDS = tuple(field.name for field in WORK_REQUEST.fields)


def record(kind: int, queue: int, *sges: Sge, data: bytes = b"", **fields: int) -> bytes:
    """A work record with SGEs or inline data behind it."""
    tail = b"".join(_SGE.pack(*sge) for sge in sges) + data
    tail += bytes(-len(tail) % 8)
    values = dict.fromkeys(_FIELDS, 0) | {
        "size": _RECORD.size + len(tail),
        "kind": kind,
        "queue": queue,
        "sge_count": len(sges),
        "inline_length": len(data),
    }
    return _RECORD.pack(*(values | fields).values()) + tail
