"""Frames counted as they pass: a tap that knows requests, answers, and what came again.

All frames of one path, opcode and length begin with the same octets, up to the PSN. What those say
is worked out once and kept, so a frame costs a look-up and a few additions.
"""

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from rdmawire.errors import WireError
from rdmawire.nic.path import gids_of
from rdmawire.nic.seal import HEAD_OF_BTH
from rdmawire.nic.work import ATOMIC_SIZE
from rdmawire.wire import psn as serial
from rdmawire.wire import roce
from rdmawire.wire.ib import GRH, RETH, Ack
from rdmawire.wire.inet import ECN, UDP, VLAN, Ethernet, EtherType, IPv4, IPv6
from rdmawire.wire.layout import size
from rdmawire.wire.opcode import SHAPES, Opcode, Operation, Part, Service, Shape
from rdmawire.wire.roce import Frame

MOST_HEADS: Final = 1 << 14
"""Heads that are remembered; it begins anew after that many. What was counted stays."""

_HEAD_SIZES: Final = {
    int(kind).to_bytes(2, "big"): sum(header.SIZE for header in headers) + HEAD_OF_BTH
    for kind, headers in (
        (EtherType.IPV4, (Ethernet, IPv4, UDP)),
        (EtherType.IPV6, (Ethernet, IPv6, UDP)),
        (EtherType.ROCE, (Ethernet, GRH)),
    )
}
_TAG: Final = EtherType.VLAN.to_bytes(2, "big")
_RETRYING: Final = (Service.RC, Service.XRC, Service.RD)
_FULL: Final = (Part.FIRST, Part.MIDDLE)
_ENDS: Final = (Part.LAST, Part.ONLY)
_ATOMICS: Final = {
    service << 5 | operation
    for service in _RETRYING
    for operation in (Operation.CMP_SWAP, Operation.FETCH_ADD)
}


class _Read(NamedTuple):
    """The last READ of a conversation: its PSN, and what it asked for."""

    psn: int
    va: int
    dmalen: int

    def goes_on(self, other: "_Read", mtus: Collection[int]) -> bool:
        """Whether another is what is left of this one: the same end, so many packets later.

        ``mtus`` are those that full packets were seen with: there were some, or nothing is left.
        """
        packets = serial.distance(self.psn, other.psn)
        skipped = other.va - self.va
        return (
            packets > 0
            and skipped + other.dmalen == self.dmalen
            and any(skipped == packets * mtu for mtu in mtus)
        )


class _Conversation:
    """Requests to one queue pair. ``next_psn`` is behind the last that was new."""

    __slots__ = ("next_psn", "read")

    def __init__(self) -> None:
        self.next_psn: int | None = None
        self.read: _Read | None = None


class _Head(NamedTuple):
    """What the octets up to the PSN say; the PSN's word is at ``word``.

    ``octets`` is what the packet carries of its message, ``ends`` whether it is the last of it.
    """

    opcode: int
    word: int = 0
    octets: int = 0
    ends: bool = False
    marked: bool = False
    conversation: _Conversation = _Conversation()


_NOTHING: Final = _Head(-1)
_read_reth: Final = RETH.parse


