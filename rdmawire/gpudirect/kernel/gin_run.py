"""Programs on NCCL's GIN whose data is checked: puts around a ring, and an all-to-all.

Their results are compared with plain Python: with what was put, and with the transposed blocks.
"""

from enum import Enum
from random import Random
from typing import Final, NamedTuple

from rdmawire.errors import FabricError, KernelError
from rdmawire.fabric import Rule
from rdmawire.gpudirect.kernel.gin import DevComm, GinJob
from rdmawire.gpudirect.kernel.gin_job import MAX_WINDOW, GinSpec, SignalAdd, SignalInc
from rdmawire.gpudirect.kernel.gpu_host import ForgottenStep
from rdmawire.gpudirect.kernel.run import Happened, Kernel

MAX_PUTS: Final = 1000
_SIGNAL: Final = 0
_SLOTS: Final = 4
"""Puts whose data the source buffer holds; a flush is needed before a slot is used again."""
_PARTS: Final = 8


class PutSignal(Enum):
    """How the target of a put learns of it: the put adds 1 or a number, or a signal follows it."""

    INC = "inc"
    ADD = "add"
    SEPARATE = "separate"


class GinReport(NamedTuple):
    """The result of a program: ``wrong`` names the data that was not right when it was loaded.

    ``stuck`` is what waited for ever or failed, or nothing. ``duration`` is in ns.
    """

    spec: GinSpec
    duration: int
    wrong: list[str]
    stuck: str
    frames: int
    timeline: list[Happened]

    @property
    def is_right(self) -> bool:
        """Whether all data was right."""
        return not self.wrong and not self.stuck


class GinRun:
    """A program on all ranks; :meth:`run` may be called once. ``network`` carries the packets.

    ``loss`` is the share of frames that are lost on each link.
    """

    def __init__(self, spec: GinSpec, loss: float = 0.0) -> None:
        self.job = GinJob(spec)
        self.network = self.job.network
        self.wrong: list[str] = []
        for link in self.network.links if loss else ():
            self.network.set_faults(link, Rule("drop", chance=loss))

    def launch(self) -> None:
        """Start the kernels."""
        raise NotImplementedError

    def check(self) -> None:
        """Compare what the kernels loaded, after all ended."""

    def run(self) -> GinReport:
        """Run the program on all ranks, and return the result."""
        self.launch()
        stuck = ""
        try:
            self.job.run()
            self.check()
        except (KernelError, FabricError) as error:
            stuck = str(error)
        return GinReport(
            self.job.spec,
            self.network.simulator.now,
            self.wrong,
            stuck,
            self.job.frames,
            self.job.system.timeline,
        )


