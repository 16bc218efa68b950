"""Text forms of quantities: times in ns, sizes in bytes, rates in bits a second, shares.

Scenarios, command lines, filters and reports read and write them here. After a size, ``k``, ``M``,
``G`` and ``T`` are powers of 1024, as ``KiB`` to ``TiB`` are; after a rate powers of 1000, as in
``Gbit/s``, ``Gb/s`` and ``Gbps``. ``KB`` and ``GB/s`` are refused: the first means either power,
the second means bytes.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

MAX_TEXT: Final = 40
"""Characters of the longest quantity."""

TIMES: Final = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
SIZES: Final = {"": 1, "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
RATES: Final = {
    "bit/s": 1,
    "kbit/s": 10**3,
    "Mbit/s": 10**6,
    "Gbit/s": 10**9,
    "Tbit/s": 10**12,
}
"""Units in the form in which values are shown, with their factors."""

SECOND: Final = TIMES["s"]

_PREFIXES: Final = ("", "k", "m", "g", "t")
# Patterns that `re` compiles, and keeps, at their first use.
_QUANTITY: Final = r"(?a)(0[xX][0-9a-fA-F]+|[0-9]+(?:\.[0-9]+)?)\s*([A-Za-z/µ]*)"
_RATE: Final = r"(?a)((?i:[kmgt]?))(?:(?i:bit/s)|b/s|bps)?"


# Numbers of a program, in the units of the simulator.


def us(number: float) -> int:
    """Convert microseconds to nanoseconds."""
    return round(number * 1_000)


def ms(number: float) -> int:
    """Convert milliseconds to nanoseconds."""
    return round(number * 1_000_000)


def seconds(number: float) -> int:
    """Convert seconds to nanoseconds."""
    return round(number * 1_000_000_000)


def gbps(number: float) -> int:
    """Convert gigabits a second to bits a second."""
    return round(number * 1_000_000_000)


# Reading.

FactorOf = Callable[[str], int | None]
"""The factor of a unit; ``None`` for an unknown unit."""


class QuantityError(ValueError):
    """The text is not a quantity. ``unit`` is the text found instead of a valid unit."""

    def __init__(self, unit: str = "") -> None:
        super().__init__(unit)
        self.unit = unit


class Quantity(NamedTuple):
    """A quantity that was read: ``value`` is rounded down unless it is ``exact``.

    ``unit`` is the unit as written, ``factor`` its value.
    """

    value: int
    exact: bool
    unit: str
    factor: int


def parse_quantity(text: str, factor_of: FactorOf) -> Quantity:
    """Read a decimal or hexadecimal number and its unit; 0 needs no unit.

    Raises :class:`QuantityError` for any other text.
    """
    parts = re.fullmatch(_QUANTITY, text) if len(text) <= MAX_TEXT else None
    if parts is None:
        raise QuantityError
    amount, unit = parts.groups()
    factor = 1 if amount == "0" and not unit else factor_of(unit)
    if factor is None:
        raise QuantityError(unit)
    if amount[:2] in ("0x", "0X"):
        return Quantity(int(amount, 16) * factor, True, unit, factor)
    digits, _, decimals = amount.partition(".")
    value, rest = divmod(int(digits + decimals) * factor, 10 ** len(decimals))
    return Quantity(value, not rest, unit, factor)


_SIZE_FACTORS: Final = {
    **{name.casefold(): factor for name, factor in SIZES.items()},
    **{prefix: 1 << (10 * power) for power, prefix in enumerate(_PREFIXES)},
    "bytes": 1,
    "octets": 1,
}


def size_factor(unit: str) -> int | None:
    """Bytes in ``bytes``, ``k``, ``KiB``, ``M``, ``MiB`` and so on, in any case."""
    return _SIZE_FACTORS.get(unit.casefold())


def rate_factor(unit: str) -> int | None:
    """Bits a second in ``G``, ``Gbit/s``, ``Gb/s`` or ``Gbps``; 1 without a unit."""
    parts = re.fullmatch(_RATE, unit)
    return None if parts is None else 1000 ** _PREFIXES.index(parts[1].casefold())


_DURATION: Final = r"([0-9]{1,18})(?:\.([0-9]{1,9}))?(s|ms|us|ns)"


def parse_duration(text: str) -> int:
    """Read ``1.5s``, ``20ms``, ``7us`` or ``9ns`` in ns; ``ValueError`` for any other text."""
    found = re.fullmatch(_DURATION, text)
    if found is None:
        raise ValueError(text)
    whole, decimals, unit = found.groups()
    return int(whole) * TIMES[unit] + billionths(decimals) * TIMES[unit] // SECOND


def billionths(decimals: str | None) -> int:
    """Read up to nine decimals as a number of billionths; 0 for none."""
    return int((decimals or "0").ljust(9, "0"))


_SHARE: Final = r"(?a)[0-9]{1,9}(\.[0-9]{0,15})?|\.[0-9]{1,15}"


def parse_share(text: str) -> float:
    """Read ``1%`` or ``0.01``; ``ValueError`` for any other text."""
    stripped = text.strip()
    digits = stripped.removesuffix("%").rstrip()
    if not re.fullmatch(_SHARE, digits):
        raise ValueError(text)
    return float(digits) / (100 if stripped.endswith("%") else 1)


# Dates.

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def epoch_ns(iso: str, decimals: str | None) -> int:
    """Convert a date in ISO 8601, and the decimals of its seconds, to ns since the epoch.

    A date without a zone is in local time. ``ValueError`` for no date, and for one out of range.
    """
    moment = datetime.fromisoformat(iso)
    try:
        since = (moment if moment.tzinfo else moment.astimezone()) - EPOCH
    except (OverflowError, OSError):
        raise ValueError(iso) from None
    return since // timedelta(seconds=1) * SECOND + billionths(decimals)


# Writing.


def format_exactly(value: int, units: Mapping[str, int]) -> str:
    """Write a quantity in the largest unit in which it is an integer: ``8 KiB``, ``10 us``."""
    if not value:
        return "0"
    name, unit = max(
        ((name, unit) for name, unit in units.items() if value % unit == 0), key=lambda one: one[1]
    )
    return f"{value // unit} {name}".strip()


Units = tuple[tuple[float, str], ...]
"""Factors with the names of their units, the largest first."""


def _descending(units: Mapping[str, int]) -> Units:
    return tuple((factor, name) for name, factor in reversed([*units.items()]))


TIME_UNITS: Final = _descending(TIMES)
RATE_UNITS: Final = _descending(RATES)


def unit_of(value: float, units: Units) -> tuple[float, str]:
    """The largest unit of which a value has at least one; the smallest if there is none."""
    return next((unit for unit in units if value >= unit[0]), units[-1])


def format_duration(nanoseconds: int) -> str:
    """Write a time with six digits in the unit that suits it."""
    size, unit = unit_of(nanoseconds, TIME_UNITS)
    return f"{nanoseconds / size:.6g} {unit}"


def format_seconds(nanoseconds: int) -> str:
    """Write a time in seconds, to the nanosecond, without an exponent."""
    whole, rest = divmod(nanoseconds, SECOND)
    return f"{whole}.{rest:09}".rstrip("0").rstrip(".") + " s"


def decimal_seconds(nanoseconds: int) -> str:
    """Write nanoseconds as seconds with nine decimals, without a unit."""
    sign = "-" if nanoseconds < 0 else ""
    whole, rest = divmod(abs(nanoseconds), SECOND)
    return f"{sign}{whole}.{rest:09d}"


def format_rate(size: int, nanoseconds: int) -> str:
    """Write the rate of ``size`` bytes in a time; empty for no time."""
    if nanoseconds <= 0:
        return ""
    bits = size * 8 * SECOND / nanoseconds
    factor, unit = unit_of(bits, RATE_UNITS)
    return f"{bits / factor:.3g} {unit}"
