"""The words of a filter, with the places where they stand."""

import re
from enum import Enum
from typing import NamedTuple

from rdmawire.errors import RdmaError
from rdmawire.screen import safe

_SHOWN = 60


def shown(text: str) -> str:
    """A word of a filter as an error quotes it: on one line, and not all of a very long one."""
    return safe(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


class FilterError(RdmaError):
    """A filter that cannot be understood: what is wrong, and where in its text.

    ``offset`` counts characters from the start of the filter; people are told columns from one.
    """

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(f"column {offset + 1}: {reason}")
        self.reason = reason
        self.offset = offset


class Form(Enum):
    """What a word looks like."""

    WORD = "word"
    TEXT = "text in quotes"
    RAW = "raw text"
    CHARACTER = "character"
    RANGES = "ranges in brackets"
    MARK = "operator"
    END = "end"


class Token(NamedTuple):
    """A word of the filter: its form, itself as written, and where it begins."""

    form: Form
    text: str
    offset: int

    def __str__(self) -> str:
        """What to call it when it is not what was expected."""
        return "the end of the filter" if self.form is Form.END else f"'{shown(self.text)}'"


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
_REFUSED = {
    '"': "text that does not end: a second '\"' is missing",
    "'": "'...' holds one character; text stands in \"...\"",
    "[": "'[' without ']'",
    "$": "references to a selected frame, and macros, make no sense here",
    "@": "raw values with '@' are not known; take a slice of the protocol",
    "=": "'=' is no operator; equality is '=='",
    "|": "'|' is no operator; say '||' or 'or'",
}
LONGEST = 1 << 16


def tokens(text: str) -> list[Token]:
    """All words, then one for the end; :class:`FilterError` for what cannot be one."""
    if len(text) > LONGEST:
        raise FilterError(f"a filter has at most {LONGEST} characters, this one {len(text)}", 0)
    found: list[Token] = []
    at = _skip(text, 0)
    while at < len(text):
        match = _TOKENS.match(text, at)
        if match is None:
            raise FilterError(_REFUSED.get(text[at], f"{text[at]!r} means nothing here"), at)
        token = Token(Form[match.lastgroup or ""], match[0], at)
        found.append(_with_prefix(token, text))
        at = _skip(text, at + len(found[-1].text))
    return [*found, Token(Form.END, "", len(text))]


def _skip(text: str, at: int) -> int:
    found = _WHITESPACE.match(text, at)
    return found.end() if found else at


def _with_prefix(token: Token, text: str) -> Token:
    """An address with the length of a prefix is one word; elsewhere, '/' divides."""
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


def octets_of(token: Token) -> bytes:
    """The octets between the quotes, escapes resolved; plain characters as UTF-8."""
    if token.form is Form.RAW:
        return _encoded(token.text[2:-1].replace('\\"', '"'), token)
    inside, found, at = token.text[1:-1], b"", 0
    for escape in _ESCAPE.finditer(inside):
        found += _encoded(inside[at : escape.start()], token)
        found += _escaped(escape, token)
        at = escape.end()
    return found + _encoded(inside[at:], token)


def _encoded(text: str, token: Token) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise FilterError("text with half a character in it", token.offset) from None


def _escaped(escape: "re.Match[str]", token: Token) -> bytes:
    kind, digits = escape.lastgroup, escape[escape.lastgroup or 0]
    at = token.offset + 1 + escape.start()
    if kind in ("short", "long"):
        number = int(digits, 16)
        if number > 0x10FFFF or 0xD800 <= number < 0xE000:
            raise FilterError(f"{escape[0]} is no character", at)
        return chr(number).encode()
    number = _octet(kind, digits)
    if number > 255:
        hint = ', or write r"..."' if kind == "mark" else ""
        raise FilterError(f"{escape[0]} is no escape; double the backslash{hint}", at)
    return bytes([number])


def _octet(kind: str | None, digits: str) -> int:
    """The octet that an escape stands for; 256 if it stands for none."""
    if kind == "mark":
        return _ESCAPES.get(digits, 256)
    return int(digits, 16 if kind == "hex" else 8)
