"""Pause frames: priority-based flow control (IEEE 802.1Q, 36) and plain PAUSE (802.3, 31B)."""

from functools import cache
from typing import Final

from rdmawire.errors import WireError
from rdmawire.fabric.classify import PRIORITIES
from rdmawire.fabric.link import MIN_FRAME, SECOND, bit_times
from rdmawire.wire.inet import PFC, Ethernet, EtherType, MACControl, MACControlOpcode, Pause

GROUP: Final = b"\x01\x80\xc2\x00\x00\x01"
"""Destination address of pause frames, which are not forwarded. IEEE 802.3, 31B.1."""

MAX_QUANTA: Final = 0xFFFF

Quanta = dict[int, int]
"""Priority to the length of its pause in quanta; 0 resumes it."""


_FRAMES: Final = 3
"""Frames that arrive in addition to those on the cable: the one that exceeds ``xoff``, the one
that delays the pause, and the one that the peer is sending when the pause arrives."""


def headroom(rate: int, latency: int, frame: int) -> int:
    """Bytes of buffer beyond ``xoff`` that a lossless priority needs.

    ``rate`` is in bits per second, ``latency`` in ns, ``frame`` the maximum frame size in
    bytes. The sum of the bytes on the cable in both directions, three frames, and the pause. IEEE
    802.1Q-2018, annex N (802.1Qbb, annex O) adds the response time of a MAC and its client, which
    is 0 here.
    """
    cable = 2 * latency * rate
    waits = (_FRAMES * bit_times(frame) + bit_times(MIN_FRAME)) * SECOND
    return -(-(cable + waits) // (8 * SECOND))


@cache
def pfc_frame(mac: bytes, priority: int, quanta: int) -> bytes:
    """Return a PFC frame of the port ``mac`` that pauses one priority for ``quanta``."""
    table = PFC().replace(**{f"c{priority}": 1, f"time{priority}": quanta})
    control = MACControlOpcode(MACControl.PFC).build() + table.build()
    frame = Ethernet(GROUP, mac, EtherType.MAC_CONTROL).build() + control
    return frame.ljust(MIN_FRAME, b"\0")


def quanta_of(frame: bytes) -> Quanta | None:
    """Return the pauses in a PAUSE or PFC frame; ``None`` for any other frame."""
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
