"""Tokens of a display filter, and the error for an invalid filter."""

import re
from enum import Enum
from typing import NamedTuple

from rdmawire.errors import RdmaError
from rdmawire.terminal import escape

_MAX_EXCERPT = 60


def excerpt(text: str) -> str:
    """Return a part of a filter as messages quote it: escaped, and cut to 60 characters."""
    return escape(text if len(text) <= _MAX_EXCERPT else f"{text[:_MAX_EXCERPT]}...")


class FilterError(RdmaError):
    """A display filter is invalid.

    ``reason`` describes the error, ``offset`` is in characters from the start of the filter. The
    message gives it as a column, counted from 1.
    """

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(f"column {offset + 1}: {reason}")
        self.reason = reason
        self.offset = offset


class TokenType(Enum):
    """Forms of tokens."""

    WORD = "word"
    TEXT = "text in quotes"
    RAW = "raw text"
    CHARACTER = "character"
    RANGES = "ranges in brackets"
    MARK = "operator"
    END = "end"


class Token(NamedTuple):
    """A token: its text as written, and its offset in the filter, in characters."""

    type: TokenType
    text: str
    offset: int

    def __str__(self) -> str:
        """Name the token in a message."""
        return "the end of the filter" if self.type is TokenType.END else f"'{excerpt(self.text)}'"


_ADDRESS = re.compile(r"[0-9A-Fa-f:.]+")
_LENGTH = re.compile(r"/[0-9]+")
_TOKENS = re.compile(
    r"(?P<RAW>[rR]\"(?:\\.|[^\"\\])*\")"
    r"|(?P<TEXT>\"(?:\\.|[^\"\\])*\")"
    r"|(?P<CHARACTER>'(?:\\.[^']*|[^'\\])')"
    r"|(?P<RANGES>\[[^\]]*\])"
    r"|(?P<WORD>(?:[A-Za-z0-9_]|:(?=[0-9A-Fa-f:]))(?:[A-Za-z0-9_:-]|\.(?!\.))*)"
    r"|(?P<MARK>===|!==|==|!=|~=|>=|<=|&&|\|\||\^\^|\.\.|[-!<>&~+*/%(){},#])",
    re.DOTALL,
)
_WHITESPACE = re.compile(r"\s*")
_INVALID_START = {
    '"': "text that does not end: a second '\"' is missing",
    "'": "'...' holds one character; text is written in \"...\"",
    "[": "'[' without ']'",
    "$": "references to a selected frame, and macros, make no sense here",
    "@": "raw values with '@' are not known; take a slice of the protocol",
    "=": "'=' is not an operator; equality is '=='",
    "|": "'|' is not an operator; write '||' or 'or'",
}
MAX_LENGTH = 1 << 16
"""Characters of the longest filter."""


def tokenize(text: str) -> list[Token]:
    """Split a filter into tokens, with one for the end; raises :class:`FilterError`."""
    if len(text) > MAX_LENGTH:
        raise FilterError(f"a filter has at most {MAX_LENGTH} characters, this one {len(text)}", 0)
    found: list[Token] = []
    at = _skip(text, 0)
    while at < len(text):
        match = _TOKENS.match(text, at)
        if match is None:
            raise FilterError(_INVALID_START.get(text[at], f"{text[at]!r} means nothing here"), at)
        token = Token(TokenType[match.lastgroup or ""], match[0], at)
        found.append(_with_prefix(token, text))
        at = _skip(text, at + len(found[-1].text))
    return [*found, Token(TokenType.END, "", len(text))]


def _skip(text: str, at: int) -> int:
    found = _WHITESPACE.match(text, at)
    return found.end() if found else at


def _with_prefix(token: Token, text: str) -> Token:
    """Add ``/length`` to an address: it is one token. Elsewhere, ``/`` divides."""
    length = _LENGTH.match(text, token.offset + len(token.text))
    like_ipv6 = token.text.count(":") > 1
    like_ipv4 = token.text.count(".") == 3
    if length and (like_ipv4 or like_ipv6) and _ADDRESS.fullmatch(token.text):
        return token._replace(text=token.text + length[0])
    return token


_ESCAPES = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_ESCAPES |= {mark: ord(mark) for mark in "'\"\\"}
_ESCAPE = re.compile(
    r"\\(?:x(?P<hex>[0-9A-Fa-f]{1,2})|(?P<octal>[0-7]{1,3})"
    r"|u(?P<short>[0-9A-Fa-f]{4})|U(?P<long>[0-9A-Fa-f]{8})|(?P<mark>.))",
    re.DOTALL,
)


def unquote(token: Token) -> bytes:
    """Return the bytes of a string literal: escapes resolved, other characters as UTF-8."""
    if token.type is TokenType.RAW:
        return _encoded(token.text[2:-1].replace('\\"', '"'), token)
    inside, found, at = token.text[1:-1], b"", 0
    for each in _ESCAPE.finditer(inside):
        found += _encoded(inside[at : each.start()], token)
        found += _escaped(each, token)
        at = each.end()
    return found + _encoded(inside[at:], token)


def _encoded(text: str, token: Token) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise FilterError("text with half a character in it", token.offset) from None


def _escaped(escape: "re.Match[str]", token: Token) -> bytes:
    form, digits = escape.lastgroup, escape[escape.lastgroup or 0]
    at = token.offset + 1 + escape.start()
    if form in ("short", "long"):
        number = int(digits, 16)
        if number > 0x10FFFF or 0xD800 <= number < 0xE000:
            raise FilterError(f"{escape[0]} is not a character", at)
        return chr(number).encode()
    number = _escape_value(form, digits)
    if number > 255:
        hint = ', or write r"..."' if form == "mark" else ""
        raise FilterError(f"{escape[0]} is not an escape; double the backslash{hint}", at)
    return bytes([number])


def _escape_value(form: str | None, digits: str) -> int:
    """Return the byte that an escape stands for; more than 255 for an invalid one."""
    if form == "mark":
        return _ESCAPES.get(digits, 256)
    return int(digits, 16 if form == "hex" else 8)
