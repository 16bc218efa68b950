"""What a word of a filter means where a value of some kind is expected."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from rdmawire.filter.ast import SIZES, Kind, Prefix
from rdmawire.filter.lexer import FilterError, Form, Token, octets_of, shown
from rdmawire.filter.names import folded, states, words, words_like
from rdmawire.nearest import offering
from rdmawire.units import SECOND, billionths, epoch_ns

_ZONE = r"\s*(?P<zone>Z|UTC|[+-][0-9]{2}:?[0-9]{2})?"
_CLOCK = r"(?P<clock>[0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?:[.,](?P<fraction>[0-9]{1,9}))?"
_ISO = re.compile(rf"(?P<day>[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})(?:[T ]{_CLOCK}{_ZONE})?")
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()  # noqa: SIM905 - to be read
_LEGACY = re.compile(
    rf"(?P<month>[A-Za-z]{{3}})\s+(?P<date>[0-9]{{1,2}}),\s*(?P<year>[0-9]{{4}})\s+{_CLOCK}{_ZONE}"
)
_SECONDS = re.compile(r"([+-]?)([0-9]{1,18})(?:\.([0-9]{1,9}))?")


def date_ns(text: str) -> int:
    """Nanoseconds since the epoch; without a zone, in local time. ``ValueError`` for no date."""
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


def seconds_ns(text: str) -> int:
    """Seconds with up to nine decimals, in nanoseconds; ``ValueError`` for no such number."""
    found = _SECONDS.fullmatch(text)
    if found is None:
        raise ValueError(text)
    sign, whole, fraction = found.groups()
    number = int(whole) * SECOND + billionths(fraction)
    return -number if sign == "-" else number


@dataclass(frozen=True, slots=True)
class Literal:
    """A value as the filter has it: its meaning follows from what it is compared with."""

    token: Token
    sign: str = ""

    @property
    def written(self) -> str:
        """The word with its sign; text without its quotes."""
        if self.token.form in (Form.TEXT, Form.RAW):
            return octets_of(self.token).decode("utf-8", "backslashreplace")
        return self.sign + self.token.text

    def value(self, kind: Kind, *, width: int = 64, name: str = "") -> Any:
        """What it says as a value of this kind, in a field of ``width`` bits called ``name``.

        :class:`FilterError`, with an example, if it says nothing.
        """
        read, example = _READERS[kind]
        try:
            return read(self, width, name)
        except ValueError as error:
            said = str(error) if isinstance(error, _Reason) else f"{self} is not {kind.value}"
            who = f"{name} is {kind.value}" if name else f"{kind.value} is expected"
            raise FilterError(f"{said}; {who}, as in {example}", self.token.offset) from None

    def __str__(self) -> str:
        return shown(f"{self.sign}{self.token.text}")


class _Reason(ValueError):
    """A reason that needs no more words."""


_NUMBER = re.compile(r"0[xX][0-9A-Fa-f]+|0[bB][01]+|[0-9]+")
_BASES = {"0x": 16, "0b": 2}
_MOST_DIGITS = 80


def integer(text: str) -> int:
    """A decimal, hexadecimal, octal or binary number; ``ValueError`` for anything else."""
    if not _NUMBER.fullmatch(text) or len(text) > _MOST_DIGITS:
        raise ValueError(text)
    octal = text[0] == "0" and text.isdecimal() and len(text) > 1
    return int(text, _BASES.get(text[:2].lower(), 8 if octal else 10))


def _number(literal: Literal, width: int, name: str) -> int:
    token = literal.token
    if token.form is Form.CHARACTER:
        return octets_of(token)[0]
    if token.form is Form.WORD and _NUMBER.fullmatch(token.text):
        return _fitting(literal, width, name)
    known = words(name) if name else {}
    return (
        known[folded(literal.written)]
        if folded(literal.written) in known
        else _no_word(literal, name)
    )


def _no_word(literal: Literal, name: str) -> int:
    near = words_like(name, literal.written) if name else []
    if near:
        raise _Reason(f"{literal} is no word of it{offering(near)}")
    raise ValueError(literal.written)


def _fitting(literal: Literal, width: int, name: str) -> int:
    number = integer(literal.token.text)
    if literal.sign == "-":
        if name and number:
            raise _Reason(f"{literal} is negative, which {name} never is")
        return -number
    if number >> max(width, 1):
        raise _Reason(f"{literal} is too big; the greatest is {(1 << width) - 1}")
    return number


def _flag(literal: Literal, _width: int, _name: str) -> int:
    known = {"true": 1, "false": 0}
    if literal.token.form is Form.WORD and literal.token.text.lower() in known:
        return known[literal.token.text.lower()]
    return int(integer(literal.written) != 0)


def _ipv4(literal: Literal, _width: int, _name: str) -> bytes | Prefix:
    address, slash, length = literal.written.partition("/")
    octets = IPv4Address(address).packed
    return _prefix(octets, length) if slash else octets


def _ipv6(literal: Literal, _width: int, _name: str) -> bytes | Prefix:
    address, slash, length = literal.written.partition("/")
    octets = IPv6Address(address.partition("%")[0]).packed
    return _prefix(octets, length) if slash else octets


def _prefix(octets: bytes, length: str) -> Prefix:
    bits = int(length) if len(length) < 4 else len(octets) * 8 + 1
    if bits > len(octets) * 8:
        raise _Reason(f"a prefix has at most {len(octets) * 8} bits, not {length}")
    whole = Prefix(octets, bits)
    return Prefix(whole.cut(octets), bits)


_SEPARATED = re.compile(r"[0-9A-Fa-f]{1,2}(?:[:.-][0-9A-Fa-f]{1,2})*")
_PLAIN = re.compile(r"(?:[0-9A-Fa-f]{2})+(?:[:.-](?:[0-9A-Fa-f]{2})+)*")
_SEPARATOR = re.compile(r"[:.-]")


def _digits(text: str) -> bytes:
    """Octets in hexadecimal; one digit is an octet too."""
    if _SEPARATED.fullmatch(text):
        return bytes(int(octet, 16) for octet in _SEPARATOR.split(text))
    if _PLAIN.fullmatch(text):
        return bytes.fromhex(_SEPARATOR.sub("", text))
    raise ValueError(text)


def _octets(literal: Literal, _width: int, _name: str) -> bytes:
    token = literal.token
    if token.form is not Form.WORD:
        return octets_of(token)
    if token.text[:2].lower() == "0x":
        number = integer(token.text)
        if number > 255:
            raise _Reason(f"{literal} has several octets; write them as 01:02")
        return bytes([number])
    return _digits(literal.written)


def _mac(literal: Literal, _width: int, _name: str) -> bytes:
    octets = _digits(literal.written)
    if len(octets) != SIZES[Kind.MAC]:
        raise _Reason(f"{literal} has {len(octets)} octets, not 6")
    return octets


def _text(literal: Literal, _width: int, name: str) -> str:
    allowed = {folded(state): state for state in states(name)}
    if not allowed:
        return literal.written
    if folded(literal.written) not in allowed:
        raise _Reason(f"{literal} is none of its words: {', '.join(allowed.values())}")
    return allowed[folded(literal.written)]


def _time(literal: Literal, _width: int, _name: str) -> int:
    return date_ns(literal.written)


def _duration(literal: Literal, _width: int, _name: str) -> int:
    if literal.token.form is not Form.WORD:
        raise ValueError(literal.written)
    return seconds_ns(literal.written)


def _presence(literal: Literal, _width: int, name: str) -> Any:
    raise _Reason(f"{name or 'it'} has no value to compare with {literal}")


_Reader = Callable[[Literal, int, str], Any]
_READERS: dict[Kind, tuple[_Reader, str]] = {
    Kind.NUMBER: (_number, "17, 0x11, 0b10001 or a word in quotes"),
    Kind.FLAG: (_flag, "1, 0, True or False"),
    Kind.MAC: (_mac, "52:54:00:00:00:01"),
    Kind.IPV4: (_ipv4, "10.77.0.1 or 10.77.0.0/16"),
    Kind.IPV6: (_ipv6, "fe80::1 or fe80::/10"),
    Kind.OCTETS: (_octets, '0a:1b or "text"'),
    Kind.PROTOCOL: (_octets, '0a:1b or "text"'),
    Kind.TEXT: (_text, '"text"'),
    Kind.TIME: (_time, '"2026-11-21 02:16:38.5Z"'),
    Kind.DURATION: (_duration, "0.5"),
    Kind.PRESENCE: (_presence, "the name alone"),
}
