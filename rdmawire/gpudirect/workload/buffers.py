"""The data of a collective operation: buffers of each GPU, and what the result must be.

Values are bytes, added modulo 256. Those of the input depend on the seed, the GPU and the place.
"""

from collections.abc import Callable, Mapping
from hashlib import shake_128
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.errors import WorkloadError
from rdmawire.gpudirect.nccl.collective import Collective
from rdmawire.gpudirect.workload.algorithm import MscclAlgorithm, Ref

Values = NDArray[Any]


class Inputs:
    """The inputs of all GPUs of an operation; ``chunk`` is the length of a chunk in bytes."""

    def __init__(self, algorithm: MscclAlgorithm, chunk: int, seed: str) -> None:
        self.algorithm = algorithm
        self.chunk = chunk
        self._seed = seed
        self._blocks: dict[int, Values] = {}
        self._sums: dict[int, Values] = {}
        self._checked = 0

    def chunk_of(self, gpu: int, place: int) -> Values:
        """Return one chunk of the input of a GPU."""
        if gpu not in self._blocks:
            data = shake_128(f"{self._seed}/{gpu}".encode()).digest(_BLOCK)
            self._blocks[gpu] = np.frombuffer(data, np.uint8)
        start = place * self.chunk % _BLOCK
        repeats = -(-(start + self.chunk) // _BLOCK)
        found: Values = np.tile(self._blocks[gpu], repeats)[start : start + self.chunk]
        return found + np.uint8(place % 251)

    def sum_of(self, place: int) -> Values:
        """Return the sum of a chunk over all GPUs."""
        if place not in self._sums:
            total = np.zeros(self.chunk, np.uint8)
            for gpu in range(len(self.algorithm.programs)):
                total += self.chunk_of(gpu, place)
            self._sums[place] = total
        return self._sums[place]

    def count_check(self) -> None:
        """Forget what was kept, when the results of all GPUs have been compared."""
        self._checked += 1
        if self._checked == len(self.algorithm.programs):
            self._blocks = {}
            self._sums = {}


_BLOCK: Final = 8191
"""Bytes after which values begin again: prime, so that chunks differ."""

MAX_BYTES: Final = 1 << 30
"""Bytes of the buffers of all GPUs of an operation."""

Expected = Callable[[Inputs, int, int], Values]
"""Function that returns a chunk of the result of a GPU."""


def _all_gather(inputs: Inputs, _: int, place: int) -> Values:
    return inputs.chunk_of(*divmod(place, inputs.algorithm.inputs))


def _reduce_scatter(inputs: Inputs, gpu: int, place: int) -> Values:
    return inputs.sum_of(gpu * inputs.algorithm.outputs + place)


def _all_to_all(inputs: Inputs, gpu: int, place: int) -> Values:
    each = inputs.algorithm.chunks // len(inputs.algorithm.programs)
    source, rest = divmod(place, each)
    return inputs.chunk_of(source, gpu * each + rest)


EXPECTED: Final[Mapping[Collective, Expected]] = {
    Collective.ALL_REDUCE: lambda inputs, _, place: inputs.sum_of(place),
    Collective.ALL_GATHER: _all_gather,
    Collective.REDUCE_SCATTER: _reduce_scatter,
    Collective.ALL_TO_ALL: _all_to_all,
    Collective.BROADCAST: lambda inputs, _, place: inputs.chunk_of(inputs.algorithm.root, place),
}
"""What each operation must give: MPI 4.1, chapter 6, and NCCL's operations."""


class Buffers:
    """The buffers of one GPU, made at their first use, and a register of each thread block."""

    def __init__(self, inputs: Inputs, gpu: int) -> None:
        self._inputs = inputs
        self._gpu = gpu
        self._arrays: dict[str, Values] = {}
        self.registers: dict[int, Values] = {}

    def _fill(self) -> None:
        algorithm, chunk = self._inputs.algorithm, self._inputs.chunk
        chunks = algorithm.programs[self._gpu].chunks
        lengths = {name: count * chunk for name, count in chunks.items()}
        lengths["i"] = max(lengths["i"], algorithm.inputs * chunk)
        lengths["o"] = max(lengths["o"], algorithm.outputs * chunk)
        self._arrays = {name: np.zeros(size, np.uint8) for name, size in lengths.items()}
        if algorithm.in_place:
            self._alias()
        values = np.concatenate(
            [self._inputs.chunk_of(self._gpu, place) for place in range(algorithm.inputs)]
        )
        self._arrays["i"][: len(values)] = values

    def _alias(self) -> None:
        """Let the input be a part of the output, or the other way round."""
        algorithm, arrays = self._inputs.algorithm, self._arrays
        if algorithm.collective is Collective.REDUCE_SCATTER:
            start = self._gpu * algorithm.outputs * self._inputs.chunk
            arrays["o"] = arrays["i"][start:]
        elif algorithm.collective is Collective.ALL_GATHER:
            start = self._gpu * algorithm.inputs * self._inputs.chunk
            arrays["i"] = arrays["o"][start:]
        else:
            longer = max(arrays["i"], arrays["o"], key=len)
            arrays["i"] = arrays["o"] = longer

    def view(self, ref: Ref, count: int) -> Values:
        """Return chunks, to be read or written."""
        if not self._arrays:
            self._fill()
        chunk = self._inputs.chunk
        found = self._arrays[ref.buffer][ref.offset * chunk : (ref.offset + count) * chunk]
        if len(found) != count * chunk:
            raise WorkloadError(f"GPU {self._gpu}: {count} chunks of {ref} are not all there")
        return found

    def check_length(self, size: int, count: int) -> None:
        """Raise :class:`WorkloadError` for a message of other than ``count`` chunks."""
        if size != count * self._inputs.chunk:
            name = self._inputs.algorithm.name
            raise WorkloadError(
                f"{name}: GPU {self._gpu} receives a message of {size // self._inputs.chunk} chunks"
                f" by a step of {count}"
            )

    def check(self) -> None:
        """Compare the result with what it must be, and forget all data."""
        algorithm = self._inputs.algorithm
        expected = EXPECTED[algorithm.collective]
        for place in range(algorithm.outputs):
            found = self.view(Ref("o", place), 1)
            if (found != expected(self._inputs, self._gpu, place)).any():
                raise WorkloadError(
                    f"{algorithm.name}: the {algorithm.collective.value} of GPU {self._gpu} is"
                    f" wrong in chunk {place} of {algorithm.outputs}"
                )
        self._arrays = {}
        self.registers = {}
        self._inputs.count_check()


def check_buffers(algorithm: MscclAlgorithm, chunk: int) -> None:
    """Raise :class:`WorkloadError` if the buffers of an operation are too large.

    ``chunk`` is the length of a chunk in bytes.
    """
    chunks = sum(sum(program.chunks.values()) for program in algorithm.programs)
    if chunks * chunk > MAX_BYTES:
        raise WorkloadError(
            f"{algorithm.name}: buffers of {chunks * chunk} bytes; at most {MAX_BYTES} are"
            " supported"
        )


class SendMove(NamedTuple):
    """Sends chunks; without a ``source`` what the thread block has received."""

    buffers: Buffers
    block: int
    source: Ref | None
    chunks: int

    def load(self) -> bytes:
        if self.source is None:
            return self.buffers.registers[self.block].tobytes()
        return self.buffers.view(self.source, self.chunks).tobytes()

    def store(self, data: bytes) -> None:
        """Do nothing: it receives nothing."""

    def apply(self) -> None:
        """Do nothing: it only sends."""


class ReceiveMove(NamedTuple):
    """Takes received chunks: adds ``source``, and writes ``target``, if they are given."""

    buffers: Buffers
    block: int
    source: Ref | None
    target: Ref | None
    chunks: int

    def load(self) -> bytes:
        return b""

    def store(self, data: bytes) -> None:
        values = np.frombuffer(data, np.uint8).copy()
        self.buffers.check_length(len(values), self.chunks)
        if self.source is not None:
            values += self.buffers.view(self.source, self.chunks)
        if self.target is not None:
            self.buffers.view(self.target, self.chunks)[:] = values
        self.buffers.registers[self.block] = values

    def apply(self) -> None:
        """Do nothing: it only receives."""


class CopyMove(NamedTuple):
    """Copies chunks, or adds them to the target."""

    buffers: Buffers
    source: Ref
    target: Ref
    chunks: int
    adds: bool

    def load(self) -> bytes:
        return b""

    def store(self, data: bytes) -> None:
        """Do nothing: it receives nothing."""

    def apply(self) -> None:
        values = self.buffers.view(self.source, self.chunks).copy()
        target = self.buffers.view(self.target, self.chunks)
        if self.adds:
            values += target
        target[:] = values


class CheckMove(NamedTuple):
    """Compares the result of a GPU."""

    buffers: Buffers

    def load(self) -> bytes:
        return b""

    def store(self, data: bytes) -> None:
        """Do nothing: it receives nothing."""

    def apply(self) -> None:
        self.buffers.check()
