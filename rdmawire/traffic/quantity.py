"""Sizes and rates as people write them, in scenarios and on the command line alike.

Behind a size, ``k``, ``M``, ``G`` and ``T`` stand for powers of 1024, as ``KiB`` to ``TiB`` do;
behind a rate for powers of 1000, as in ``Gbit/s``, ``Gb/s`` and ``Gbps``. ``KB`` and ``GB/s`` are
refused: the first means either, the second is octets.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

LONGEST: Final = 40
"""Characters of the longest quantity."""

SIZES: Final = {"": 1, "octets": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
RATES: Final = {
    "bit/s": 1,
    "kbit/s": 10**3,
    "Mbit/s": 10**6,
    "Gbit/s": 10**9,
    "Tbit/s": 10**12,
}
"""Units in the form in which values are shown."""

_PREFIXES: Final = ("", "k", "m", "g", "t")
_QUANTITY: Final = re.compile(r"(0[xX][0-9a-fA-F]+|[0-9]+(?:\.[0-9]+)?)\s*([A-Za-z/µ]*)", re.ASCII)
_RATE: Final = re.compile(r"((?i:[kmgt]?))(?:(?i:bit/s)|b/s|bps)?", re.ASCII)

FactorOf = Callable[[str], int | None]
"""How much a unit is; ``None`` for what is no unit."""


class NoQuantity(ValueError):
    """A text that is no quantity. ``unit`` is what stands where its unit should."""

    def __init__(self, unit: str = "") -> None:
        super().__init__(unit)
        self.unit = unit


class Quantity(NamedTuple):
    """``value`` is rounded down where it is not ``whole``; ``unit`` is worth ``factor``."""

    value: int
    whole: bool
    unit: str
    factor: int


def quantity(text: str, factor_of: FactorOf) -> Quantity:
    """A number, whole, with a point or hexadecimal, and a unit; 0 needs none.

    :class:`NoQuantity` for anything else.
    """
    parts = _QUANTITY.fullmatch(text) if len(text) <= LONGEST else None
    if parts is None:
        raise NoQuantity
    amount, unit = parts.groups()
    factor = 1 if amount == "0" and not unit else factor_of(unit)
    if factor is None:
        raise NoQuantity(unit)
    if amount[:2] in ("0x", "0X"):
        return Quantity(int(amount, 16) * factor, True, unit, factor)
    digits, _, behind = amount.partition(".")
    value, rest = divmod(int(digits + behind) * factor, 10 ** len(behind))
    return Quantity(value, not rest, unit, factor)


_OF_SIZES: Final = {
    **{name.casefold(): factor for name, factor in SIZES.items()},
    **{prefix: 1 << (10 * power) for power, prefix in enumerate(_PREFIXES)},
}


def size_factor(unit: str) -> int | None:
    """Octets of ``octets``, ``k``, ``KiB``, ``M``, ``MiB`` and so on, in capitals or not."""
    return _OF_SIZES.get(unit.casefold())


def rate_factor(unit: str) -> int | None:
    """Bits a second of ``G``, ``Gbit/s``, ``Gb/s`` or ``Gbps``; nothing at all is one."""
    parts = _RATE.fullmatch(unit)
    return None if parts is None else 1000 ** _PREFIXES.index(parts[1].casefold())
