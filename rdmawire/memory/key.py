"""Keys of regions and windows: rights, protection domains, what a key stands for, and the table.

A key has 24 bits of index and 8 bits of variant. The adapter chooses the index; the variant is for
the consumer to change (IBA 10.6.3.3), or changes by itself when an index is used again, so that old
keys do not fit. Only even indexes are given out: the number after a key belongs to the same index
with another variant, or to an odd index, and is never valid whatever variants are chosen.
"""

from abc import ABC, abstractmethod
from collections import deque
from enum import Enum, IntFlag, auto
from errno import EBUSY, EINVAL, ENOMEM
from typing import ClassVar, Final, NamedTuple, final

from rdmawire.errors import VerbsError
from rdmawire.identifier import Drawn, Randomness, Source
from rdmawire.terminal import plural
from rdmawire.validate import BytesLike, check_int


class Access(IntFlag):
    """What a region or a window allows; local read is always allowed and has no flag."""

    LOCAL_WRITE = 1
    REMOTE_WRITE = 2
    REMOTE_READ = 4
    REMOTE_ATOMIC = 8
    MW_BIND = 16
    ZERO_BASED = 32
    ON_DEMAND = 64
    HUGETLB = 128
    FLUSH_GLOBAL = 256
    FLUSH_PERSISTENT = 512
    RELAXED_ORDERING = 1 << 20


# What a checked access asks for, as plain integers: operations on IntFlag cost a microsecond.
LOCAL_READ: Final = 1 << 31  # no ibv number; regions always have it, windows never
LOCAL_WRITE: Final = Access.LOCAL_WRITE.value
REMOTE_WRITE: Final = Access.REMOTE_WRITE.value
REMOTE_READ: Final = Access.REMOTE_READ.value
REMOTE_ATOMIC: Final = Access.REMOTE_ATOMIC.value
FLUSH_GLOBAL: Final = Access.FLUSH_GLOBAL.value
FLUSH_PERSISTENT: Final = Access.FLUSH_PERSISTENT.value

REGION_FLAGS: Final = sum(flag.value for flag in Access)
WINDOW_FLAGS: Final = (
    REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | FLUSH_GLOBAL | FLUSH_PERSISTENT
) | Access.ZERO_BASED.value
DMABUF_FLAGS: Final = (
    LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | Access.RELAXED_ORDERING.value
)
# ibv_reg_mr(3): flags that an adapter may ignore when it does not know them.
OPTIONAL_FLAGS: Final = 0x3FF00000
CHANGES_MEMORY: Final = REMOTE_WRITE | REMOTE_ATOMIC


def check_access(access: int, allowed: int = REGION_FLAGS | OPTIONAL_FLAGS) -> int:
    """The rights as a plain integer; ``VerbsError`` EINVAL for rights that make no sense.

    Remote write and remote atomic need local write: ibv_reg_mr(3), IBA 10.6.3.1.
    """
    check_int("access", access, 0, 0xFFFF_FFFF)
    unknown = access & ~allowed
    if unknown:
        raise VerbsError(
            f"access {int(access):#x} has flags {int(unknown):#x}, not allowed", EINVAL
        )
    if access & CHANGES_MEMORY and not access & LOCAL_WRITE:
        raise VerbsError(f"access {int(access):#x} needs LOCAL_WRITE for remote changes", EINVAL)
    return int(access)


class ProtectionDomain:
    """What keeps one consumer's queues away from another's memory; compared by identity.

    ``users`` counts the regions, windows and queues in it: while it is not zero, a domain may not
    be deallocated (ibv_dealloc_pd(3): EBUSY). ``adapter`` is the registrar that it belongs to;
    ``None`` leaves that open.
    """

    __slots__ = ("adapter", "handle", "users")

    def __init__(self, handle: int, adapter: object = None) -> None:
        self.handle = handle
        self.adapter = adapter
        self.users = 0

    def __repr__(self) -> str:
        return f"<PD {self.handle}: {plural(self.users, 'user')}>"

    def acquire(self) -> None:
        """One user more."""
        self.users += 1

    def release(self) -> None:
        """One user less."""
        self.users -= 1


