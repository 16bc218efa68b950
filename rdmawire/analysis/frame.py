"""What is known of a frame as a whole: its number, times and lengths, in Wireshark's names."""

import time
from collections.abc import Callable
from typing import NamedTuple

from rdmawire.analysis.node import Derived, Dissection
from rdmawire.capture.record import SECOND
from rdmawire.wire.show import DEC, TEXT, Value


def seconds(nanoseconds: int) -> str:
    """Nanoseconds as seconds with nine decimals, exactly."""
    sign = "-" if nanoseconds < 0 else ""
    whole, rest = divmod(abs(nanoseconds), SECOND)
    return f"{sign}{whole}.{rest:09d}"


def calendar(time_ns: int) -> str:
    """A time since the epoch as Wireshark writes it, in the local time zone."""
    whole, rest = divmod(time_ns, SECOND)
    try:
        local = time.localtime(whole)
    except (OverflowError, ValueError, OSError):
        return f"{seconds(time_ns)} s since the epoch"
    day = f"{time.strftime('%b', local)} {local.tm_mday:2d}, {local.tm_year}"
    return f"{day} {time.strftime('%H:%M:%S', local)}.{rest:09d} {time.strftime('%Z', local)}"


class FrameField(NamedTuple):
    """A field of the frame as a whole, and how its values are found."""

    field: Derived
    values: Callable[[Dissection], list[Value]]


def _number(name: str, doc: str, value: Callable[[Dissection], Value]) -> FrameField:
    """A number that every frame has once."""
    return FrameField(Derived(name, DEC, doc, 32), lambda frame: [value(frame)])


def _time(name: str, doc: str, value: Callable[[Dissection], Value]) -> FrameField:
    """A time that every frame has once, as text."""
    return FrameField(Derived(name, TEXT, doc, 0), lambda frame: [value(frame)])


FRAME_FIELDS = (
    _number("frame.number", "frames counted from one", lambda frame: frame.number),
    _time("frame.time", "when it was captured, local time", lambda f: calendar(f.time_ns)),
    _time("frame.time_epoch", "seconds since the epoch", lambda f: seconds(f.time_ns)),
    _time(
        "frame.time_delta",
        "seconds since the frame before",
        lambda f: seconds(f.time_ns - f.previous_ns),
    ),
    _time(
        "frame.time_relative",
        "seconds since the first frame",
        lambda f: seconds(f.time_ns - f.first_ns),
    ),
    _number("frame.len", "octets on the wire", lambda f: max(f.length - f.lead, 0)),
    _number("frame.cap_len", "octets captured", lambda f: len(f.data) - f.lead),
    FrameField(
        Derived("frame.interface_id", DEC, "number of the interface, in pcapng"),
        lambda frame: [] if frame.interface is None else [frame.interface],
    ),
    FrameField(
        Derived("frame.interface_name", TEXT, "name of the interface, in pcapng", 0),
        lambda frame: [frame.interface_name] if frame.interface_name else [],
    ),
    FrameField(
        Derived("frame.interface_description", TEXT, "what the interface is, in pcapng", 0),
        lambda frame: [frame.interface_description] if frame.interface_description else [],
    ),
    FrameField(
        Derived("rdmawire.file", TEXT, "the file that the frame is from", 0),
        lambda frame: [frame.file] if frame.file else [],
    ),
    FrameField(
        Derived("frame.comment", TEXT, "comments on the frame, in pcapng", 0),
        lambda frame: list(frame.comments),
    ),
)
