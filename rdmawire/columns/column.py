"""A column: the values of a field in many frames, as an array with a type."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rdmawire.wire.show import Kind, Show, ipv4, ipv6, mac, writer


class Form(Enum):
    """What the elements of a column are, as far as the dtype does not say it."""

    NUMBER = "number"
    FLAG = "flag"
    TIME = "nanoseconds since the epoch"
    DURATION = "nanoseconds"
    MAC = "Ethernet address, its bytes as one number"
    IPV4 = "IPv4 address, its bytes as one number"
    IPV6 = "16 bytes"
    BYTES = "bytes"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The form and dtype of a column; ``element`` converts a header's value to an element.

    Numbers of the header are multiplied by ``scale``: some fields count in units of 4 or 8 bytes.
    """

    form: Form
    dtype: np.dtype[Any]
    element: Callable[[Any], Any]
    scale: int = 1


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


ADDRESSES: dict[Form, Callable[[Any], str]] = {
    Form.MAC: lambda value: mac(int(value).to_bytes(6, "big")),
    Form.IPV4: lambda value: ipv4(int(value).to_bytes(4, "big")),
    Form.IPV6: lambda value: ipv6(value.tobytes()),
}
"""Functions that write an element of an address column as text."""


def distinct_addresses(form: Form, values: NDArray[Any]) -> tuple[list[str], NDArray[np.int64]]:
    """Return the distinct addresses as text, and the index of each row's address among them.

    ``values`` are those of an address column, of shape ``(rows,)``; so are the indices, as int64.
    """
    known, indices = np.unique(values, return_inverse=True)
    return list(map(ADDRESSES[form], known)), indices


OBJECT = np.dtype(object)
TIME = ColumnType(Form.TIME, np.dtype(np.int64), int)
DURATION = ColumnType(Form.DURATION, np.dtype(np.int64), int)
_FIXED_TYPES = {
    Kind.BOOL: ColumnType(Form.FLAG, np.dtype(np.bool_), bool),
    Kind.PRESENCE: ColumnType(Form.FLAG, np.dtype(np.bool_), lambda _: True),
    Kind.MAC: ColumnType(Form.MAC, np.dtype(np.uint64), _number),
    Kind.IPV4: ColumnType(Form.IPV4, np.dtype(np.uint32), _number),
    Kind.IPV6: ColumnType(Form.IPV6, np.dtype("V16"), bytes),
    Kind.BYTES: ColumnType(Form.BYTES, OBJECT, bytes),
}
_WIDTHS = (8, 16, 32, 64)


def column_type(show: Show, width: int) -> ColumnType:
    """Return the column type of a field of ``width`` bits in this notation."""
    if show.kind in _FIXED_TYPES:
        return _FIXED_TYPES[show.kind]
    if show.kind is Kind.TEXT or width > _WIDTHS[-1]:
        write = writer(show, width)
        return ColumnType(
            Form.TEXT, OBJECT, lambda value: value if isinstance(value, str) else write(value)
        )
    needed = max(width, 8) + (show.scale - 1).bit_length()
    bits = next((bits for bits in _WIDTHS if bits >= needed), _WIDTHS[-1])
    scale = show.scale
    return ColumnType(Form.NUMBER, np.dtype(f"u{bits // 8}"), lambda value: value * scale, scale)


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """The values of one field: arrays of shape ``(rows,)``.

    ``values`` has the dtype of ``type``: unsigned integers for numbers, Ethernet and IPv4
    addresses, ``bool`` for flags, ``int64`` ns for times, ``V16`` for IPv6 addresses, ``object``
    for bytes and text. Where ``valid`` (``bool``) is false, the row does not have the field and the
    element of ``values`` is meaningless. Of a field that a frame has several times, this is the
    first value.
    """

    type: ColumnType
    values: NDArray[Any]
    valid: NDArray[np.bool_]
