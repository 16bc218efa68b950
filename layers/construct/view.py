"""Headers and messages as Construct reads them, for a comparison with the codec.

Each value of :data:`MESSAGES` parses the bytes of a message, and returns its parts with the bytes
that they build. A part is the values of a header by row, or plain bytes; empty bytes are left out.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from construct import Construct, ConstructError, Container

from rdmawire.layers.construct.frame import (
    ManagementDatagram,
    NativePacket,
    RoCEFrame,
    TransportPacket,
)
from rdmawire.layers.construct.header import struct
from rdmawire.layers.construct.iwarp import FPDU, Segment
from rdmawire.wire.header import Header

Values = dict[str, Any]
Read = tuple[list[Values | bytes], bytes]

REFUSAL = ConstructError
"""What parsing and building raise."""


def parse_header(table: type[Header], data: bytes) -> Values:
    """Return the values of the header at the start of ``data``."""
    return _values(struct(table).parse(data))


def build_header(table: type[Header], values: Mapping[str, Any]) -> bytes:
    """Build a header of its values."""
    built: bytes = struct(table).build(values)
    return built


def _values(found: Container) -> Values:
    return {name: _plain(value) for name, value in found.items() if name != "_io"}


def _plain(value: Any) -> Any:
    """A value without its name, and numbers of a list as a tuple."""
    if isinstance(value, list):
        return tuple(map(int, value))
    return value if isinstance(value, bytes) else int(value)


def _parts(found: Any) -> Iterator[Values | bytes]:
    """Yield the parts of a container, in the order of their bytes."""
    for name, value in found.items():
        if name == "_io" or value is None or value == b"":
            continue
        if isinstance(value, bytes):
            yield value
        elif isinstance(value, list):
            for each in value:
                yield from _parts({"value": each["value"]} if "name" in each else {"tag": each})
        elif name in ("transport", "extended"):
            yield from _parts(value)
        else:
            yield _values(value)


def _reader(struct_: Construct) -> Callable[[bytes], Read]:
    def read(data: bytes) -> Read:
        found = struct_.parse(data)
        pieces = found if isinstance(found, dict) else {"pieces": found}
        return list(_parts(pieces)), struct_.build(found)

    return read


MESSAGES: dict[str, Callable[[bytes], Read]] = {
    "packet": _reader(TransportPacket),
    "frame": _reader(RoCEFrame),
    "native packet": _reader(NativePacket),
    "management datagram": _reader(ManagementDatagram),
    "segment": _reader(Segment),
    "FPDU": _reader(FPDU),
}
"""The messages by name."""
