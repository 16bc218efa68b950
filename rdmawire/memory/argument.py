"""Arguments of callers, looked at before anything is done with them.

Whatever is not what its name says is a ``VerbsError`` EINVAL with what was found, so that callers
meet no other exception. A number is an ``int``: of other kinds, such as NumPy's, sums may not fit.
"""

from collections.abc import Iterable, Iterator
from errno import EINVAL
from typing import TypeVar

from rdmawire.errors import VerbsError
from rdmawire.memory.page import LAST_ADDRESS, BytesLike
from rdmawire.screen import shown

T = TypeVar("T")


def check_number(name: str, value: object, low: int = 0, high: int = LAST_ADDRESS) -> None:
    """``VerbsError`` EINVAL for what is no whole number from ``low`` to ``high``."""
    if not isinstance(value, int):
        raise VerbsError(f"{name} is {shown(value)}, not a whole number", EINVAL)
    if not low <= value <= high:
        raise VerbsError(f"{name} {shown(value)} is not within {low}..{high}", EINVAL)


def check_time(now: object) -> None:
    """``VerbsError`` EINVAL for what is no time in whole nanoseconds.

    Where frames come and go, ask this only of what is not plainly an ``int``.
    """
    check_number("now", now)


def check_kind(name: str, value: object, kind: type) -> None:
    """``VerbsError`` EINVAL for what is not of this class."""
    if not isinstance(value, kind):
        raise VerbsError(f"{name} is {shown(value)}, not {kind.__name__}", EINVAL)


def check_bytes(name: str, value: object, length: int) -> None:
    """``VerbsError`` EINVAL for anything but ``bytes`` of this length."""
    check_kind(name, value, bytes)
    if isinstance(value, bytes) and len(value) != length:
        raise VerbsError(f"{name} has {len(value)} bytes, not {length}", EINVAL)


def check_range(address: object, length: object) -> None:
    """``VerbsError`` EINVAL for what are no whole numbers.

    Whether there is memory is for the memory to say.
    """
    if address.__class__ is not int or length.__class__ is not int:
        check_kind("address", address, int)
        check_kind("length", length, int)


def length_of(data: BytesLike, name: str = "data") -> int:
    """How many bytes there are; ``VerbsError`` EINVAL for what is none."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise VerbsError(f"{name} is {shown(data)}, not bytes", EINVAL)
    return len(data)


def as_bytes(name: str, data: BytesLike) -> bytes:
    """Bytes that nobody changes any more; ``VerbsError`` EINVAL for what is none."""
    length_of(data, name)
    return bytes(data)


def check_able(name: str, value: object, *methods: str) -> None:
    """``VerbsError`` EINVAL for what lacks one of these methods, and for a class of what has them.

    For what is told apart by what it does, and has no class of its own.
    """
    for method in methods:
        if isinstance(value, type) or not callable(getattr(value, method, None)):
            raise VerbsError(f"{name} is {shown(value)}, which cannot {method}()", EINVAL)


def each(name: str, values: Iterable[T]) -> Iterator[T]:
    """One after the other; ``VerbsError`` EINVAL for what is no sequence of anything."""
    try:
        return iter(values)
    except TypeError:
        raise VerbsError(f"{name} is {shown(values)}, not a sequence", EINVAL) from None
