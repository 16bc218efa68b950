"""Numbers of a report in the unit that suits them."""

from rdmawire.capture.interface import SECOND

Units = tuple[tuple[float, str], ...]
"""Sizes with their names, the largest first."""

_TIMES: Units = ((SECOND, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns"))
RATES: Units = ((1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1, "bit/s"))


def unit_of(value: float, units: Units) -> tuple[float, str]:
    """The largest unit that a value has at least one of; the smallest if there is none."""
    return next((unit for unit in units if value >= unit[0]), units[-1])


def duration(nanoseconds: int) -> str:
    """A length of time."""
    size, unit = unit_of(nanoseconds, _TIMES)
    return f"{nanoseconds / size:.6g} {unit}"


def seconds(nanoseconds: int) -> str:
    """A length of time in seconds, to the nanosecond, without an exponent."""
    whole, rest = divmod(nanoseconds, SECOND)
    return f"{whole}.{rest:09}".rstrip("0").rstrip(".") + " s"


def rate(octets: int, nanoseconds: int) -> str:
    """Bits in a second; nothing for no time."""
    if nanoseconds <= 0:
        return ""
    bits = octets * 8 * SECOND / nanoseconds
    size, unit = unit_of(bits, RATES)
    return f"{bits / size:.3g} {unit}"
