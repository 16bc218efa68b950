"""Frames by what their fields hold, found without taking most of them apart."""

from collections.abc import Mapping
from typing import Final

from rdmawire.fabric.field import Fields
from rdmawire.ib.tx_template import MOST_SEEN, head_size, word_offset

_IN_HEAD: Final = ("eth.", "ip.", "ipv6.", "grh.", "bth.")
_BEHIND_HEAD: Final = ("bth.ackreq", "bth.resv7", "bth.psn")


class Matcher:
    """Whether a frame has fields as they are wanted.

    What the octets up to the PSN say is found out once for each such head and length.
    """

    def __init__(self, where: Mapping[str, object]) -> None:
        wanted = {name: among(value) for name, value in where.items()}
        self._by_head = {name: value for name, value in wanted.items() if _is_in_head(name)}
        self._by_rest = {name: value for name, value in wanted.items() if not _is_in_head(name)}
        self._known: dict[tuple[int, bytes], bool] = {}

    def __call__(self, frame: bytes, number: int) -> bool:
        """``number`` is the one that the frame has where it was seen."""
        key = len(frame), frame[: head_size(frame)]
        fits = self._known.get(key)
        if fits is None:
            fits = self._learn(key, frame)
        if not (fits and self._by_rest):
            return fits
        return _all_fit(Fields(frame, number), self._by_rest)

    def _learn(self, key: tuple[int, bytes], frame: bytes) -> bool:
        fields = Fields(frame)
        fits = _all_fit(fields, self._by_head)
        if fields.frame is not None and len(key[1]) == word_offset(fields.frame.headers):
            self._keep(key, fits)
        return fits

    def _keep(self, key: tuple[int, bytes], fits: bool) -> None:
        if len(self._known) >= MOST_SEEN:
            self._known.clear()
        self._known[key] = fits


_Wanted = frozenset[object] | range


def among(value: object) -> _Wanted:
    """What may stand in a field."""
    if isinstance(value, range):
        return value
    return frozenset(value if isinstance(value, tuple) else (value,))


def _is_in_head(name: str) -> bool:
    return name.startswith(_IN_HEAD) and name not in _BEHIND_HEAD


def _all_fit(fields: Fields, wanted: Mapping[str, _Wanted]) -> bool:
    return all(fields.has(name, values) for name, values in wanted.items())
