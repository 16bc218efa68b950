"""What carries the chunks of a transfer between two hosts: RDMA, or a TCP connection."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from rdmawire.errors import TransferError
from rdmawire.fabric import CAP, Registered, Simulator
from rdmawire.gpudirect.transfer.host import TransferHost
from rdmawire.gpudirect.transfer.rdma_endpoint import RdmaEndpoint, Wake, connect_endpoints
from rdmawire.gpudirect.transfer.tcp_endpoint import TcpEndpoint
from rdmawire.memory.page import Path
from rdmawire.verbs import (
    RecvWR,
    SendFlags,
    SendOpcode,
    SendWR,
    WCOpcode,
    WorkCompletion,
)

Received = Callable[[int, bytes], None]
"""Function called with the number of a chunk and its bytes."""


class Wire(Protocol):
    """Carries chunks in order; ``on_free`` is called when the sender may send one more."""

    on_free: Callable[[], None]

    def send(self, number: int, data: bytes) -> None: ...

    def release(self) -> None: ...

    def close(self) -> None: ...


class RdmaWire:
    """RDMA WRITEs with immediate, from registered buffers to others.

    The immediate is the number of a chunk. The receiver answers a chunk whose buffer is free again
    by a WRITE with immediate of no bytes. Without ``buffers`` each host has ``slots`` of
    ``slot_size`` bytes in pinned memory; else they are the memory of the data, with ``on_gpus``
    that of GPUs, and chunks have no bytes of their own. Few bytes of host memory are inline in the
    work request.
    """

    def __init__(
        self,
        sender: TransferHost,
        receiver: TransferHost,
        simulator: Simulator,
        wake: Wake,
        received: Received,
        *,
        slots: int,
        slot_size: int,
        mtu: int,
        buffers: tuple[Registered, Registered] | None = None,
        on_gpus: bool = False,
    ) -> None:
        self.on_free: Callable[[], None] = _nothing
        self._received = received
        self._path = Path.GPU_DIRECT if on_gpus else Path.HOST
        self._slots, self._slot_size = slots, slot_size
        self._is_direct = buffers is not None
        size = slots * slot_size
        self._source, self._target = buffers or (
            sender.host.buffer(size),
            receiver.host.buffer(size),
        )
        self._max_inline = 0 if on_gpus else min(sender.costs.max_inline, CAP.max_inline_data)
        cap = CAP._replace(max_send_wr=2 * slots, max_recv_wr=2 * slots)
        self._sending = RdmaEndpoint(sender, simulator, wake, cap)
        self._receiving = RdmaEndpoint(receiver, simulator, wake, cap)
        connect_endpoints(self._sending, self._receiving, mtu)
        for end in (self._sending, self._receiving):
            end.queue.post_recv(tuple(RecvWR() for _ in range(slots)))
        self._sending.on_completion = self._at_sender
        self._receiving.on_completion = self._at_receiver

    def send(self, number: int, data: bytes) -> None:
        """Send a chunk; a slot is free."""
        at = number % self._slots * self._slot_size
        if not self._is_direct:
            self._source.write(data, at)
        length = self._slot_size if self._is_direct else len(data)
        work = SendWR(
            SendOpcode.RDMA_WRITE_WITH_IMM,
            (self._source.sge(length, at),),
            wr_id=number,
            remote_address=self._target.address + at,
            rkey=self._target.rkey,
            imm_data=number,
            flags=SendFlags.SIGNALED,
        )
        if length <= self._max_inline:
            work = work._replace(flags=work.flags | SendFlags.INLINE)
        self._sending.post(work)

    def _at_sender(self, completion: WorkCompletion) -> None:
        if completion.opcode is WCOpcode.RECV_RDMA_WITH_IMM:
            self._sending.queue.post_recv((RecvWR(),))
            self._sending.later(0.0, self.on_free)

    def _at_receiver(self, completion: WorkCompletion) -> None:
        if completion.opcode is WCOpcode.RECV_RDMA_WITH_IMM:
            self._receiving.queue.post_recv((RecvWR(),))
            on_gpus = self._path is Path.GPU_DIRECT
            delay = self._receiving.flush_time() if on_gpus else 0.0
            delay -= self._overlap()
            self._receiving.later(delay, partial(self._arrived, completion.imm_data))

    def _overlap(self) -> float:
        """Return the time (ns) for which payload and completion are both on their way.

        The adapter writes the completion right behind the payload: a posted write does not wait
        for the one before it (PCIe Base 6.0, 2.4.1).
        """
        routes = self._receiving.host.adapter_routes
        return min(routes[self._path].latency, routes[Path.HOST].latency)

    def _arrived(self, number: int) -> None:
        if self._is_direct:
            self._received(number, b"")
            return
        at = number % self._slots * self._slot_size
        self._received(number, self._target.read(self._slot_size, at))

    def release(self) -> None:
        """Tell the sender that the buffer of a chunk is free."""
        work = SendWR(
            SendOpcode.RDMA_WRITE_WITH_IMM,
            remote_address=self._source.address,
            rkey=self._source.rkey,
            flags=SendFlags.SIGNALED,
        )
        self._receiving.post(work)

    def close(self) -> None:
        """Do nothing: the queue pairs stay as they are."""


def _nothing() -> None:
    """Do nothing: no stage waits for a free slot."""


class TcpWire:
    """A TCP connection; a slot is free when the peer's stack has acknowledged its chunk."""

    def __init__(
        self, sender: TransferHost, receiver: TransferHost, wake: Wake, received: Received
    ) -> None:
        self.on_free: Callable[[], None] = _nothing
        self._wake = wake
        self._name = sender.name
        self._received = received
        self._ends: deque[int] = deque()
        self._sent = 0
        self._lengths: deque[tuple[int, int]] = deque()
        self._arrived = bytearray()
        one, other = sender.place, receiver.place
        self.endpoints = (
            TcpEndpoint(
                one, other, _PORTS, active=True, on_data=_unexpected,
                on_acknowledged=self._acknowledged,
            ),
            TcpEndpoint(
                other, one, _PORTS[::-1], active=False, on_data=self._data,
                on_acknowledged=_ignore,
            ),
        )  # fmt: skip

    def send(self, number: int, data: bytes) -> None:
        """Append a chunk to the stream."""
        self._sent += len(data)
        self._ends.append(self._sent)
        self._lengths.append((number, len(data)))
        self.endpoints[0].send(data)
        self._wake(self._name)

    def _acknowledged(self, _: int) -> None:
        while self._ends and self._ends[0] <= self.endpoints[0].acknowledged:
            self._ends.popleft()
            self.on_free()

    def _data(self, data: bytes, _: int) -> None:
        self._arrived += data
        while self._lengths and len(self._arrived) >= self._lengths[0][1]:
            number, length = self._lengths.popleft()
            chunk = bytes(self._arrived[:length])
            del self._arrived[:length]
            self._received(number, chunk)

    def release(self) -> None:
        """Do nothing: TCP's window tells the sender."""

    def close(self) -> None:
        """End the stream."""
        self.endpoints[0].close()
        self._wake(self._name)


_PORTS: Final = (40000, 29500)


def _ignore(_: int) -> None:
    """Ignore the time: the receiver sends nothing."""


def _unexpected(data: bytes, _: int) -> None:
    raise TransferError(f"the receiver sent {len(data)} bytes")
