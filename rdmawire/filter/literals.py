"""Literals of a display filter, converted to the type of what they are compared with."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from rdmawire.filter.ast import ADDRESS_SIZES, Prefix, ValueType
from rdmawire.filter.lexer import FilterError, Token, TokenType, excerpt, unquote
from rdmawire.filter.names import allowed_texts, normalized, similar_words, value_words
from rdmawire.terminal import suggestion
from rdmawire.units import SECOND, billionths, epoch_ns

_ZONE = r"\s*(?P<zone>Z|UTC|[+-][0-9]{2}:?[0-9]{2})?"
_CLOCK = r"(?P<clock>[0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?:[.,](?P<fraction>[0-9]{1,9}))?"
_ISO = re.compile(rf"(?P<day>[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})(?:[T ]{_CLOCK}{_ZONE})?")
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()  # noqa: SIM905 - to be read
_LEGACY = re.compile(
    rf"(?P<month>[A-Za-z]{{3}})\s+(?P<date>[0-9]{{1,2}}),\s*(?P<year>[0-9]{{4}})\s+{_CLOCK}{_ZONE}"
)
_SECONDS = re.compile(r"([+-]?)([0-9]{1,18})(?:\.([0-9]{1,9}))?")


def parse_date(text: str) -> int:
    """Read a date as ns since the epoch, in local time without a zone; raises ``ValueError``."""
    day, found = _day(text)
    clock = found["clock"] or "00:00"
    zone = {"Z": "+00:00", "UTC": "+00:00"}.get(found["zone"] or "", found["zone"] or "")
    return epoch_ns(f"{day}T{clock}{zone}", found["fraction"])


def _day(text: str) -> tuple[str, "re.Match[str]"]:
    if found := _ISO.fullmatch(text):
        return found["day"], found
    found = _LEGACY.fullmatch(text)
    if found is None or found["month"].lower() not in _MONTHS:
        raise ValueError(text)
    month = _MONTHS.index(found["month"].lower()) + 1
    return f"{found['year']}-{month:02d}-{int(found['date']):02d}", found


def parse_seconds(text: str) -> int:
    """Read seconds with up to nine decimals, in ns; raises ``ValueError``."""
    found = _SECONDS.fullmatch(text)
    if found is None:
        raise ValueError(text)
    sign, whole, fraction = found.groups()
    number = int(whole) * SECOND + billionths(fraction)
    return -number if sign == "-" else number


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal as written; what it means depends on what it is compared with."""

    token: Token
    sign: str = ""

    @property
    def text(self) -> str:
        """The literal with its sign; a string without its quotes."""
        if self.token.type in (TokenType.TEXT, TokenType.RAW):
            return unquote(self.token).decode("utf-8", "backslashreplace")
        return self.sign + self.token.text

    def convert(self, to: ValueType, *, width: int = 64, name: str = "") -> Any:
        """Return the value as this type, for the field ``name`` of ``width`` bits.

        Raises :class:`FilterError` with an example if it has no such value.
        """
        convert, example = _CONVERTERS[to]
        try:
            return convert(self, width, name)
        except ValueError as error:
            reason = str(error) if isinstance(error, _Reason) else f"{self} is not {to.value}"
            expected = f"{name} is {to.value}" if name else f"{to.value} is expected"
            raise FilterError(f"{reason}; {expected}, as in {example}", self.token.offset) from None

    def __str__(self) -> str:
        return excerpt(f"{self.sign}{self.token.text}")


class _Reason(ValueError):
    """The text of the error is a complete reason."""


_NUMBER = re.compile(r"0[xX][0-9A-Fa-f]+|0[bB][01]+|[0-9]+")
_BASES = {"0x": 16, "0b": 2}
_MAX_DIGITS = 80


def parse_integer(text: str) -> int:
    """Read a decimal, hexadecimal, octal or binary number; raises ``ValueError``."""
    if not _NUMBER.fullmatch(text) or len(text) > _MAX_DIGITS:
        raise ValueError(text)
    octal = text[0] == "0" and text.isdecimal() and len(text) > 1
    return int(text, _BASES.get(text[:2].lower(), 8 if octal else 10))


def _number(literal: Literal, width: int, name: str) -> int:
    token = literal.token
    if token.type is TokenType.CHARACTER:
        return unquote(token)[0]
    if token.type is TokenType.WORD and _NUMBER.fullmatch(token.text):
        return _number_in_range(literal, width, name)
    known, word = value_words(name) if name else {}, normalized(literal.text)
    return known[word] if word in known else _unknown_word(literal, name)


def _unknown_word(literal: Literal, name: str) -> int:
    near = similar_words(name, literal.text) if name else []
    if near:
        raise _Reason(f"{literal} is not one of its words{suggestion(near)}")
    raise ValueError(literal.text)


