"""What a file cannot hold, said with the name of the value."""

from rdmawire.capture.linktype import longest_record
from rdmawire.capture.record import Record
from rdmawire.errors import CaptureError


class Misfit(CaptureError):
    """A value that the file cannot hold. The file is as it was before, and may go on."""


def check_number(name: str, value: object, greatest: int, least: int = 0) -> None:
    """A whole number from ``least`` to ``greatest``, or :class:`Misfit`."""
    if not isinstance(value, int):
        raise Misfit(f"{name}: a whole number is needed, found {value!r}")
    if not least <= value <= greatest:
        raise Misfit(f"{name}: {value} does not fit, {least} to {greatest} do")


def check_time(record: Record, first_ns: int, last_ns: int) -> None:
    """A time that the file can hold, or :class:`Misfit`."""
    if not isinstance(record.time_ns, int):
        raise Misfit(f"Record.time_ns: a whole number is needed, found {record.time_ns!r}")
    if not first_ns <= record.time_ns <= last_ns:
        raise Misfit(f"Record.time_ns: {record.time_ns} does not fit, {first_ns} to {last_ns} do")


def check_data(record: Record, allowed: int) -> None:
    """No more octets than :func:`most_octets` allows, or :class:`Misfit`."""
    if not isinstance(record.data, bytes | bytearray | memoryview):
        raise Misfit(f"Record.data: octets are needed, found {type(record.data).__name__}")
    if len(record.data) > allowed:
        raise Misfit(
            f"Record.data: {len(record.data)} octets do not fit, the snap length allows {allowed}"
        )


def most_octets(link_type: int, snap_length: int) -> int:
    """The most octets that a record may have in a file with this snap length (0: no limit)."""
    longest = longest_record(link_type)
    return min(snap_length, longest) if snap_length else longest
