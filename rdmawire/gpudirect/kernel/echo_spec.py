"""What a run of echo kernels is: its settings, their bounds, and the steps it may forget."""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from rdmawire.errors import KernelError
from rdmawire.gpudirect.kernel.echo import ECHO_PORT, EchoProtocol
from rdmawire.gpudirect.kernel.gpu_host import ENTRIES, MODELS, ForgottenStep
from rdmawire.units import SECOND, ms, us

LANES: Final = 32
"""Threads of a warp, each of which processes a packet."""
_MAX_PACKETS: Final = 4096
_MAX_DATA: Final = 8972
"""Bytes of data in an echo request: an IP packet then has 9000 bytes."""
_MAX_WARPS: Final = 16
_MAX_FLOWS: Final = 256
_MAX_STEP: Final = ms(1)
"""Longest timeout, work and delay of a store (ns)."""
_MAX_TIME: Final = ms(100)
"""Longest time (ns) of a run for all warps together: each polls all the time."""
_MAX_RAW: Final = 9018
"""Bytes of the longest frame that a raw packet queue pair takes."""


class Pipeline(Enum):
    """One kernel that receives and answers, or two with a semaphore between them."""

    ONE = "one"
    TWO = "two"


FORGETTABLE_ECHO: Final[Mapping[Pipeline, tuple[ForgottenStep, ...]]] = {
    Pipeline.ONE: (
        ForgottenStep.WQE_FENCE,
        ForgottenStep.RECORD_FENCE,
        ForgottenStep.READER_FENCE,
        ForgottenStep.FLUSH,
    ),
    Pipeline.TWO: (
        ForgottenStep.WQE_FENCE,
        ForgottenStep.RECORD_FENCE,
        ForgottenStep.READER_FENCE,
        ForgottenStep.FLUSH,
        ForgottenStep.SEMAPHORE_FENCE,
    ),
}
"""The steps that can be forgotten; the flush only with queues in host memory."""


class GpuEchoSpec(NamedTuple):
    """What is done: ``packets`` requests with ``size`` bytes of data, of ``flows`` in turn.

    ``burst`` requests are sent back to back, ``rate`` of them in a second. Each of ``warps`` has a
    receive queue with ``buffers``, takes up to ``batch`` packets at once or what has come after
    ``timeout`` (ns), and spends ``work`` (ns) on each 32 of them. ``loss`` is the share of IP
    packets that the client's link loses. ``queues_on_gpu`` says where WQEs and CQEs are: buffers
    are in GPU memory in any case. ``max_delay`` is the latest time (ns) after which a store is
    visible. ``requests`` are frames that are sent instead, with other Ethernet
    addresses.
    """

    protocol: EchoProtocol = EchoProtocol.ICMP
    packets: int = 16
    size: int = 56
    rate: int = 1_000_000
    burst: int = 1
    flows: int = 4
    port: int = ECHO_PORT
    kernels: Pipeline = Pipeline.ONE
    warps: int = 1
    buffers: int = ENTRIES
    batch: int = 32
    timeout: int = us(5)
    work: int = 300
    model: str = "H200"
    queues_on_gpu: bool = True
    loss: float = 0.0
    forgotten: frozenset[ForgottenStep] = frozenset()
    seed: int = 0
    max_delay: int = 2000
    requests: tuple[bytes, ...] = ()

    @property
    def total(self) -> int:
        """The number of requests."""
        return len(self.requests) or self.packets

    @property
    def sending_time(self) -> int:
        """The time (ns) in which requests are sent."""
        return self.total * SECOND // self.rate

    @property
    def quiet(self) -> int:
        """The time (ns) without a frame after which none will come."""
        rounds = -(-self.buffers // LANES) + 1
        return us(100) + 2 * self.timeout + rounds * self.work + 30 * self.max_delay

    @property
    def time(self) -> int:
        """About the longest time (ns) of the run."""
        return self.sending_time + -(-self.total // self.batch) * self.work + 2 * self.quiet

    def check(self) -> None:
        """:class:`KernelError` for what cannot be done."""
        for name, (least, most) in _BOUNDS.items():
            if not least <= (value := getattr(self, name)) <= most:
                raise KernelError(f"{name} {value}: {least} to {most} are supported")
        if self.model not in MODELS:
            raise KernelError(f"{self.model} is no GPU that is known: {', '.join(MODELS)}")
        self._check_requests()
        self._check_forgotten()

    def _check_requests(self) -> None:
        if len(self.requests) > _MAX_PACKETS:
            raise KernelError(
                f"{len(self.requests)} requests: at most {_MAX_PACKETS} are supported"
            )
        if (longest := max(map(len, self.requests), default=0)) > _MAX_RAW:
            raise KernelError(f"a request of {longest} bytes: at most {_MAX_RAW} are supported")
        if (time := self.time * self.warps) > _MAX_TIME:
            took = f"{time / ms(1):.0f} ms of {self.warps} warp(s), {_MAX_TIME // ms(1)} at most"
            raise KernelError(f"the run takes {took}: send fewer requests, or at a higher rate")

    def _check_forgotten(self) -> None:
        for step in sorted(self.forgotten, key=lambda one: one.value):
            if step not in FORGETTABLE_ECHO[self.kernels]:
                raise KernelError(f"with {self.kernels.value} kernel(s) there is no {step.value}")
            if step is ForgottenStep.FLUSH and self.queues_on_gpu:
                raise KernelError("there is no flush to forget: completions are in GPU memory")

    def needs(self, step: ForgottenStep) -> bool:
        """Whether a step is not forgotten."""
        return step not in self.forgotten


_BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "packets": (1, _MAX_PACKETS),
    "size": (0, _MAX_DATA),
    "rate": (1, 10**9),
    "burst": (1, _MAX_PACKETS),
    "flows": (1, _MAX_FLOWS),
    "port": (1, 65535),
    "warps": (1, _MAX_WARPS),
    "buffers": (1, ENTRIES),
    "batch": (1, ENTRIES),
    "timeout": (1, _MAX_STEP),
    "work": (0, _MAX_STEP),
    "loss": (0, 1),
    "max_delay": (0, _MAX_STEP),
}
