"""Counters of traffic: a tap that counts requests, responses and retransmissions, and summaries.

All frames of one path, opcode and length begin with the same bytes, up to the PSN. These are parsed
once and cached, so a frame costs a lookup and a few additions.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from operator import add, sub
from typing import Any, Final, NamedTuple

from rdmawire.errors import WireError
from rdmawire.fabric.frame import Envelope
from rdmawire.ib.device import GSI_QPN
from rdmawire.ib.encapsulation import gids_of
from rdmawire.ib.tx_template import MAX_SEEN, head_size, word_offset
from rdmawire.ib.verbs import Verbs
from rdmawire.memory.page import Path
from rdmawire.verbs.wr import ATOMIC_SIZE
from rdmawire.wire import roce, serial
from rdmawire.wire.ib import BTH, RETH, Ack
from rdmawire.wire.inet import ECN, IPv4, IPv6
from rdmawire.wire.opcode import SHAPES, Opcode, Operation, Part, Service, Shape
from rdmawire.wire.packet import LAYOUTS, OpcodeTable
from rdmawire.wire.roce import Frame

MAX_CONVERSATIONS: Final = 1 << 16
"""Maximum receiving queue pairs remembered; beyond it all are discarded.

The counts are kept. Later retransmissions of requests sent before that count as new.
"""

_RETRYING: Final = (Service.RC, Service.XRC, Service.RD)
_FULL: Final = (Part.FIRST, Part.MIDDLE)
_ENDS: Final = (Part.LAST, Part.ONLY)
_ATOMICS: Final = {
    service << 5 | operation
    for service in _RETRYING
    for operation in (Operation.CMP_SWAP, Operation.FETCH_ADD)
}


class _Read(NamedTuple):
    """The last READ of a conversation: its PSN, and the requested memory."""

    psn: int
    va: int
    dmalen: int

    def goes_on(self, other: "_Read", mtus: Collection[int]) -> bool:
        """Whether ``other`` requests the rest of this READ: the same end, some packets later.

        ``mtus`` are the path MTUs seen; without one, nothing is left to request.
        """
        packets = serial.distance(self.psn, other.psn)
        skipped = other.va - self.va
        return (
            packets > 0
            and skipped + other.dmalen == self.dmalen
            and any(skipped == packets * mtu for mtu in mtus)
        )


class _RequestStream:
    """Requests to one queue pair. ``next_psn`` follows the last new PSN."""

    __slots__ = ("next_psn", "read")

    def __init__(self) -> None:
        self.next_psn: int | None = None
        self.read: _Read | None = None


class FrameCount(NamedTuple):
    """The counts of one frame: new messages, their bytes, or a sign of trouble.

    ``sign`` is the name of the counter: ``retransmits``, ``naks``, ``rnr_naks``, ``cnps`` or
    ``mads``.
    """

    messages: int = 0
    bytes: int = 0
    sign: str = ""


NO_TRAFFIC: Final = FrameCount()
"""The counts of a frame without a request or a response."""

_RETRANSMIT: Final = FrameCount(sign="retransmits")
_CNP: Final = FrameCount(sign="cnps")
_MAD: Final = FrameCount(sign="mads")
_NAKS: Final[dict[int, FrameCount]] = {
    Ack.NAK: FrameCount(sign="naks"),
    Ack.RNR_NAK: FrameCount(sign="rnr_naks"),
}


class _BthHead(NamedTuple):
    """The parsed bytes up to the PSN, whose word is at offset ``word``.

    ``reckon`` counts the packet; ``new`` is its count, unless it is a retransmission.
    """

    reckon: "_Count | None"
    word: int
    marked: bool
    new: FrameCount
    conversation: _RequestStream


_read_reth: Final = RETH.parse


class FrameCounter:
    """A tap for all frames of requesters and responders, each once.

    ``messages`` and their ``bytes`` are those of applications. They count once, however often they
    were sent (an atomic has eight bytes, a READ the requested bytes); ``frame_bytes`` are those of
    all frames. ``mads`` are management datagrams, including retransmissions. ``retransmits`` are
    request packets whose PSN was sent before. ``marks`` are frames with Congestion Experienced.
    ``last`` is the time of the last frame (ns). ``opcodes`` are the layouts of transport packets.
    """

    __slots__ = (
        *("_conversations", "_heads", "_mtus", "_opcodes", "bytes", "cnps", "frame_bytes"),
        *("frames", "last", "mads", "marks", "messages", "naks", "retransmits", "rnr_naks"),
    )

    def __init__(self, opcodes: OpcodeTable = LAYOUTS) -> None:
        self._opcodes = opcodes
        self.frames = self.frame_bytes = self.messages = self.bytes = 0
        self.retransmits = self.naks = self.rnr_naks = self.cnps = self.marks = 0
        self.mads = 0
        self.last = 0
        self._heads: dict[bytes, _BthHead] = {}
        self._conversations: dict[tuple[bytes, bytes, int], _RequestStream] = {}
        self._mtus: set[int] = set()

    def __call__(self, frame: Envelope, now: int) -> FrameCount:
        """Count a frame of a fabric, as a tap: :meth:`count`."""
        return self.count(frame.data, now)

    def count(self, frame: bytes, now: int) -> FrameCount:
        """Count a frame at time ``now`` (ns); return its counts, without frame bytes."""
        self.frames += 1
        self.frame_bytes += len(frame)
        self.last = now
        key = frame[: head_size(frame)]
        head = self._heads.get(key) or self._learnt(key, frame)
        if head is None:
            return NO_TRAFFIC
        if head.marked:
            self.marks += 1
        reckon = head.reckon
        return NO_TRAFFIC if reckon is None else reckon(self, head, frame)

    def _learnt(self, key: bytes, frame: bytes) -> _BthHead | None:
        """Parse a new head, and cache it if it has the usual layout."""
        try:
            head = self._head(roce.parse(frame, opcodes=self._opcodes))
        except WireError:
            return None
        if len(key) == head.word:
            if len(self._heads) >= MAX_SEEN:
                self._heads.clear()
            self._heads[key] = head
        return head

    def _head(self, frame: Frame) -> _BthHead:
        bth = frame.packet.bth
        shape = self._opcodes[bth.opcode].shape
        if shape is not None and shape.part in _FULL:
            self._mtus.add(len(frame.packet.payload))
        return _BthHead(
            _count_for(bth, shape),
            word=word_offset(frame.headers),
            marked=any(isinstance(p, IPv4 | IPv6) and p.ecn == ECN.CE for p in frame.headers),
            new=FrameCount(
                messages=int(shape is not None and shape.part in _ENDS),
                bytes=ATOMIC_SIZE if bth.opcode in _ATOMICS else len(frame.packet.payload),
            ),
            conversation=self._conversation(frame),
        )

    def _conversation(self, frame: Frame) -> _RequestStream:
        key = (*gids_of(frame.headers), frame.packet.bth.destqp)
        found = self._conversations.get(key)
        if found is None:
            if len(self._conversations) >= MAX_CONVERSATIONS:
                self._conversations.clear()
                self._heads.clear()  # they refer to conversations
            found = self._conversations[key] = _RequestStream()
        return found

    # Counts by type of packet.

    def _message(self, head: _BthHead, _: bytes) -> FrameCount:
        """Count a packet that is never retransmitted."""
        return self._new(head.new)

    def _request(self, head: _BthHead, frame: bytes) -> FrameCount:
        return self._new(head.new) if self._is_new(head, frame) else self._retransmit()

    def _read(self, head: _BthHead, frame: bytes) -> FrameCount:
        """Count a READ, which takes the PSNs of its responses; only those show how many."""
        conversation = head.conversation
        reth = _read_reth(frame, head.word + 4)
        read = _Read(_psn(head, frame), reth.va, reth.dmalen)
        goes_on = conversation.read is not None and conversation.read.goes_on(read, self._mtus)
        if goes_on or not self._is_new(head, frame):
            return self._retransmit()
        conversation.read = read
        return self._new(FrameCount(1, read.dmalen))

    def _new(self, counted: FrameCount) -> FrameCount:
        self.messages += counted.messages
        self.bytes += counted.bytes
        return counted

    def _retransmit(self) -> FrameCount:
        self.retransmits += 1
        return _RETRANSMIT

    @staticmethod
    def _is_new(head: _BthHead, frame: bytes) -> bool:
        """Whether no packet with this or a later PSN was sent before."""
        psn, conversation = _psn(head, frame), head.conversation
        known = conversation.next_psn
        if known is not None and serial.is_before(psn, known):
            return False
        conversation.next_psn = serial.add(psn, 1)
        return True

    def _acknowledge(self, head: _BthHead, frame: bytes) -> FrameCount:
        ack = frame[head.word + 4] >> 5 & 3
        self.naks += ack == Ack.NAK
        self.rnr_naks += ack == Ack.RNR_NAK
        return _NAKS.get(ack, NO_TRAFFIC)

    def _cnp(self, _: _BthHead, __: bytes) -> FrameCount:
        self.cnps += 1
        return _CNP

    def _mad(self, _: _BthHead, __: bytes) -> FrameCount:
        self.mads += 1
        return _MAD


def _psn(head: _BthHead, frame: bytes) -> int:
    return int.from_bytes(frame[head.word + 1 : head.word + 4], "big")


_Count = Callable[[FrameCounter, _BthHead, bytes], FrameCount]


def _count_of(shape: Shape) -> _Count | None:
    operation = shape.opcode & 0x1F
    if shape.response:
        return FrameCounter._acknowledge if operation == Operation.ACKNOWLEDGE else None
    if shape.service not in _RETRYING:
        return FrameCounter._message
    reads = operation == Operation.RDMA_READ_REQUEST
    return FrameCounter._read if reads else FrameCounter._request


_COUNTS: Final[dict[int, _Count | None]] = {
    opcode: _count_of(shape) for opcode, shape in SHAPES.items()
}
_COUNTS[Opcode.CNP] = FrameCounter._cnp
"""Opcode to the function that counts it."""

_OF_MANAGERS: Final = range(GSI_QPN + 1)
"""Queue pairs that receive only management datagrams. IBA 3.9.4."""


def _count_for(bth: BTH, shape: Shape | None) -> _Count | None:
    """Return the function that counts packets with such a BTH, whose opcode has this ``shape``."""
    count = _COUNTS.get(bth.opcode) or (None if shape is None else _count_of(shape))
    is_mad = count is FrameCounter._message and bth.destqp in _OF_MANAGERS
    return FrameCounter._mad if is_mad else count


# Summaries of a run, from counted frames and adapters.


class Moved(NamedTuple):
    """DMA on one path: bytes, transactions, and the copies that a CPU or GPU made for them."""

    bytes: int
    transactions: int
    copies: int

    def plus(self, other: "Moved") -> "Moved":
        """Return the sum."""
        return Moved(*map(add, self, other))

    def minus(self, other: "Moved") -> "Moved":
        """Return the difference."""
        return Moved(*map(sub, self, other))

    def by(self, times: int) -> "Moved":
        """Return the counters times ``times``."""
        return Moved(*(count * times for count in self))


NO_DMA: Final = Moved(0, 0, 0)


class TrafficSummary(NamedTuple):
    """A run. ``messages`` and ``bytes`` are those of applications, ``frame_bytes`` the wire's.

    ``retransmits`` are retransmitted request packets, ``lost`` frames that never arrived, ``marks``
    frames with Congestion Experienced, ``failed`` messages that completed with an error of their
    own. ``mads`` are management datagrams, ``refused`` connections never established. ``paths`` has
    the DMA of all adapters by path, if not zero. ``virtual_ns`` is the simulated time, ``wall_s``
    the real time if the caller measured it.
    """

    messages: int
    bytes: int
    frames: int
    frame_bytes: int
    retransmits: int
    naks: int
    rnr_naks: int
    cnps: int
    marks: int
    lost: int
    failed: int
    paths: Mapping[str, Moved]
    virtual_ns: int
    wall_s: float = 0.0
    mads: int = 0
    refused: int = 0


def summarise(
    counter: FrameCounter,
    nics: Iterable[Verbs],
    virtual_ns: int,
    *,
    lost: int = 0,
    failed: int = 0,
    refused: int = 0,
) -> TrafficSummary:
    """Return the summary of the counters and the adapters."""
    return TrafficSummary(
        messages=counter.messages,
        bytes=counter.bytes,
        frames=counter.frames,
        frame_bytes=counter.frame_bytes,
        retransmits=counter.retransmits,
        naks=counter.naks,
        rnr_naks=counter.rnr_naks,
        cnps=counter.cnps,
        marks=counter.marks,
        lost=lost,
        failed=failed,
        paths=moved(nics),
        virtual_ns=virtual_ns,
        mads=counter.mads,
        refused=refused,
    )


def moved(nics: Iterable[Verbs]) -> dict[str, Moved]:
    """Return the DMA of these adapters by path (``host``, ``gpu_direct``, ``bounce``), if any."""
    counters = [nic.memory.counter for nic in nics]
    ways = {}
    for path in Path:
        tallies = [counter[path] for counter in counters]
        ways[path.name.lower()] = Moved(
            sum(tally.bytes for tally in tallies),
            sum(tally.transactions for tally in tallies),
            sum(tally.copies for tally in tallies),
        )
    return {name: way for name, way in ways.items() if any(way)}


_PATHS: Final = TrafficSummary._fields.index("paths")
"""Position of the only field that is no number."""


def added(one: TrafficSummary, other: TrafficSummary) -> TrafficSummary:
    """Return the summary of both runs in sequence."""
    counts = map(add, _counts(one), _counts(other))
    return _summary([*counts], _added(one.paths, other.paths))


def _counts(summary: TrafficSummary) -> tuple[Any, ...]:
    """Return all fields except the paths."""
    return (*summary[:_PATHS], *summary[_PATHS + 1 :])


def _summary(counts: list[Any], paths: Mapping[str, Moved]) -> TrafficSummary:
    return TrafficSummary._make((*counts[:_PATHS], paths, *counts[_PATHS:]))


_PATH_NAMES: Final = tuple(path.name.lower() for path in Path)


def _added(one: Mapping[str, Moved], other: Mapping[str, Moved]) -> dict[str, Moved]:
    return {
        name: one.get(name, NO_DMA).plus(other.get(name, NO_DMA))
        for name in _PATH_NAMES
        if name in one or name in other
    }


def repeated(summary: TrafficSummary, times: int) -> TrafficSummary:
    """Return the summary of ``times`` equal runs."""
    counts = [count * times for count in _counts(summary)]
    return _summary(counts, {name: way.by(times) for name, way in summary.paths.items()})


NOTHING: Final = TrafficSummary(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {}, 0)
"""The summary of a run without frames."""
