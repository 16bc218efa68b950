"""Keys of regions and windows: rights, protection domains, key targets, and the key table.

A key has 24 bits of index and 8 bits of variant. The adapter chooses the index; the consumer may
change the variant (IBA 10.6.3.3), and it changes when an index is reused, so that old
keys are invalid. Only even indexes are assigned: the number after a key belongs to the same index
with another variant, or to an odd index, and is never valid, whatever the variants.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from enum import Enum, IntFlag, auto
from errno import EBUSY, EINVAL, ENOMEM
from typing import ClassVar, Final, NamedTuple, final

from rdmawire.errors import VerbsError
from rdmawire.identifier import Drawn, Randomness, Source
from rdmawire.terminal import plural
from rdmawire.validate import BytesLike, check_int


class Access(IntFlag):
    """Rights of a region or a window; local read is always allowed and has no flag."""

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


# Rights that an access needs, as plain integers: operations on IntFlag cost a microsecond.
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
# ibv_reg_mr(3): flags that an adapter may ignore if it does not support them.
OPTIONAL_FLAGS: Final = 0x3FF00000
CHANGES_MEMORY: Final = REMOTE_WRITE | REMOTE_ATOMIC


def check_access(access: int, allowed: int = REGION_FLAGS | OPTIONAL_FLAGS) -> int:
    """Return the rights as a plain integer; ``VerbsError`` EINVAL for an invalid combination.

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
    """Isolates the queues and memory of one consumer from those of another; compared by identity.

    ``users`` counts its regions, windows and queues: while it is not zero, the domain may not
    be deallocated (ibv_dealloc_pd(3): EBUSY). ``adapter`` is the region table that it belongs to;
    ``None`` allows any.
    """

    __slots__ = ("adapter", "handle", "users")

    def __init__(self, handle: int, adapter: object = None) -> None:
        self.handle = handle
        self.adapter = adapter
        self.users = 0

    def __repr__(self) -> str:
        return f"<PD {self.handle}: {plural(self.users, 'user')}>"

    def acquire(self) -> None:
        """Add a user."""
        self.users += 1

    def release(self) -> None:
        """Remove a user."""
        self.users -= 1


_ALL: Final = -1


@final
class KeyFault(Enum):
    """Reason why a key is refused."""

    INVALID_KEY = auto()
    WRONG_PD = auto()
    NO_ACCESS = auto()
    NOT_BOUND = auto()
    INVALIDATED = auto()
    WRONG_QP = auto()
    OUT_OF_RANGE = auto()


class Footprint(NamedTuple):
    """Location of a range of a grant in memory: the bytes from ``start`` up to ``end``.

    These are bus addresses if ``region`` is ``None``, else addresses in that region, whose bus
    addresses cannot be computed from the range.
    """

    region: object
    start: int
    end: int

    def shared(self, other: "Footprint") -> tuple[int, int]:
        """Start and end of the bytes of this range that may also be in ``other``.

        The complete range, if the two cannot be compared. Empty if start is not below end.
        """
        if self.region is not other.region:
            return self.start, self.end
        return max(self.start, other.start), min(self.end, other.end)


