"""Failed expectations, and how values are written in them."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from rdmawire.fabric.field import named
from rdmawire.traffic.scenario.model import Mark, Range
from rdmawire.wire.field_registry import HeaderField
from rdmawire.wire.header import Row
from rdmawire.wire.show import writer


class Failure(NamedTuple):
    """An expectation that does not hold.

    - ``what``: its subject; ``expected`` and ``found`` say what differs.
    - ``frame``: number of the frame that shows it, in the capture or, if that does not have it, at
      ``point``; ``None`` if no single frame shows it.
    - ``nearest``: a frame that has all expected fields but one.
    """

    mark: Mark
    what: str
    expected: str
    found: str
    frame: int | None = None
    point: str = ""
    nearest: str = ""

    def text(self, source: str) -> str:
        """Write one line that begins with the position in the file."""
        line, column = self.mark
        said = f"{self.what}: expected {self.expected}, found {self.found}"
        near = f"; nearest: {self.nearest}" if self.nearest else ""
        return f"{source}:{line}:{column}: {said}{self._place()}{near}"

    def _place(self) -> str:
        if self.frame is None:
            return ""
        return f" (frame {self.frame}{f' of {self.point}' if self.point else ''})"


_UNITS: Final = (("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1))
_DIGITS: Final = 4
"""Digits of a measured time, unless more are needed to distinguish it from the expected one."""


def range_text(range_: Range, say: Callable[[int], str] = str) -> str:
    """``3``, ``3 to 5``, ``at most 9`` or ``1 or more``."""
    if range_.least == range_.most:
        return say(range_.least)
    if range_.most is None:
        return f"{say(range_.least)} or more"
    if not range_.least:
        return f"at most {say(range_.most)}"
    return f"{say(range_.least)} to {say(range_.most)}"


def time_text(time: int) -> str:
    """Write a time (ns) in its largest unit: ``2 ms``, ``1.0245 us``."""
    name, unit = next((row for row in _UNITS if time >= row[1]), _UNITS[-1])
    whole, rest = divmod(time, unit)
    digits = f"{rest:0{len(str(unit)) - 1}d}".rstrip("0") if rest else ""
    return f"{whole}.{digits} {name}" if digits else f"{whole} {name}"


def found_time(time: int, wanted: Range) -> str:
    """Write a time (ns) rounded, or exactly if the rounded value would be an expected one."""
    step = 10 ** max(len(str(time)) - _DIGITS, 0)
    rounded = (time + step // 2) // step * step
    return time_text(time if wanted.holds(rounded) else rounded)


def fields_text(where: Mapping[str, object]) -> str:
    """Write fields with their values: ``aeth.ack NAK, bth.psn 100..107``."""
    return ", ".join(f"{name} {value_text(name, value, where)}" for name, value in where.items())


def value_text(name: str, value: object, beside: Mapping[str, object]) -> str:
    """Write a field's value in the standard's words; fields ``beside`` it may decide them."""
    if isinstance(value, range):
        return f"{value.start}..{value.stop - 1}"
    if isinstance(value, tuple):
        return f"[{', '.join(value_text(name, one, beside) for one in value)}]"
    one = next(iter(named(name)), None)
    return str(value) if one is None else _word(one, value, beside)


def _word(one: HeaderField, value: object, beside: Mapping[str, object]) -> str:
    meaning, row = one.meaning, one.row
    if one.own and isinstance(row, Row) and row.cases:
        by = beside.get(f"{one.table.label}.{row.by}")
        meaning = row.cases.get(by, meaning) if isinstance(by, int) else meaning
    if isinstance(value, bytes):
        return writer(meaning.show, row.width)(value)
    listed = isinstance(value, int) and meaning.enum is not None
    return (meaning.word(value) if listed and isinstance(value, int) else "") or str(value)
