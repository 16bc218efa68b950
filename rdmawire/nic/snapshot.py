"""What pending READs keep of memory that requests behind them change.

A READ reads memory when its responses are sent, and what comes behind it on the queue pair is
executed at once. Before that changes memory of a READ that is not answered to the end, the
responses concerned keep what stood there (copy on write, response by response), also those that
were sent: the peer may ask for them again. So a READ sees memory as it was in its turn, however
late its responses leave; IBA 10.8.3.3 asks for that only behind a fence.
"""

from rdmawire.errors import MemoryFault
from rdmawire.memory.grant import Footprint, Grant
from rdmawire.nic.gather import Gather, Piece
from rdmawire.nic.inbound import ReadResponse
from rdmawire.nic.qp import QueuePair

MAX_KEPT = 16 << 20
"""Bytes that the pending READs of one queue pair keep. READs that would keep more see memory as it
is when they are answered, as the standard allows; nothing is dropped."""


def keep(qp: QueuePair, memory: Piece | Gather, offset: int, length: int) -> None:
    """``length`` bytes of ``memory`` from ``offset`` on are about to change."""
    room = _room(qp)
    for change in memory.footprints(offset, length):
        for read in _pending(qp):
            room -= _keep(read, change, qp.mtu, room)


def keep_all(qp: QueuePair, grant: Grant) -> None:
    """The peer is about to take back this key: pending READs by it keep all they ask for."""
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
    return [answer for answer in qp.inbound.owed if isinstance(answer, ReadResponse)]


def _room(qp: QueuePair) -> int:
    """How many responses more may be kept."""
    return MAX_KEPT // qp.mtu - sum(read.packets_kept(qp.mtu) for read in _pending(qp))


def _keep(read: ReadResponse, change: Footprint, mtu: int, room: int) -> int:
    """Have a READ keep what a change concerns, ``room`` responses at most; how many it took."""
    touched = _touched(read, change, mtu)
    taken = 0
    for index in touched:
        if taken >= room:
            return taken
        taken += read.keep(index, mtu)
    read.all_kept |= touched == range(read.packets)
    return taken


def _touched(read: ReadResponse, change: Footprint, mtu: int) -> range:
    """The responses that a change of memory concerns, by their places in the READ."""
    target = read.target
    if read.all_kept or read.whole is not None:
        return range(0)
    own = target.memory.footprint(target.address, target.length)
    start, end = own.shared(change)
    if start >= end:
        return range(0)
    return range((start - own.start) // mtu, -(-(end - own.start) // mtu))
