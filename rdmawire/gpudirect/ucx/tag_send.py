"""A tag message from one host to another one, as UCX sends it: `ucp_tag_send`, `ucp_tag_recv`.

The receive is posted before the message comes (an expected message). Times are ns, sizes bytes.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final, NamedTuple

from rdmawire.errors import FabricError, TransferError, VerbsError, WireError
from rdmawire.fabric import Registered, Simulator
from rdmawire.gpudirect.transfer.host_pair import HostPair
from rdmawire.gpudirect.transfer.path import random_bytes
from rdmawire.gpudirect.transfer.stage import Chunk
from rdmawire.gpudirect.ucx.am import (
    AckHeader,
    ActiveMessage,
    AmId,
    EagerFirstHeader,
    EagerHeader,
    EagerMiddleHeader,
    MemoryType,
    PackedKey,
    RtrHeader,
    RtsHeader,
    UcpHeader,
)
from rdmawire.gpudirect.ucx.config import UcxConfig
from rdmawire.gpudirect.ucx.protocol import Fragment, Protocol, choose, fragments
from rdmawire.gpudirect.ucx.worker import (
    Copies,
    PostedOperation,
    UserBuffer,
    Worker,
    connected_workers,
)
from rdmawire.topology import Costs, Machine
from rdmawire.topology.cost import H200_COSTS
from rdmawire.units import SECOND
from rdmawire.verbs import SendOpcode, Sge

MAX_SIZE: Final = 1 << 26
MAX_FRAGMENTS: Final = 4096
_VARIABLES: Final = {False: "UCX_RC_SEG_SIZE or UCX_RNDV_THRESH", True: "UCX_RNDV_FRAG_SIZE"}
"""Settings that change the number of fragments: of eager messages, and of a rendezvous."""
_SPARE: Final = 8
"""Receives beside those of fragments: for RTS, RTR, ATS and ATP."""


class TagSpec(NamedTuple):
    """A tag message of ``size`` bytes between two hosts that are such machines.

    ``source`` and ``target`` are GPUs by their names; with memory of the host it is that of the
    GPU's NUMA node. ``rate`` is that of the wire in bits per second, 0 for that of the adapter's
    port; ``latency`` is that of each of the two cables to the switch.
    """

    machine: Machine
    source: str
    target: str
    size: int = 1 << 16
    send_memory: MemoryType = MemoryType.CUDA
    recv_memory: MemoryType = MemoryType.CUDA
    tag: int = 0
    config: UcxConfig = UcxConfig()
    rate: int = 0
    mtu: int = 4096
    latency: int = 300
    seed: int = 0
    costs: Costs = H200_COSTS


class TagReport(NamedTuple):
    """What a message took.

    ``duration`` is the time from the send until the receiver may use the data, ``send_duration``
    that until the sender may change its data. ``copies`` is how often each byte was copied by
    processors and copy engines, ``cpu`` the time of processors without waits. ``frames`` and
    ``wire_bytes`` are those of both directions. ``reasons`` say why memory could not be registered.
    """

    protocol: Protocol
    size: int
    duration: int
    send_duration: int
    copies: int
    cpu: float
    frames: int
    wire_bytes: int
    posted: tuple[PostedOperation, ...]
    reasons: tuple[str, ...]

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return self.size / self.duration * SECOND


class TagSend:
    """A message; :meth:`run` sends it, once. ``network`` carries its packets.

    Raises :class:`TransferError` if the hosts or the message cannot be.
    """

    def __init__(self, spec: TagSpec) -> None:
        _check(spec)
        self.spec = spec
        self._pair = HostPair(spec, ("sender", "receiver"), spec.size)
        self.network, self.hosts = self._pair.network, self._pair.hosts
        kinds = (spec.send_memory, spec.recv_memory)
        self._buffers = [
            UserBuffer(host, kind, spec.size) for host, kind in zip(self.hosts, kinds, strict=True)
        ]
        memories = [buffer.memory for buffer in self._buffers]
        self.protocol = choose(spec.size, spec.config, *memories)
        self._posted: list[PostedOperation] = []
        depth = _SPARE + self._fragment_count()
        self._workers = connected_workers(self._pair, spec, (depth, depth), self._posted)

    def _fragment_count(self) -> int:
        """Return the number of SENDs or fragments; :class:`TransferError` for too many."""
        spec = self.spec
        if self.protocol.is_rendezvous:
            step = spec.config.rndv_frag_size
            count = -(-spec.size // step) if self.protocol.is_pipeline else 1
        else:
            count = len(fragments(spec.size, spec.config))
        if count > MAX_FRAGMENTS:
            variables = _VARIABLES[self.protocol.is_rendezvous]
            raise TransferError(
                f"{spec.size} bytes by {self.protocol.value} are {count} fragments; up to "
                f"{MAX_FRAGMENTS} are supported: set {variables}"
            )
        return count

    def run(self) -> TagReport:
        """Send the message, and check the data at the receiver.

        Raises :class:`TransferError` if the connection fails, or if data is wrong.
        """
        data = random_bytes(self.spec.size, self.spec.seed)
        self._buffers[0].write(0, data)
        random = Random(self.spec.seed)  # noqa: S311 - repeatable
        request = _TagRequest(self.spec, self.protocol, self.network.simulator, random)
        receiver = _TagReceiver(request, self._workers[1], self._buffers[1])
        sender = _TagSender(request, self._workers[0], self._buffers[0])
        sender.start()
        try:
            self.network.simulator.run()
        except (FabricError, VerbsError, WireError) as error:
            raise TransferError(f"the message does not arrive: {error}") from error
        if receiver.end is None or sender.end is None:
            raise TransferError(f"{receiver.received} of {self.spec.size} bytes arrived")
        if self._buffers[1].read(0, self.spec.size) != data:
            raise TransferError("the data at the receiver is not that of the sender")
        return self._report(receiver.end, sender.end, sender.copied + receiver.copied)

    def _report(self, duration: int, send_duration: int, copied: int) -> TagReport:
        size = self.spec.size
        return TagReport(
            self.protocol,
            size,
            duration,
            send_duration,
            copied // size if size else 0,
            sum(host.cpu for host in self.hosts),
            self._pair.traffic.frames,
            self._pair.traffic.bytes,
            tuple(self._posted),
            tuple(buffer.reason for buffer in self._buffers if buffer.reason),
        )


def tag_send(spec: TagSpec) -> TagReport:
    """Send a tag message; return what it took.

    Raises :class:`TransferError` if the hosts or the message cannot be, or if it fails.
    """
    return TagSend(spec).run()


class _TagRequest(NamedTuple):
    """A message in progress."""

    spec: TagSpec
    protocol: Protocol
    simulator: Simulator
    random: Random

    def new_id(self) -> int:
        """Return an id of an endpoint or a request: UCX takes its address."""
        return 0x5500_0000_0000 | self.random.getrandbits(32) << 6


class _TagEnd:
    """What sender and receiver have in common: a worker, a buffer, and bytes that are complete."""

    def __init__(self, request: _TagRequest, worker: Worker, buffer: UserBuffer) -> None:
        self.spec, self.protocol = request.spec, request.protocol
        self.request = request
        self.worker = worker
        self.buffer = buffer
        self.end: int | None = None
        self._is_staged = buffer.registered is None or (
            self.protocol.is_pipeline and buffer.memory.type is MemoryType.CUDA
        )

    def finish(self) -> None:
        """Note the time of the end."""
        self.end = self.request.simulator.now

    def cut(self, offset: int, size: int) -> list[tuple[int, int]]:
        """Return offsets and sizes: of one part, or of fragments in pinned memory."""
        step = self.spec.config.rndv_frag_size if self._is_staged else size
        end = offset + size
        return [(start, min(step, end - start)) for start in range(offset, end, step)]

    def fragment(self, size: int) -> Registered:
        """Return a buffer for a fragment."""
        return self.worker.take(min(self.spec.config.rndv_frag_size, max(self.spec.size, size)))


class _TagSender(_TagEnd):
    """The sender of a message."""

    def __init__(self, request: _TagRequest, worker: Worker, buffer: UserBuffer) -> None:
        super().__init__(request, worker, buffer)
        self._copies: Copies = worker.copies_out(buffer.memory.type)
        self._done = self._sent = 0
        self._msg_id = request.random.getrandbits(64)
        self._req_id = request.new_id()
        worker.handlers[AmId.RNDV_ATS] = self._ats
        worker.handlers[AmId.RNDV_RTR] = self._rtr

    @property
    def copied(self) -> int:
        """Bytes that were copied."""
        return self._copies.copied

    def start(self) -> None:
        """Begin with the message."""
        if self.protocol.is_rendezvous:
            self._send_rts()
            return
        for fragment in fragments(self.spec.size, self.spec.config):
            self._send_eager(fragment)

    # Eager.

    def _send_eager(self, fragment: Fragment) -> None:
        header = self._eager_header(fragment)
        _, offset, size = fragment
        done = partial(self._complete, size)
        if self.protocol is Protocol.SHORT:
            message = ActiveMessage(fragment.am_id, header, self.buffer.read(offset, size))
            self.worker.send(message, inline=True)
            done()
        elif self.protocol.copies_in and size:
            data = self.buffer.read(offset, size)
            self._copies.put(offset, data, partial(self._send_copied, fragment.am_id, header))
        else:
            sges = (self.buffer.sge(offset, size),) if size else ()
            self.worker.send(ActiveMessage(fragment.am_id, header), *sges, done=done)

    def _send_copied(self, am_id: AmId, header: UcpHeader, chunk: Chunk) -> None:
        """Send a descriptor; with it the sender may change its data."""
        self.worker.send(ActiveMessage(am_id, header, chunk.data))
        self._complete(len(chunk.data))

    def _eager_header(self, fragment: Fragment) -> UcpHeader:
        if fragment.am_id is AmId.EAGER_ONLY:
            return EagerHeader(self.spec.tag)
        if fragment.am_id is AmId.EAGER_FIRST:
            return EagerFirstHeader(self.spec.tag, self.spec.size, self._msg_id)
        return EagerMiddleHeader(self._msg_id, fragment.offset)

    def _complete(self, size: int) -> None:
        self._done += size
        if self._done == self.spec.size:
            self.finish()

    # Rendezvous.

    def _send_rts(self) -> None:
        region = self.buffer.registered
        key = PackedKey(self.buffer.memory.type, None if region is None else region.rkey)
        header = RtsHeader(
            self.spec.tag, self.request.new_id(), self._req_id, self.buffer.address, self.spec.size
        )
        self.worker.send(ActiveMessage(AmId.RNDV_RTS, header, key.build()))

    def _ats(self, message: ActiveMessage) -> None:
        """The receiver has read the data."""
        header = message.header
        assert isinstance(header, AckHeader)
        if header.req_id != self._req_id:
            raise TransferError(f"an ATS of request {header.req_id:#x}")
        self._complete(header.size)

    def _rtr(self, message: ActiveMessage) -> None:
        """Write what the receiver is ready for, and then tell it."""
        rtr = message.header
        assert isinstance(rtr, RtrHeader)
        key = PackedKey.parse(message.rest)
        put = _Put(self, rtr, key.rkey or 0, self.cut(rtr.offset, rtr.size))
        for offset, size in put.parts:
            if self._is_staged:
                self._copies.put(offset, self.buffer.read(offset, size), put.write_copied)
            else:
                put.write(offset, self.buffer.sge(offset, size), None)

    def acknowledge(self, rtr: RtrHeader) -> None:
        """Send the ATP of what an RTR asked for."""
        self.worker.send(ActiveMessage(AmId.RNDV_ATP, AckHeader(rtr.rreq_id, 0, rtr.size)))

    def written(self, size: int, fragment: Registered | None) -> None:
        """Take the completion of a WRITE."""
        if fragment is not None:
            self.worker.give_back(fragment)
        self._complete(size)


class _Put:
    """The WRITEs for one RTR.

    One WRITE is followed by the ATP at once, as the queue pair keeps the order; of several, or with
    ``UCX_RNDV_PUT_FORCE_FLUSH``, the completions are waited for.
    """

    def __init__(
        self, sender: _TagSender, rtr: RtrHeader, rkey: int, parts: list[tuple[int, int]]
    ) -> None:
        self.parts = parts
        self._sender, self._rtr, self._rkey = sender, rtr, rkey
        self._left = len(parts)
        self._flushes = len(parts) > 1 or sender.spec.config.rndv_put_force_flush

    def write_copied(self, chunk: Chunk) -> None:
        """Write a part that was copied."""
        fragment = self._sender.fragment(len(chunk.data))
        fragment.write(chunk.data)
        self.write(chunk.offset, fragment.sge(len(chunk.data)), fragment)

    def write(self, offset: int, sge: Sge, fragment: Registered | None) -> None:
        """Write a part."""
        address = self._rtr.address + offset - self._rtr.offset
        done = partial(self._written, sge.length, fragment)
        self._sender.worker.rdma(SendOpcode.RDMA_WRITE, sge, address, self._rkey, done)
        if not self._flushes:
            self._sender.acknowledge(self._rtr)

    def _written(self, size: int, fragment: Registered | None) -> None:
        self._left -= 1
        if self._flushes and not self._left:
            self._sender.acknowledge(self._rtr)
        self._sender.written(size, fragment)


class _TagReceiver(_TagEnd):
    """The receiver of a message."""

    def __init__(self, request: _TagRequest, worker: Worker, buffer: UserBuffer) -> None:
        super().__init__(request, worker, buffer)
        self.received = 0
        self._copies: Copies = worker.copies_in(buffer.memory.type)
        self._msg_id: int | None = None
        self._rts: RtsHeader | None = None
        self._waiting: dict[int, Callable[[int], None]] = {}
        worker.handlers |= {
            AmId.EAGER_ONLY: self._eager,
            AmId.EAGER_FIRST: self._eager,
            AmId.EAGER_MIDDLE: self._eager,
            AmId.RNDV_RTS: self._ready,
            AmId.RNDV_ATP: self._atp,
        }

    @property
    def copied(self) -> int:
        """Bytes that were copied."""
        return self._copies.copied

    # Eager.

    def _eager(self, message: ActiveMessage) -> None:
        """Copy the data of a SEND to where the application wants it."""
        offset = self._offset(message.header)
        if message.rest:
            self._copies.put(offset, message.rest, self._store)
        else:
            self._arrived(0)

    def _offset(self, header: UcpHeader) -> int:
        if isinstance(header, EagerMiddleHeader):
            if header.msg_id != self._msg_id:
                raise TransferError(f"a fragment of message {header.msg_id:#x}")
            return header.offset
        assert isinstance(header, EagerHeader | EagerFirstHeader)
        self._match(header.tag)
        if isinstance(header, EagerFirstHeader):
            self._msg_id = header.msg_id
        return 0

    def _match(self, tag: int) -> None:
        if tag != self.spec.tag:
            raise TransferError(f"a message with tag {tag:#x}; {self.spec.tag:#x} is expected")

    def _store(self, chunk: Chunk) -> None:
        self.buffer.write(chunk.offset, chunk.data)
        self._arrived(len(chunk.data))

    def _arrived(self, size: int) -> None:
        self.received += size
        if self.received < self.spec.size:
            return
        if self.protocol.reads and self._rts is not None:
            ack = AckHeader(self._rts.req_id, 0, self._rts.size)
            self.worker.send(ActiveMessage(AmId.RNDV_ATS, ack))
        self.finish()

    # Rendezvous.

    def _ready(self, message: ActiveMessage) -> None:
        """Read the data of an RTS, or ask for it."""
        rts = message.header
        assert isinstance(rts, RtsHeader)
        self._match(rts.tag)
        self._rts = rts
        key = PackedKey.parse(message.rest)
        for offset, size in self.cut(0, rts.size):
            fragment = self.fragment(size) if self._is_staged else None
            if self.protocol.reads:
                self._read(rts, key.rkey or 0, offset, size, fragment)
            else:
                self._send_rtr(rts, offset, size, fragment)

    def _read(
        self, rts: RtsHeader, rkey: int, offset: int, size: int, fragment: Registered | None
    ) -> None:
        sge = self.buffer.sge(offset, size) if fragment is None else fragment.sge(size)
        done = partial(self._moved, offset, fragment, size)
        self.worker.rdma(SendOpcode.RDMA_READ, sge, rts.address + offset, rkey, done)

    def _send_rtr(
        self, rts: RtsHeader, offset: int, size: int, fragment: Registered | None
    ) -> None:
        region = fragment or self.buffer.registered
        assert region is not None
        rreq_id = self.request.new_id()
        self._waiting[rreq_id] = partial(self._moved, offset, fragment)
        header = RtrHeader(rts.req_id, rreq_id, region.address, size, offset)
        memory = MemoryType.HOST if fragment else self.buffer.memory.type
        key = PackedKey(memory, region.rkey)
        self.worker.send(ActiveMessage(AmId.RNDV_RTR, header, key.build()))

    def _atp(self, message: ActiveMessage) -> None:
        header = message.header
        assert isinstance(header, AckHeader)
        if header.req_id not in self._waiting:
            raise TransferError(f"an ATP of request {header.req_id:#x}")
        self._waiting.pop(header.req_id)(header.size)

    def _moved(self, offset: int, fragment: Registered | None, size: int) -> None:
        """Data was read or written: copy it from its fragment, or let kernels see it."""
        if fragment is None:
            self.worker.visible(self.buffer, partial(self._arrived, size))
            return
        data = fragment.read(size)
        self._copies.put(offset, data, self._store)
        self.worker.give_back(fragment)


def _check(spec: TagSpec) -> None:
    if not 0 <= spec.size <= MAX_SIZE:
        raise TransferError(f"a message of {spec.size} bytes; up to {MAX_SIZE} are supported")
    if not 0 <= spec.tag < 1 << 64:
        raise TransferError(f"a tag of {spec.tag}; it has 64 bits")
