"""Pause frames: priority-based flow control (IEEE 802.1Q, 36) and plain PAUSE (802.3, 31B)."""

from functools import cache
from typing import Final

from rdmawire.errors import WireError
from rdmawire.fabric.flow import PRIORITIES
from rdmawire.fabric.line import SECOND, SMALLEST, bits
from rdmawire.wire.inet import PFC, Ethernet, EtherType, MACControl, MACControlOpcode, Pause

GROUP: Final = b"\x01\x80\xc2\x00\x00\x01"
"""Where pause frames go: to the next port and no further. IEEE 802.3, 31B.1."""

MOST_QUANTA: Final = 0xFFFF

Quanta = dict[int, int]
"""Priority to how long it rests, in quanta; 0 lets it go on."""


_FRAMES: Final = 3
"""That come besides what is on the cable: the one by which there are too many octets, the one
behind which the pause waits, and the one that the peer has begun when it hears of it."""


def headroom(rate: int, latency: int, frame: int) -> int:
    """Octets beyond ``xoff`` for which there must be room so that nothing is lost.

    ``rate`` is in bits a second, ``latency`` in ns, ``frame`` the octets of the longest frame. What
    the cable holds there and back, three frames, and the pause itself. IEEE 802.1Q-2018, annex N
    (802.1Qbb, annex O) adds what a MAC and its client take to answer: nothing here.
    """
    cable = 2 * latency * rate
    waits = (_FRAMES * bits(frame) + bits(SMALLEST)) * SECOND
    return -(-(cable + waits) // (8 * SECOND))


@cache
def pfc_frame(mac: bytes, priority: int, quanta: int) -> bytes:
    """A frame from this port that stops one priority for so many quanta."""
    table = PFC().replace(**{f"c{priority}": 1, f"time{priority}": quanta})
    control = MACControlOpcode(MACControl.PFC).build() + table.build()
    frame = Ethernet(GROUP, mac, EtherType.MAC_CONTROL).build() + control
    return frame.ljust(SMALLEST, b"\0")


def quanta_of(frame: bytes) -> Quanta | None:
    """What a pause frame asks for; ``None`` for any other frame."""
    if frame[:6] != GROUP:
        return None
    try:
        return _read(frame)
    except WireError:
        return None


def _read(frame: bytes) -> Quanta | None:
    offset = Ethernet.SIZE
    if Ethernet.parse(frame).type != EtherType.MAC_CONTROL:
        return None
    opcode = MACControlOpcode.parse(frame, offset).opcode
    offset += MACControlOpcode.SIZE
    if opcode == MACControl.PFC:
        pfc = PFC.parse(frame, offset)
        asked = (p for p in range(PRIORITIES) if getattr(pfc, f"c{p}"))
        return {priority: getattr(pfc, f"time{priority}") for priority in asked}
    if opcode == MACControl.PAUSE:
        return dict.fromkeys(range(PRIORITIES), Pause.parse(frame, offset).pause_time)
    return None
