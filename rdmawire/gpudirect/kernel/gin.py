"""NCCL's device API for networks (GIN): puts, signals and counters that kernels start.

A kernel is a generator function of :class:`DevComm`; what waits is a generator, for
``yield from``. Names and rules are those of ``ncclGin`` (NCCL 2.28, ``nccl_device/gin.h``).
"""

from collections import Counter
from collections.abc import Callable, Generator
from functools import partial
from typing import Final, NamedTuple

from rdmawire.errors import KernelError
from rdmawire.gpudirect.kernel.gin_backend import (
    GdakiBackend,
    GinBackend,
    GinOperation,
    GinProxy,
    ProxyBackend,
)
from rdmawire.gpudirect.kernel.gin_job import (
    TIMEOUT,
    WORD,
    CounterInc,
    GinResources,
    GinSpec,
    GinWindow,
    SignalAdd,
    SignalInc,
)
from rdmawire.gpudirect.kernel.gpu_host import ForgottenStep
from rdmawire.gpudirect.kernel.run import Kernel, Warp

_BITS: Final = 64
_COUNTER_BITS: Final = 56
"""Bits of a counter that are compared (``readCounter``)."""
_VALUE_SIZES: Final = (1, 2, 4, 8)


class Team(NamedTuple):
    """Ranks of a job: every ``stride``-th one; ``rank`` is the own one in it (``ncclTeam``)."""

    n_ranks: int
    rank: int
    stride: int


class GinJob(GinResources):
    """A job; ``network`` carries its packets.

    :meth:`launch` starts a kernel on a rank, :meth:`run` runs all.
    """

    def __init__(self, spec: GinSpec | None = None) -> None:
        super().__init__(GinSpec() if spec is None else spec)
        self._running: Counter[int] = Counter()
        self._proxies: dict[int, GinProxy] = {}
        self.backends = [
            [self._backend(rank, context) for context in range(self.spec.contexts)]
            for rank in range(self.spec.ranks)
        ]

    def _backend(self, rank: int, context: int) -> GinBackend:
        if self.is_gdaki:
            return GdakiBackend(self, rank, context)
        if rank not in self._proxies:
            self._proxies[rank] = GinProxy(self, rank)
        return ProxyBackend(self._proxies[rank], context)

    def launch(
        self, rank: int, function: Callable[["DevComm"], Kernel], name: str = "warp"
    ) -> None:
        """Start a kernel on a rank, as the warp ``name``."""
        if proxy := self._proxies.get(rank):
            proxy.ended = False
            if not proxy.is_running:
                proxy.is_running = True
                self.system.launch(proxy.run, proxy.agent)
        self._running[rank] += 1
        agent = self.hosts[rank].warp(name)
        self.system.launch(partial(self._kernel, rank, function), agent)

    def _kernel(self, rank: int, function: Callable[["DevComm"], Kernel], warp: Warp) -> Kernel:
        yield from function(DevComm(self, rank, warp))
        self._running[rank] -= 1
        if (proxy := self._proxies.get(rank)) and not self._running[rank]:
            proxy.ended = True

    def run(self) -> int:
        """Run all; return the time (ns). :class:`KernelError` if an operation fails."""
        return self.simulate()

    def read(self, rank: int, window: GinWindow, offset: int, length: int) -> bytes:
        """Return bytes of a window that are visible to all."""
        return self.system.memory.visible(window.at(rank, offset, length), length)