class FrameCounter:
    """A tap. Give it what requesters and responders send, each frame once.

    ``messages`` and their ``octets`` count once, however often they were sent (an atomic has
    eight octets, a READ as many as it asks for); ``frame_octets`` are those of all frames.
    ``retransmits`` are request packets whose PSN was sent before. ``marks`` are frames with
    Congestion Experienced. ``last`` is the time of the last frame (ns).
    """

    __slots__ = (
        *("_conversations", "_heads", "_mtus", "cnps", "frame_octets", "frames", "last", "marks"),
        *("messages", "naks", "octets", "retransmits", "rnr_naks"),
    )

    def __init__(self) -> None:
        self.frames = self.frame_octets = self.messages = self.octets = 0
        self.retransmits = self.naks = self.rnr_naks = self.cnps = self.marks = 0
        self.last = 0
        self._heads: dict[bytes, _Head] = {}
        self._conversations: dict[tuple[bytes, bytes, int], _Conversation] = {}
        self._mtus: set[int] = set()

    def __call__(self, frame: bytes, now: int) -> None:
        """Count a frame that passes at a time (ns)."""
        self.frames += 1
        self.frame_octets += len(frame)
        self.last = now
        key = frame[: _HEAD_SIZES.get(frame[12:14]) or _tagged_head(frame)]
        head = self._heads.get(key) or self._learnt(key, frame)
        if head.marked:
            self.marks += 1
        count = _COUNTS.get(head.opcode)
        if count is not None:
            count(self, head, frame)

    def _learnt(self, key: bytes, frame: bytes) -> _Head:
        """What a head says that was not seen before; what is built otherwise is never kept."""
        try:
            head = self._head(roce.parse(frame))
        except WireError:
            return _NOTHING
        if len(key) == head.word:
            if len(self._heads) >= MOST_HEADS:
                self._heads.clear()
            self._heads[key] = head
        return head

    def _head(self, frame: Frame) -> _Head:
        bth = frame.packet.bth
        shape = SHAPES.get(bth.opcode)
        if shape is not None and shape.part in _FULL:
            self._mtus.add(len(frame.packet.payload))
        return _Head(
            bth.opcode,
            word=sum(map(size, frame.headers)) + HEAD_OF_BTH,
            octets=ATOMIC_SIZE if bth.opcode in _ATOMICS else len(frame.packet.payload),
            ends=shape is not None and shape.part in _ENDS,
            marked=any(isinstance(p, IPv4 | IPv6) and p.ecn == ECN.CE for p in frame.headers),
            conversation=self._conversation(frame),
        )

    def _conversation(self, frame: Frame) -> _Conversation:
        key = (*gids_of(frame.headers), frame.packet.bth.destqp)
        return self._conversations.setdefault(key, _Conversation())

    # What each kind of packet counts as.

    def _message(self, head: _Head, _: bytes) -> None:
        """A packet that is never sent again."""
        self.messages += head.ends
        self.octets += head.octets

    def _request(self, head: _Head, frame: bytes) -> None:
        if self._is_new(head, frame):
            self.messages += head.ends
            self.octets += head.octets

    def _read(self, head: _Head, frame: bytes) -> None:
        """A READ takes as many PSNs as its responses, which only those show."""
        conversation = head.conversation
        reth = _read_reth(frame, head.word + 4)
        read = _Read(_psn(head, frame), reth.va, reth.dmalen)
        if conversation.read is not None and conversation.read.goes_on(read, self._mtus):
            self.retransmits += 1
        elif self._is_new(head, frame):
            conversation.read = read
            self.messages += 1
            self.octets += read.dmalen

    def _is_new(self, head: _Head, frame: bytes) -> bool:
        """Whether no packet with this PSN, or one behind it, was sent before."""
        psn, conversation = _psn(head, frame), head.conversation
        known = conversation.next_psn
        if known is not None and serial.is_before(psn, known):
            self.retransmits += 1
            return False
        conversation.next_psn = serial.add(psn, 1)
        return True

    def _acknowledge(self, head: _Head, frame: bytes) -> None:
        ack = frame[head.word + 4] >> 5 & 3
        self.naks += ack == Ack.NAK
        self.rnr_naks += ack == Ack.RNR_NAK

    def _cnp(self, _: _Head, __: bytes) -> None:
        self.cnps += 1


def _tagged_head(frame: bytes) -> int:
    """How much of a frame with one tag its head is; nothing of any other."""
    size = _HEAD_SIZES.get(frame[16:18])
    return size + VLAN.SIZE if size and frame[12:14] == _TAG else 0


def _psn(head: _Head, frame: bytes) -> int:
    return int.from_bytes(frame[head.word + 1 : head.word + 4], "big")


_Count = Callable[[FrameCounter, _Head, bytes], None]


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
"""Opcode to what it counts as."""
