"""Checks of what the methods of a target return: a target may be anybody's code.

They are made after each input, so they are cheap: members of a list are looked at only where it
differs from what the model expects. Each raises :class:`FuzzError` for a wrong result.
"""

from typing import Final, NamedTuple

from rdmawire.errors import FuzzError
from rdmawire.fuzz.exchange import Numbers
from rdmawire.fuzz.setup import Setup
from rdmawire.fuzz.target import Completion, Target
from rdmawire.terminal import plural
from rdmawire.validate import BytesLike
from rdmawire.verbs.ah import AddressHandle

MAX_FRAMES: Final = 4096
"""Frames of one answer, and completions, at most."""
MAX_FRAME: Final = 1 << 16
"""Bytes of a frame, at most."""


class Place(NamedTuple):
    """Where a target is: ``path`` leads to it, ``mac`` is the MAC address of its peer."""

    path: AddressHandle
    mac: bytes


def numbers_of(target: Target, setup: Setup) -> Numbers:
    """Return the numbers of a target."""
    found: object = target.numbers(setup)
    if not isinstance(found, Numbers):
        raise _wrong(target, "numbers", found, "a Numbers")
    return found


def place_of(target: Target, setup: Setup) -> Place:
    """Return the path to a target."""
    found: object = target.path(setup)
    if isinstance(found, tuple) and len(found) == 2:
        path, mac = found
        if isinstance(path, AddressHandle) and isinstance(mac, bytes):
            return Place(path, mac)
    raise _wrong(target, "path", found, "an AddressHandle and a MAC address")


def frames_of(target: Target, method: str, found: list[bytes]) -> list[bytes]:
    """Return the frames that a method has returned."""
    if found.__class__ is not list:
        raise _wrong(target, method, found, "a list of frames")
    if len(found) > MAX_FRAMES:
        raise _too_many(target, method, plural(len(found), "frame"))
    return found


def checked_frame(target: Target, frame: object) -> bytes:
    """Return a frame that differs from the expected one."""
    if not isinstance(frame, bytes | bytearray | memoryview):
        raise FuzzError(f"{target.name}: a frame is of type {type(frame).__name__}, not bytes")
    if len(frame) > MAX_FRAME:
        size = plural(len(frame), "byte")
        raise FuzzError(f"{target.name}: a frame has {size}: at most {MAX_FRAME} are compared")
    return bytes(frame)


def completions_of(target: Target, found: list[Completion]) -> list[Completion]:
    """Return the completions that a target has shown."""
    if found.__class__ is not list:
        raise _wrong(target, "completions", found, "a list")
    if len(found) > MAX_FRAMES:
        raise _too_many(target, "completions", plural(len(found), "completion"))
    return found


def check_completions(target: Target, found: list[Completion]) -> None:
    """Check completions that differ from the expected ones."""
    for one in found:
        if not isinstance(one, Completion):
            raise _wrong(target, "completions", one, "a Completion")


def check_memory(target: Target, found: object, wanted: BytesLike) -> None:
    """Check memory that differs from the expected one."""
    if not isinstance(found, bytes | bytearray | memoryview):
        raise _wrong(target, "memory", found, "bytes")
    if len(found) != len(wanted):
        found_bytes, bytes_ = plural(len(found), "byte"), len(wanted)
        raise FuzzError(f"{target.name}: memory returned {found_bytes}, not {bytes_}")


def _wrong(target: Target, method: str, found: object, wanted: str) -> FuzzError:
    return FuzzError(f"{target.name}: {method} returned {type(found).__name__}, not {wanted}")


def _too_many(target: Target, method: str, found: str) -> FuzzError:
    return FuzzError(f"{target.name}: {method} returned {found}: at most {MAX_FRAMES} are compared")
