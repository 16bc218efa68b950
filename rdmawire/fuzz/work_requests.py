"""The requests of posted work: the types of work, and the packets of each. IBA 9.2 to 9.4."""

from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from rdmawire.fuzz.exchange import Request
from rdmawire.fuzz.inputs import WorkInput
from rdmawire.fuzz.setup import AREAS, PEER_RKEY, PEER_VA, Setup
from rdmawire.verbs.enums import WCOpcode, WCStatus
from rdmawire.wire import serial
from rdmawire.wire.opcode import Operation as Op
from rdmawire.wire.opcode import Service

_BITS_32: Final = (1 << 32) - 1
_BITS_64: Final = (1 << 64) - 1
_EIGHT: Final = 8


class Verb(NamedTuple):
    """One type of work: its completion and its operations.

    ``only`` is the operation of a message of one packet; ``parts`` those of longer ones: first,
    middle, last. ``response`` is the operation of the last response, ACKNOWLEDGE for an ACK.
    """

    completion: WCOpcode
    only: Op
    parts: tuple[Op, ...] = ()
    response: Op = Op.ACKNOWLEDGE
    receives: bool = False

    @property
    def answered(self) -> bool:
        """Whether a response other than an ACK completes it: it uses one of ``max_rd_atomic``."""
        return self.response != Op.ACKNOWLEDGE


_SEND_PARTS: Final = (Op.SEND_FIRST, Op.SEND_MIDDLE)
_WRITE_PARTS: Final = (Op.RDMA_WRITE_FIRST, Op.RDMA_WRITE_MIDDLE)
DATA: Final = Op.RDMA_READ_RESPONSE_LAST
VERBS: Final = {
    "SEND": Verb(
        WCOpcode.SEND, Op.SEND_ONLY, (*_SEND_PARTS, Op.SEND_LAST), receives=True
    ),
    "SEND_WITH_IMM": Verb(
        WCOpcode.SEND, Op.SEND_ONLY_WITH_IMMEDIATE,
        (*_SEND_PARTS, Op.SEND_LAST_WITH_IMMEDIATE), receives=True,
    ),
    "SEND_WITH_INV": Verb(
        WCOpcode.SEND, Op.SEND_ONLY_WITH_INVALIDATE,
        (*_SEND_PARTS, Op.SEND_LAST_WITH_INVALIDATE), receives=True,
    ),
    "RDMA_WRITE": Verb(
        WCOpcode.RDMA_WRITE, Op.RDMA_WRITE_ONLY, (*_WRITE_PARTS, Op.RDMA_WRITE_LAST)
    ),
    "RDMA_WRITE_WITH_IMM": Verb(
        WCOpcode.RDMA_WRITE, Op.RDMA_WRITE_ONLY_WITH_IMMEDIATE,
        (*_WRITE_PARTS, Op.RDMA_WRITE_LAST_WITH_IMMEDIATE), receives=True,
    ),
    "RDMA_READ": Verb(WCOpcode.RDMA_READ, Op.RDMA_READ_REQUEST, response=DATA),
    "ATOMIC_CMP_AND_SWP": Verb(
        WCOpcode.COMP_SWAP, Op.CMP_SWAP, response=Op.ATOMIC_ACKNOWLEDGE
    ),
    "ATOMIC_FETCH_AND_ADD": Verb(
        WCOpcode.FETCH_ADD, Op.FETCH_ADD, response=Op.ATOMIC_ACKNOWLEDGE
    ),
    "ATOMIC_WRITE": Verb(WCOpcode.ATOMIC_WRITE, Op.ATOMIC_WRITE, response=DATA),
    "FLUSH": Verb(WCOpcode.FLUSH, Op.FLUSH, response=DATA),
}  # fmt: skip
"""The types of work, by name."""
_IMMEDIATE: Final = frozenset(
    (
        Op.SEND_LAST_WITH_IMMEDIATE,
        Op.SEND_ONLY_WITH_IMMEDIATE,
        Op.RDMA_WRITE_LAST_WITH_IMMEDIATE,
        Op.RDMA_WRITE_ONLY_WITH_IMMEDIATE,
    )
)
_INVALIDATE: Final = frozenset((Op.SEND_LAST_WITH_INVALIDATE, Op.SEND_ONLY_WITH_INVALIDATE))
_WRITE_BEGINS: Final = frozenset(
    (Op.RDMA_WRITE_FIRST, Op.RDMA_WRITE_ONLY, Op.RDMA_WRITE_ONLY_WITH_IMMEDIATE)
)
_OPERANDS: Final = {"ATOMIC_CMP_AND_SWP": (True, True), "ATOMIC_FETCH_AND_ADD": (True, False)}
"""Whether value and compare are operands."""


