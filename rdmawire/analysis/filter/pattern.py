"""Regular expressions that cannot hang: the time they take grows with the subject alone.

A pattern becomes an automaton of positions (Glushkov's), which is in several of them at once and
looks at each octet of the subject once; nothing is ever tried again. Sets of positions, and where
each octet leads from them, are kept once they were met. That is why references back and looks
around, which no such automaton has, are refused.
"""

from typing import NamedTuple

from rdmawire.analysis.filter.expression import (
    BEGIN,
    END,
    Choice,
    Expression,
    Leaf,
    PatternError,
    Repeat,
    Sequence,
    read,
)

__all__ = ["Pattern", "PatternError"]

_MOST_POSITIONS = 300
_MOST_PARTS = 10_000
_KEPT = 4096
_FOUND = -1


class _Part(NamedTuple):
    """A part of the pattern: whether it may be empty, and the positions it begins and ends with."""

    empty: bool
    first: int
    last: int


_NOTHING = _Part(True, 0, 0)


class Pattern:
    """A compiled regular expression; :class:`PatternError` if it is none."""

    def __init__(self, pattern: bytes) -> None:
        self._follow: list[int] = []
        self._by_symbol = [0] * (END + 1)
        self._parts = 0
        whole = self._built(read(pattern))
        self._always = whole.empty
        self._first, self._last = whole.first, whole.last
        self._known: dict[int, dict[int, int]] = {}

    def found_in(self, subject: bytes) -> bool:
        """Whether the pattern is somewhere in the subject."""
        if self._always:
            return True
        state = self._step(self._first, BEGIN)
        for octet in subject:
            if state == _FOUND:
                return True
            state = self._step(state, octet)
        return state == _FOUND or self._step(state, END) == _FOUND

    def _step(self, state: int, symbol: int) -> int:
        """Where a symbol leads; positions are bits of a number."""
        ways = self._known.get(state)
        if ways is None:
            if len(self._known) == _KEPT:
                self._known.clear()
            ways = self._known[state] = {}
        following = ways.get(symbol)
        if following is None:
            following = ways[symbol] = self._led(state & self._by_symbol[symbol])
        return following

    def _led(self, taken: int) -> int:
        if taken & self._last:
            return _FOUND
        following = self._first
        while taken:
            lowest = taken & -taken
            following |= self._follow[lowest.bit_length() - 1]
            taken ^= lowest
        return following

    # From the tree to positions.

    def _built(self, part: Expression) -> _Part:
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise PatternError("the regular expression is too long, its repetitions written out")
        if isinstance(part, Leaf):
            return self._leaf(part)
        if isinstance(part, Choice):
            return self._choice(part)
        if isinstance(part, Sequence):
            return self._sequence(part.parts)
        return self._repeat(part)

    def _leaf(self, leaf: Leaf) -> _Part:
        position = len(self._follow)
        if position == _MOST_POSITIONS:
            raise PatternError(
                f"the regular expression has more than {_MOST_POSITIONS} letters, its repetitions "
                "written out"
            )
        self._follow.append(0)
        for symbol in range(END + 1):
            self._by_symbol[symbol] |= (leaf.symbols >> symbol & 1) << position
        return _Part(False, 1 << position, 1 << position)

    def _choice(self, choice: Choice) -> _Part:
        empty, first, last = False, 0, 0
        for part in map(self._built, choice.parts):
            empty, first, last = empty or part.empty, first | part.first, last | part.last
        return _Part(empty, first, last)

    def _sequence(self, parts: tuple[Expression, ...]) -> _Part:
        whole = _NOTHING
        for part in parts:
            whole = self._behind(whole, self._built(part))
        return whole

    def _behind(self, one: _Part, other: _Part) -> _Part:
        self._connect(one.last, other.first)
        first = one.first | other.first if one.empty else one.first
        last = other.last | one.last if other.empty else other.last
        return _Part(one.empty and other.empty, first, last)

    def _connect(self, ends: int, starts: int) -> None:
        while ends:
            lowest = ends & -ends
            self._follow[lowest.bit_length() - 1] |= starts
            ends ^= lowest

    def _repeat(self, repeat: Repeat) -> _Part:
        whole = _NOTHING
        for _ in range(repeat.least):
            whole = self._behind(whole, self._built(repeat.of))
        if repeat.most is None:
            endless = self._built(repeat.of)
            self._connect(endless.last, endless.first)
            return self._behind(whole, endless._replace(empty=True))
        for _ in range(repeat.most - repeat.least):
            whole = self._behind(whole, self._built(repeat.of)._replace(empty=True))
        return whole
