"""Dates and times in filters: to nanoseconds, and back to text."""

import re
from datetime import timedelta

from rdmawire.capture.record import SECOND
from rdmawire.units import EPOCH, billionths, epoch_ns

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


def date_text(time_ns: int) -> str:
    """A date as filters write it, in UTC."""
    whole, rest = divmod(time_ns, SECOND)
    moment = (EPOCH + timedelta(seconds=whole)).replace(tzinfo=None)
    return f"{moment.isoformat(' ')}.{rest:09d}Z"