@dataclass(slots=True)
class QueuedWork:
    """Work in the send queue.

    ``first`` is the number of its first packet, counted from 0 (-1 until it starts); ``packets`` is
    how many it has. ``answered`` counts the READ responses that were placed. ``error`` ends it when
    its turn comes.
    """

    number: int
    one: WorkInput
    verb: Verb
    packets: int
    inline: bytes | None
    first: int = -1
    answered: int = 0
    error: WCStatus | None = None

    @property
    def end(self) -> int:
        """The count of the packet after its last one, or after its last response."""
        return self.first + self.packets


@dataclass
class WorkRequests:
    """The requests of work, from the bytes of ``memory``: the arena."""

    wire: ClassVar[Service] = Service.RC

    setup: Setup
    memory: bytearray

    def psn(self, packet: int) -> int:
        """Return the PSN of a packet."""
        return serial.add(self.setup.psn, packet)

    @property
    def mtu(self) -> int:
        """The most bytes of payload in a packet."""
        return self.setup.mtu

    def _packets(self, length: int) -> int:
        return max(-(-length // self.mtu), 1)

    def _packet(self, one: QueuedWork, index: int) -> Request:
        """Return a packet of a SEND or WRITE. IBA 9.2.1, 9.3.3."""
        work, mtu, last = one.one, self.mtu, one.packets - 1
        operation = one.verb.parts[(index > 0) + (index == last)] if last else one.verb.only
        size = min(work.length - index * mtu, mtu)
        data = (
            self._read(work, index * mtu, size)
            if one.inline is None
            else one.inline[index * mtu :][:size]
        )
        begins = operation in _WRITE_BEGINS
        rkey = work.value & _BITS_32 if operation in _INVALIDATE else 0
        return self._request(
            work,
            operation,
            self.psn(one.first + index),
            int(index == last),
            data,
            va=PEER_VA + work.offset & _BITS_64 if begins else 0,
            rkey=PEER_RKEY if begins else rkey,
            dmalen=work.length if begins else 0,
            value=work.value & _BITS_32 if operation in _IMMEDIATE else 0,
        )

    def _single(self, one: QueuedWork) -> Request:
        """Return the request of a READ, atomic or FLUSH; a READ is resumed. IBA 9.7.3.1."""
        work, done = one.one, one.answered * self.setup.mtu
        sends = work.verb == "ATOMIC_WRITE"
        inline = b"" if one.inline is None else one.inline
        data = self._read(work, 0, _EIGHT) if sends and one.inline is None else inline
        dmalen = {"RDMA_READ": work.length - done, "ATOMIC_WRITE": _EIGHT}
        if work.verb == "FLUSH":
            dmalen["FLUSH"] = work.compare & _BITS_32
        value, compare = _OPERANDS.get(work.verb, (False, False))
        return self._request(
            work,
            one.verb.only,
            self.psn(one.first + one.answered),
            1,
            data,
            va=PEER_VA + work.offset + done & _BITS_64,
            rkey=PEER_RKEY,
            dmalen=dmalen.get(work.verb, 0),
            value=work.value if value else int(work.verb == "FLUSH"),
            compare=work.compare if compare else 0,
        )

    def _request(self, work: WorkInput, operation: int, *values: Any, **named: Any) -> Request:
        """Return a request of the service, for this work."""
        del work
        return Request(self.wire << 5 | operation, *values, **named)

    # Memory.

    def read(self, work: WorkInput) -> bytes:
        """Return the bytes of the SGEs of work."""
        return self._read(work, 0, work.length)

    def _read(self, work: WorkInput, start: int, length: int) -> bytes:
        whole = b"".join(
            bytes(self.memory[AREAS[index].start + offset :][:size])
            for index, offset, size in work.sges
        )
        return whole[start : start + length]

    def _write(self, work: WorkInput, start: int, data: bytes) -> None:
        """Write ``data`` from byte ``start`` of the SGEs on."""
        offsets = [
            AREAS[index].start + offset + byte
            for index, offset, size in work.sges
            for byte in range(size)
        ]
        for at, byte in zip(offsets[start:], data, strict=False):
            self.memory[at] = byte