def _number_in_range(literal: Literal, width: int, name: str) -> int:
    number = parse_integer(literal.token.text)
    if literal.sign == "-":
        if name and number:
            raise _Reason(f"{literal} is negative, which {name} never is")
        return -number
    if number >> max(width, 1):
        raise _Reason(f"{literal} is too big; the maximum is {(1 << width) - 1}")
    return number


def _flag(literal: Literal, _width: int, _name: str) -> int:
    known = {"true": 1, "false": 0}
    if literal.token.type is TokenType.WORD and literal.token.text.lower() in known:
        return known[literal.token.text.lower()]
    return int(parse_integer(literal.text) != 0)


def _ipv4(literal: Literal, _width: int, _name: str) -> bytes | Prefix:
    address, slash, length = literal.text.partition("/")
    packed = IPv4Address(address).packed
    return _prefix(packed, length) if slash else packed


def _ipv6(literal: Literal, _width: int, _name: str) -> bytes | Prefix:
    address, slash, length = literal.text.partition("/")
    packed = IPv6Address(address.partition("%")[0]).packed
    return _prefix(packed, length) if slash else packed


def _prefix(address: bytes, length: str) -> Prefix:
    width = len(address) * 8
    bits = int(length) if len(length) < 4 else width + 1
    if bits > width:
        raise _Reason(f"a prefix has at most {width} bits, not {length}")
    return Prefix(Prefix(address, bits).mask(address), bits)


_SEPARATED = re.compile(r"[0-9A-Fa-f]{1,2}(?:[:.-][0-9A-Fa-f]{1,2})*")
_PLAIN = re.compile(r"(?:[0-9A-Fa-f]{2})+(?:[:.-](?:[0-9A-Fa-f]{2})+)*")
_SEPARATOR = re.compile(r"[:.-]")


def _digits(text: str) -> bytes:
    """Read hexadecimal bytes; a single digit between separators is a byte, too."""
    if _SEPARATED.fullmatch(text):
        return bytes(int(byte, 16) for byte in _SEPARATOR.split(text))
    if _PLAIN.fullmatch(text):
        return bytes.fromhex(_SEPARATOR.sub("", text))
    raise ValueError(text)


def _bytes(literal: Literal, _width: int, _name: str) -> bytes:
    token = literal.token
    if token.type is not TokenType.WORD:
        return unquote(token)
    if token.text[:2].lower() == "0x":
        number = parse_integer(token.text)
        if number > 255:
            raise _Reason(f"{literal} has several bytes; write them as 01:02")
        return bytes([number])
    return _digits(literal.text)


def _mac(literal: Literal, _width: int, _name: str) -> bytes:
    address = _digits(literal.text)
    if len(address) != ADDRESS_SIZES[ValueType.MAC]:
        raise _Reason(f"{literal} has {len(address)} bytes, not 6")
    return address


def _text(literal: Literal, _width: int, name: str) -> str:
    allowed = {normalized(text): text for text in allowed_texts(name)}
    if not allowed:
        return literal.text
    if normalized(literal.text) not in allowed:
        raise _Reason(f"{literal} is not one of its words: {', '.join(allowed.values())}")
    return allowed[normalized(literal.text)]


def _time(literal: Literal, _width: int, _name: str) -> int:
    return parse_date(literal.text)


def _duration(literal: Literal, _width: int, _name: str) -> int:
    if literal.token.type is not TokenType.WORD:
        raise ValueError(literal.text)
    return parse_seconds(literal.text)


def _presence(literal: Literal, _width: int, name: str) -> Any:
    raise _Reason(f"{name or 'it'} has no value to compare with {literal}")


_Converter = Callable[[Literal, int, str], Any]
_CONVERTERS: dict[ValueType, tuple[_Converter, str]] = {
    ValueType.NUMBER: (_number, "17, 0x11, 0b10001 or a word in quotes"),
    ValueType.FLAG: (_flag, "1, 0, True or False"),
    ValueType.MAC: (_mac, "52:54:00:00:00:01"),
    ValueType.IPV4: (_ipv4, "10.77.0.1 or 10.77.0.0/16"),
    ValueType.IPV6: (_ipv6, "fe80::1 or fe80::/10"),
    ValueType.BYTES: (_bytes, '0a:1b or "text"'),
    ValueType.PROTOCOL: (_bytes, '0a:1b or "text"'),
    ValueType.TEXT: (_text, '"text"'),
    ValueType.TIME: (_time, '"2026-11-21 02:16:38.5Z"'),
    ValueType.DURATION: (_duration, "0.5"),
    ValueType.PRESENCE: (_presence, "the name alone"),
}
