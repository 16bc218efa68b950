"""Copies of memory for pending READs, made before later requests change it.

A READ reads memory when its responses are sent, and the requests behind it on the queue pair are
executed at once. Before one of them changes memory of a pending READ, the old bytes are copied to
the responses concerned (copy on write, by response), also to those already sent: the peer may
request them again. So a READ sees memory as it was in its turn, however late its responses are
sent; IBA 10.8.3.3 requires that only behind a fence.
"""

from rdmawire.errors import MemoryFault
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.responder_state import ReadResponse
from rdmawire.memory.grant import Footprint, Grant
from rdmawire.verbs.sge import Gather, Piece

MAX_KEPT = 16 << 20
"""Most bytes that the pending READs of one queue pair keep. Responses beyond it have the memory as
it is when they are sent, as the standard allows."""


def keep(qp: QueuePair, memory: Piece | Gather, offset: int, length: int) -> None:
    """Keep for pending READs ``length`` bytes of ``memory`` at ``offset``, before they change."""
    room = _room(qp)
    for change in memory.footprints(offset, length):
        for read in _pending(qp):
            room -= _keep(read, change, qp.mtu, room)


def keep_all(qp: QueuePair, grant: Grant) -> None:
    """Keep for pending READs all memory that they read by this key, before it is invalidated."""
    room = _room(qp) * qp.mtu
    for read in _pending(qp):
        target = read.target
        if target.memory is grant and target.length <= room and read.whole is None:
            room -= target.length
            try:
                read.whole = bytes(target.read(0, target.length))
            except MemoryFault:
                continue  # it is gone already: the response finds the same, and ends in a NAK


def _pending(qp: QueuePair) -> list[ReadResponse]:
    """The READs whose responses are not all sent."""
    return [answer for answer in qp.inbound.pending if isinstance(answer, ReadResponse)]


def _room(qp: QueuePair) -> int:
    """How many more responses may be kept."""
    return MAX_KEPT // qp.mtu - sum(read.packets_kept(qp.mtu) for read in _pending(qp))


def _keep(read: ReadResponse, change: Footprint, mtu: int, room: int) -> int:
    """Keep at most ``room`` responses that ``change`` overwrites. Return how many were kept."""
    touched = _touched(read, change, mtu)
    taken = 0
    for index in touched:
        if taken >= room:
            return taken
        taken += read.keep(index, mtu)
    read.all_kept |= touched == range(read.packets)
    return taken


def _touched(read: ReadResponse, change: Footprint, mtu: int) -> range:
    """Indices of the responses of a READ that ``change`` overwrites."""
    target = read.target
    if read.all_kept or read.whole is not None:
        return range(0)
    own = target.memory.footprint(target.address, target.length)
    start, end = own.shared(change)
    if start >= end:
        return range(0)
    return range((start - own.start) // mtu, -(-(end - own.start) // mtu))
