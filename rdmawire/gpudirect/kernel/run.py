"""GPU kernels as Python coroutines, in virtual time, beside adapters that access the same memory.

A kernel is a generator function of a :class:`Warp`: it loads, stores and fences through the warp,
and yields how long (ns) it does something else::

    def kernel(warp):
        warp.store(data, b"weights")
        yield from warp.fence()
        warp.store(flag, bytes([1]))
        yield 100

Stores become visible late, and in any order that
:mod:`rdmawire.gpudirect.kernel.memory_model` allows: times are drawn from a seed, so that a run
with a forgotten fence can be repeated.
"""

from collections.abc import Callable, Generator
from functools import partial
from random import Random
from typing import Final, NamedTuple

from rdmawire.errors import KernelError
from rdmawire.fabric import Simulator
from rdmawire.gpudirect.kernel.memory_model import (
    Agent,
    MemoryTarget,
    Pending,
    Scope,
    SharedMemory,
)
from rdmawire.memory.page import PAGE_64K, Path
from rdmawire.memory.region import Backing
from rdmawire.validate import BytesLike

Kernel = Generator[int, None, None]
"""A running kernel: it yields times (ns)."""
POLL: Final = 50
"""Time (ns) between two loads of a warp that waits: about that of a load from its own memory."""
MAX_DELAY: Final = 2_000
"""Default of the latest time (ns) after which a store is visible."""
_STALE: Final = 0.5
"""Share of weak loads that may return an earlier value."""


class Happened(NamedTuple):
    """What happened: the time (ns), the agent that did it, such as ``a.warp``, and what it did."""

    time: int
    who: str
    what: str


class KernelSystem:
    """Memory of one or more hosts with their GPUs, and the kernels that run on it.

    All random choices are drawn from ``seed``. ``max_delay`` is the latest time (ns) after which a
    store is visible. What programs note is in ``timeline``.
    """

    def __init__(
        self,
        simulator: Simulator,
        targets: list[MemoryTarget],
        *,
        seed: int = 0,
        max_delay: int = MAX_DELAY,
    ) -> None:
        self.simulator = simulator
        self.memory = SharedMemory(targets)
        self.timeline: list[Happened] = []
        self._random = Random(seed)  # noqa: S311 - repeatable
        self._max_delay = max_delay
        self._due: dict[str, set[int]] = {}
        self._running: dict[str, int] = {}

    def note(self, who: str, what: str) -> None:
        """Add to the timeline."""
        self.timeline.append(Happened(self.simulator.now, who, what))

    # Stores.

    def store(self, agent: Agent, address: int, data: bytes) -> None:
        """Store bytes; they become visible after a time that is drawn."""
        pending = self.memory.store(agent, address, data)
        latest = self._max_delay if agent.max_delay is None else agent.max_delay
        delay = int(self._random.random() * (latest + 1))
        time = self.simulator.now + delay
        self.simulator.call_at(time, partial(self._is_due, agent, pending))

    def _is_due(self, agent: Agent, pending: Pending) -> None:
        """Make a store visible, as soon as those that must precede it are."""
        due = self._due.setdefault(agent.name, set())
        due.add(pending.number)
        while found := agent.first_ready(due):
            due.discard(found.number)
            self.memory.show(agent, found)
        due.intersection_update(one.number for one in agent.pending)

    def load(self, agent: Agent, address: int, length: int, *, strong: bool = False) -> bytes:
        """Load bytes; a weak load may return what they were earlier, as the model allows."""
        times = self.memory.times(agent, address)
        when = times[-1]
        if not strong and len(times) > 1 and self._random.random() < _STALE:
            when = times[self._random.randrange(len(times))]
        return self.memory.load(agent, address, length, when)

    # Kernels.

    def launch(self, function: Callable[["Warp"], Kernel], agent: Agent, start: int = 0) -> None:
        """Run a kernel on an agent: at ``start`` (ns), or now if that is past."""
        kernel = function(Warp(self, agent))
        self._running[agent.name] = self._running.get(agent.name, 0) + 1
        self.simulator.call_at(start, partial(self._resume, kernel, agent))

    def _resume(self, kernel: Kernel, agent: Agent) -> None:
        try:
            delay = next(kernel)
        except StopIteration:
            self._ended(agent)
            return
        self.simulator.call_at(self.simulator.now + delay, partial(self._resume, kernel, agent))

    def _ended(self, agent: Agent) -> None:
        """End a kernel: all that it stored becomes visible."""
        self.memory.fence(agent)
        self._running[agent.name] -= 1
        if not self._running[agent.name]:
            del self._running[agent.name]

    @property
    def running(self) -> list[str]:
        """The agents whose kernels have not ended."""
        return sorted(self._running)


