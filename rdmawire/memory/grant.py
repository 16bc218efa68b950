"""What a key stands for, as the check of keys sees it."""

from abc import ABC, abstractmethod
from enum import Enum, auto
from typing import ClassVar, Final, NamedTuple, final

from rdmawire.memory.access import LOCAL_READ
from rdmawire.terminal import plural
from rdmawire.validate import BytesLike


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
