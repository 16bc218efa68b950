"""Values as a file writes them: one small parser for each, and how each is written back.

A parser takes a text and gives a value, or :class:`TextError`. Numbers are decimal, or hexadecimal
behind ``0x``; sizes become octets, times ns, rates bits a second, each exactly. Sizes and rates
are written as :mod:`rdmawire.units` says.
"""

import re
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Final

from rdmawire.traffic.scenario.document import TextError
from rdmawire.traffic.scenario.model import End, Range, Span
from rdmawire.units import (
    MAX_TEXT,
    RATES,
    SIZES,
    TIMES,
    FactorOf,
    QuantityError,
    parse_quantity,
    rate_factor,
    size_factor,
)
from rdmawire.wire.address import mac_octets, of_group, of_one_host

LARGEST: Final = (1 << 64) - 1
"""No number of a scenario is greater."""
LONGEST_NAME: Final = 64

_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|-?[0-9]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPAN = re.compile(r"([^.\[\]]+)\.([^.\[\]]+)(?:\[([^:\[\]]*)(:?)([^:\[\]]*)\])?")
_END = re.compile(r"([^/#]+)/([^/#]+)(?:#(.+))?")


class Beyond(TextError):
    """A number greater than any of a scenario."""


def number(text: str) -> int:
    """``7``, ``-1`` or ``0x1f``."""
    if len(text) > MAX_TEXT or not _NUMBER.fullmatch(text):
        raise TextError
    value = int(text, 16 if text[:2] in ("0x", "0X") else 10)
    if abs(value) > LARGEST:
        raise Beyond(f"a number up to {LARGEST}")
    return value


def fraction(text: str) -> float:
    """``0.25``; no sign and no exponent."""
    if len(text) > MAX_TEXT or not re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", text):
        raise TextError
    return float(text)


def _quantity(text: str, units: Mapping[str, int], factor_of: FactorOf) -> int:
    """A number and a unit, as a whole number of the unit that counts 1."""
    try:
        found = parse_quantity(text, factor_of)
    except QuantityError as error:
        raise TextError(word=error.unit, known=[name for name in units if name]) from None
    if found.value > LARGEST:
        raise Beyond(f"no more than {LARGEST // found.factor} {found.unit}".strip())
    if not found.exact:
        raise TextError
    return found.value


def size(text: str) -> int:
    """``64``, ``8 KiB``, ``8k`` or ``1.5 MiB``, in octets."""
    return _quantity(text, SIZES, size_factor)


def time(text: str) -> int:
    """``10 us`` or ``1.5 ms``, in ns; 0 needs no unit."""
    return _quantity(text, TIMES, TIMES.get)


def rate(text: str) -> int:
    """``100 Gbit/s``, ``100G`` or ``100Gbps``, in bits a second; never without a unit."""
    return _quantity(text, RATES, lambda unit: rate_factor(unit) if unit else None)


def amount(text: str) -> int:
    """A number, a size or a time; ``k`` might mean either, and is none."""
    return _quantity(text, _AMOUNTS, _AMOUNTS.get)


_AMOUNTS: Final = SIZES | TIMES


def between(text: str, parse: Callable[[str], int]) -> Range:
    """``3``, ``3..5``, ``1..`` or ``..9``; the ends are counted in."""
    least, dots, most = (part.strip() for part in text.partition(".."))
    if not dots:
        only = parse(least)
        return Range(only, only)
    if not (least or most):
        raise TextError
    found = Range(parse(least) if least else 0, parse(most) if most else None)
    if found.most is not None and found.most < found.least:
        raise TextError("a range with the least value first")
    return found


def name(text: str) -> str:
    """A name that a scenario gives: letters, digits and underscores, a letter first."""
    if len(text) > LONGEST_NAME or not _NAME.fullmatch(text):
        raise TextError
    return text


def span(text: str) -> Span:
    """``host.memory``, ``host.memory[16:32]``, ``host.memory[4 KiB:]`` or ``host.memory[:8]``."""
    parts = _SPAN.fullmatch(text)
    if parts is None:
        raise TextError
    host, memory, start, colon, end = parts.groups()
    if start is None:
        return Span(name(host), name(memory))
    if not colon:
        raise TextError(f"from where to where: [{start}:end]")
    offset = size(start.strip()) if start.strip() else 0
    if not end.strip():
        return Span(name(host), name(memory), offset)
    length = size(end.strip()) - offset
    if length <= 0:
        raise TextError("a span that ends behind its begin")
    return Span(name(host), name(memory), offset, length)


def end(text: str) -> End:
    """``host/connection``, or ``host/connection#2`` for its second queue pair."""
    parts = _END.fullmatch(text)
    if parts is None:
        raise TextError
    host, connection, which = parts.groups()
    if which is None:
        return End(name(host), name(connection))
    if number(which) < 1:
        raise TextError("queue pairs counted from 1 on")
    return End(name(host), name(connection), number(which))


def octets(text: str) -> bytes:
    """``00 ff``: two hexadecimal digits for each octet."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise TextError from None


def encoded(text: str) -> bytes:
    """A text as UTF-8."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise TextError("text that has octets in UTF-8") from None


def mac(text: str) -> str:
    """``02:00:00:00:00:01``, of one station."""
    try:
        octets = mac_octets(text)
    except ValueError:
        raise TextError from None
    if of_group(octets):
        raise TextError("the address of one station, not a group's")
    return octets.hex(":")


def address(text: str) -> str:
    """``10.0.0.1`` or ``fd00::1``, as it is written usually."""
    try:
        found = ip_address(text)
    except ValueError:
        raise TextError from None
    if not of_one_host(found):
        raise TextError("the address of one host")
    return str(found)


def truth(text: str) -> bool:
    """``true`` or ``false``."""
    if text not in ("true", "false"):
        raise TextError
    return text == "true"
