"""Memory that GPUs, adapters and processors share: when a store becomes visible to the others.

A store is pending until it becomes visible; which pending store may be the next one depends on the
agent that stored it. A fence waits until stores are visible. A weak reader may see values as they
were at any time since its last fence. The caller chooses:
:mod:`rdmawire.gpudirect.kernel.litmus` tries all orders, :mod:`rdmawire.gpudirect.kernel.run` draws
from a seed, in virtual time.

Sources: PTX ISA 8.5, chapter 8 (memory consistency model); PCIe Base 6.0, 2.4.1 (ordering rules);
CUDA's GPUDirect RDMA guide, 2.5 (synchronization and memory ordering); Intel SDM, volume 3, 9.2.
"""

from collections.abc import Callable, Collection, Iterable
from enum import Enum, auto
from typing import Final, NamedTuple

from rdmawire.errors import MemoryFault
from rdmawire.memory.page import SparsePages
from rdmawire.validate import check_range

MAX_LOG: Final = 1 << 16
"""Changes that are kept for readers that have had no fence since."""
ATOMIC: Final = 8


class Order(Enum):
    """In which order stores of one agent become visible.

    ``WEAK``: in any order, as of a GPU's threads. ``POSTED``: in order for each owner of memory, as
    posted writes of a device on PCI Express. ``RELAXED``: in any order, as of posted writes with
    relaxed ordering. ``TOTAL``: in order, as of an x86 processor. Stores to the same bytes are
    always in order.
    """

    WEAK = auto()
    POSTED = auto()
    RELAXED = auto()
    TOTAL = auto()


class Scope(Enum):
    """The agents for which a fence orders stores: ``membar.cta``, ``.gl`` and ``.sys``."""

    BLOCK = auto()
    GPU = auto()
    SYSTEM = auto()


class MemoryTarget(NamedTuple):
    """A range of addresses: the memory of ``owner``, such as ``GPU0`` or ``host``.

    With ``ring`` it is no memory but registers of a device: each store calls it with the offset and
    the bytes when it becomes visible.
    """

    name: str
    owner: str
    base: int
    size: int
    ring: Callable[[int, bytes], None] | None = None

    @property
    def end(self) -> int:
        return self.base + self.size


class Pending(NamedTuple):
    """A store that is not visible yet. ``number`` counts the stores of all agents."""

    number: int
    target: MemoryTarget
    address: int
    data: bytes

    @property
    def end(self) -> int:
        return self.address + len(self.data)

    def overlaps(self, address: int, length: int) -> bool:
        """Whether the store has bytes in a range."""
        return self.address < address + length and address < self.end


class Agent:
    """A thread, a processor or a device: its ``order``, and its ``pending`` stores.

    ``owner`` is where it runs, such as ``GPU0``. ``acquired`` is the number of changes of memory up
    to its last fence; a weak agent has seen no later value for sure. ``max_delay`` is the latest
    time (ns) after which its stores are visible, if it is not that of the system.
    """

    def __init__(
        self, name: str, order: Order, owner: str = "", max_delay: int | None = None
    ) -> None:
        self.name = name
        self.order = order
        self.owner = owner or name
        self.max_delay = max_delay
        self.pending: list[Pending] = []
        self.acquired = 0
        self.seen: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {len(self.pending)} pending>"

    def ready(self) -> list[Pending]:
        """Return the pending stores that may become visible next."""
        return [one for index, one in enumerate(self.pending) if self._is_free(index)]

    def first_ready(self, numbers: Collection[int]) -> Pending | None:
        """Return the first of these stores, by number, that may become visible next."""
        for index, one in enumerate(self.pending):
            if one.number in numbers and self._is_free(index):
                return one
        return None

    def _is_free(self, index: int) -> bool:
        one = self.pending[index]
        return not any(self._is_before(earlier, one) for earlier in self.pending[:index])

    def _is_before(self, earlier: Pending, later: Pending) -> bool:
        """Whether a store must become visible before a later one."""
        if self.order is Order.TOTAL or earlier.overlaps(later.address, len(later.data)):
            return True
        return self.order is Order.POSTED and earlier.target.owner == later.target.owner

    def waits_for(self, scope: Scope) -> list[Pending]:
        """Return the pending stores that a fence waits for: within a block none is pending."""
        if scope is Scope.SYSTEM:
            return list(self.pending)
        if scope is Scope.GPU:
            return [one for one in self.pending if one.target.owner == self.owner]
        return []


class _MemoryChange(NamedTuple):
    """Bytes of memory before a store became visible."""

    address: int
    before: bytes