class Grant(ABC):
    """A region or a window: a range of addresses, and the access rights to it.

    ``pd`` is ``None`` if any domain is allowed, ``qpn`` zero if any queue pair
    is. ``denied`` has a bit for each right that is missing; every bit while nothing is granted,
    and ``refusal`` is the reason. ``generation`` counts the changes: results of checks are valid
    for one generation only.
    """

    __slots__ = ("access", "denied", "end", "generation", "iova", "key", "pd", "qpn", "refusal")
    label: ClassVar[str]
    is_bulk = False
    """Whether one large access costs much less than several small ones."""

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
        """Deny all access."""
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
        """Whether the key grants any access."""
        return self.denied != _ALL

    @abstractmethod
    def read(self, iova: int, length: int) -> bytes | memoryview: ...

    @abstractmethod
    def write(self, iova: int, data: BytesLike) -> None: ...

    def write_all(self, iova: int, parts: Sequence[BytesLike]) -> None:
        """Write parts one after the other."""
        for part in parts:
            self.write(iova, part)
            iova += len(part)

    @abstractmethod
    def place(self, iova: int) -> int:
        """The region's address for an address of the key."""

    @abstractmethod
    def footprint(self, iova: int, length: int) -> Footprint:
        """Location of ``length`` bytes from ``iova``; neither rights nor bounds are checked."""

    @abstractmethod
    def fault_in(self, iova: int, length: int) -> None:
        """Make the pages of a range present.

        ``MemoryFault`` if they do not exist, ``PageFault`` until they are present.
        """

    @abstractmethod
    def push(self, iova: int) -> None:
        """Complete earlier writes to memory."""

    @abstractmethod
    def fetch_add(self, iova: int, value: int) -> int: ...

    @abstractmethod
    def compare_swap(self, iova: int, compare: int, swap: int) -> int: ...


VARIANTS: Final = 1 << 8
_INDEXES: Final = 1 << 24
_INDEX_STEP: Final = 2
_FIRST_INDEX: Final = 0x10  # low numbers are likely to be mistakes
_VARIANT_STEP: Final = 0x35  # odd: visits all 256 values; not 1: key + 1 stays invalid
MAX_KEYS: Final = (_INDEXES - _FIRST_INDEX) // _INDEX_STEP


class KeyTable:
    """The keys of one adapter, at most ``limit`` of them.

    Keys are assigned in order; with ``random``, index and variant are drawn from it.
    """

    def __init__(self, limit: int = MAX_KEYS, random: Randomness | None = None) -> None:
        self._limit = min(limit, MAX_KEYS)
        self._grants: dict[int, Grant] = {}
        self._free: deque[int] = deque()  # keys to reuse, with the next variant
        self._next_index = _FIRST_INDEX
        self._chosen: set[int] = set()  # indexes of keys set with ``choose``
        self._random = None if random is None else Source(random)
        self._taken: set[int] = set()  # indexes of random keys
        self._retired: dict[int, int] = {}  # last key of each random index that was freed

    def __len__(self) -> int:
        return len(self._grants)

    def add(self, grant: Grant) -> int:
        """Assign a key to a region or window; ``VerbsError`` ENOMEM if all are in use."""
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
        """Draw an unused key: an index that is used again gets its next variant."""
        half = Drawn(random, 23, _FIRST_INDEX // _INDEX_STEP, _INDEXES // _INDEX_STEP)
        index = half.unused(lambda number: self._is_taken(number * _INDEX_STEP)) * _INDEX_STEP
        self._taken.add(index)
        before = self._retired.pop(index, None)
        return index * VARIANTS + random.getrandbits(8) if before is None else next_variant(before)

    def _is_taken(self, index: int) -> bool:
        return index in self._taken or self._is_near_chosen(index)

    def remove(self, grant: Grant) -> None:
        """Free a key; it is refused from now on."""
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
        """Assign any key to a region or window, for frames that contain it; no adapter does that.

        ``VerbsError`` EBUSY if another key has the same or an adjacent index: the number after a
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
        """The region or window of a key, with or without access."""
        return self._grants.get(key)

    def of_qp(self, qpn: int) -> list[Grant]:
        """Regions and windows that are restricted to one queue pair."""
        return [grant for grant in self._grants.values() if grant.qpn == qpn]

    def check_own(self, grant: Grant) -> None:
        """``VerbsError`` EINVAL for a region or window that is not in this table."""
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
        """Return the region or window of a key, or the fault. IBA 9.7.4.1.3, 10.6.

        All local and remote keys are checked here. ``access`` is the rights that the operation
        needs, as plain integers of :mod:`rdmawire.memory.key`; zero means local read. An
        operation of length 0 has no address to check: the caller decides whether to check its
        key.
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