class DevComm:
    """The communicator as a kernel has it (``ncclDevComm``): its rank, its warp, its memory."""

    def __init__(self, job: GinJob, rank: int, warp: Warp) -> None:
        self.job = job
        self.rank = rank
        self.n_ranks = job.spec.ranks
        self.warp = warp

    def team_world(self) -> Team:
        """Return all ranks (``ncclTeamWorld``)."""
        return Team(self.n_ranks, self.rank, 1)

    def team_rail(self) -> Team:
        """Return the GPUs at the same place of each host (``ncclTeamRail``)."""
        return Team(self.job.spec.hosts, self.rank // self.job.spec.gpus, self.job.spec.gpus)

    def team_lsa(self) -> Team:
        """Return the GPUs of the own host (``ncclTeamLsa``)."""
        return Team(self.job.spec.gpus, self.rank % self.job.spec.gpus, 1)

    def world_rank(self, team: Team, rank: int) -> int:
        """Return the rank among all of a rank of a team (``ncclTeamRankToWorld``)."""
        if not 0 <= rank < team.n_ranks:
            raise KernelError(f"rank {rank} of a team of {team.n_ranks}")
        return self.rank + (rank - team.rank) * team.stride

    def gin(self, context: int = 0) -> "Gin":
        """Return a context (``ncclGin``)."""
        if not 0 <= context < self.job.spec.contexts:
            raise KernelError(f"context {context}; there are {self.job.spec.contexts}")
        return Gin(self, context)

    def load(self, window: GinWindow, offset: int, length: int) -> bytes:
        """Load bytes of the own memory of a window."""
        return self.warp.load(window.at(self.rank, offset, length), length)

    def store(self, window: GinWindow, offset: int, data: bytes) -> None:
        """Store bytes to the own memory of a window."""
        self.warp.store(window.at(self.rank, offset, len(data)), data)


class Gin:
    """A context as a kernel calls it. Peers are ranks of a team; the own rank may be one."""

    def __init__(self, comm: DevComm, context: int) -> None:
        self._comm = comm
        self._context = context
        self._warp = comm.warp
        self._backend = comm.job.backends[comm.rank][context]

    # Puts and signals.

    def put(  # noqa: PLR0917  the arguments of ncclGin::put
        self,
        team: Team,
        peer: int,
        target: GinWindow,
        target_offset: int,
        source: GinWindow,
        source_offset: int,
        nbytes: int,
        remote: SignalInc | SignalAdd | None = None,
        local: CounterInc | None = None,
    ) -> Kernel:
        """Write to the memory of a peer, without a wait; then do the actions (``put``)."""
        rank = self._comm.world_rank(team, peer)
        target.at(rank, target_offset, nbytes)
        source.at(self._comm.rank, source_offset, nbytes)
        self._check(remote, local)
        operation = GinOperation(rank, target, target_offset, source, source_offset, nbytes)
        yield from self._backend.post(self._warp, operation._replace(remote=remote, local=local))

    def put_value(  # noqa: PLR0917  the arguments of ncclGin::putValue
        self,
        team: Team,
        peer: int,
        target: GinWindow,
        target_offset: int,
        value: int,
        size: int = WORD,
        remote: SignalInc | SignalAdd | None = None,
    ) -> Kernel:
        """Write a number of 1, 2, 4 or 8 bytes to the memory of a peer (``putValue``)."""
        if size not in _VALUE_SIZES or not 0 <= value < 1 << 8 * size:
            raise KernelError(f"{value} is no number of {size} bytes; 1, 2, 4 or 8 are possible")
        rank = self._comm.world_rank(team, peer)
        target.at(rank, target_offset, size)
        self._check(remote, None)
        data = value.to_bytes(size, "little")
        operation = GinOperation(rank, target, target_offset, size=size, value=data, remote=remote)
        yield from self._backend.post(self._warp, operation)

    def signal(self, team: Team, peer: int, remote: SignalInc | SignalAdd) -> Kernel:
        """Update a signal of a peer, behind earlier puts of this context to it (``signal``)."""
        self._check(remote, None)
        yield from self._signal(self._comm.world_rank(team, peer), remote)

    def _signal(self, rank: int, remote: SignalInc | SignalAdd) -> Kernel:
        yield from self._backend.post(self._warp, GinOperation(rank, remote=remote))

    def flush(self) -> Kernel:
        """Wait until the sources of this context's puts may be reused (``flush``).

        The data of the puts need not be visible at the peers yet.
        """
        yield from self._backend.flush(self._warp)

    def _check(self, remote: SignalInc | SignalAdd | None, local: CounterInc | None) -> None:
        if remote is not None:
            self._signal_at(remote.signal)
            if not 0 <= remote.value < 1 << _BITS:
                raise KernelError(f"{remote.value} cannot be added to a signal of {_BITS} bits")
        if local is not None:
            self._counter_at(local.counter)

    # Signals of the own rank.

    def _signal_at(self, signal: int) -> int:
        if not 0 <= signal < self._comm.job.spec.signals:
            raise KernelError(f"signal {signal}; there are {self._comm.job.spec.signals}")
        return self._any_signal_at(signal)

    def _any_signal_at(self, signal: int) -> int:
        """Return the address of a signal, also of one for barriers."""
        offset = self._comm.job.signal_offset(self._context, signal)
        return self._comm.job.signals.at(self._comm.rank, offset, WORD)

    def read_signal(self, signal: int, bits: int = _BITS) -> Generator[int, None, int]:
        """Return the lowest ``bits`` of a signal; later loads see its data (``readSignal``)."""
        return (yield from self._read(self._signal_at(signal), bits))

    def wait_signal(self, signal: int, least: int, bits: int = _BITS) -> Kernel:
        """Wait until a signal is ``least`` or more, as it rolls over (``waitSignal``)."""
        yield from self._wait(self._signal_at(signal), least, bits)

    def reset_signal(self, signal: int) -> Kernel:
        """Set a signal to zero, while no peer adds to it (``resetSignal``)."""
        yield from self._reset(self._signal_at(signal))

    # Counters.

    def _counter_at(self, counter: int) -> int:
        if not 0 <= counter < self._comm.job.spec.counters:
            raise KernelError(f"counter {counter}; there are {self._comm.job.spec.counters}")
        return self._backend.counter_at(counter)

    def read_counter(self, counter: int, bits: int = _COUNTER_BITS) -> Generator[int, None, int]:
        """Return the lowest ``bits`` of a counter (``readCounter``)."""
        return (yield from self._read(self._counter_at(counter), bits))

    def wait_counter(self, counter: int, least: int, bits: int = _COUNTER_BITS) -> Kernel:
        """Wait until a counter is ``least`` or more, as it rolls over (``waitCounter``)."""
        yield from self._wait(self._counter_at(counter), least, bits)

    def reset_counter(self, counter: int) -> Kernel:
        """Set a counter to zero, while no put adds to it (``resetCounter``)."""
        yield from self._reset(self._counter_at(counter))

    def barrier(self, team: Team) -> Kernel:
        """Wait for all ranks of a team, by a signal to each (``ncclGinBarrierSession``)."""
        first = self._comm.job.spec.signals
        others = [(team.rank + one) % team.n_ranks for one in range(1, team.n_ranks)]
        ranks = [self._comm.world_rank(team, other) for other in others]
        for rank in ranks:
            yield from self._signal(rank, SignalInc(first + self._comm.rank))
        for rank in ranks:
            self._backend.barriers[rank] += 1
            least = self._backend.barriers[rank]
            yield from self._wait(self._any_signal_at(first + rank), least, _BITS)

    # Numbers in memory.

    def _now(self, at: int) -> int:
        return int.from_bytes(self._warp.read(at, WORD), "little")

    def _acquire(self) -> Kernel:
        if ForgottenStep.READER_FENCE not in self._comm.job.spec.forgotten:
            yield from self._warp.fence()

    def _read(self, at: int, bits: int) -> Generator[int, None, int]:
        value = self._now(at) & _mask(bits)
        yield from self._acquire()
        return value

    def _wait(self, at: int, least: int, bits: int) -> Kernel:
        mask = _mask(bits)
        yield from self._warp.wait(lambda: self._now(at) - least & mask <= mask >> 1, TIMEOUT)
        yield from self._acquire()

    def _reset(self, at: int) -> Kernel:
        self._warp.store(at, bytes(WORD))
        yield from self._warp.fence()


def _mask(bits: int) -> int:
    if not 1 <= bits <= _BITS:
        raise KernelError(f"{bits} bits; 1 to {_BITS} are possible")
    return (1 << bits) - 1
