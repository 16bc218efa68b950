"""What a round consists of: messages, and the work that is posted for each."""

from random import Random
from typing import Final, NamedTuple

from rdmawire.traffic.generate.memory import PAGE
from rdmawire.traffic.generate.order import Order, Verb
from rdmawire.verbs.wr import ATOMIC_SIZE, SendOpcode


class Kind(NamedTuple):
    """A kind of message. ``datagram``: by the queue pairs that are not connected."""

    opcode: SendOpcode
    datagram: bool = False


_WRITE: Final = Kind(SendOpcode.RDMA_WRITE)
_WRITE_IMM: Final = Kind(SendOpcode.RDMA_WRITE_WITH_IMM)
_SEND: Final = Kind(SendOpcode.SEND)
_SEND_IMM: Final = Kind(SendOpcode.SEND_WITH_IMM)
_READ: Final = Kind(SendOpcode.RDMA_READ)
_FETCH_ADD: Final = Kind(SendOpcode.ATOMIC_FETCH_AND_ADD)
_CMP_SWP: Final = Kind(SendOpcode.ATOMIC_CMP_AND_SWP)
_DATAGRAM: Final = Kind(SendOpcode.SEND, datagram=True)
_DATAGRAM_IMM: Final = Kind(SendOpcode.SEND_WITH_IMM, datagram=True)
ATOMICS: Final = (_FETCH_ADD, _CMP_SWP)

KINDS: Final[dict[Verb, tuple[tuple[Kind, int], ...]]] = {
    Verb.WRITE: ((_WRITE, 1),),
    Verb.SEND: ((_SEND, 1),),
    Verb.READ: ((_READ, 1),),
    Verb.ATOMIC: ((_FETCH_ADD, 1), (_CMP_SWP, 1)),
    Verb.UD: ((_DATAGRAM, 1),),
    Verb.CNP: ((_WRITE, 1),),
    Verb.MIX: (
        *((_WRITE, 6), (_WRITE_IMM, 2), (_SEND, 4), (_SEND_IMM, 2), (_READ, 5)),
        *((_FETCH_ADD, 2), (_CMP_SWP, 1), (_DATAGRAM, 3), (_DATAGRAM_IMM, 1)),
    ),
}
"""The messages of each verb, and how often each kind comes among them."""

TAKES_RECEIVE: Final = frozenset(
    {SendOpcode.SEND, SendOpcode.SEND_WITH_IMM, SendOpcode.RDMA_WRITE_WITH_IMM}
)

WITHOUT_DATA: Final = frozenset({SendOpcode.RDMA_READ, *(kind.opcode for kind in ATOMICS)})
"""What is asked for in packets that carry no data."""

FRAMES: Final = 1024
"""About so many frames has a round of messages that are all alike."""
VARIED: Final = 256
"""So many messages has a round of different ones."""
LOSSY: Final = 16
MOST_LOSSY: Final = 64
"""Between so many it has where frames are lost: fewer, so that in most rounds none is."""
_LOST: Final = 0.3
"""Frames lost in a round, where that can be had."""

_GRAIN: Final = 64


class Message(NamedTuple):
    """One message: its lane, its octets, and where in the page they begin."""

    lane: int
    kind: Kind
    length: int
    offset: int
    imm: int


def messages(order: Order) -> tuple[Message, ...]:
    """The messages of a round; lanes take turns."""
    random = Random(f"{order.seed}/messages")  # noqa: S311 - repeatable is what it must be
    kinds = [kind for kind, times in KINDS[order.verb] for _ in range(times)]
    found = []
    for number in range(_count(order)):
        kind = random.choice(kinds) if len(kinds) > 1 else kinds[0]
        length = _length(order, kind, random)
        found.append(
            Message(
                number % order.lanes, kind, length, _offset(length, random), random.getrandbits(32)
            )
        )
    return tuple(found)


def _count(order: Order) -> int:
    """As many for each lane."""
    if order.verb is Verb.CNP:
        return order.lanes
    packets = -(-order.lengths.largest // order.mtu) + 1
    wanted = max(FRAMES // packets, 1)
    if order.lengths.varied or len(KINDS[order.verb]) > 1:
        wanted = VARIED
    if order.loss:
        lucky = int(_LOST / (order.loss * packets))
        wanted = min(wanted, max(LOSSY, min(lucky, MOST_LOSSY)))
    return -(-wanted // order.lanes) * order.lanes


def _length(order: Order, kind: Kind, random: Random) -> int:
    if kind in ATOMICS:
        return ATOMIC_SIZE
    length = order.lengths.pick(random)
    return min(length, order.mtu) if kind.datagram else length


def _offset(length: int, random: Random) -> int:
    """Somewhere in the page where short messages fit; long ones begin with it."""
    return random.randrange((PAGE - length) // _GRAIN + 1) * _GRAIN if length <= PAGE else 0
