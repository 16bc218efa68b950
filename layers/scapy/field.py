# SPDX-License-Identifier: GPL-2.0-only
"""Rows of the header tables as fields, and groups of rows as attributes, of Scapy's layers."""

import struct
from collections.abc import Callable
from difflib import get_close_matches
from ipaddress import IPv4Address, IPv6Address
from operator import index
from typing import Any

from scapy.fields import BitField, Field
from scapy.packet import Packet
from scapy.volatile import RandBin, RandField, RandNum

from rdmawire.errors import WireError
from rdmawire.wire import ib
from rdmawire.wire.header import Group, Header, Meaning, Row
from rdmawire.wire.show import Kind, writer

_SINCE = "rdmawire 0.1"

FIELDS: dict[type[Header], dict[str, tuple[str, str]]] = {
    ib.BTH: {
        "dqpn": ("destqp", _SINCE),
        "padcount": ("padcnt", _SINCE),
        "solicited": ("se", _SINCE),
        "version": ("tver", _SINCE),
    },
    ib.GRH: {"nexthdr": ("nxthdr", _SINCE)},
}
"""By table, in the form of Scapy's ``deprecated_fields``: Scapy's name to ours and a version."""

WORDS = {"RC_COMPARE_SWAP": "RC_CMP_SWAP", "RD_COMPARE_SWAP": "RD_CMP_SWAP"}
"""Scapy's names of opcodes to the standard's."""


_ADDRESSES: dict[Kind, Callable[[str], bytes]] = {
    Kind.MAC: lambda text: bytes.fromhex(text.replace(":", "")),
    Kind.IPV4: lambda text: IPv4Address(text).packed,
    Kind.IPV6: lambda text: IPv6Address(text).packed,
}
"""Notations in which values are accepted and shown."""


class NumberField(BitField):
    """A row that is a number; the standard's words are accepted and shown.

    A ``default`` of ``None`` marks numbers that are computed when the packet is built.
    """

    __slots__ = ["row", "table"]

    def __init__(self, table: str, row: Row, default: Any) -> None:
        self.row, self.table = row, table
        super().__init__(row.name, default, row.size)

    def any2i(self, pkt: Packet | None, x: Any) -> Any:
        """Convert to the internal form; :class:`WireError` for unknown words."""
        if not isinstance(x, str):
            return super().any2i(pkt, x)
        x = WORDS.get(x, x)
        numbers = {word: number for number, word in self._words(pkt).items()}
        if x not in numbers:
            near = ", ".join(get_close_matches(x, numbers)) or "a number"
            raise WireError(f"{self.table}.{self.name} has no word {x!r}; it takes {near}")
        return numbers[x]

    def i2m(self, pkt: Packet | None, x: Any) -> int:
        """Return the number; :class:`WireError` for other values or if it does not fit."""
        try:
            value = index(super().i2m(pkt, x))
        except TypeError:
            raise WireError(f"{self.table}.{self.name} takes a number, found {x!r:.60}") from None
        if not 0 <= value < 1 << self.size:
            raise WireError(f"{self.table}.{self.name} {value} does not fit in {self.size} bits")
        return value

    def i2repr(self, pkt: Packet | None, x: Any) -> str:
        """Return a word that the field accepts, or the number as in trees with its meaning."""
        if not isinstance(x, int) or x >> self.size:
            return repr(x)
        meaning = self._meaning(pkt)
        if word := self._words(pkt).get(x):
            return word
        number, word = writer(meaning.tree or meaning.show, self.row.width)(x), meaning.word(x)
        return f"{number} ({word})" if word else number

    def _meaning(self, pkt: Packet | None) -> Meaning:
        if pkt is None or not self.row.by:
            return self.row.meaning
        # Scapy makes a packet per value of a list: there is no single meaning.
        several = isinstance(getattr(pkt, self.row.by), list)
        return self.row.meaning if several else self.row.meaning_in(pkt)

    def _words(self, pkt: Packet | None) -> dict[int, str]:
        """The standard's words, by their numbers."""
        return {member.value: member.name for member in self._meaning(pkt).enum or ()}


class NumbersField(NumberField):
    """A row of several numbers, as a list."""

    islist = 1

    def i2m(self, pkt: Packet | None, x: Any) -> int:  # noqa: ARG002
        """Join all numbers to one."""
        numbers, width = list(x or [0] * self.row.times), self.row.width
        if len(numbers) != self.row.times or not all(0 <= n < 1 << width for n in numbers):
            wanted = f"{self.row.times} numbers of {width} bits"
            raise WireError(f"{self.table}.{self.name} takes {wanted}, found {numbers}")
        return int("".join(f"{number:0{width}b}" for number in numbers), 2)

    def m2i(self, pkt: Packet | None, x: int) -> list[int]:  # noqa: ARG002
        """Split into the numbers, in order."""
        width, times = self.row.width, self.row.times
        return [x >> width * place & (1 << width) - 1 for place in reversed(range(times))]

    def i2repr(self, pkt: Packet | None, x: Any) -> str:
        """Format each number like a single one."""
        return f"[{', '.join(super(NumbersField, self).i2repr(pkt, number) for number in x)}]"

    def randval(self) -> RandField:
        """Random numbers that fit."""
        return _RandNumbers(self.row.times, self.row.width)


