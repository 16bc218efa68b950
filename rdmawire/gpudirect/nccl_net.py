"""NCCL's connections over InfiniBand and RoCE, as they are on the wire.

A receiver offers memory by writing an entry to a FIFO in the sender's memory: address, length and
key of a buffer (clear to send). The sender answers each entry with one RDMA WRITE with immediate;
the immediate is the number of bytes that it wrote. Both are on one queue pair of each channel.
Facts: the ``net_ib`` transport of NCCL 2.28, and its traffic between two H200.
"""

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Final

from rdmawire.errors import CollectiveError
from rdmawire.fabric import CAP, Host, connect
from rdmawire.fabric.pair import ATTRIBUTES
from rdmawire.ib import QPInit, QueuePair
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

FIFO_ENTRIES: Final = 256
FIFO_STRIDE: Final = 512
"""Bytes from one entry to the next: eight requests of 64 bytes, of which the first is used."""

_ENTRY: Final = Struct("<QQIIIIIIQ16x")
"""Address, length, keys for four devices, number of requests, tag, and the number of the entry."""
_MAX_POLLED: Final = 1 << 10
_SIGNAL_EVERY: Final = 64
"""Of this many entries one has a completion, which frees the places of all in the send queue."""


_UNSIGNALED: Final = SendFlags.INLINE.value
_SIGNALED: Final = _UNSIGNALED | SendFlags.SIGNALED.value


def immediate_of(size: int) -> int:
    """Return the immediate for a number of bytes: NCCL writes it in the order of the processor."""
    return int.from_bytes(size.to_bytes(4, "little"), "big")


class NetConnection:
    """One direction between two hosts: :meth:`send` at one end, :meth:`receive` at the other.

    ``slots`` are the buffers at either end, ``slot_size`` the length in bytes of each. ``wake`` is
    called with a host that has work to transmit.
    """

    def __init__(
        self,
        sender: Host,
        receiver: Host,
        slots: int,
        slot_size: int,
        wake: Callable[[Host], None],
    ) -> None:
        self.sender = sender
        self.receiver = receiver
        self._slots = slots
        self._slot_size = slot_size
        self._wake = wake
        self._source = sender.buffer(slots * slot_size)
        self._target = receiver.buffer(slots * slot_size)
        self._fifo = sender.buffer(FIFO_ENTRIES * FIFO_STRIDE)
        self._sending = _queue_pair(sender)
        self._receiving = _queue_pair(receiver)
        attributes = ATTRIBUTES._replace(path_mtu=MTU.MTU_4096)
        connect(sender, self._sending, receiver, self._receiving, attributes)
        self._sent = self._completed = 0
        self._offered = self._taken = self._wanted = 0
        self._arrived: deque[int] = deque()
        self.messages = 0

    # The sender.

    @property
    def can_send(self) -> bool:
        """Whether a buffer is free, and the receiver has offered memory for the next message."""
        return self._sent - self._completed < self._slots and self._offer() is not None

    def _offer(self) -> tuple[int, int] | None:
        """Return the address and the key of the next entry, if it is there."""
        data = self._fifo.read(_ENTRY.size, self._sent % FIFO_ENTRIES * FIFO_STRIDE)
        address, _, key, _, _, _, _, _, number = _ENTRY.unpack(data)
        return (address, key) if number == self._sent + 1 else None

    def send(self, data: bytes) -> None:
        """Write a message to the memory that the receiver offered; :attr:`can_send` was true."""
        offer = self._offer()
        if offer is None or len(data) > self._slot_size:
            raise CollectiveError(f"a message of {len(data)} bytes, for which no memory is offered")
        at = self._sent % self._slots * self._slot_size
        self._source.write(data, at)
        work = SendWR(
            SendOpcode.RDMA_WRITE_WITH_IMM,
            (self._source.sge(len(data), at),),
            wr_id=self._sent,
            remote_address=offer[0],
            rkey=offer[1],
            imm_data=immediate_of(len(data)),
            flags=SendFlags.SIGNALED,
        )
        self._sending.post_send((work,))
        self._sent += 1
        self.messages += 1
        self._wake(self.sender)

    # The receiver.

    def expect(self, messages: int) -> None:
        """Offer memory for more messages, as soon as buffers are free."""
        self._wanted += messages
        self._offer_more()

    def _offer_more(self) -> None:
        """Write entries to the sender's FIFO for all buffers that are free."""
        while self._offered < self._wanted and self._offered - self._taken < self._slots:
            number = self._offered
            self._receiving.post_recv((RecvWR(wr_id=number),))
            address = self._target.address + number % self._slots * self._slot_size
            key = self._target.rkey
            work = SendWR(
                SendOpcode.RDMA_WRITE,
                inline=_ENTRY.pack(address, self._slot_size, key, 0, 0, 0, 1, 0, number + 1),
                wr_id=number,
                remote_address=self._fifo.address + number % FIFO_ENTRIES * FIFO_STRIDE,
                rkey=self._fifo.rkey,
                flags=_SIGNALED if number % _SIGNAL_EVERY == 0 else _UNSIGNALED,
            )
            self._receiving.post_send((work,))
            self._offered += 1
            self._wake(self.receiver)

    @property
    def has_message(self) -> bool:
        """Whether a message has arrived that was not taken."""
        return bool(self._arrived)

    def receive(self) -> bytes:
        """Take the next message, and offer its buffer again if more are expected."""
        size = self._arrived.popleft()
        data = self._target.read(size, self._taken % self._slots * self._slot_size)
        self._taken += 1
        self._offer_more()
        return data

    def poll_sender(self) -> None:
        """Take the completions of the sender: its buffers are free."""
        for completion in self._sending.send_cq.poll(_MAX_POLLED):
            _check(completion)
            self._completed += 1

    def poll_receiver(self) -> None:
        """Take the completions of the receiver: messages that have arrived."""
        for completion in self._receiving.send_cq.poll(_MAX_POLLED):
            _check(completion)
            if completion.opcode is WCOpcode.RECV_RDMA_WITH_IMM:
                self._arrived.append(immediate_of(completion.imm_data))


def _check(completion: WorkCompletion) -> None:
    if completion.status is not WCStatus.SUCCESS:
        raise CollectiveError(f"a connection failed: {completion.status.name}")


def _queue_pair(host: Host) -> QueuePair:
    cq = host.nic.create_cq(_MAX_POLLED)
    return host.nic.create_qp(QPType.RC, QPInit(host.pd, cq, cq, CAP))
