"""Mutations of frames that know the header tables: what was changed, as values.

A :class:`Mutation` names its target by header and row (``bth``, ``padcnt``), so that it keeps its
meaning on another frame, and can be described in words. A :class:`Mutant` is a seed frame with
mutations and what is done about checksums; it is written as JSON and gives the same bytes again.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple, Self

from rdmawire.capture.record import LinkType
from rdmawire.decode import LengthField, Located
from rdmawire.errors import FuzzError
from rdmawire.fuzz.frame_map import NO_FRAME, FrameMap, map_frame, sealed, with_broken_checksum
from rdmawire.fuzz.inputs import ChecksumState
from rdmawire.terminal import quote_value, suggest
from rdmawire.wire.header import Header, Row
from rdmawire.wire.tables import tables

MAX_MUTANT: Final = 65536
"""Bytes of a mutant, at most; further bytes are cut."""
MAX_MUTATIONS: Final = 64
MAX_FRAMES: Final = 1024
"""Frames of a case, at most."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change of a frame. Without its target in the frame, it changes nothing.

    - ``kind``: a name in :data:`KINDS`.
    - ``header``, ``number``: the label of a header, and which of several (0 is the outermost).
    - ``row``, ``index``, ``value``: a row of the header, which number of a row of several, and its
      new value, reduced to the width of the row.
    - ``offset``: bytes from the start of the frame; ``data``: new bytes.
    - ``lengths``: whether the length fields before the target follow a change of size.
    """

    kind: str
    header: str = ""
    number: int = 0
    row: str = ""
    index: int = 0
    value: int = 0
    offset: int = 0
    data: bytes = b""
    lengths: bool = True

    def as_json(self) -> dict[str, Any]:
        """Return the mutation as JSON values; defaults are left out, bytes are hexadecimal."""
        values: dict[str, Any] = {"kind": self.kind}
        for name, default in _DEFAULTS.items():
            value = getattr(self, name)
            if value != default:
                values[name] = value.hex() if name == "data" else value
        return values

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """Make a mutation of JSON values. Raises :class:`FuzzError` for others."""
        if not isinstance(values, dict) or str(values.get("kind")) not in KINDS:
            raise FuzzError(
                f"mutation: expected an object whose 'kind' is one of {', '.join(KINDS)}"
            )
        made = {"kind": values["kind"]}
        for name, value in values.items():
            if name == "kind":
                continue
            if name not in _DEFAULTS:
                raise FuzzError(
                    f"mutation: no value is named {quote_value(name)}{suggest(name, _DEFAULTS)}"
                )
            made[name] = _checked(name, value)
        return cls(**made)


_DEFAULTS: Final[dict[str, Any]] = {
    field.name: field.default for field in fields(Mutation) if field.name != "kind"
}


def _checked(name: str, value: Any) -> Any:
    """Return a value of a mutation; raise :class:`FuzzError` for one of another type."""
    if name == "data":
        return bytes_of_hex("mutation: data", value)
    kind = type(_DEFAULTS[name])
    if type(value) is not kind:
        raise FuzzError(f"mutation: {name} is a {kind.__name__}, not {quote_value(value)}")
    if kind is int and value < 0:
        raise FuzzError(f"mutation: {name} is not negative")
    return value


def bytes_of_hex(what: str, text: Any) -> bytes:
    """Return the bytes of hexadecimal digits. Raises :class:`FuzzError` for anything else."""
    if isinstance(text, str) and len(text) <= 2 * MAX_MUTANT:
        with suppress(ValueError):
            return bytes.fromhex(text)
    raise FuzzError(f"{what} is hexadecimal digits, at most {MAX_MUTANT} bytes")


class SeedFrame(NamedTuple):
    """A frame to begin with. ``name`` says where it is from, such as ``golden/rc.pcap 13``."""

    data: bytes
    link_type: int = LinkType.ETHERNET
    name: str = ""


class _Change(NamedTuple):
    """How a kind of mutation changes bytes, and its words."""

    apply: Callable[[bytes, FrameMap, Mutation], bytes]
    words: Callable[[FrameMap, Mutation], str]


def _placed(found: FrameMap, one: Mutation) -> tuple[Located, Row] | None:
    """The header and the row that a mutation names; ``None`` if the frame has none."""
    located = found.find(one.header, one.number)
    rows = () if located is None else type(located.header).rows
    row = next((row for row in rows if row.name == one.row), None)
    return None if located is None or row is None else (located, row)


def _set(data: bytes, found: FrameMap, one: Mutation) -> bytes:
    placed = _placed(found, one)
    if placed is None:
        return data
    (offset, header), row = placed
    changed = header.replace(**{row.name: _new_value(header, row, one)}).build()
    return data[:offset] + changed + data[offset + len(changed) :]


def _new_value(header: Header, row: Row, one: Mutation) -> Any:
    """The value of a row after a mutation, reduced to its width."""
    value = one.value & (1 << row.width) - 1
    if row.is_bytes:
        return value.to_bytes(row.width // 8, "big")
    if row.times == 1:
        return value
    numbers = list(getattr(header, row.name))
    numbers[one.index % row.times] = value
    return tuple(numbers)


def _set_words(found: FrameMap, one: Mutation) -> str:
    placed = _placed(found, one)
    if placed is None:
        return f"{one.header}.{one.row}: absent"
    (_, header), row = placed
    old, new = getattr(header, row.name), _new_value(header, row, one)
    meaning = row.meaning_in(header)
    return f"{one.header}.{one.row} {_shown(meaning, old)} -> {_shown(meaning, new)}"


def _shown(meaning: Any, value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    word = meaning.word(value) if isinstance(value, int) else ""
    return (
        f"{value:#x} ({word})" if word else f"{value:#x}" if isinstance(value, int) else str(value)
    )


def _resized(data: bytes, found: FrameMap, one: Mutation, extent: range, new: bytes) -> bytes:
    """Replace the bytes of ``extent``; adjust the length fields before it, if that is wanted."""
    extent = range(min(extent.start, len(data)), min(extent.stop, len(data)))
    grown = len(new) - len(extent)
    changed = data[: extent.start] + new + data[extent.stop :]
    if not (one.lengths and grown):
        return changed
    fixed = bytearray(changed)
    for field in found.lengths:
        if field.offset + 2 <= extent.start <= field.end(data):
            _adjust(fixed, field, grown)
    return bytes(fixed)


def _adjust(data: bytearray, field: LengthField, grown: int) -> None:
    """Add to a length field, modulo its width."""
    at = field.offset
    word = data[at] << 8 | data[at + 1]
    value = ((word & field.mask) + grown // field.scale) & field.mask
    data[at : at + 2] = (word & ~field.mask | value).to_bytes(2, "big")


def _extent(located: Located) -> range:
    return range(located.offset, located.offset + located.header.SIZE)


def _drop(data: bytes, found: FrameMap, one: Mutation) -> bytes:
    located = found.find(one.header, one.number)
    return data if located is None else _resized(data, found, one, _extent(located), b"")


def _repeat(data: bytes, found: FrameMap, one: Mutation) -> bytes:
    located = found.find(one.header, one.number)
    if located is None:
        return data
    extent = _extent(located)
    end = extent.stop
    return _resized(data, found, one, range(end, end), data[extent.start : end])


def _insert(data: bytes, found: FrameMap, one: Mutation) -> bytes:
    located = found.find(one.header, one.number)
    table = next((table for table in tables() if table.label == one.row), None)
    if located is None or table is None:
        return data
    end = _extent(located).stop
    return _resized(data, found, one, range(end, end), (one.data or table().build())[: table.SIZE])


def _write(data: bytes, found: FrameMap, one: Mutation) -> bytes:  # noqa: ARG001
    end = one.offset + len(one.data)
    return data if end > len(data) else data[: one.offset] + one.data + data[end:]


def _truncate(data: bytes, found: FrameMap, one: Mutation) -> bytes:
    return _resized(data, found, one, range(one.offset, len(data)), b"")


def _remove(data: bytes, found: FrameMap, one: Mutation) -> bytes:
    return _resized(data, found, one, range(one.offset, one.offset + one.value), b"")


def _extend(data: bytes, found: FrameMap, one: Mutation) -> bytes:
    start = min(one.offset, len(data))
    return _resized(data, found, one, range(start, start), one.data)


def _splice(data: bytes, found: FrameMap, one: Mutation) -> bytes:
    return _resized(data, found, one, range(one.offset, len(data)), one.data)


KINDS: Final[dict[str, _Change]] = {
    "set": _Change(_set, _set_words),
    "drop": _Change(_drop, lambda _, one: f"{one.header} dropped{_kept(one)}"),
    "repeat": _Change(_repeat, lambda _, one: f"{one.header} repeated{_kept(one)}"),
    "insert": _Change(_insert, lambda _, one: f"{one.row} added after {one.header}{_kept(one)}"),
    "write": _Change(_write, lambda _, one: f"bytes at {one.offset} are {one.data.hex()}"),
    "truncate": _Change(_truncate, lambda _, one: f"truncated to {one.offset} bytes{_kept(one)}"),
    "remove": _Change(
        _remove, lambda _, one: f"{one.value} bytes at {one.offset} removed{_kept(one)}"
    ),
    "extend": _Change(
        _extend, lambda _, one: f"{len(one.data)} bytes added at {one.offset}{_kept(one)}"
    ),
    "splice": _Change(
        _splice,
        lambda _, one: f"from {one.offset} on {len(one.data)} bytes of another frame{_kept(one)}",
    ),
}
"""The kinds of mutations. ``truncate`` and ``splice`` replace all bytes from ``offset`` on."""


def _kept(one: Mutation) -> str:
    return "" if one.lengths else ", lengths unchanged"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A seed frame and its mutations, in order. ``checksum`` names a :class:`ChecksumState`."""

    seed: SeedFrame
    mutations: tuple[Mutation, ...] = ()
    checksum: str = "GOOD"

    def build(self) -> bytes:
        """Return the bytes of the mutant."""
        data, link_type, _ = self.seed
        if not self.mutations and self.checksum == "GOOD":
            return data
        before = map_frame(data, link_type)
        found = before
        for one in self.mutations:
            changed = KINDS[one.kind].apply(data, found, one)[:MAX_MUTANT]
            if changed != data:
                data, found = changed, map_frame(changed, link_type, damaged=True)
        return self._finished(data, before)

    def _finished(self, data: bytes, before: FrameMap) -> bytes:
        """Add checksums as wanted."""
        link_type = self.seed.link_type
        if link_type == NO_FRAME or self.checksum == ChecksumState.STALE.name:
            return data
        same = before if len(data) == len(self.seed.data) else FrameMap(fpdus=before.fpdus)
        data = sealed(data, link_type, same)
        return with_broken_checksum(data, link_type) if self.checksum == "BROKEN" else data

    def describe(self) -> list[str]:
        """Return a line for the seed and one for each change."""
        data, link_type, name = self.seed
        lines = [f"{name or 'a frame'}, {len(data)} bytes"]
        for one in self.mutations:
            found = map_frame(data, link_type, damaged=True)
            changed = KINDS[one.kind].apply(data, found, one)[:MAX_MUTANT]
            effect = "" if changed != data else " (no change)"
            lines.append(KINDS[one.kind].words(found, one) + effect)
            data = changed
        if self.checksum != ChecksumState.GOOD.name:
            lines.append(f"checksums: {ChecksumState[self.checksum].value}")
        return lines

    def with_mutations(self, mutations: Sequence[Mutation]) -> Self:
        """Return a copy with other mutations."""
        return replace(self, mutations=tuple(mutations))

    def as_json(self) -> dict[str, Any]:
        """Return the mutant as JSON values."""
        values: dict[str, Any] = {"seed": self.seed.name, "data": self.seed.data.hex()}
        values["link_type"] = int(self.seed.link_type)
        if self.checksum != ChecksumState.GOOD.name:
            values["checksum"] = self.checksum
        return values | {"mutations": [one.as_json() for one in self.mutations]}

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """Make a mutant of JSON values. Raises :class:`FuzzError` for others."""
        if not isinstance(values, dict) or not isinstance(values.get("mutations"), list):
            raise FuzzError("mutant: expected an object with data and a list of mutations")
        if len(values["mutations"]) > MAX_MUTATIONS:
            raise FuzzError(f"mutant: more than {MAX_MUTATIONS} mutations")
        checksum = values.get("checksum", "GOOD")
        if checksum not in tuple(ChecksumState.__members__):
            raise FuzzError(f"mutant: checksum is one of {', '.join(ChecksumState.__members__)}")
        seed = SeedFrame(
            bytes_of_hex("mutant: data", values.get("data")),
            _link_type(values.get("link_type", int(LinkType.ETHERNET))),
            str(values.get("seed", "")),
        )
        return cls(seed, tuple(map(Mutation.from_json, values["mutations"])), checksum)


def _link_type(value: Any) -> int:
    if type(value) is not int or not NO_FRAME <= value < 1 << 16:
        raise FuzzError(f"mutant: link_type is a number of 16 bits, not {quote_value(value)}")
    return value


def mutants_as_json(mutants: Sequence[Mutant]) -> dict[str, Any]:
    """Return a sequence of mutants as JSON values."""
    return {"inputs": [one.as_json() for one in mutants]}


def mutants_from_json(values: Any) -> tuple[Mutant, ...]:
    """Make mutants of JSON values. Raises :class:`FuzzError` for others."""
    if not isinstance(values, dict) or not isinstance(values.get("inputs"), list):
        raise FuzzError("case: expected an object with a list of inputs")
    if len(values["inputs"]) > MAX_FRAMES:
        raise FuzzError(f"case: more than {MAX_FRAMES} frames")
    return tuple(map(Mutant.from_json, values["inputs"]))
