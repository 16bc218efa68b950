"""Frames by what their fields hold, found without taking most of them apart."""

from collections.abc import Mapping
from typing import Final

from rdmawire.fabric.field import Fields
from rdmawire.nic.seal import HEAD_OF_BTH
from rdmawire.wire.ib import GRH
from rdmawire.wire.inet import UDP, Ethernet, EtherType, IPv4, IPv6

MOST_HEADS: Final = 1 << 14
"""Heads that are remembered; it begins anew after that many."""

_HEADS: Final = {
    int(kind).to_bytes(2, "big"): sum(header.SIZE for header in headers) + HEAD_OF_BTH
    for kind, headers in (
        (EtherType.IPV4, (Ethernet, IPv4, UDP)),
        (EtherType.IPV6, (Ethernet, IPv6, UDP)),
        (EtherType.ROCE, (Ethernet, GRH)),
    )
}
_IN_HEAD: Final = ("eth.", "ip.", "ipv6.", "grh.", "bth.")
_BEHIND_HEAD: Final = ("bth.ackreq", "bth.resv7", "bth.psn")


class Matcher:
    """Whether a frame has fields as they are wanted.

    What the octets up to the PSN say is found out once for each such head and length.
    """

    def __init__(self, where: Mapping[str, object]) -> None:
        wanted = {name: _among(value) for name, value in where.items()}
        self._by_head = {name: value for name, value in wanted.items() if _is_in_head(name)}
        self._by_rest = {name: value for name, value in wanted.items() if not _is_in_head(name)}
        self._known: dict[tuple[int, bytes], bool] = {}

    def __call__(self, frame: bytes, number: int) -> bool:
        """``number`` is the one that the frame has where it was seen."""
        key = len(frame), frame[: _HEADS.get(frame[12:14], 0)]
        fits = self._known.get(key)
        if fits is None:
            fits = self._learn(key, frame)
        if not (fits and self._by_rest):
            return fits
        return _all_fit(Fields(frame, number), self._by_rest)

    def _learn(self, key: tuple[int, bytes], frame: bytes) -> bool:
        fits = _all_fit(Fields(frame), self._by_head)
        if len(self._known) >= MOST_HEADS:
            self._known.clear()
        if key[1]:
            self._known[key] = fits
        return fits


_Wanted = frozenset[object] | range


def _among(value: object) -> _Wanted:
    if isinstance(value, range):
        return value
    return frozenset(value if isinstance(value, tuple) else (value,))


def _is_in_head(name: str) -> bool:
    return name.startswith(_IN_HEAD) and name not in _BEHIND_HEAD


def _all_fit(fields: Fields, wanted: Mapping[str, _Wanted]) -> bool:
    return all(fields.get(name) in values for name, values in wanted.items())