class Warp:
    """What a kernel does with memory. The addresses are those of the bus.

    ``read`` and ``write`` are its strong loads and its stores, as
    :class:`~rdmawire.verbs.WorkRing` needs them.
    """

    def __init__(self, system: KernelSystem, agent: Agent) -> None:
        self.system = system
        self.agent = agent

    @property
    def now(self) -> int:
        """The time (ns)."""
        return self.system.simulator.now

    def load(self, address: int, length: int = 8, *, strong: bool = False) -> bytes:
        """Load bytes; a ``strong`` load (``ld.relaxed.sys``, ``volatile``) loads the latest."""
        return self.system.load(self.agent, address, length, strong=strong)

    def store(self, address: int, data: bytes) -> None:
        """Store bytes: others see them later."""
        self.system.store(self.agent, address, data)

    def read(self, address: int, length: int) -> bytes:
        """Load the latest bytes."""
        return self.load(address, length, strong=True)

    def write(self, address: int, data: bytes) -> None:
        """Store bytes."""
        self.store(address, data)

    def fence(self, scope: Scope = Scope.SYSTEM) -> Kernel:
        """Wait until earlier stores are visible (``__threadfence_system``), and see others'."""
        waited = {one.number for one in self.agent.waits_for(scope)}
        while any(one.number in waited for one in self.agent.pending):
            yield POLL
        self.system.memory.fence(self.agent, scope)

    def fetch_add(self, address: int, value: int) -> int:
        """Add to eight bytes, at once for all (``atomicAdd_system``); return the value before."""
        return self.system.memory.fetch_add(self.agent, address, value)

    def compare_swap(self, address: int, compare: int, swap: int) -> int:
        """Swap eight bytes that are equal (``atomicCAS_system``); return the value before."""
        return self.system.memory.compare_swap(self.agent, address, compare, swap)

    def wait(self, is_met: Callable[[], bool], timeout: int = 10_000_000) -> Kernel:
        """Poll until a condition is met.

        :class:`KernelError` after ``timeout`` (ns): a real kernel would wait for ever.
        """
        end = self.now + timeout
        while not is_met():
            if self.now >= end:
                raise KernelError(f"{self.agent.name} has waited for {timeout} ns")
            yield POLL

    def note(self, what: str) -> None:
        """Add to the timeline."""
        self.system.note(self.agent.name, what)


class SharedPages(Backing):
    """The pages of an adapter's region in shared memory; addresses are those of the bus."""

    page_size = PAGE_64K

    def __init__(
        self, system: KernelSystem, agent: Agent, target: MemoryTarget, *, is_gpu: bool
    ) -> None:
        self.path = Path.GPU_DIRECT if is_gpu else Path.HOST
        self._system = system
        self._agent = agent
        self._target = target

    def lend(self, address: int) -> None:  # noqa: ARG002
        """Return ``None``: each access is one of the adapter's agent."""
        return

    def read(self, address: int, length: int) -> bytes:
        self.push(address)
        return self._system.load(self._agent, address, length)

    def write(self, address: int, data: BytesLike) -> None:
        if len(data):
            self._system.store(self._agent, address, bytes(data))

    def push(self, address: int) -> None:  # noqa: ARG002
        """Make the adapter's writes to this memory visible: a read pushes them."""
        self._system.memory.flush(self._agent, self._target.owner)


class SharedPeermem:
    """The client of an adapter's region table for memory of a system.

    ``agent`` is the adapter: ``POSTED`` if the GPU shows writes late, as before compute capability
    9.0, else ``TOTAL``.
    """

    def __init__(self, system: KernelSystem, agent: Agent, host: str) -> None:
        self._system = system
        self._agent = agent
        self._host = host

    def claim(self, address: int, length: int, peer: object) -> SharedPages | None:  # noqa: ARG002
        """Return the pages of a range within one target, else ``None``."""
        for target in self._system.memory.targets:
            if target.base <= address <= address + length <= target.end and target.ring is None:
                is_gpu = target.owner != self._host
                return SharedPages(self._system, self._agent, target, is_gpu=is_gpu)
        return None
