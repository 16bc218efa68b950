"""Codecs generated from header tables: source text is written and compiled at a table's first use.

Interpreting a table per packet costs microseconds; the compiled form is one ``struct`` call and
shifts. Rows are gathered into words that ``struct`` can read (8, 16, 32 and 64 bits); where a
run of rows fits none of them, its bytes are read as one big-endian number.
"""

import reprlib
import struct
import sys
from collections import _tuplegetter, namedtuple  # type: ignore[attr-defined]
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from keyword import iskeyword
from typing import Any, ClassVar, NamedTuple, Self

from rdmawire.errors import WireError
from rdmawire.wire.row import Row
from rdmawire.wire.show import byte_count

_LETTERS = {8: "B", 16: "H", 32: "I", 64: "Q"}
_MAX_WORD = 64
"""Bits at which no more rows are added to a word."""
BIG, LITTLE = "big", "little"
"""Orders of the bytes of a header's numbers."""
_PREFIXES = {BIG: ">", LITTLE: "<"}


class Word(NamedTuple):
    """Consecutive rows that one item of a ``struct`` format reads."""

    fields: tuple[Row, ...]

    @property
    def size(self) -> int:
        """Bits."""
        return sum(field.size for field in self.fields)

    @property
    def cost(self) -> float:
        """Cost to read these rows, in arbitrary units; the smallest total cost wins."""
        if self.size % 8:
            return float("inf")
        if len(self.fields) == 1 and (self.fields[0].is_bytes or self.array):
            return 1
        if any(field.is_bytes for field in self.fields):
            return float("inf")
        if len(self.fields) == 1 and self.size in _LETTERS:
            return 1
        shifts_and_masks = sum(field.times for field in self.fields)
        return 1 + shifts_and_masks * (1 if self.size in _LETTERS and self.size <= 32 else 1.5)

    @property
    def array(self) -> bool:
        """Whether this is one row of several numbers that ``struct`` reads directly."""
        field = self.fields[0]
        return len(self.fields) == 1 and field.times > 1 and field.width in _LETTERS

    @property
    def format(self) -> str:
        """The item of the ``struct`` format."""
        if self.array:
            return f"{self.fields[0].times}{_LETTERS[self.fields[0].width]}"
        if self.fields[0].is_bytes or self.size not in _LETTERS:
            return f"{self.size // 8}s"
        return _LETTERS[self.size]


def words(fields: Sequence[Row], order: str = BIG) -> list[Word]:
    """Divide the rows into words at the lowest cost; each little-endian number is its own word."""
    if order != BIG:
        return list(_numbers(fields))

    @cache
    def best(start: int) -> tuple[float, tuple[Word, ...]]:
        if start == len(fields):
            return 0, ()
        cuts = [(word, best(start + len(word.fields))) for word in _from(start)]
        costs = [(word.cost + rest[0], (word, *rest[1])) for word, rest in cuts]
        return min(costs, key=lambda cut: cut[0])

    def _from(start: int) -> Iterator[Word]:
        size = 0
        for end in range(start + 1, len(fields) + 1):
            size += fields[end - 1].size
            if size % 8 == 0 and (word := Word(tuple(fields[start:end]))).cost < float("inf"):
                yield word
            if size >= _MAX_WORD:
                return

    return list(best(0)[1])


def _numbers(fields: Sequence[Row]) -> Iterator[Word]:
    """Yield the shortest runs of rows that are whole bytes."""
    run: tuple[Row, ...] = ()
    for field in fields:
        run = (*run, field)
        if sum(row.size for row in run) % 8 == 0:
            yield Word(run)
            run = ()


class Source(NamedTuple):
    """The text of a codec: expressions that unpack and pack the values."""

    format: str
    values: tuple[str, ...]
    words: tuple[str, ...]
    checks: tuple[str, ...]
    items: int
    plain: bool


def source(fields: Sequence[Row], first_item: int = 0, order: str = BIG) -> Source:
    """Write the codec's text; items of the struct are numbered from ``first_item``."""
    values: list[str] = []
    packed: list[str] = []
    checks: list[str] = []
    item = first_item
    run = words(fields, order)
    for word in run:
        names = [f"v{len(values) + i}" for i in range(len(word.fields))]
        values += _take_apart(word, item, order)
        packed.append(_put_together(word, names, order))
        checks += _limits(word, names)
        item += word.fields[0].times if word.array else 1
    plain = all(len(word.fields) == 1 and word.fields[0].times == 1 for word in run) and not any(
        word.format.endswith("s") and not word.fields[0].is_bytes for word in run
    )
    text = "".join(word.format for word in run)
    return Source(text, tuple(values), tuple(packed), tuple(checks), item - first_item, plain)


