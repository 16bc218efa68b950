"""CRCs of differences: a CRC is linear, so what changes it follows from the bits that changed.

With a CRC changed by just that, one that was right is right again, and one that was wrong is wrong
in the same bits.
"""

from functools import lru_cache

from rdmawire.wire.icrc import VCRC_STEP, vcrc

_BITS = 16
_Step = tuple[int, ...]
"""A linear step of the VCRC's register: what becomes of each of its bits, the lowest first."""


def vcrc_change(change: bytes, behind: int) -> int:
    """What changes in a VCRC where these octets are xored in, ``behind`` octets before its end.

    A number as of :func:`~rdmawire.wire.icrc.vcrc`, to be xored with it.
    """
    change = change.lstrip(b"\0")
    plain = vcrc(change) ^ vcrc(bytes(len(change)))
    register = _applied(_zeros(behind), plain >> 8 | (plain & 0xFF) << 8)
    return register >> 8 | (register & 0xFF) << 8


def _applied(step: _Step, register: int) -> int:
    after = 0
    for bit, image in enumerate(step):
        if register >> bit & 1:
            after ^= image
    return after


@lru_cache(maxsize=4096)
def _zeros(count: int) -> _Step:
    """The step of so many octets of zero."""
    if count == 0:
        return tuple(1 << bit for bit in range(_BITS))
    if count == 1:
        return tuple(_one_zero(1 << bit) for bit in range(_BITS))
    half = _zeros(count // 2)
    both = tuple(_applied(half, image) for image in half)
    return tuple(_applied(_zeros(1), image) for image in both) if count % 2 else both


def _one_zero(register: int) -> int:
    return register >> 8 ^ VCRC_STEP[register & 0xFF]
