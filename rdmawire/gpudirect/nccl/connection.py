"""NCCL's connections over InfiniBand and RoCE, as they are on the wire.

A receiver offers memory by writing an entry to a FIFO in the sender's memory: address, length and
key of a buffer (clear to send). The sender answers each entry with RDMA WRITEs, of which the last
on each queue pair has an immediate: the number of bytes of the message. Before GPUs may read data
that an adapter wrote to their memory, the receiver can flush it: an RDMA READ of one byte, which
the adapter answers itself. Facts: the ``net_ib`` transport of NCCL 2.28, and its traffic between
two H200.
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from rdmawire.errors import CollectiveError
from rdmawire.fabric import CAP, Host, connect
from rdmawire.fabric.pair import ATTRIBUTES
from rdmawire.gpudirect.nccl.protocol import MessageProtocol
from rdmawire.ib import QPInit, QueuePair
from rdmawire.verbs import (
    QPAttributes,
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
MAX_QPS: Final = 16
SPLIT_UNIT: Final = 128
"""Bytes of which the parts of a message on several queue pairs are multiples, but for the last."""

_ENTRY: Final = Struct("<QQIIIIIIQ16x")
"""Address, length, keys for four devices, number of requests, tag, and the number of the entry."""
_MAX_POLLED: Final = 1 << 10
_SIGNAL_EVERY: Final = 64
"""Of this many entries one has a completion, which frees the places of all in the send queue."""
_FLUSHED: Final = 1
"""Bytes that a flush reads."""

_UNSIGNALED: Final = SendFlags.INLINE.value
_SIGNALED: Final = _UNSIGNALED | SendFlags.SIGNALED.value


class NetSettings(NamedTuple):
    """Settings of NCCL's connections, by the environment variables of ``net_ib``.

    - ``qps``: queue pairs of a connection (``NCCL_IB_QPS_PER_CONNECTION``). Messages take turns on
      them, or with ``split`` each is split over all (``NCCL_IB_SPLIT_DATA_ON_QPS``).
    - ``ar_threshold``: with adaptive routing (``NCCL_IB_ADAPTIVE_ROUTING``), messages of more bytes
      are sent as a WRITE without an immediate, and an empty one with it, since packets may overtake
      one another (``NCCL_IB_AR_THRESHOLD``, 8192). ``None`` is without adaptive routing.
    - ``flush``: the receiver flushes what was written to a GPU (``NCCL_NET_FORCE_FLUSH``).
    - ``traffic_class`` of all frames: DSCP, and ECN in the two lowest bits (``NCCL_IB_TC``).
    - ``attributes`` of the queue pairs (``NCCL_IB_TIMEOUT``, ``NCCL_IB_RETRY_CNT`` and others).
    """

    qps: int = 1
    split: bool = False
    ar_threshold: int | None = None
    flush: bool = False
    traffic_class: int = 0
    attributes: QPAttributes = ATTRIBUTES._replace(path_mtu=MTU.MTU_4096)

    @property
    def differs_on_queue_pairs(self) -> bool:
        """Whether messages are sent in another way than one WRITE on one queue pair."""
        return (self.qps, self.split, self.ar_threshold, self.flush) != (1, False, None, False)

    def check(self) -> None:
        """Raise :class:`~rdmawire.errors.CollectiveError` for values that cannot be."""
        if not 1 <= self.qps <= MAX_QPS:
            raise CollectiveError(
                f"{self.qps} queue pairs of a connection; 1 to {MAX_QPS} are supported"
            )
        if self.ar_threshold is not None and self.ar_threshold < 0:
            raise CollectiveError(f"a threshold of {self.ar_threshold} bytes; take 0 or more")


def immediate_of(size: int) -> int:
    """Return the immediate for a number of bytes: NCCL writes it in the order of the processor."""
    return int.from_bytes(size.to_bytes(4, "little"), "big")


class NetConnection:
    """One direction between two hosts: :meth:`send` at one end, :meth:`receive` at the other.

    ``protocol`` says how many buffers are at either end, and their size. ``wake`` is called with a
    host that has work to transmit, ``name`` is for messages.
    """

    def __init__(  # noqa: PLR0917
        self,
        sender: Host,
        receiver: Host,
        protocol: MessageProtocol,
        settings: NetSettings,
        wake: Callable[[Host], None],
        name: str,
    ) -> None:
        self.sender = sender
        self.receiver = receiver
        self._slots = protocol.slots
        self._slot_size = protocol.slot_size
        self._settings = settings
        self._wake = wake
        self._name = name
        self._source = sender.buffer(self._slots * self._slot_size)
        self._target = receiver.buffer(self._slots * self._slot_size)
        self._fifo = sender.buffer(FIFO_ENTRIES * FIFO_STRIDE)
        self.sending = [_queue_pair(sender) for _ in range(settings.qps)]
        self.receiving = [_queue_pair(receiver) for _ in range(settings.qps)]
        for one, other in zip(self.sending, self.receiving, strict=True):
            connect(
                sender,
                one,
                receiver,
                other,
                settings.attributes,
                traffic_class=settings.traffic_class,
            )
        self._flusher = Flusher(receiver) if settings.flush else None
        self._sending_numbers = {qp.qp_num for qp in self.sending}
        self._sent = 0
        self._unsent: dict[int, int] = {}
        self._offered = self._taken = self._wanted = 0
        self._missing: dict[int, int] = {}
        self._arrived: dict[int, int] = {}
        self.messages = 0

    @property
    def flushes(self) -> int:
        """How many messages were flushed."""
        return 0 if self._flusher is None else self._flusher.count

    @property
    def flush_qp(self) -> QueuePair | None:
        """The receiver's queue pair that is connected to itself, if messages are flushed."""
        return None if self._flusher is None else self._flusher.qp

    # The sender.

    @property
    def can_send(self) -> bool:
        """Whether a buffer is free, and the receiver has offered memory for the next message."""
        return self._sent - self._slots not in self._unsent and self._offer() is not None

    def _offer(self) -> tuple[int, int] | None:
        """Return the address and the key of the next entry, if it is there."""
        data = self._fifo.read(_ENTRY.size, self._sent % FIFO_ENTRIES * FIFO_STRIDE)
        address, _, key, _, _, _, _, _, number = _ENTRY.unpack(data)
        return (address, key) if number == self._sent + 1 else None

    def send(self, data: bytes) -> None:
        """Write a message to the memory that the receiver offered; :attr:`can_send` was true."""
        offer = self._offer()
        if offer is None or len(data) > self._slot_size:
            raise CollectiveError(
                f"{self._name}: a message of {len(data)} bytes, for which no memory is offered"
            )
        at = self._sent % self._slots * self._slot_size
        self._source.write(data, at)
        parts = list(self._parts(len(data)))
        for qp, start, length in parts:
            qp.post_send(tuple(self._requests(at + start, length, offer, start, len(data))))
        self._unsent[self._sent] = len(parts)
        self._sent += 1
        self.messages += 1
        self._wake(self.sender)

    def _parts(self, size: int) -> Iterator[tuple[QueuePair, int, int]]:
        """Yield queue pairs with the first byte that each sends, and how many."""
        if not self._settings.split:
            yield self.sending[self._sent % len(self.sending)], 0, size
            return
        part = -(-size // len(self.sending))
        part += -part % SPLIT_UNIT
        for number, qp in enumerate(self.sending):
            start = min(number * part, size)
            yield qp, start, min(part, size - start)

    def _requests(
        self, at: int, length: int, offer: tuple[int, int], start: int, size: int
    ) -> Iterator[SendWR]:
        """Yield the WRITEs of a part; all parts have the size of the message as immediate."""
        address, key = offer[0] + start, offer[1]
        sges = (self._source.sge(length, at),) if length else ()
        threshold = self._settings.ar_threshold
        if threshold is not None and size > threshold:
            yield SendWR(
                SendOpcode.RDMA_WRITE,
                sges,
                wr_id=self._sent,
                remote_address=address,
                rkey=key,
                flags=0,
            )
            sges = ()
        yield SendWR(
            SendOpcode.RDMA_WRITE_WITH_IMM,
            sges,
            wr_id=self._sent,
            remote_address=address,
            rkey=key,
            imm_data=immediate_of(size),
            flags=SendFlags.SIGNALED,
        )

    # The receiver.

    def expect(self, messages: int) -> None:
        """Offer memory for more messages, as soon as buffers are free."""
        self._wanted += messages
        self._offer_more()

    def _offer_more(self) -> None:
        """Write entries to the sender's FIFO for all buffers that are free."""
        while self._offered < self._wanted and self._offered - self._taken < self._slots:
            self._offer_next(self._offered)
            self._offered += 1
            self._wake(self.receiver)

    def _offer_next(self, number: int) -> None:
        """Post the receives of a message, and write its entry to the sender's FIFO."""
        qps = self.receiving if self._settings.split else [self._receiver_of(number)]
        for qp in qps:
            qp.post_recv((RecvWR(wr_id=number),))
        self._missing[number] = len(qps)
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
        self.receiving[0].post_send((work,))

    def _receiver_of(self, number: int) -> QueuePair:
        return self.receiving[number % len(self.receiving)]

    @property
    def has_message(self) -> bool:
        """Whether the next message has arrived, and was flushed if it must be."""
        return self._taken in self._arrived

    def receive(self) -> bytes:
        """Take the next message, and offer its buffer again if more are expected."""
        size = self._arrived.pop(self._taken)
        data = self._target.read(size, self._taken % self._slots * self._slot_size)
        self._taken += 1
        self._offer_more()
        return data

    # Completions.

    def poll(self, qp: QueuePair) -> None:
        """Take the completions of one queue pair of either end."""
        for completion in qp.send_cq.poll(_MAX_POLLED):
            if completion.status is not WCStatus.SUCCESS:
                raise CollectiveError(
                    f"{self._name}: the connection failed with {completion.status.name}"
                )
            self._complete(completion)

    def poll_all(self) -> None:
        """Take the completions of all queue pairs."""
        for qp in (*self.sending, *self.receiving):
            self.poll(qp)

    def _complete(self, completion: WorkCompletion) -> None:
        number = completion.wr_id
        if completion.opcode is WCOpcode.RECV_RDMA_WITH_IMM:
            _count_down(self._missing, number)
            if number not in self._missing:
                self._finish(number, immediate_of(completion.imm_data))
        elif completion.opcode is WCOpcode.RDMA_READ:
            assert self._flusher is not None
            self._arrived[number] = self._flusher.sizes.pop(number)
        elif number in self._unsent and completion.qp_num in self._sending_numbers:
            _count_down(self._unsent, number)

    def _finish(self, number: int, size: int) -> None:
        """Hand over a message whose parts have all arrived; flush it first if it must be."""
        if self._flusher is None:
            self._arrived[number] = size
            return
        at = number % self._slots * self._slot_size
        self._flusher.flush(number, size, self._target.address + at, self._target.rkey)
        self._wake(self.receiver)


class Flusher:
    """A queue pair of a receiver that is connected to itself, for READs that flush.

    ``sizes`` are the sizes of messages by number, while they are flushed; ``count`` is how many
    were begun.
    """

    def __init__(self, host: Host) -> None:
        self.qp = _queue_pair(host)
        self.sizes: dict[int, int] = {}
        self.count = 0
        self._memory = host.buffer(_FLUSHED)
        loop = ATTRIBUTES._replace(
            sq_psn=ATTRIBUTES.rq_psn, ah=host.path_to(host), dest_qp_num=self.qp.qp_num
        )
        host.bring_up(self.qp, loop)

    def flush(self, number: int, size: int, address: int, rkey: int) -> None:
        """Read the first byte of a message, after which all its bytes are in memory."""
        self.sizes[number] = size
        self.count += 1
        work = SendWR(
            SendOpcode.RDMA_READ,
            (self._memory.sge(_FLUSHED),),
            wr_id=number,
            remote_address=address,
            rkey=rkey,
            flags=SendFlags.SIGNALED,
        )
        self.qp.post_send((work,))


def _count_down(left: dict[int, int], number: int) -> None:
    """Take one from what is left of a message, and forget the message at zero."""
    left[number] -= 1
    if not left[number]:
        del left[number]


def _queue_pair(host: Host) -> QueuePair:
    cq = host.nic.create_cq(_MAX_POLLED)
    return host.nic.create_qp(QPType.RC, QPInit(host.pd, cq, cq, CAP))