class SharedMemory:
    """The visible values of all ``targets``, and what has changed them.

    Addresses are those of the bus. :class:`MemoryFault` for an access outside of a target.
    """

    def __init__(self, targets: Iterable[MemoryTarget]) -> None:
        self.targets = sorted(targets, key=lambda target: target.base)
        self._pages = SparsePages()
        self._changes: list[_MemoryChange] = []
        self._forgotten = 0
        self._stores = 0

    @property
    def changes(self) -> int:
        """The number of stores that have become visible."""
        return self._forgotten + len(self._changes)

    def target_at(self, address: int, length: int) -> MemoryTarget:
        """Return the target of an access."""
        for target in self.targets:
            if target.base <= address and address + length <= target.end:
                return target
        raise MemoryFault("no target has these bytes", address, length)

    # Stores.

    def store(self, agent: Agent, address: int, data: bytes) -> Pending:
        """Store bytes; return the store, which is pending."""
        check_range(address, len(data))
        self._stores += 1
        pending = Pending(self._stores, self.target_at(address, len(data)), address, bytes(data))
        agent.pending.append(pending)
        return pending

    def show(self, agent: Agent, pending: Pending) -> None:
        """Make a store visible; it is one of the agent's :meth:`Agent.ready`."""
        agent.pending.remove(pending)
        target = pending.target
        if target.ring is not None:
            target.ring(pending.address - target.base, pending.data)
        else:
            self._change(pending.address, pending.data)

    def _change(self, address: int, data: bytes) -> None:
        self._changes.append(_MemoryChange(address, self._pages.read(address, len(data))))
        if len(self._changes) > MAX_LOG:
            del self._changes[: MAX_LOG // 2]
            self._forgotten += MAX_LOG // 2
        self._pages.write(address, data)

    def drain(self, agent: Agent, wanted: Iterable[Pending]) -> None:
        """Make stores visible, and those that must precede them."""
        left = list(wanted)
        while left := [one for one in left if one in agent.pending]:
            self.show(agent, self._first(agent, left[0]))

    @staticmethod
    def _first(agent: Agent, wanted: Pending) -> Pending:
        if wanted is agent.pending[0]:
            return wanted
        ready = agent.ready()
        return wanted if wanted in ready else ready[0]

    def acquire(self, agent: Agent) -> None:
        """Let the agent's later loads see all that is visible now: the other half of a fence."""
        agent.acquired = self.changes
        agent.seen.clear()

    def fence(self, agent: Agent, scope: Scope = Scope.SYSTEM) -> None:
        """Make the stores visible that the fence waits for, and acquire what others stored."""
        self.drain(agent, agent.waits_for(scope))
        if scope is not Scope.BLOCK:
            self.acquire(agent)

    def flush(self, agent: Agent, owner: str) -> None:
        """Read from the memory of ``owner``: a read on PCI Express pushes posted writes to it."""
        self.drain(agent, [one for one in agent.pending if one.target.owner == owner])

    # Loads.

    def times(self, agent: Agent, address: int) -> range:
        """Return the times, as numbers of changes, whose value a load may return."""
        now = self.changes
        if agent.order is not Order.WEAK:
            return range(now, now + 1)
        earliest = max(agent.acquired, agent.seen.get(address, 0), self._forgotten)
        return range(earliest, now + 1)

    def load(self, agent: Agent, address: int, length: int, time: int | None = None) -> bytes:
        """Load bytes as they were at a time of :meth:`times`; without one, as they are now.

        The agent's own stores are seen in any case.
        """
        check_range(address, length)
        self.target_at(address, length)
        when = self.changes if time is None else time
        data = bytearray(self._pages.read(address, length))
        for change in reversed(self._changes[when - self._forgotten :]):
            _overlay(data, address, change.address, change.before)
        for pending in agent.pending:
            _overlay(data, address, pending.address, pending.data)
        agent.seen[address] = when
        return bytes(data)

    def fetch_add(self, agent: Agent, address: int, value: int) -> int:
        """Add to eight bytes, little-endian, at once for all; return the value before."""
        return self._exchange(agent, address, lambda old: (old + value) % (1 << 64))

    def compare_swap(self, agent: Agent, address: int, compare: int, swap: int) -> int:
        """Store ``swap`` if eight bytes equal ``compare``; return the value before."""
        return self._exchange(agent, address, lambda old: swap if old == compare else old)

    def _exchange(self, agent: Agent, address: int, new: Callable[[int], int]) -> int:
        """Change eight bytes where all see them, after the agent's own stores to them."""
        self.target_at(address, ATOMIC)
        self.drain(agent, [one for one in agent.pending if one.overlaps(address, ATOMIC)])
        old = int.from_bytes(self._pages.read(address, ATOMIC), "little")
        self._change(address, new(old).to_bytes(ATOMIC, "little"))
        agent.seen[address] = self.changes
        return old

    def visible(self, address: int, length: int) -> bytes:
        """Return the bytes that are visible to all."""
        return self._pages.read(address, length)


def _overlay(data: bytearray, base: int, address: int, bytes_: bytes) -> None:
    """Write the part of ``bytes_`` at ``address`` that is within ``data`` at ``base``."""
    start, end = max(base, address), min(base + len(data), address + len(bytes_))
    if start < end:
        data[start - base : end - base] = bytes_[start - address : end - address]
