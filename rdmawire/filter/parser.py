"""Parser of display filters: recursive descent by Wireshark's grammar.

Precedence, lowest first: ``or``, ``xor``, ``and``, ``not``, comparisons, ``&``, sums, products,
signs. Parentheses group tests, braces group arithmetic.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from rdmawire.filter import typecheck as check
from rdmawire.filter.ast import CompareOp, FieldReference, Logic, Not, Quantifier, SliceRange, Test
from rdmawire.filter.lexer import FilterError, Token, TokenType, excerpt, tokenize
from rdmawire.filter.literals import Literal, parse_integer
from rdmawire.filter.names import find_field, unknown_field
from rdmawire.filter.typecheck import Operand

MAX_DEPTH = 100
"""Nested parentheses, braces, signs and functions; also slices and arithmetic operators."""
MAX_MEMBERS = 10_000
"""Members of the largest set."""

_COMPARES: dict[str, tuple[CompareOp, Quantifier]] = {
    "==": (CompareOp.EQ, Quantifier.ANY),
    "===": (CompareOp.EQ, Quantifier.ALL),
    "!=": (CompareOp.NE, Quantifier.ALL),
    "!==": (CompareOp.NE, Quantifier.ANY),
    "<": (CompareOp.LT, Quantifier.ANY),
    "<=": (CompareOp.LE, Quantifier.ANY),
    ">": (CompareOp.GT, Quantifier.ANY),
    ">=": (CompareOp.GE, Quantifier.ANY),
}
_SPELLINGS = {
    "eq": "==",
    "any_eq": "==",
    "ne": "!=",
    "all_ne": "!=",
    "all_eq": "===",
    "any_ne": "!==",
    "~=": "!==",
    "gt": ">",
    "ge": ">=",
    "lt": "<",
    "le": "<=",
    "~": "matches",
    "&&": "and",
    "||": "or",
    "^^": "xor",
    "!": "not",
    "bitwise_and": "&",
}
"""Other spellings of operators."""
_LOGIC = {"or": 0, "xor": 1, "and": 2}
_ARITHMETIC = {"&": 0, "+": 1, "-": 1, "*": 2, "/": 2, "%": 2}
_OPERATORS = {*_COMPARES, *_SPELLINGS, *_LOGIC, *_ARITHMETIC, "not", "in", "contains", "matches"}
_WORD_OPERATORS = {word for word in _OPERATORS if word.isalpha()}
_SPAN = re.compile(r"(-?\w+)\s*(?:(?P<how>[:-])\s*(-?\w+)?)?|:\s*(?P<head>\w+)")


def parse(text: str) -> Test:
    """Return the syntax tree of a filter; raises :class:`FilterError`."""
    return _Parser(text).parse()


class _Parser:
    """Reads the tokens of one filter from left to right."""

    def __init__(self, text: str) -> None:
        self._tokens = tokenize(text)
        self._at = 0
        self._depth = 0
        self._operators = 0

    def parse(self) -> Test:
        if len(self._tokens) == 1:
            raise FilterError("the filter is empty", 0)
        test = self._tests(0)
        if self._next.type is not TokenType.END:
            raise self._unexpected("'and', 'or' or the end")
        return test

    # Tokens.

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    @property
    def _operator(self) -> str:
        """The next operator in its usual spelling; empty if the next token is not an operator."""
        token = self._next
        if token.type not in (TokenType.MARK, TokenType.WORD):
            return ""
        usual = _SPELLINGS.get(token.text, token.text)
        return usual if usual in _OPERATORS else ""

    def _take(self) -> Token:
        token = self._next
        self._at += 1
        return token

    def _accept(self, mark: str) -> bool:
        found = self._next.type is TokenType.MARK and self._next.text == mark
        self._at += found
        return found

    def _expect(self, mark: str) -> None:
        if not self._accept(mark):
            raise self._unexpected(repr(mark))

    def _unexpected(self, wanted: str) -> FilterError:
        small = self._next.text.lower()
        hint = f"; write '{small}'" if small != self._next.text and small in _WORD_OPERATORS else ""
        said = f"{wanted} is expected here, not {self._next}{hint}"
        return FilterError(said, self._next.offset)

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        if self._depth == MAX_DEPTH:
            raise FilterError(f"more than {MAX_DEPTH} levels inside one another", self._next.offset)
        self._depth += 1
        yield
        self._depth -= 1

    def _one_more(self) -> None:
        if self._operators == MAX_DEPTH:
            said = f"more than {MAX_DEPTH} slices and operators of arithmetic"
            raise FilterError(said, self._next.offset)
        self._operators += 1

    # Tests.

    def _tests(self, weakest: int) -> Test:
        test = self._negation()
        while (word := self._operator) in _LOGIC and _LOGIC[word] >= weakest:
            tests = [test]
            while self._operator == word:
                self._take()
                tests.append(self._tests(_LOGIC[word] + 1))
            test = Logic(word, tuple(tests))
        return test

    def _negation(self) -> Test:
        if self._operator != "not":
            return self._test()
        self._take()
        with self._deeper():
            return Not(self._negation())

    def _test(self) -> Test:
        if self._accept("("):
            with self._deeper():
                test = self._tests(0)
            self._expect(")")
            return test
        quantifier = self._quantifier()
        left = self._operand(0)
        if self._operator in _COMPARES:
            return self._comparisons(left, quantifier)
        if self._operator in ("in", "not"):
            return self._membership(left, quantifier)
        if self._operator in ("contains", "matches"):
            make = check.contains if self._operator == "contains" else check.matches
            self._take()
            return make(left, self._operand(0), quantifier or Quantifier.ANY)
        if quantifier:
            raise self._unexpected("a comparison")
        return check.presence(left)

    def _quantifier(self) -> Quantifier | None:
        if self._next.type is TokenType.WORD and self._next.text in ("any", "all"):
            return Quantifier(self._take().text)
        return None

    def _comparisons(self, left: Operand, quantifier: Quantifier | None) -> Test:
        """Read a comparison, or a chain that compares each value with the next."""
        tests: list[Test] = []
        while self._operator in _COMPARES:
            compare, usual = _COMPARES[self._operator]
            self._take()
            right = self._operand(0)
            tests.append(check.comparison(compare, left, right, quantifier or usual))
            left = right
        return tests[0] if len(tests) == 1 else Logic("and", tuple(tests))

    def _membership(self, left: Operand, quantifier: Quantifier | None) -> Test:
        negated = self._operator == "not"
        self._at += negated
        if self._operator != "in":
            raise self._unexpected("'in'")
        self._take()
        self._expect("{")
        members = [self._member()]
        while self._accept(","):
            if len(members) == MAX_MEMBERS:
                raise FilterError(f"more than {MAX_MEMBERS} members", self._next.offset)
            members.append(self._member())
        self._expect("}")
        test = check.membership(left, members, quantifier or Quantifier.ANY)
        return Not(test) if negated else test

    def _member(self) -> tuple[Operand, Operand | None]:
        low = self._signed()
        return low, self._signed() if self._accept("..") else None

    # Values.

    def _operand(self, weakest: int) -> Operand:
        left = self._signed()
        while (operator := self._operator) in _ARITHMETIC and _ARITHMETIC[operator] >= weakest:
            self._take()
            self._one_more()
            right = self._operand(_ARITHMETIC[operator] + 1)
            left = check.arithmetic(operator, left, right)
        return left

    def _signed(self) -> Operand:
        offset = self._next.offset
        for sign in "-+":
            if self._accept(sign):
                with self._deeper():
                    return check.negative(self._signed(), sign, offset)
        return self._sliced(self._primary())

    def _sliced(self, of: Operand) -> Operand:
        while self._next.type is TokenType.RANGES:
            self._one_more()
            of = check.sliced(of, self._spans())
        return of

    def _primary(self) -> Operand:
        if self._accept("{"):
            with self._deeper():
                value = self._operand(0)
            self._expect("}")
            return value
        token = self._next
        if token.type in (TokenType.MARK, TokenType.END, TokenType.RANGES) or self._operator:
            raise self._unexpected("a field or a value")
        self._take()
        if token.type is TokenType.WORD and self._accept("("):
            return self._call(token)
        return self._named(token)

    def _named(self, token: Token) -> Operand:
        name = find_field(token.text) if token.type is TokenType.WORD else None
        if name is None:
            if self._next.type is TokenType.RANGES and token.type is TokenType.WORD:
                raise FilterError(unknown_field(token.text), token.offset)
            return Operand(Literal(token), token.offset)
        layers = self._layers() if self._accept("#") else ()
        return Operand(FieldReference(name.name, name.type, layers), token.offset)

    def _call(self, name: Token) -> Operand:
        arguments: list[Operand] = []
        with self._deeper():
            while not self._accept(")"):
                if arguments:
                    self._expect(",")
                arguments.append(self._operand(0))
        return check.call(name.text, name.offset, arguments)

    def _layers(self) -> tuple[SliceRange, ...]:
        if self._next.type is TokenType.RANGES:
            return self._spans()
        if self._next.type is not TokenType.WORD or not self._next.text.isdecimal():
            raise self._unexpected("a layer's number, or '['")
        return (_span(self._next.text, self._take()),)

    def _spans(self) -> tuple[SliceRange, ...]:
        token = self._take()
        parts = token.text[1:-1].split(",")
        if len(parts) > MAX_DEPTH:
            raise FilterError(f"more than {MAX_DEPTH} ranges", token.offset)
        return tuple(_span(part.strip(), token) for part in parts)


def _span(text: str, token: Token) -> SliceRange:
    """``i:length``, ``i-last``, ``i``, ``:length`` or ``i:``."""
    found = _SPAN.fullmatch(text)
    try:
        if found is None:
            raise ValueError(text)
        span = SliceRange(0, _offset(found["head"])) if found["head"] else _bounded(found)
    except ValueError:
        ways = "[i:length], [i-last], [i], [:length] and [i:]"
        raise FilterError(
            f"'{excerpt(text)}' is not a range; there are {ways}", token.offset
        ) from None
    if span.length is not None and span.length <= 0:
        raise FilterError(f"range '{excerpt(text)}' is empty", token.offset)
    return span


def _bounded(found: "re.Match[str]") -> SliceRange:
    start = _offset(found[1])
    if found["how"] is None:
        return SliceRange(start, 1)
    if found["how"] == ":":
        return SliceRange(start, None if found[3] is None else _offset(found[3]))
    last = _offset(found[3] or "")
    if (start < 0) != (last < 0):
        raise ValueError(found[0])
    return SliceRange(start, last - start + 1)


def _offset(text: str) -> int:
    """Read an offset in bytes, which may be negative; no frame has more than 24 bits of it."""
    number = parse_integer(text.removeprefix("-"))
    if number >> 24:
        raise ValueError(text)
    return -number if text.startswith("-") else number
