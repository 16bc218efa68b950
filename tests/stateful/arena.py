"""Memory beside its model: a window of a host, and the bytes that should stand in it.

Regions are cut out of it with bytes between them that must not be touched. Those are random, not
zero, and compared with all the rest.
"""

from collections.abc import Sequence
from random import Random

from rdmawire.fabric.host import Host
from rdmawire.memory.region import Region
from rdmawire.verbs.wr import Sge

GUARD = 72
"""Bytes between neighbours, at least; a multiple of eight, so that all can be aligned."""


class Arena:
    """``size`` bytes of host memory, full of noise, and their ``model``."""

    def __init__(self, host: Host, size: int, seed: int) -> None:
        self.host = host
        self.memory = host.space.allocate(size)
        self.model = bytearray(Random(seed).randbytes(self.memory.size))
        host.space.write(self.memory.base, self.model)
        self._free = GUARD

    def area(self, length: int, access: int) -> "Area":
        """Register the next ``length`` bytes with these rights."""
        address = self.memory.base + self._free
        self._free += length - length % -8 + GUARD
        assert self._free <= self.memory.size
        return Area(self, self.host.nic.memory.reg_mr(self.host.pd, address, length, access))

    def peek(self, address: int, length: int) -> bytes:
        """Return what the model holds there."""
        at = address - self.memory.base
        return bytes(self.model[at : at + length])

    def poke(self, address: int, data: bytes) -> None:
        """What should stand there from now on."""
        at = address - self.memory.base
        assert 0 <= at <= at + len(data) <= self.memory.size
        self.model[at : at + len(data)] = data

    def found(self) -> bytes:
        """Return what the memory holds there."""
        return self.host.space.read(self.memory.base, self.memory.size)

    def check(self) -> None:
        """Memory is what the model is, byte for byte."""
        found = self.found()
        if found != self.model:
            wrong = [at for at, byte in enumerate(found) if byte != self.model[at]]
            first, last = (self.memory.base + at for at in (wrong[0], wrong[-1]))
            raise AssertionError(f"{len(wrong)} bytes differ from the model, {first:#x}..{last:#x}")


class Area:
    """A region of an arena, given out piece by piece until it is reset."""

    def __init__(self, arena: Arena, region: Region) -> None:
        self.arena = arena
        self.region = region
        self._free = 0

    @property
    def left(self) -> int:
        """Bytes not given out."""
        return self.region.length - self._free

    def reset(self) -> None:
        """Give everything out anew."""
        self._free = 0

    def take(self, lengths: Sequence[int], gap: int = 0) -> tuple[Sge, ...]:
        """Return new SGEs of these lengths, with ``gap`` bytes between them."""
        pieces = []
        for length in lengths:
            pieces.append(Sge(self.region.iova + self._free, length, self.region.lkey))
            self._free += length + gap
        assert self._free <= self.region.length
        return tuple(pieces)

    def read(self, sges: Sequence[Sge]) -> bytes:
        """What the model has in these pieces."""
        return b"".join(self.arena.peek(address, length) for address, length, _ in sges)

    def found(self, sges: Sequence[Sge]) -> bytes:
        """What memory has in these pieces."""
        space = self.arena.host.space
        return b"".join(space.read(address, length) for address, length, _ in sges if length)

    def place(self, sges: Sequence[Sge], data: bytes) -> None:
        """These bytes should stand in the pieces, one after the other."""
        for address, length, _ in sges:
            self.arena.poke(address, data[:length])
            data = data[length:]
        assert not data