def _take_apart(word: Word, item: int, order: str = BIG) -> list[str]:
    """One expression per row of the word, using the items ``t0, t1, ..`` of the struct."""
    if word.array:
        return ["(" + "".join(f"t{item + i}, " for i in range(word.fields[0].times)) + ")"]
    if word.fields[0].is_bytes:
        return [f"t{item}"]
    number = f"t{item}" if word.size in _LETTERS else f'from_bytes(t{item}, "{order}")'
    shift = word.size
    parts = []
    for field in word.fields:
        shift -= field.size
        parts.append(_cut(number, field, shift, shift + field.size == word.size))
    return parts


def _cut(number: str, field: Row, shift: int, uppermost: bool) -> str:
    """The expression that extracts one row of a number; the uppermost row needs no mask."""
    if field.times > 1:
        steps = range(field.size - field.width + shift, shift - 1, -field.width)
        single = field._replace(times=1)
        return "(" + "".join(_cut(number, single, step, False) + ", " for step in steps) + ")"
    shifted = f"{number} >> {shift}" if shift else number
    return shifted if uppermost else f"{shifted} & {(1 << field.width) - 1}"


def _put_together(word: Word, names: list[str], order: str) -> str:
    """The expression that builds the word from the rows' values."""
    if word.array:
        return f"*{names[0]}"
    if word.fields[0].is_bytes:
        return names[0]
    shift = word.size
    terms = []
    for field, name in zip(word.fields, names, strict=True):
        for i in range(field.times):
            shift -= field.width
            value = name if field.times == 1 else f"{name}[{i}]"
            terms.append(f"{value} << {shift}" if shift else value)
    number = " | ".join(terms)
    return number if word.size in _LETTERS else f'({number}).to_bytes({word.size // 8}, "{order}")'


def _limits(word: Word, names: list[str]) -> list[str]:
    """Conditions on the values; ``struct`` itself checks complete words."""
    checks = []
    for field, name in zip(word.fields, names, strict=True):
        if field.is_bytes:
            checks.append(f"len({name}) == {field.width // 8}")
        elif field.times > 1:
            checks.append(f"len({name}) == {field.times}")
            if not word.array:
                checks += [f"0 <= min({name})", f"max({name}) < {1 << field.width}"]
        elif len(word.fields) > 1 or word.size not in _LETTERS:
            checks.append(f"0 <= {name} < {1 << field.width}")
    return checks


_PARSE = """
def parse(buffer, offset=0):
    try:
        {items} = unpack_from(buffer, offset)
    except (struct_error, OverflowError):
        raise ends_early(cls, buffer, offset) from None
    return {result}
"""
_BUILD = """
def build(self):
    {names}, = self
    try:
        if {checks}:
            return pack({words})
    except (struct_error, TypeError, AttributeError):
        pass
    raise does_not_fit(self)
"""


class Values(tuple[Any, ...]):
    """Base of header classes: a tuple with a name for each position, as ``namedtuple`` makes it.

    ``namedtuple`` itself compiles a constructor for each class, which takes 0.1 ms; that of a
    header class is compiled at its first use.
    """

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()
    _field_defaults: ClassVar[dict[str, Any]] = {}

    @classmethod
    def _make(cls, values: Iterable[Any]) -> Self:
        """Make a header with all values in the order of the rows."""
        result = tuple.__new__(cls, values)
        if len(result) != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(result)}")
        return result

    def _replace(self, /, **changes: Any) -> Self:
        """Return a copy with other values in the named rows."""
        result = tuple.__new__(type(self), map(changes.pop, self._fields, self))
        if changes:
            raise ValueError(f"Got unexpected field names: {list(changes)!r}")
        return result

    def _asdict(self) -> dict[str, Any]:
        """Return the values by the names of their rows."""
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'=%r, '.join(self._fields)}=%r)" % self

    def __getnewargs__(self) -> tuple[Any, ...]:
        """Return the arguments of the constructor, for ``copy`` and ``pickle``."""
        return tuple(self)


def values_type(name: str, fields: Sequence[Row]) -> type[Values]:
    """Make the base of a header class with these rows: its constructor and a getter per row."""
    names = tuple(field.name for field in fields)
    allowed = all(map(str.isidentifier, (name, *names))) and not iskeyword(name)
    if not allowed or any(map(_is_reserved, names)):
        namedtuple(name, names)  # noqa: PYI024 - raises the error for the name
    body: dict[str, Any] = {text: _getter(place) for place, text in enumerate(names)}
    body |= {"__slots__": (), "__match_args__": names, "_fields": names}
    body["_field_defaults"] = {field.name: field.default for field in fields}
    cls = type(name, (Values,), body)
    cls.__new__ = _Uncompiled(cls, "__new__", _compile_new)  # type: ignore[method-assign, assignment]
    return cls


