"""From requests on the wire back to the work that was posted: one work request per message."""

from collections.abc import Iterable
from typing import NamedTuple

from rdmawire.verbs.wr import SOLICITED, VERBS, SendOpcode
from rdmawire.wire import serial
from rdmawire.wire.ib import AETH, DETH, IETH, RETH, Ack, AtomicAckETH, AtomicETH, ImmDt
from rdmawire.wire.opcode import Operation
from tests.ib.replay.capture import Seen

_OPCODES = {
    operation: SendOpcode(opcode)
    for opcode, verb in VERBS.items()
    for operation in (verb.last, verb.only)
    if operation is not None
}
_ATOMICS = (SendOpcode.ATOMIC_CMP_AND_SWP, SendOpcode.ATOMIC_FETCH_AND_ADD)
OF_RECEIVES = frozenset(
    {
        SendOpcode.SEND,
        SendOpcode.SEND_WITH_IMM,
        SendOpcode.SEND_WITH_INV,
        SendOpcode.RDMA_WRITE_WITH_IMM,
    }
)
"""Work that completes a receive of the peer's."""


class Message(NamedTuple):
    """A message: its packets as they were first sent, and how many PSNs it takes."""

    packets: tuple[Seen, ...]
    psns: int

    @property
    def psn(self) -> int:
        return self.packets[0].psn

    @property
    def last_psn(self) -> int:
        return serial.add(self.psn, self.psns - 1)

    @property
    def opcode(self) -> SendOpcode:
        bth = self.packets[-1].frame.packet.bth
        return _OPCODES[Operation(bth.opcode & 0x1F)]

    @property
    def payload(self) -> bytes:
        return b"".join(packet.payload for packet in self.packets)

    @property
    def reth(self) -> RETH | None:
        return self.packets[0].header(RETH)

    @property
    def atomiceth(self) -> AtomicETH | None:
        return self.packets[0].header(AtomicETH)

    @property
    def deth(self) -> DETH | None:
        return self.packets[0].header(DETH)

    @property
    def immdt(self) -> int:
        found = self.packets[-1].header(ImmDt)
        return found.immdt if found else 0

    @property
    def invalidates(self) -> int:
        found = self.packets[-1].header(IETH)
        return found.rkey if found else 0

    @property
    def flags(self) -> int:
        return SOLICITED if self.packets[-1].frame.packet.bth.se else 0

    @property
    def is_read(self) -> bool:
        return self.opcode is SendOpcode.RDMA_READ

    @property
    def is_atomic(self) -> bool:
        return self.opcode in _ATOMICS

    @property
    def range(self) -> tuple[int, int, int] | None:
        """The rkey, address and length that it asks for."""
        if self.atomiceth:
            return self.atomiceth.rkey, self.atomiceth.va, 8
        if self.reth:
            return self.reth.rkey, self.reth.va, self.reth.dmalen or len(self.payload)
        return None


def messages(requests: Iterable[Seen], mtu: int) -> list[Message]:
    """The messages of one queue pair's requests to one other, each once."""
    found: list[Message] = []
    packets: list[Seen] = []
    due: int | None = None
    for seen in requests:
        if due is not None and seen.psn != due:
            assert serial.is_before(seen.psn, due), f"frame {seen.number} leaves PSNs out"
            continue
        packets.append(seen)
        psns = _psns(seen, mtu)
        due = serial.add(seen.psn, psns)
        if seen.ends:
            found.append(Message(tuple(packets), len(packets) - 1 + psns))
            packets = []
    assert not packets, "a message without an end"
    return found


def _psns(request: Seen, mtu: int) -> int:
    """A READ takes the numbers of its responses, too."""
    reth = request.header(RETH)
    operation = request.frame.packet.bth.opcode & 0x1F
    if operation != Operation.RDMA_READ_REQUEST or reth is None:
        return 1
    return max(-(-reth.dmalen // mtu), 1)


class Answers:
    """What the peer's responses said, by PSN; duplicates say it again."""

    def __init__(self, responses: Iterable[Seen]) -> None:
        self.data: dict[int, bytes] = {}
        self.originals: dict[int, int] = {}
        self.acknowledged: list[int] = []
        for seen in responses:
            self._add(seen)

    def _add(self, seen: Seen) -> None:
        aeth, atomic = seen.header(AETH), seen.header(AtomicAckETH)
        if aeth is None or aeth.ack == Ack.ACK:
            self.acknowledged.append(seen.psn)
        if atomic is not None:
            self.originals[seen.psn] = atomic.origremdt
        elif seen.frame.packet.bth.opcode & 0x1F != Operation.ACKNOWLEDGE:
            self.data[seen.psn] = seen.payload

    def accepted(self, message: Message) -> bool:
        """Whether the whole message was acknowledged, by itself or with later ones."""
        return any(not serial.is_before(psn, message.last_psn) for psn in self.acknowledged)

    def read(self, message: Message) -> bytes:
        """The bytes that answer a READ, as many as were answered without a gap."""
        found = b""
        for psn in serial.numbers(message.psn, message.psns):
            if psn not in self.data:
                break
            found += self.data[psn]
        return found