_ALL: Final = -1


@final
class KeyFault(Enum):
    """Why a key does not give access."""

    INVALID_KEY = auto()
    WRONG_PD = auto()
    NO_ACCESS = auto()
    NOT_BOUND = auto()
    INVALIDATED = auto()
    WRONG_QP = auto()
    OUT_OF_RANGE = auto()


class Footprint(NamedTuple):
    """Where a range of a grant lies in memory: the bytes from ``start`` up to ``end``.

    They are bus addresses if ``region`` is ``None``, else addresses in that region, whose bus
    addresses do not follow from the range.
    """

    region: object
    start: int
    end: int

    def shared(self, other: "Footprint") -> tuple[int, int]:
        """Start and end of the bytes of this range that may also be in ``other``.

        All of them, if the two cannot be compared. There are none if start is not below end.
        """
        if self.region is not other.region:
            return self.start, self.end
        return max(self.start, other.start), min(self.end, other.end)


class Grant(ABC):
    """A region or a window: a range of addresses, and who may do what with it.

    ``pd`` is ``None`` where the domain does not matter, ``qpn`` zero where the queue pair does
    not. ``denied`` has a bit for each right that is missing; while nothing is granted that is
    every bit, and ``refusal`` says why. ``generation`` counts the changes: what was checked before
    one holds no longer.
    """

    __slots__ = ("access", "denied", "end", "generation", "iova", "key", "pd", "qpn", "refusal")
    label: ClassVar[str]

    def __init__(self, pd: ProtectionDomain) -> None:
        self.key = 0
        self.pd: ProtectionDomain | None = pd
        self.qpn = 0
        self.iova = 0
        self.end = 0
        self.access = 0
        self.generation = 0
        self.deny(KeyFault.NOT_BOUND)

    def __repr__(self) -> str:
        grants = f"{self.length} bytes at {self.iova:#x}" if self.valid else self.refusal.name
        return f"<{self.label} {self.key:#x}: {grants}>"

    def deny(self, refusal: KeyFault) -> None:
        """Grant nothing from now on."""
        self.denied = _ALL
        self.refusal = refusal
        self.generation += 1

    def permit(self, iova: int, length: int, access: int, *, local: bool) -> None:
        """Grant ``access`` to ``length`` bytes at ``iova``; ``local`` adds local read."""
        self.iova = iova
        self.end = iova + length
        self.access = access
        self.denied = ~(access | LOCAL_READ if local else access)
        self.refusal = KeyFault.NO_ACCESS
        self.generation += 1

    @property
    def length(self) -> int:
        return self.end - self.iova

    @property
    def valid(self) -> bool:
        """Whether the key grants anything at all."""
        return self.denied != _ALL

    @abstractmethod
    def read(self, iova: int, length: int) -> bytes | memoryview: ...

    @abstractmethod
    def write(self, iova: int, data: BytesLike) -> None: ...

    @abstractmethod
    def place(self, iova: int) -> int:
        """The region's address that one of the key's stands for."""

    @abstractmethod
    def footprint(self, iova: int, length: int) -> Footprint:
        """Where ``length`` bytes from ``iova`` on lie; neither rights nor bounds are checked."""

    @abstractmethod
    def fault_in(self, iova: int, length: int) -> None:
        """Have the pages of a range present.

        ``MemoryFault`` where there are none, ``PageFault`` while they are being brought in.
        """

    @abstractmethod
    def push(self, iova: int) -> None:
        """Have what was written before arrive in memory."""

    @abstractmethod
    def fetch_add(self, iova: int, value: int) -> int: ...

    @abstractmethod
    def compare_swap(self, iova: int, compare: int, swap: int) -> int: ...


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
        needs, as plain integers of :mod:`rdmawire.memory.key`; zero means local read. An
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