def _is_reserved(name: str) -> bool:
    return name[0] == "_" or iskeyword(name)


@cache
def _getter(place: int) -> Any:
    """Make the attribute that reads the value at this place of a tuple."""
    return _tuplegetter(place, f"Alias for field number {place}")


_NEW = """
def __new__(_cls, {names}):
    return _new(_cls, ({names},))
"""


def _compile_new(cls: Any) -> None:
    """Set the constructor of a tuple type that :func:`values_type` made."""
    names = ", ".join(cls._fields)
    new = compiled(_NEW.format(names=names), _new=tuple.__new__)["__new__"]
    new.__defaults__ = tuple(cls._field_defaults.values())
    new.__qualname__ = f"{cls.__name__}.__new__"
    new.__doc__ = f"Create new instance of {cls.__name__}({names})"
    cls.__new__ = staticmethod(new)


def attach(cls: Any, fields: Sequence[Row]) -> None:
    """Set ``parse``, ``build`` and ``SIZE`` of a header class."""
    _check_words(cls.__name__, fields)
    cls.SIZE = sum(field.size for field in fields) // 8
    cls.parse = _Uncompiled(cls, "parse", _compile)
    cls.build = _Uncompiled(cls, "build", _compile)


def _check_words(name: str, fields: Sequence[Row]) -> None:
    """Raise ``TypeError`` for rows that cannot be divided into words."""
    run: list[Row] = []
    for field in fields:
        run.append(field)
        if (field.bit + field.width * field.times) % 8 == 0:
            is_mixed = len(run) > 1 and any(row.is_bytes for row in run)
            if is_mixed or field.bit - run[0].bit >= _MAX_WORD:
                raise TypeError(f"{name}.{field.name}: no word of whole bytes holds this row")
            run = []


class _Uncompiled:
    """A function of a header class until its first use, when ``compile_it`` sets the compiled one.

    There are 150 header classes, and few programs use all of them.
    """

    def __init__(self, cls: Any, name: str, compile_it: Callable[[Any], None]) -> None:
        self._cls = cls
        self._name = name
        self._compile = compile_it

    def __get__(self, header: object, owner: type | None = None) -> Callable[..., Any]:
        self._compile(self._cls)
        holder = owner if header is None else header
        function: Callable[..., Any] = getattr(holder, self._name)
        return function


def _compile(cls: Any) -> None:
    """Set ``parse`` and ``build`` of a header class."""
    fields = cls.rows
    text = source(fields, order=cls.order)
    layout = struct.Struct(_PREFIXES[cls.order] + text.format)
    values = "t" if text.plain else f"({', '.join(text.values)},)"
    code = _PARSE.format(
        items="t" if text.plain else _items(text.items), result=f"new(cls, {values})"
    ) + _BUILD.format(
        names=", ".join(f"v{i}" for i in range(len(fields))),
        checks=" and ".join(text.checks) or "True",
        words=", ".join(text.words),
    )
    functions = compiled(code, cls=cls, unpack_from=layout.unpack_from, pack=layout.pack)
    cls.parse = staticmethod(functions["parse"])
    cls.build = functions["build"]


def _items(count: int) -> str:
    """The names of the items of a struct."""
    return "".join(f"t{i}, " for i in range(count))


def fused(*tables: Any) -> Callable[..., tuple[Any, ...]]:
    """Make a function that parses consecutive headers with one ``struct`` call.

    Tables may be nested in tuples; the headers are returned in tuples of the same shape. Their
    numbers are big-endian; ``TypeError`` for another table.
    """
    flat = _flattened(tables)
    if little := [table.__name__ for table in flat if table.order != BIG]:
        raise TypeError(f"{little[0]} is little-endian: it cannot be read with others at once")
    texts: list[Source] = []
    items = 0
    for table in flat:
        texts.append(source(table.rows, first_item=items))
        items += texts[-1].items
    layout = struct.Struct(">" + "".join(text.format for text in texts))
    made = iter([f"new(c{i}, ({', '.join(t.values)},))" for i, t in enumerate(texts)])
    code = _PARSE.format(items=_items(items), result=_shaped(tables, made))
    classes = {f"c{i}": table for i, table in enumerate(flat)}
    whole = type("+".join(t.__name__ for t in flat), (), {"SIZE": layout.size})
    return compiled(code, cls=whole, unpack_from=layout.unpack_from, **classes)["parse"]


