"""Moments and lengths of time as people write them, in nanoseconds."""

import re
from datetime import UTC, datetime, timedelta

from rdmawire.capture.interface import SECOND

_UNITS = {"s": SECOND, "ms": 1_000_000, "us": 1_000, "ns": 1}
_DURATION = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,9}))?(s|ms|us|ns)")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def epoch_ns(iso: str, decimals: str | None) -> int:
    """Nanoseconds since the epoch of a date in ISO 8601 and the decimals of its seconds.

    Without a zone it is in local time. ``ValueError`` for no date, and for one out of reach.
    """
    moment = datetime.fromisoformat(iso)
    try:
        since = (moment if moment.tzinfo else moment.astimezone()) - EPOCH
    except (OverflowError, OSError):
        raise ValueError(iso) from None
    return since // timedelta(seconds=1) * SECOND + billionths(decimals)


def billionths(decimals: str | None) -> int:
    """Up to nine decimals, as a number of billionths; none are zero."""
    return int((decimals or "0").ljust(9, "0"))


def duration_ns(text: str) -> int:
    """``1.5s``, ``20ms``, ``7us`` or ``9ns`` in whole nanoseconds; ``ValueError`` for no such."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(text)
    whole, decimals, unit = found.groups()
    return int(whole) * _UNITS[unit] + billionths(decimals) * _UNITS[unit] // SECOND
