"""Dates and times in filters: to nanoseconds, and back to text."""

import re
from datetime import UTC, datetime, timedelta

_BILLION = 10**9
_ZONE = r"\s*(?P<zone>Z|UTC|[+-][0-9]{2}:?[0-9]{2})?"
_CLOCK = r"(?P<clock>[0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?:[.,](?P<fraction>[0-9]{1,9}))?"
_ISO = re.compile(rf"(?P<day>[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})(?:[T ]{_CLOCK}{_ZONE})?")
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()  # noqa: SIM905 - to be read
_LEGACY = re.compile(
    rf"(?P<month>[A-Za-z]{{3}})\s+(?P<date>[0-9]{{1,2}}),\s*(?P<year>[0-9]{{4}})\s+{_CLOCK}{_ZONE}"
)
_SECONDS = re.compile(r"([+-]?)([0-9]{1,18})(?:\.([0-9]{1,9}))?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def date_ns(text: str) -> int:
    """Nanoseconds since the epoch; without a zone, in local time. ``ValueError`` for no date."""
    day, found = _day(text)
    clock = found["clock"] or "00:00"
    zone = {"Z": "+00:00", "UTC": "+00:00"}.get(found["zone"] or "", found["zone"] or "")
    local = datetime.fromisoformat(f"{day}T{clock}{zone}")
    try:
        since = (local if local.tzinfo else local.astimezone()) - _EPOCH
    except (OverflowError, OSError):
        raise ValueError(text) from None
    return since // timedelta(seconds=1) * _BILLION + _fraction(found["fraction"])


def _day(text: str) -> tuple[str, "re.Match[str]"]:
    if found := _ISO.fullmatch(text):
        return found["day"], found
    found = _LEGACY.fullmatch(text)
    if found is None or found["month"].lower() not in _MONTHS:
        raise ValueError(text)
    month = _MONTHS.index(found["month"].lower()) + 1
    return f"{found['year']}-{month:02d}-{int(found['date']):02d}", found


def _fraction(digits: str | None) -> int:
    return int((digits or "0").ljust(9, "0"))


def seconds_ns(text: str) -> int:
    """Seconds with up to nine decimals, in nanoseconds; ``ValueError`` for no such number."""
    found = _SECONDS.fullmatch(text)
    if found is None:
        raise ValueError(text)
    sign, whole, fraction = found.groups()
    number = int(whole) * _BILLION + _fraction(fraction)
    return -number if sign == "-" else number


def date_text(time_ns: int) -> str:
    """A date as filters write it, in UTC."""
    whole, rest = divmod(time_ns, _BILLION)
    moment = (_EPOCH + timedelta(seconds=whole)).replace(tzinfo=None)
    return f"{moment.isoformat(' ')}.{rest:09d}Z"
