"""Keys of regions and windows: 24 bits of index, 8 bits of variant, one table per adapter.

Which index is in use decides the adapter; the variant is for the consumer to change (IBA 10.6.3.3)
or changes by itself when an index is used again, so that old keys do not fit. Only even indexes
are given out: the number after a key belongs to the same index with another variant, or to an odd
index, and is never valid whatever variants are chosen.
"""

from collections import deque
from errno import EBUSY, EINVAL, ENOMEM
from typing import Final

from rdmawire.errors import VerbsError
from rdmawire.identifier import Drawn, Randomness, Source
from rdmawire.memory.access import LOCAL_READ
from rdmawire.memory.grant import Grant, KeyFault, ProtectionDomain
from rdmawire.validate import check_int

VARIANTS: Final = 1 << 8
_INDEXES: Final = 1 << 24
_INDEX_STEP: Final = 2
_FIRST_INDEX: Final = 0x10  # low numbers look like mistakes
_VARIANT_STEP: Final = 0x35  # odd: comes round after all 256; not 1: key + 1 stays wrong
MAX_KEYS: Final = (_INDEXES - _FIRST_INDEX) // _INDEX_STEP


class KeyTable:
    """The keys of one adapter, at most ``limit`` of them.

    Keys are counted up; with ``random``, index and variant are drawn from it.
    """

    def __init__(self, limit: int = MAX_KEYS, random: Randomness | None = None) -> None:
        self._limit = min(limit, MAX_KEYS)
        self._grants: dict[int, Grant] = {}
        self._free: deque[int] = deque()  # keys to be used again, with the next variant
        self._next_index = _FIRST_INDEX
        self._chosen: set[int] = set()  # indexes of keys that somebody asked for
        self._random = None if random is None else Source(random)
        self._taken: set[int] = set()  # indexes of keys that were drawn
        self._retired: dict[int, int] = {}  # the last key of each index that was drawn before

    def __len__(self) -> int:
        return len(self._grants)

    def add(self, grant: Grant) -> int:
        """Give a region or window its key; ``VerbsError`` ENOMEM when all are in use."""
        if len(self._grants) >= self._limit:
            raise VerbsError(f"all {self._limit} keys are in use", ENOMEM)
        grant.key = self._unused() if self._random is None else self._drawn(self._random)
        self._grants[grant.key] = grant
        return grant.key

    def _unused(self) -> int:
        if self._free and not self._is_near_chosen(self._free[0] // VARIANTS):
            return next_variant(self._free.popleft())
        while self._is_near_chosen(self._next_index):
            self._next_index += _INDEX_STEP
        index = self._next_index
        self._next_index += _INDEX_STEP
        return index * VARIANTS + index * _VARIANT_STEP % VARIANTS

    def _drawn(self, random: Source) -> int:
        """Draw a key that was not used before: an index used again gets its next variant."""
        half = Drawn(random, 23, _FIRST_INDEX // _INDEX_STEP, _INDEXES // _INDEX_STEP)
        index = half.unused(lambda number: self._is_taken(number * _INDEX_STEP)) * _INDEX_STEP
        self._taken.add(index)
        before = self._retired.pop(index, None)
        return index * VARIANTS + random.getrandbits(8) if before is None else next_variant(before)

    def _is_taken(self, index: int) -> bool:
        return index in self._taken or self._is_near_chosen(index)

    def remove(self, grant: Grant) -> None:
        """Take a key back; it is refused from now on."""
        del self._grants[grant.key]
        index = grant.key // VARIANTS
        if index in self._chosen:
            self._chosen.remove(index)
        elif self._random is None:
            self._free.append(grant.key)
        else:
            self._taken.remove(index)
            self._retired[index] = grant.key

    def choose(self, grant: Grant, key: int) -> None:
        """Give a region or window any key, as no adapter lets you: for frames that must have it.

        ``VerbsError`` EBUSY where another key has that index or one beside it: the number after a
        key is never valid.
        """
        check_int("key", key, 0, _INDEXES * VARIANTS - 1)
        index = key // VARIANTS
        others = (other // VARIANTS for other in self._grants if other != grant.key)
        if any(abs(other - index) <= 1 for other in others):
            raise VerbsError(f"key {key:#x} or one beside it is in use", EBUSY)
        self.remove(grant)
        grant.key = key
        self._grants[key] = grant
        self._chosen.add(index)

    def _is_near_chosen(self, index: int) -> bool:
        return not self._chosen.isdisjoint((index - 1, index, index + 1))

    def find(self, key: int) -> Grant | None:
        """What stands behind a key, with access or without."""
        return self._grants.get(key)

    def of_qp(self, qpn: int) -> list[Grant]:
        """What is for one queue pair alone."""
        return [grant for grant in self._grants.values() if grant.qpn == qpn]

    def check_own(self, grant: Grant) -> None:
        """``VerbsError`` EINVAL for a region or window of another adapter, or taken back."""
        if self._grants.get(grant.key) is not grant:
            raise VerbsError(f"{grant.label} {grant.key:#x} is not registered", EINVAL)

    def rekey(self, grant: Grant, key: int) -> None:
        """Change the variant of a key; ``VerbsError`` EINVAL for another index."""
        if key // VARIANTS != grant.key // VARIANTS:
            raise VerbsError(f"key {key:#x} is not a variant of {grant.key:#x}", EINVAL)
        del self._grants[grant.key]
        grant.key = key
        self._grants[key] = grant

    def check(  # noqa: PLR0917  names would cost a quarter more per packet
        self, key: int, pd: ProtectionDomain, address: int, length: int, access: int, qpn: int = 0
    ) -> Grant | KeyFault:
        """The region or window behind a key, or why not. IBA 9.7.4.1.3, 10.6.

        Local and remote keys are checked here alone. ``access`` is the rights that the operation
        needs, as plain integers of :mod:`rdmawire.memory.access`; zero means local read. An
        operation of no bytes has no address to check: whether its key is looked at is for the
        caller to know.
        """
        try:
            grant = self._grants[key]
        except KeyError:
            return KeyFault.INVALID_KEY
        if grant.pd is not pd and grant.pd is not None:
            return KeyFault.WRONG_PD
        if (access or LOCAL_READ) & grant.denied:
            return grant.refusal
        if grant.qpn and grant.qpn != qpn:
            return KeyFault.WRONG_QP
        if address < grant.iova or address + length > grant.end:
            return KeyFault.OUT_OF_RANGE
        return grant


def next_variant(key: int) -> int:
    """The same index with another variant."""
    return key - key % VARIANTS + (key + _VARIANT_STEP) % VARIANTS
