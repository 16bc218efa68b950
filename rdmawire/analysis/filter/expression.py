"""Regular expressions as trees: what is written, read without judging any subject yet."""

import re
from dataclasses import dataclass
from typing import NoReturn

from rdmawire.errors import RdmaError

BEGIN, END = 256, 257
"""Symbols behind the octets: what stands before the first and after the last."""
_ALL = (1 << 256) - 1
_NEST = 50
_MOST_TIMES = 300


class PatternError(RdmaError):
    """A regular expression that is wrong, or that asks for more than is understood here."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One symbol out of a set, a bit for each."""

    symbols: int


@dataclass(frozen=True, slots=True)
class Sequence:
    """Parts behind one another."""

    parts: "tuple[Expression, ...]"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several parts."""

    parts: "tuple[Expression, ...]"


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part several times; no ``most`` is without end."""

    of: "Expression"
    least: int
    most: int | None


Expression = Leaf | Sequence | Choice | Repeat


def _set(octets: bytes) -> int:
    return sum(1 << octet for octet in set(octets))


_LINE_END = _set(b"\n")
_DIGITS = _set(b"0123456789")
_LETTERS = b"abcdefghijklmnopqrstuvwxyz"
_WORD = _DIGITS | _set(_LETTERS + _LETTERS.upper() + b"_")
_SPACE = _set(b" \t\n\v\f\r")
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_CLASSES |= {name.upper(): _ALL & ~octets for name, octets in _CLASSES.items()}
_CONTROLS = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "a": 7, "e": 27}
_TIMES = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_COUNTED = re.compile(r"\{([0-9]{1,4})(?:(,)([0-9]{1,4})?)?\}")
_FLAGS = re.compile(r"\?([is]*)(?:-([is]+))?([:)])")
_HEX = re.compile(r"x(?:([0-9A-Fa-f]{1,2})|\{([0-9A-Fa-f]{1,2})\})")
_OCTAL = re.compile(r"0[0-7]{0,2}")
_DOLLAR = Choice((Leaf(1 << END), Sequence((Leaf(_LINE_END), Leaf(1 << END)))))
_PLACES: dict[str, Expression] = {
    "^": Leaf(1 << BEGIN),
    "$": _DOLLAR,
    "\\A": Leaf(1 << BEGIN),
    "\\Z": _DOLLAR,
    "\\z": Leaf(1 << END),
}


def read(pattern: bytes) -> Expression:
    """The tree of a pattern; letters match in both cases unless it says ``(?-i)``."""
    return _Reader(pattern.decode("latin-1")).whole()


class _Reader:
    """Reads one pattern from the left to the right; a letter is an octet."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._caseless, self._dot = True, _ALL & ~_LINE_END

    def whole(self) -> Expression:
        found = self._choice()
        if self._at < len(self._text):
            self._refuse("a ')' without '('")
        return found

    def _refuse(self, reason: str) -> NoReturn:
        raise PatternError(f"the regular expression has {reason}, at its letter {self._at + 1}")

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _accept(self, text: str) -> bool:
        found = self._text.startswith(text, self._at)
        self._at += len(text) * found
        return found

    def _match(self, form: "re.Pattern[str]") -> "re.Match[str] | None":
        found = form.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return found

    def _choice(self) -> Expression:
        parts = [self._sequence()]
        while self._accept("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _sequence(self) -> Expression:
        parts: list[Expression] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom()))
        return Sequence(tuple(parts))

    def _repeated(self, of: Expression) -> Expression:
        times = self._times()
        if times is None:
            return of
        if not self._accept("?"):  # whether few or many are tried first does not matter
            self._accept("+")
        if self._times() is not None:
            self._refuse("two repetitions behind one another")
        return Repeat(of, *times)

    def _times(self) -> tuple[int, int | None] | None:
        if self._peek() in _TIMES and self._peek():
            return _TIMES[self._text[self._next()]]
        counted = self._match(_COUNTED)
        if counted is None:
            return None
        least = int(counted[1])
        most = int(counted[3]) if counted[3] else None if counted[2] else least
        if max(least, most or 0) > _MOST_TIMES or (most is not None and most < least):
            self._refuse(f"a repetition of {counted[0]}; up to {_MOST_TIMES} is understood")
        return least, most

    def _next(self) -> int:
        self._at += 1
        return self._at - 1

    def _atom(self) -> Expression:
        for text, place in _PLACES.items():
            if self._accept(text):
                return place
        if self._accept("("):
            return self._group()
        if self._accept("["):
            return Leaf(self._bracket())
        if self._accept("."):
            return Leaf(self._dot)
        if self._peek() in _TIMES or _COUNTED.match(self._text, self._at):
            self._refuse("nothing to repeat")
        return Leaf(self._cased(self._symbols()))

    def _group(self) -> Expression:
        self._depth += 1
        if self._depth > _NEST:
            self._refuse(f"more than {_NEST} groups inside one another")
        before = self._caseless, self._dot
        if self._peek() == "?" and self._setting():
            self._depth -= 1
            return Sequence(())
        inside = self._choice()
        if not self._accept(")"):
            self._refuse("a '(' without ')'")
        self._caseless, self._dot = before
        self._depth -= 1
        return inside

    def _setting(self) -> bool:
        """The flags behind ``(?``; whether they are all there is to the group."""
        found = self._match(_FLAGS)
        if found is None:
            self._refuse("'(?' other than (?:...), (?i) and (?s), which is not understood here")
        on, off = found[1], found[2] or ""
        self._caseless = (self._caseless or "i" in on) and "i" not in off
        if "s" in on + off:
            self._dot = _ALL & ~_LINE_END if "s" in off else _ALL
        return found[3] == ")"

    def _cased(self, symbols: int) -> int:
        if not self._caseless:
            return symbols
        for lower in _LETTERS:
            both = 1 << lower | 1 << lower - 32
            if symbols & both:
                symbols |= both
        return symbols

    def _symbols(self) -> int:
        """A letter, or what an escape stands for."""
        if not self._accept("\\"):
            return 1 << ord(self._text[self._next()])
        if found := self._match(_HEX):
            return 1 << int(found[1] or found[2], 16)
        if found := self._match(_OCTAL):
            return 1 << int(found[0], 8)
        letter = self._peek()
        if letter in _CONTROLS or letter in _CLASSES:
            self._at += 1
            return _CLASSES.get(letter) or 1 << _CONTROLS[letter]
        if not letter or letter.isalnum():
            self._refuse(f"'\\{letter}', which is not understood here")
        return 1 << ord(self._text[self._next()])

    def _bracket(self) -> int:
        negated = self._accept("^")
        found, first = 0, True
        while first or self._peek() != "]":
            if not self._peek() or self._text.startswith("[:", self._at):
                self._refuse("a '[' without ']'" if not self._peek() else "'[:', not understood")
            found |= self._range(self._symbols())
            first = False
        self._at += 1
        found = self._cased(found)
        return _ALL & ~found if negated else found

    def _range(self, low: int) -> int:
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in ("]", ""):
            return low
        self._at += 1
        high = self._symbols()
        if high.bit_count() != 1 or low.bit_count() != 1 or high < low:
            self._refuse("a range that is none")
        return (high << 1) - low
