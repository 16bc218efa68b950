"""What a column holds: the kind of its values, from the notation of its field."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rdmawire.wire.show import Kind, Show, ipv4, ipv6, mac, writer


class Form(Enum):
    """How the values of a column are to be read."""

    NUMBER = "number"
    FLAG = "flag"
    TIME = "nanoseconds since the epoch"
    DURATION = "nanoseconds"
    MAC = "Ethernet address, its octets as one number"
    IPV4 = "IPv4 address, its octets as one number"
    IPV6 = "sixteen octets"
    OCTETS = "octets"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class ColumnKind:
    """A form, with the array type of the values and what makes one of a header's value.

    ``scale`` is the unit of the number, for fields that count in fours or eights.
    """

    form: Form
    dtype: np.dtype[Any]
    element: Callable[[Any], Any]
    scale: int = 1


def _number(octets: bytes) -> int:
    return int.from_bytes(octets, "big")


ADDRESSES: dict[Form, Callable[[Any], str]] = {
    Form.MAC: lambda value: mac(int(value).to_bytes(6, "big")),
    Form.IPV4: lambda value: ipv4(int(value).to_bytes(4, "big")),
    Form.IPV6: lambda value: ipv6(value.tobytes()),
}
"""How one value of an address column is written."""


def distinct_addresses(form: Form, values: NDArray[Any]) -> tuple[list[str], NDArray[np.int64]]:
    """The different addresses of a column as text, each once, and which of them each row has."""
    known, places = np.unique(values, return_inverse=True)
    return list(map(ADDRESSES[form], known)), places


OBJECT = np.dtype(object)
TIME = ColumnKind(Form.TIME, np.dtype(np.int64), int)
DURATION = ColumnKind(Form.DURATION, np.dtype(np.int64), int)
_FIXED = {
    Kind.BOOL: ColumnKind(Form.FLAG, np.dtype(np.bool_), bool),
    Kind.PRESENCE: ColumnKind(Form.FLAG, np.dtype(np.bool_), lambda _: True),
    Kind.MAC: ColumnKind(Form.MAC, np.dtype(np.uint64), _number),
    Kind.IPV4: ColumnKind(Form.IPV4, np.dtype(np.uint32), _number),
    Kind.IPV6: ColumnKind(Form.IPV6, np.dtype("V16"), bytes),
    Kind.OCTETS: ColumnKind(Form.OCTETS, OBJECT, bytes),
}
_WIDTHS = (8, 16, 32, 64)


def kind_of(show: Show, width: int) -> ColumnKind:
    """The kind of a field of ``width`` bits in this notation."""
    if show.kind in _FIXED:
        return _FIXED[show.kind]
    if show.kind is Kind.TEXT or width > _WIDTHS[-1]:
        write = writer(show, width)
        return ColumnKind(
            Form.TEXT, OBJECT, lambda value: value if isinstance(value, str) else write(value)
        )
    needed = max(width, 8) + (show.scale - 1).bit_length()
    bits = next((bits for bits in _WIDTHS if bits >= needed), _WIDTHS[-1])
    scale = show.scale
    return ColumnKind(Form.NUMBER, np.dtype(f"u{bits // 8}"), lambda value: value * scale, scale)
