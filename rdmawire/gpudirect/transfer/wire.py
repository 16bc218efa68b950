"""What carries the chunks of a transfer between two hosts: RDMA, or a TCP connection."""

from collections import deque
from collections.abc import Callable
from functools import partial
from math import ceil
from typing import Final, Protocol

from rdmawire.errors import TransferError
from rdmawire.fabric import CAP, Registered, Simulator, connect
from rdmawire.fabric.pair import ATTRIBUTES
from rdmawire.gpudirect.transfer.host import TransferHost
from rdmawire.gpudirect.transfer.tcp_endpoint import TcpEndpoint
from rdmawire.ib import QPInit, QueuePair
from rdmawire.memory.page import Path
from rdmawire.verbs import (
    QPType,
    RecvWR,
    SendFlags,
    SendOpcode,
    SendWR,
    WCOpcode,
    WCStatus,
    WorkCompletion,
)
from rdmawire.wire.management import MTU

Wake = Callable[[str], None]
"""Function called with the name of a host that has something to transmit."""
Received = Callable[[int, bytes], None]
"""Function called with the number of a chunk and its bytes."""

_MAX_POLLED: Final = 1 << 10
_IN_FLIGHT: Final = 1 << 21
"""Bytes of packets in flight: more than any of the wires holds in a round trip."""


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
    ``slot_size`` bytes in pinned memory; else they are the memory of the GPUs, and chunks have no
    bytes of their own.
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
    ) -> None:
        self.on_free: Callable[[], None] = _nothing
        self._sender, self._receiver = sender, receiver
        self._simulator = simulator
        self._wake = wake
        self._received = received
        self._slots, self._slot_size = slots, slot_size
        self._is_direct = buffers is not None
        size = slots * slot_size
        self._source, self._target = buffers or (
            sender.host.buffer(size),
            receiver.host.buffer(size),
        )
        self._sending, self._receiving = _queue_pair(sender, slots), _queue_pair(receiver, slots)
        attributes = ATTRIBUTES._replace(path_mtu=MTU[f"MTU_{mtu}"])
        connect(
            sender.host,
            self._sending,
            receiver.host,
            self._receiving,
            attributes,
            packets_in_flight=_IN_FLIGHT // mtu,
        )
        for queue in (self._sending, self._receiving):
            queue.post_recv(tuple(RecvWR() for _ in range(slots)))
        sender.application.on_taken.append(self._poll_sender)
        receiver.application.on_taken.append(self._poll_receiver)

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
        self._post(self._sender, self._sending, work)

    def _post(self, host: TransferHost, queue: QueuePair, work: SendWR) -> None:
        """Post work; the WQE is written to the adapter with the doorbell (BlueFlame)."""
        costs = host.costs
        host.cpu += costs.post_time
        delay = costs.post_time + host.adapter_routes[Path.HOST].latency + costs.adapter_latency
        self._simulator.call_at(
            ceil(self._simulator.now + delay), partial(self._ring, host, queue, work)
        )

    def _ring(self, host: TransferHost, queue: QueuePair, work: SendWR) -> None:
        queue.post_send((work,))
        self._wake(host.name)

    def _poll_sender(self, _frame: bytes, _now: int) -> None:
        for completion in _polled(self._sending):
            if completion.opcode is WCOpcode.RECV_RDMA_WITH_IMM:
                self._sending.post_recv((RecvWR(),))
                self._later(self._sender, 0.0, self.on_free)

    def _poll_receiver(self, _frame: bytes, _now: int) -> None:
        for completion in _polled(self._receiving):
            if completion.opcode is WCOpcode.RECV_RDMA_WITH_IMM:
                self._receiving.post_recv((RecvWR(),))
                arrived = partial(self._arrived, completion.imm_data)
                self._later(self._receiver, self._flush_time(), arrived)

    def _later(self, host: TransferHost, delay: float, action: Callable[[], None]) -> None:
        """Do something when software has seen the completion."""
        delay += host.costs.adapter_latency + host.adapter_routes[Path.HOST].latency
        self._simulator.call_at(ceil(self._simulator.now + delay), action)

    def _flush_time(self) -> float:
        """Return the time of a read that makes the adapter's writes visible to kernels.

        NCCL reads a byte through the adapter, from GPUs before compute capability 9.0.
        """
        gpu = self._receiver.gpu
        if not self._is_direct or not gpu.profile.posts_writes:
            return 0.0
        route = self._receiver.adapter_routes[Path.GPU_DIRECT]
        end = route.read(1, self._simulator.now) - self._simulator.now
        gpu.flush()
        return end

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
        self._post(self._receiver, self._receiving, work)

    def close(self) -> None:
        """Do nothing: the queue pairs stay as they are."""


def _queue_pair(host: TransferHost, slots: int) -> QueuePair:
    cq = host.host.nic.create_cq(_MAX_POLLED)
    cap = CAP._replace(max_send_wr=2 * slots, max_recv_wr=2 * slots)
    return host.host.nic.create_qp(QPType.RC, QPInit(host.host.pd, cq, cq, cap))


def _polled(queue: QueuePair) -> list[WorkCompletion]:
    found = queue.send_cq.poll(_MAX_POLLED)
    for completion in found:
        if completion.status is not WCStatus.SUCCESS:
            raise TransferError(f"the connection failed: {completion.status.name}")
    return found


def _nothing() -> None:
    """Do nothing: nobody waits for a free slot."""


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
