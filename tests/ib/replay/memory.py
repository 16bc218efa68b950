"""The memory of an end as its peer sees it: where it lies, by which keys, and what stands there."""

from collections.abc import Iterable, Iterator
from itertools import count

from rdmawire.memory.address_space import AddressSpace, HostMemory
from rdmawire.memory.key import KeyTable
from rdmawire.verbs.wr import SendOpcode
from tests.ib.replay.posted import Answers, Message

PAGE = 4096


class GivenKeys(KeyTable):
    """Gives out the keys that it is told to, and then its own."""

    def __init__(self, keys: Iterable[int]) -> None:
        super().__init__()
        self._given = iter(keys)

    def _unused(self) -> int:
        return next(self._given, 0) or super()._unused()


def map_ranges(space: AddressSpace, ranges: Iterable[tuple[int, int]]) -> None:
    """Host memory for all of these ranges, each from an address to an end, in whole pages."""
    pages = {page for start, end in ranges for page in range(start // PAGE, -(-end // PAGE))}
    for first in sorted(pages - {page + 1 for page in pages}):
        last = next(page for page in count(first) if page + 1 not in pages)
        space.map(HostMemory(first * PAGE, (last - first + 1) * PAGE))


class Written:
    """What the peer's requests leave in memory, byte by byte, by the captured answers."""

    def __init__(self) -> None:
        self.data: dict[int, int] = {}

    def add(self, message: Message, answers: Answers) -> None:
        """A message that was done."""
        asked = message.range
        if asked is None or message.is_read:
            return
        data = _atomic(message, answers) if message.is_atomic else message.payload
        self.data.update(zip(range(asked[1], asked[1] + len(data)), data, strict=True))

    def fill_in(self, space: AddressSpace, address: int, found: bytes) -> None:
        """Put into memory what was found there, but where a peer wrote."""
        for place, byte in enumerate(found, address):
            if place not in self.data:
                space.write(place, bytes((byte,)))

    def runs(self) -> Iterator[tuple[int, bytes]]:
        """The bytes that follow one another, with where they begin."""
        start, run = 0, bytearray()
        for address in sorted(self.data):
            if address != start + len(run):
                if run:
                    yield start, bytes(run)
                start, run = address, bytearray()
            run.append(self.data[address])
        if run:
            yield start, bytes(run)


def _atomic(message: Message, answers: Answers) -> bytes:
    """What an atomic leaves, from what it found."""
    eth = message.atomiceth
    assert eth is not None
    new = found = answers.originals[message.psn]
    if message.opcode is SendOpcode.ATOMIC_FETCH_AND_ADD:
        new = (found + eth.swapdt) % (1 << 64)
    elif found == eth.cmpdt:
        new = eth.swapdt
    return new.to_bytes(8, "little")


def before(message: Message, answers: Answers) -> tuple[int, bytes]:
    """Where a READ or atomic looked, and what it found there."""
    asked = message.range
    assert asked is not None
    if message.is_atomic:
        return asked[1], answers.originals[message.psn].to_bytes(8, "little")
    return asked[1], answers.read(message)
