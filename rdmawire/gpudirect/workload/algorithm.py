"""Algorithms of collective operations: what each GPU does with chunks, step by step.

The form is that of MSCCL: a GPU has thread blocks, which run at the same time, with at most one
peer to send to and one to receive from; their steps are done one after the other. Facts: the
interpreter and the parser of msccl-executor-nccl. Here are also the algorithms that are used where
a trace names only the collective operation: rings as NCCL has them, and a chain for a broadcast.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, overload

from rdmawire.errors import WorkloadError
from rdmawire.gpudirect.nccl.collective import Collective
from rdmawire.gpudirect.nccl.ring import RingStep, ring_steps


class Ref(NamedTuple):
    """Chunks of a GPU: the buffer ``i``, ``o`` or ``s`` (input, output, scratch), and the first."""

    buffer: str
    offset: int


class StepType(NamedTuple):
    """What a step does: with ``adds`` it adds its source, with ``stores`` it writes its target."""

    receives: bool = False
    adds: bool = False
    stores: bool = False
    sends: bool = False


STEP_TYPES: Final[Mapping[str, StepType]] = {
    "s": StepType(sends=True),
    "r": StepType(receives=True, stores=True),
    "rcs": StepType(receives=True, stores=True, sends=True),
    "rrc": StepType(receives=True, adds=True, stores=True),
    "rrs": StepType(receives=True, adds=True, sends=True),
    "rrcs": StepType(receives=True, adds=True, stores=True, sends=True),
    "cpy": StepType(stores=True),
    "re": StepType(adds=True, stores=True),
    "nop": StepType(),
}
"""The types of steps: send, receive, copy and reduce, together or alone."""


class MscclStep(NamedTuple):
    """A step on ``chunks``; ``wait`` is a step of another thread block that is done before.

    ``line`` is where it is in its file, 0 for one of no file.
    """

    type: str
    source: Ref = Ref("i", 0)
    target: Ref = Ref("o", 0)
    chunks: int = 1
    wait: tuple[int, int] | None = None
    line: int = 0


class Block(NamedTuple):
    """A thread block: the GPUs that it sends to and receives from, -1 for none, and its steps."""

    send: int
    receive: int
    channel: int
    steps: tuple[MscclStep, ...]


class Program(NamedTuple):
    """What a GPU does. ``chunks`` are the lengths of its buffers; ``blocks`` are by number."""

    chunks: Mapping[str, int]
    blocks: Mapping[int, Block]


class MscclAlgorithm(NamedTuple):
    """An algorithm for ``len(programs)`` GPUs; the data of an operation is ``chunks`` chunks.

    In place, input and output are the same memory, or the smaller one is a part of the other.
    """

    name: str
    collective: Collective
    chunks: int
    programs: Sequence[Program]
    in_place: bool = False
    root: int = 0

    @property
    def inputs(self) -> int:
        """The chunks of the input of a GPU."""
        gathers = self.collective is Collective.ALL_GATHER
        return self.chunks // len(self.programs) if gathers else self.chunks

    @property
    def outputs(self) -> int:
        """The chunks of the output of a GPU."""
        scatters = self.collective is Collective.REDUCE_SCATTER
        return self.chunks // len(self.programs) if scatters else self.chunks


# Algorithms for collective operations that a trace only names.


def ring_algorithm(collective: Collective, gpus: int, root: int = 0) -> MscclAlgorithm:
    """Return an algorithm: rings, pairs for an all-to-all, a chain for a broadcast.

    Raises :class:`WorkloadError` for a collective operation that has none.
    """
    if collective not in _PROGRAMS:
        raise WorkloadError(f"{collective.value} has no algorithm for workloads")
    chunks = _CHAIN_CHUNKS if collective is Collective.BROADCAST else gpus
    make = _PROGRAMS[collective]
    name = f"{'pairs' if collective is Collective.ALL_TO_ALL else 'ring'} of {gpus}"

    def program(gpu: int) -> Program:
        blocks = dict(enumerate(make(gpu, gpus, root))) if gpus > 1 else _alone(collective)
        return Program({"i": chunks, "o": chunks, "s": 0}, blocks)

    return MscclAlgorithm(name, collective, chunks, _Programs(program, gpus), root=root)


class _Programs(Sequence[Program]):
    """Programs that are made when they are needed: those of many GPUs have many steps."""

    def __init__(self, make: Callable[[int], Program], gpus: int) -> None:
        self._make = make
        self._gpus = gpus

    def __len__(self) -> int:
        return self._gpus

    @overload
    def __getitem__(self, gpu: int) -> Program: ...

    @overload
    def __getitem__(self, gpu: slice) -> Sequence[Program]: ...

    def __getitem__(self, gpu: int | slice) -> Program | Sequence[Program]:
        if isinstance(gpu, slice):
            return [self._make(one) for one in range(self._gpus)[gpu]]
        return self._make(range(self._gpus)[gpu])


def ring_messages(collective: Collective, gpus: int) -> int:
    """Return the messages that each GPU of a ring sends to the next one, a chunk each."""
    return (gpus - 1) * (2 if collective is Collective.ALL_REDUCE else 1)


_CHAIN_CHUNKS: Final = 8


def _alone(collective: Collective) -> dict[int, Block]:
    chunks = _CHAIN_CHUNKS if collective is Collective.BROADCAST else 1
    return {0: Block(-1, -1, 0, (MscclStep("cpy", chunks=chunks),))}


def _ring(collective: Collective, gpu: int, gpus: int, _: int) -> Iterator[Block]:
    """Yield the ring. An all-reduce begins with the GPU's own chunk, not with the one before it."""
    place = (gpu + 1) % gpus if collective is Collective.ALL_REDUCE else gpu
    found = (_ring_step(collective, step) for step in ring_steps(collective, place, gpus))
    steps = tuple(one for steps in found for one in steps)
    yield Block((gpu + 1) % gpus, (gpu - 1) % gpus, 0, steps)