def _flattened(tables: tuple[Any, ...]) -> list[Any]:
    """The tables without their tuples."""
    return [one for t in tables for one in (_flattened(t) if isinstance(t, tuple) else [t])]


def _shaped(tables: tuple[Any, ...], made: Iterator[str]) -> str:
    """The text of tuples of the same shape, with the expression that makes each header."""
    parts = (_shaped(t, made) if isinstance(t, tuple) else next(made) for t in tables)
    return "(" + "".join(f"{part}, " for part in parts) + ")"


@cache
def reader(table: Any, *names: str) -> Callable[..., Any]:
    """Make a function that reads only the named rows of a header.

    It returns a tuple in the order of ``names``, or the value itself for a single name.
    """
    if not names or not hasattr(table, "rows"):
        asked = ", ".join(map(repr, names)) or "no rows"
        raise WireError(f"a header's table and names of its rows: found {found(table)}, {asked}")
    formats: list[str] = []
    parts: dict[str, str] = {}
    items = 0
    for word in words(table.rows, table.order):
        if not any(field.name in names for field in word.fields):
            formats.append(f"{word.size // 8}x")
            continue
        formats.append(word.format)
        fields = [field.name for field in word.fields]
        parts |= dict(zip(fields, _take_apart(word, items, table.order), strict=True))
        items += word.fields[0].times if word.array else 1
    if unknown := [name for name in names if name not in parts]:
        raise WireError(f"{table.__name__} has no field {unknown[0]!r}")
    values = ", ".join(parts[name] for name in names)
    code = _PARSE.format(items=_items(items), result=f"({values},)" if len(names) > 1 else values)
    layout = struct.Struct(_PREFIXES[table.order] + "".join(formats))
    return compiled(code, cls=table, unpack_from=layout.unpack_from)["parse"]


def compiled(code: str, **names: object) -> dict[str, Callable[..., Any]]:
    """Compile the source text; return the functions that it defines. ``names`` are its globals."""
    space: dict[str, Any] = {
        "new": tuple.__new__,
        "from_bytes": int.from_bytes,
        "struct_error": struct.error,
        "ends_early": ends_early,
        "does_not_fit": does_not_fit,
        **names,
    }
    exec(code, space)  # noqa: S102 - the text is made here, from tables
    return space


def ends_early(cls: Any, buffer: Any, offset: int) -> WireError:
    """Return the error for a buffer that ends inside a header."""
    size = len(buffer)
    left = max(size - offset, 0) if offset >= 0 else -offset if offset >= -size else 0
    at = offset if abs(offset) <= sys.maxsize else None
    return WireError(f"{cls.__name__} takes {byte_count(cls.SIZE)}, {left} are left", at)


def does_not_fit(header: Any) -> WireError:
    """Return the error that names the first field whose value does not fit on the wire."""
    name = type(header).__name__
    for field, value in zip(type(header).rows, header, strict=True):
        if reason := misfit(field, value):
            return WireError(f"{name}.{field.name}: {reason}")
    raise AssertionError(f"{header!r} fits, yet its codec refused it")


def misfit(field: Row, value: Any) -> str:
    """Return the reason why the value does not fit this field; empty if it fits."""
    if field.is_bytes:
        length = field.width // 8
        if not isinstance(value, bytes | bytearray):
            return f"takes {byte_count(length)}, found {found(value)}"
        return "" if len(value) == length else f"takes {byte_count(length)}, found {len(value)}"
    if field.times == 1:
        return _misfit_number(value, field.width)
    if not isinstance(value, tuple | list) or len(value) != field.times:
        return f"takes {field.times} numbers of {field.width} bits, found {found(value)}"
    wrong = (_misfit_number(number, field.width) for number in value)
    return next(filter(None, wrong), "")


def _misfit_number(value: Any, width: int) -> str:
    if not isinstance(value, int):
        return f"takes a number of {width} bits, found {found(value)}"
    if 0 <= value < 1 << width:
        return ""
    return f"{_SHORT.repr_int(int(value), 1)} does not fit {width} bits (0 to {(1 << width) - 1})"


class _Short(reprlib.Repr):
    """Shortens values for error messages; Python itself refuses to write very long numbers."""

    def repr_int(self, x: int, level: int) -> str:
        size = x.bit_length()
        return f"a number of {size} bits" if size > 256 else super().repr_int(x, level)


_SHORT = _Short()


def found(value: object) -> str:
    """Describe an invalid value for an error: its type and its shortened text."""
    return f"{type(value).__name__} {_SHORT.repr(value)}"
