"""What NCCL's GPU-initiated networking (GIN) sets up: windows, signals and queue pairs of ranks.

Each rank is a GPU with an adapter of its own. A *context* has a queue pair to each rank, itself
included; puts to GPUs of the same host go through the adapters, too. Facts: NCCL 2.28 to 2.30
(``src/gin``, ``src/transport/net_ib``).
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from rdmawire.errors import KernelError
from rdmawire.gpudirect.kernel.gpu_host import MODELS, DeviceQueue, ForgottenStep, GpuHost
from rdmawire.gpudirect.kernel.job import GpuJob
from rdmawire.units import us
from rdmawire.verbs import Sge

MAX_RANKS: Final = 32
MAX_CONTEXTS: Final = 4
MAX_WINDOW: Final = 1 << 26
MAX_SIGNALS: Final = 1 << 12
WORD: Final = 8
"""Bytes of a signal or a counter."""
TIMEOUT: Final = us(2_000)
"""Time (ns) after which a kernel that waits is stuck."""


class Backend(Enum):
    """The agent that posts the work: the kernel itself (GDAKI), or a thread of the host (PROXY)."""

    GDAKI = "gdaki"
    PROXY = "proxy"


GIN_FORGETTABLE: Final[Mapping[Backend, tuple[ForgottenStep, ...]]] = {
    Backend.GDAKI: (
        ForgottenStep.WQE_FENCE,
        ForgottenStep.RECORD_FENCE,
        ForgottenStep.READER_FENCE,
        ForgottenStep.SOURCE_FLUSH,
    ),
    Backend.PROXY: (
        ForgottenStep.DATA_FENCE,
        ForgottenStep.READER_FENCE,
        ForgottenStep.SOURCE_FLUSH,
    ),
}
"""The steps of each backend. Words of a descriptor need no fence: each has a flag."""


class SignalInc(NamedTuple):
    """Add 1 to a signal of the peer, behind the data (``ncclGin_SignalInc``)."""

    signal: int

    @property
    def value(self) -> int:
        """What is added."""
        return 1


class SignalAdd(NamedTuple):
    """Add to a signal of the peer, behind the data (``ncclGin_SignalAdd``)."""

    signal: int
    value: int


class CounterInc(NamedTuple):
    """Add 1 to an own counter when the source may be reused (``ncclGin_CounterInc``)."""

    counter: int


class GinSpec(NamedTuple):
    """A job: ``hosts`` with ``gpus`` each, and what each of the ``contexts`` has.

    ``max_delay`` is the latest time (ns) after which a store is visible. Steps in ``forgotten`` are
    left out.
    """

    hosts: int = 2
    gpus: int = 1
    backend: Backend = Backend.GDAKI
    contexts: int = 1
    signals: int = 16
    counters: int = 16
    model: str = "H200"
    seed: int = 0
    max_delay: int = 2000
    forgotten: frozenset[ForgottenStep] = frozenset()

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.hosts * self.gpus

    def check(self) -> None:
        """Raise :class:`~rdmawire.errors.KernelError` for what cannot be."""
        for name, value, most in (
            ("ranks", self.ranks, MAX_RANKS),
            ("contexts", self.contexts, MAX_CONTEXTS),
            ("signals", self.signals, MAX_SIGNALS),
            ("counters", self.counters, MAX_SIGNALS),
        ):
            if not 1 <= value <= most:
                raise KernelError(f"{value} {name}; 1 to {most} are supported")
        if self.model not in MODELS:
            raise KernelError(f"{self.model} is no GPU that is known: {', '.join(MODELS)}")
        unknown = self.forgotten - set(GIN_FORGETTABLE[self.backend])
        for step in sorted(unknown, key=lambda one: one.value):
            backend = self.backend.value
            raise KernelError(
                f"the {backend} backend has no {step.value}, which could be forgotten"
            )


class GinWindow:
    """Symmetric memory: ``size`` bytes of each GPU, registered (``ncclCommWindowRegister``).

    With ``zero_based`` the adapters know its first byte as address 0, so that offsets are what is
    on the wire: the GDAKI backend registers memory so.
    """

    def __init__(self, number: int, hosts: list[GpuHost], size: int, *, zero_based: bool) -> None:
        self.number = number
        self.size = size
        self._bases = [host.allocate(size) for host in hosts]
        self._wire = [0 if zero_based else base for base in self._bases]
        self._regions = [
            host.register(base, size, at)
            for host, base, at in zip(hosts, self._bases, self._wire, strict=True)
        ]

    def at(self, rank: int, offset: int, length: int) -> int:
        """Return the address of bytes of a rank, after a check."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise KernelError(f"{length} bytes at {offset} are not in a window of {self.size}")
        return self._bases[rank] + offset

    def remote(self, rank: int, offset: int) -> tuple[int, int]:
        """Return the address and the rkey that peers use."""
        return self._wire[rank] + offset, self._regions[rank].rkey

    def sge(self, rank: int, offset: int, length: int) -> Sge:
        """Return local memory of work of a rank."""
        return Sge(self._wire[rank] + offset, length, self._regions[rank].lkey)


class GinResources(GpuJob):
    """The ranks of a job with their windows, signals and queue pairs."""

    def __init__(self, spec: GinSpec) -> None:
        spec.check()
        self.spec = spec
        names = [f"rank{number}" for number in range(spec.ranks)]
        super().__init__(names, spec.model, spec.seed, spec.max_delay, loopback=True)
        self.is_gdaki = spec.backend is Backend.GDAKI
        self.windows: list[GinWindow] = []
        self._signals_each = spec.signals + spec.ranks
        self.signals = self._window(WORD * self._signals_each * spec.contexts)
        self._queues: dict[tuple[int, int, int], DeviceQueue] = {}
        for context in range(spec.contexts):
            for one in range(spec.ranks):
                for other in range(one, spec.ranks):
                    self._connect(context, one, other)

    def _connect(self, context: int, one: int, other: int) -> None:
        here, there = self.connected(one, other, on_gpu=self.is_gdaki)
        self._queues[context, other, one] = there
        self._queues[context, one, other] = here

    def queue(self, context: int, rank: int, peer: int) -> DeviceQueue:
        """Return the queue pair of a rank to a peer."""
        return self._queues[context, rank, peer]

    def signal_offset(self, context: int, signal: int) -> int:
        """Return where a signal is in the memory of signals.

        Those behind the signals of a job are for barriers, one for each rank.
        """
        return WORD * (context * self._signals_each + signal)

    def register(self, size: int) -> GinWindow:
        """Allocate symmetric memory and register it (``ncclCommWindowRegister``)."""
        if not 0 < size <= MAX_WINDOW:
            raise KernelError(f"a window of {size} bytes; 1 to {MAX_WINDOW} are supported")
        return self._window(size)

    def _window(self, size: int) -> GinWindow:
        window = GinWindow(len(self.windows), self.hosts, size, zero_based=self.is_gdaki)
        self.windows.append(window)
        return window