def _ring_step(collective: Collective, step: RingStep) -> Iterator[MscclStep]:
    source = Ref("i", 0 if collective is Collective.ALL_GATHER else step.chunk)
    target = Ref("o", 0 if collective is Collective.REDUCE_SCATTER else step.chunk)
    if step.receive:
        does = StepType(step.receive, step.reduce, step.store, step.send)
        yield MscclStep(_NAMES[does], source, target)
        return
    yield MscclStep("s", source)
    if step.store:
        yield MscclStep("cpy", source, target)


_NAMES: Final = {does: name for name, does in STEP_TYPES.items()}


def _all_to_all(gpu: int, gpus: int, _: int) -> Iterator[Block]:
    yield Block(-1, -1, 0, (MscclStep("cpy", Ref("i", gpu), Ref("o", gpu)),))
    for distance in range(1, gpus):
        to, source = (gpu + distance) % gpus, (gpu - distance) % gpus
        yield Block(to, -1, 0, (MscclStep("s", Ref("i", to)),))
        yield Block(-1, source, 0, (MscclStep("r", target=Ref("o", source)),))


def _broadcast(gpu: int, gpus: int, root: int) -> Iterator[Block]:
    """Yield the chain from the root: each GPU passes chunks on."""
    chunks = range(_CHAIN_CHUNKS)
    after, before = (gpu + 1) % gpus, (gpu - 1) % gpus
    if gpu == root:
        yield Block(after, -1, 0, tuple(MscclStep("s", Ref("i", chunk)) for chunk in chunks))
        yield Block(-1, -1, 0, (MscclStep("cpy", chunks=_CHAIN_CHUNKS),))
        return
    is_last = after == root
    kind = "r" if is_last else "rcs"
    steps = tuple(MscclStep(kind, target=Ref("o", chunk)) for chunk in chunks)
    yield Block(-1 if is_last else after, before, 0, steps)


_PROGRAMS: Final[Mapping[Collective, Callable[[int, int, int], Iterator[Block]]]] = {
    Collective.ALL_REDUCE: partial(_ring, Collective.ALL_REDUCE),
    Collective.ALL_GATHER: partial(_ring, Collective.ALL_GATHER),
    Collective.REDUCE_SCATTER: partial(_ring, Collective.REDUCE_SCATTER),
    Collective.ALL_TO_ALL: _all_to_all,
    Collective.BROADCAST: _broadcast,
}