class _RandNumbers(RandField):
    """A list of random numbers."""

    def __init__(self, times: int, width: int) -> None:
        super().__init__()
        self._numbers = [RandNum(0, (1 << width) - 1) for _ in range(times)]

    def _fix(self) -> list[int]:
        return [number._fix() for number in self._numbers]


class BytesField(Field):
    """A row of bytes; addresses are accepted and shown in their notation."""

    __slots__ = ["row", "table"]

    def __init__(self, table: str, row: Row, default: Any) -> None:
        self.row, self.table = row, table
        super().__init__(row.name, default, f"{row.width // 8}s")

    def any2i(self, pkt: Packet | None, x: Any) -> Any:  # noqa: ARG002
        """Return the bytes of an address given as text or as a number; bytes are unchanged."""
        kind = self.row.meaning.show.kind
        if isinstance(x, int) and kind in _ADDRESSES and 0 <= x < 1 << self.row.width:
            return x.to_bytes(self.sz, "big")
        if not isinstance(x, str):
            return x
        try:
            return _ADDRESSES[kind](x)
        except (KeyError, ValueError):
            what = kind.value if kind in _ADDRESSES else f"{self.sz} bytes"
            raise WireError(f"{self.table}.{self.name} takes {what}, found {x!r}") from None

    def i2h(self, pkt: Packet | None, x: Any) -> Any:  # noqa: ARG002
        """Return an address as text; other bytes are unchanged."""
        fits = isinstance(x, bytes) and len(x) == self.sz
        known = fits and self.row.meaning.show.kind in _ADDRESSES
        return writer(self.row.meaning.show, self.row.width)(x) if known else x

    def i2m(self, pkt: Packet | None, x: Any) -> bytes:  # noqa: ARG002
        """Return the bytes; :class:`WireError` if their number differs from the row's."""
        wanted = int(self.sz)
        data = bytes(wanted) if x is None else x
        if not isinstance(data, bytes | bytearray):
            raise WireError(f"{self.table}.{self.name} takes bytes, found {x!r:.60}")
        if len(data) != wanted:
            raise WireError(f"{self.table}.{self.name} takes {wanted} bytes, found {len(data)}")
        return bytes(data)

    def i2repr(self, pkt: Packet | None, x: Any) -> str:
        """Format in the notation in which the field is given."""
        shown = self.i2h(pkt, x)
        return shown if isinstance(shown, str) else repr(shown)

    def getfield(self, pkt: Packet, s: bytes) -> tuple[bytes, bytes]:
        """Remove the bytes from the front; ``struct.error`` if too few."""
        if len(s) < self.sz:
            raise struct.error(f"{self.table}.{self.name} takes {self.sz} bytes")
        return super().getfield(pkt, s)

    def randval(self) -> RandBin:
        """Random bytes."""
        return RandBin(int(self.sz))


class BehindField(Field[Any, Any]):
    """A value after the payload: bytes, or a number with a size in bytes.

    ``None`` is computed when the packet is built.
    """

    __slots__ = ["size", "table"]

    def __init__(self, table: str, name: str, size: int = 0) -> None:
        self.table, self.size = table, size
        super().__init__(name, None)

    def getfield(self, pkt: Packet, s: bytes) -> tuple[bytes, Any]:  # noqa: ARG002
        """Leave the header unchanged."""
        return s, None

    def addfield(self, pkt: Packet, s: bytes, val: Any) -> bytes:  # noqa: ARG002
        """Leave the header unchanged."""
        return s

    def i2repr(self, pkt: Packet | None, x: Any) -> str:  # noqa: ARG002
        """Format a number as hexadecimal digits."""
        return f"0x{x:0{2 * self.size}x}" if isinstance(x, int) else repr(x)

    def data(self, value: Any) -> bytes:
        """Return the bytes of a value in the packet; :class:`WireError` if it is invalid."""
        if isinstance(value, bytes):
            return value
        if self.size and isinstance(value, int):
            if 0 <= value < 1 << 8 * self.size:
                return value.to_bytes(self.size, "big")
            raise WireError(f"{self.table}.{self.name} {value} does not fit in {self.size} bytes")
        raise WireError(f"{self.table}.{self.name} takes bytes, found {value!r}")


def field(table: str, row: Row, default: Any) -> Field:
    """Make the field of a row, of the type that suits the row."""
    kind = BytesField if row.is_bytes else NumbersField if row.times > 1 else NumberField
    return kind(table, row, list(default) if isinstance(default, tuple) else default)


def grouped(group: Group) -> property:
    """Make a property that reads and sets the group."""

    def put(pkt: Any, value: int) -> None:
        for name, number in _members(pkt.table, group, value).items():
            setattr(pkt, name, number)

    return property(group.value_in, put)


def ungrouped(table: type[Header], fields: dict[str, Any]) -> dict[str, Any]:
    """Replace each group in ``fields`` by its rows."""
    for group in table.groups:
        if group.name in fields:
            fields = _members(table, group, fields.pop(group.name)) | fields
    return fields


def _members(table: type[Header], group: Group, value: int) -> dict[str, int]:
    """Return the numbers of the group's rows; :class:`WireError` if ``value`` does not fit."""
    name = f"{table.__name__}.{group.name}"
    if not isinstance(value, int):
        rows = ", ".join(group.members)
        raise WireError(f"{name} is a number, not {value!r}; words go to {rows}")
    if not 0 <= value < 1 << group.width:
        raise WireError(f"{name} {value} does not fit in {group.width} bits")
    return group.split(table, value)