class GinPut(GinRun):
    """Each rank puts ``puts`` times ``size`` bytes to the next one.

    One warp puts, and flushes before it stores data where the source of an earlier put was; another
    one waits for the signal of each put of the rank before, and compares its data. Contexts take
    turns.
    """

    def __init__(
        self,
        spec: GinSpec,
        size: int = 4096,
        puts: int = 8,
        signal: PutSignal = PutSignal.INC,
        loss: float = 0.0,
    ) -> None:
        if not 1 <= puts <= MAX_PUTS:
            raise KernelError(f"{puts} puts; 1 to {MAX_PUTS} are supported")
        if not 0 < size * puts <= MAX_WINDOW:
            raise KernelError(f"{puts} puts of {size} bytes; up to {MAX_WINDOW} are supported")
        super().__init__(spec, loss)
        self.size = size
        self.puts = puts
        self.signal = signal
        self._source = self.job.register(size * _SLOTS)
        self._target = self.job.register(size * puts)

    def launch(self) -> None:
        for rank in range(self.job.spec.ranks):
            self.job.launch(rank, self._sender, "sender")
            self.job.launch(rank, self._receiver, "receiver")

    def _amount(self, number: int) -> int:
        """Return what a put adds to the signal of its context."""
        return number + 1 if self.signal is PutSignal.ADD else 1

    def _sender(self, comm: DevComm) -> Kernel:
        team = comm.team_world()
        following = (comm.rank + 1) % comm.n_ranks
        for number in range(self.puts):
            slot = _slot(number) * self.size
            if number >= _SLOTS and not number % _SLOTS:
                yield from self._flush(comm)
            self._make(comm, slot, _data(comm.rank, number, self.size))
            gin = comm.gin(number % self.job.spec.contexts)
            action: SignalInc | SignalAdd = SignalInc(_SIGNAL)
            if self.signal is PutSignal.ADD:
                action = SignalAdd(_SIGNAL, self._amount(number))
            bundled = None if self.signal is PutSignal.SEPARATE else action
            comm.warp.note(f"put {number} of {self.size} bytes to rank {following}")
            yield from gin.put(
                team, following, self._target, number * self.size, self._source, slot, self.size,
                bundled,
            )  # fmt: skip
            if bundled is None:
                yield from gin.signal(team, following, action)
        yield from self._flush(comm)

    def _make(self, comm: DevComm, slot: int, data: bytes) -> None:
        """Store the data of a put in parts, as the threads of a warp do."""
        part = -(-len(data) // _PARTS)
        for offset in range(0, len(data), part):
            comm.store(self._source, slot + offset, data[offset : offset + part])

    def _flush(self, comm: DevComm) -> Kernel:
        if ForgottenStep.SOURCE_FLUSH not in self.job.spec.forgotten:
            for context in range(self.job.spec.contexts):
                yield from comm.gin(context).flush()
            comm.warp.note("the puts are flushed")

    def _receiver(self, comm: DevComm) -> Kernel:
        contexts = self.job.spec.contexts
        before = (comm.rank - 1) % comm.n_ranks
        least = [0] * contexts
        for number in range(self.puts):
            context = number % contexts
            least[context] += self._amount(number)
            yield from comm.gin(context).wait_signal(_SIGNAL, least[context])
            loaded = comm.load(self._target, number * self.size, self.size)
            is_right = loaded == _data(before, number, self.size)
            result = "right" if is_right else "WRONG"
            comm.warp.note(f"put {number} of rank {before} is signaled, its data is {result}")
            if not is_right:
                self.wrong.append(f"put {number} of rank {before}")


def _slot(number: int) -> int:
    """Return the slot of a put: rounds alternate in direction, so that the last is used next."""
    turn, place = divmod(number, _SLOTS)
    return _SLOTS - 1 - place if turn % 2 else place


class GinAllToAll(GinRun):
    """Each rank puts a block of ``size`` bytes to each rank, itself included, with a signal.

    As in NCCL's example of its device API: barrier, puts, wait for one signal of each rank, flush,
    barrier. Contexts take turns.
    """

    def __init__(self, spec: GinSpec, size: int = 4096, loss: float = 0.0) -> None:
        if not 0 < size * spec.ranks <= MAX_WINDOW:
            raise KernelError(f"blocks of {size} bytes; {MAX_WINDOW} in all are supported")
        super().__init__(spec, loss)
        self.size = size
        self.sent = [[_data(rank, peer, size) for peer in self._all] for rank in self._all]
        self.received: dict[int, bytes] = {}
        self._send = self.job.register(size * spec.ranks)
        self._receive = self.job.register(size * spec.ranks)

    @property
    def _all(self) -> range:
        return range(self.job.spec.ranks)

    def launch(self) -> None:
        for rank in self._all:
            self.job.launch(rank, self._kernel)

    def _kernel(self, comm: DevComm) -> Kernel:
        team = comm.team_world()
        gins = [comm.gin(context) for context in range(self.job.spec.contexts)]
        comm.store(self._send, 0, b"".join(self.sent[comm.rank]))
        mine = comm.rank % len(gins)
        before = yield from gins[mine].read_signal(_SIGNAL)
        yield from gins[0].barrier(team)
        comm.warp.note("all ranks are there")
        for peer in self._all:
            yield from gins[peer % len(gins)].put(
                team, peer, self._receive, comm.rank * self.size, self._send, peer * self.size,
                self.size, SignalInc(_SIGNAL),
            )  # fmt: skip
        comm.warp.note(f"{comm.n_ranks} blocks of {self.size} bytes are put")
        yield from gins[mine].wait_signal(_SIGNAL, before + comm.n_ranks)
        self.received[comm.rank] = comm.load(self._receive, 0, self.size * comm.n_ranks)
        comm.warp.note("the blocks of all ranks are loaded")
        for gin in gins:
            yield from gin.flush()
        yield from gins[0].barrier(team)

    def check(self) -> None:
        size = self.size
        for rank, peer in ((rank, peer) for rank in self._all for peer in self._all):
            block = self.received[rank][peer * size : (peer + 1) * size]
            if block != self.sent[peer][rank]:
                self.wrong.append(f"block of rank {peer} at rank {rank}")


def _data(rank: int, number: int, size: int) -> bytes:
    """Return the data of a put or a block: no two are equal, except for very short ones."""
    return Random(f"{rank}/{number}").randbytes(size)  # noqa: S311 - repeatable
