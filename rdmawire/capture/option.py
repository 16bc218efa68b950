"""Options of pcapng blocks: a list of numbers with values. draft-ietf-opsawg-pcapng, section 3.5.

Some values hold numbers in the byte order of their section. Outside of this module values are
always as a little-endian section has them, so that options can go from file to file.
"""

from collections.abc import Iterable, Mapping
from struct import Struct

from rdmawire.capture.octets import Octets
from rdmawire.errors import CaptureError

Options = tuple[tuple[int, bytes], ...]
"""Numbers of options with their values, in the order of the file."""

END = 0
COMMENT = 1
MAX_OPTIONS = 1 << 20
"""The most octets that the options of one block may take."""

PADS = (b"", b"\0\0\0", b"\0\0", b"\0")
"""What fills a value up to a multiple of four octets, by its length modulo four."""

# A custom option begins with the number of the enterprise that defines it.
_CUSTOM = dict.fromkeys((2988, 2989, 19372, 19373), (0, 4))
# Number of the option: at which octet of the value a number stands, and how many it has.
PACKET_NUMBERS = {
    2: (0, 4),  # flags
    4: (0, 8),  # dropped packets
    5: (0, 8),  # packet identifier
    6: (0, 4),  # queue
    7: (1, 8),  # verdict, after the octet that says whose
    **_CUSTOM,
}
INTERFACE_NUMBERS = {
    8: (0, 8),  # speed
    14: (0, 8),  # seconds to add to times
    **_CUSTOM,
}

_HEADS = {"<": Struct("<HH"), ">": Struct(">HH")}


def parse_options(
    octets: Octets, start: int, end: int, order: str, numbers: Mapping[int, tuple[int, int]]
) -> Options:
    """The options between two places of the buffer, which are a multiple of four apart."""
    head = _HEADS[order].unpack_from
    options = []
    while start < end:
        code, length = head(octets.buffer, start)
        if code == END:
            break
        if length > end - start - 4:
            raise _runs_over(octets, start, code, length, end - start - 4)
        value = octets.buffer[start + 4 : start + 4 + length]
        options.append((code, _swapped(value, code, order, numbers)))
        start += 4 + (length + 3 & ~3)
    return tuple(options)


def _runs_over(octets: Octets, start: int, code: int, length: int, left: int) -> CaptureError:
    return octets.damage(f"option {code} claims {length} octets, its block has {left} left", start)


def build_options(
    options: Iterable[tuple[int, bytes]], order: str, numbers: Mapping[int, tuple[int, int]]
) -> bytes:
    """The list with the mark at its end; nothing at all for no options."""
    parts = [_option(code, value, order, numbers) for code, value in options]
    if not parts:
        return b""
    size = sum(map(len, parts)) + 4
    if size > MAX_OPTIONS:
        raise CaptureError(f"options: {size} octets in one block, {MAX_OPTIONS} are allowed")
    return b"".join([*parts, bytes(4)])


def _option(code: int, value: bytes, order: str, numbers: Mapping[int, tuple[int, int]]) -> bytes:
    if not isinstance(code, int) or not isinstance(value, bytes | bytearray | memoryview):
        raise CaptureError(f"options: a number and octets make one, found {code!r} and {value!r}")
    if not 0 < code < 1 << 16:
        raise CaptureError(f"options: number {code} is not one of 1 to 65535")
    if len(value) >= 1 << 16:
        raise CaptureError(f"options: option {code} has {len(value)} octets, 65535 are allowed")
    swapped = _swapped(value, code, order, numbers)
    return _HEADS[order].pack(code, len(value)) + swapped + PADS[len(value) % 4]


def _swapped(value: bytes, code: int, order: str, numbers: Mapping[int, tuple[int, int]]) -> bytes:
    """The value with the number in it turned from this byte order to little-endian, or back."""
    if order == "<" or code not in numbers:
        return value
    at, width = numbers[code]
    end = at + width
    if len(value) < end:
        return value
    return value[:at] + value[at:end][::-1] + value[end:]
