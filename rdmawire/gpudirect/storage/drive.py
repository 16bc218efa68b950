"""An NVMe drive: a namespace of real bytes, the time of its media, and its DMA over a host's links.

Times are ns, sizes bytes, rates bytes per second.
"""

from collections.abc import Callable
from functools import partial
from math import ceil
from typing import Final, NamedTuple

from rdmawire.errors import MemoryFault, TransferError
from rdmawire.fabric import Simulator
from rdmawire.gpudirect.storage.capsule import IOCommand, IOOpcode, Status
from rdmawire.memory.address_space import AddressSpace
from rdmawire.topology import BusRoute
from rdmawire.units import SECOND, us

BLOCK: Final = 512
"""Size of a logical block."""
MAX_NAMESPACE: Final = 1 << 28
MAX_TRANSFER: Final = 1 << 20
"""Most bytes of one command (MDTS)."""
_OPCODES: Final = frozenset(IOOpcode)
_PIECE: Final = 1 << 16
"""Bytes that are put on the bus at once: others use the links between them."""


class DriveCosts(NamedTuple):
    """What the media of a drive take: the latency of a command, and the rate of all of them.

    The rates are those of Intel's D7-P5500, PCIe 4.0 x4 (7.0 and 4.3 GB/s in sequence); the
    latencies are those of Intel's P4500 (4 KiB at random, 85 and 20 us) in Lenovo's data sheet.
    """

    read_latency: int = us(85)
    write_latency: int = us(20)
    read_rate: float = 7.0e9
    write_rate: float = 4.3e9


class Namespace:
    """A namespace of ``size`` bytes, in blocks of 512; ``nsid`` is its number."""

    def __init__(self, data: bytes, nsid: int = 1) -> None:
        if len(data) % BLOCK or not 0 < len(data) <= MAX_NAMESPACE:
            raise TransferError(
                f"a namespace of {len(data)} bytes; it is a multiple of {BLOCK}, "
                f"up to {MAX_NAMESPACE}"
            )
        self.nsid = nsid
        self._data = bytearray(data)

    @property
    def blocks(self) -> int:
        """Number of logical blocks."""
        return len(self._data) // BLOCK

    def check(self, command: IOCommand) -> Status:
        """Return the status that a command has before its data is transferred."""
        if command.opcode not in _OPCODES:
            return Status.INVALID_OPCODE
        if command.nsid != self.nsid:
            return Status.INVALID_NAMESPACE
        if command.slba + command.nlb + 1 > self.blocks:
            return Status.LBA_OUT_OF_RANGE
        if size_of(command) > MAX_TRANSFER:
            return Status.INVALID_FIELD
        return Status.SUCCESS

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the namespace."""
        return bytes(self._data[offset : offset + length])

    def write(self, offset: int, data: bytes) -> None:
        """Replace bytes of the namespace."""
        self._data[offset : offset + len(data)] = data


def size_of(command: IOCommand) -> int:
    """Return the number of bytes that a READ or WRITE transfers."""
    return (command.nlb + 1) * BLOCK


Done = Callable[[Status], None]
"""Function called with the status of a command when it is complete."""


class Drive:
    """A drive whose DMA reads and writes ``space``, the memory of its host and of peers.

    Commands overlap: each waits for the latency of the media, and all share their rate. READs
    take their rate before the DMA, WRITEs after it.
    """

    def __init__(
        self,
        namespace: Namespace,
        space: AddressSpace,
        simulator: Simulator,
        costs: DriveCosts = DriveCosts(),  # noqa: B008 - a value
    ) -> None:
        self.namespace = namespace
        self.costs = costs
        self._space = space
        self._simulator = simulator
        self._free_at = 0.0

    def execute(self, command: IOCommand, address: int, route: BusRoute, done: Done) -> None:
        """Execute a READ or WRITE, whose data is at a bus address that ``route`` leads to."""
        status = self.namespace.check(command)
        if status is not Status.SUCCESS:
            self._at(self._simulator.now, partial(done, status))
            return
        transfer = _Transfer(command, address, route, done)
        if command.opcode == IOOpcode.READ:
            start = self._simulator.now + self.costs.read_latency
            self._at(start, partial(self._read_media, transfer, 0))
        else:
            self._fetch(transfer, 0)

    def _at(self, time: float, action: Callable[[], None]) -> None:
        self._simulator.call_at(ceil(time), action)

    def _take_media(self, size: int, rate: float) -> float:
        """Return when the media have transferred ``size`` more bytes."""
        self._free_at = max(self._free_at, self._simulator.now) + size / rate * SECOND
        return self._free_at

    # From the media to memory.

    def _read_media(self, transfer: "_Transfer", offset: int) -> None:
        ready = self._take_media(transfer.piece(offset), self.costs.read_rate)
        self._at(ready, partial(self._store, transfer, offset))

    def _store(self, transfer: "_Transfer", offset: int) -> None:
        """Write a piece to memory, while the media read the next one."""
        size = transfer.piece(offset)
        end = transfer.route.write(size, self._simulator.now)
        self._at(end, partial(self._stored, transfer, offset))
        if offset + size < transfer.size:
            self._read_media(transfer, offset + size)

    def _stored(self, transfer: "_Transfer", offset: int) -> None:
        size = transfer.piece(offset)
        data = self.namespace.read(transfer.start + offset, size)
        try:
            self._space.write(transfer.address + offset, data)
        except MemoryFault:
            transfer.status = Status.DATA_TRANSFER_ERROR
        if offset + size == transfer.size:
            transfer.done(transfer.status)

    # From memory to the media.

    def _fetch(self, transfer: "_Transfer", offset: int) -> None:
        """Read a piece from memory; the next one is asked for a round trip before its end."""
        size = transfer.piece(offset)
        end = transfer.route.read(size, self._simulator.now)
        self._at(end, partial(self._fetched, transfer, offset))
        if offset + size < transfer.size:
            following = end - 2 * transfer.route.latency
            self._at(following, partial(self._fetch, transfer, offset + size))

    def _fetched(self, transfer: "_Transfer", offset: int) -> None:
        size = transfer.piece(offset)
        try:
            data = self._space.read(transfer.address + offset, size)
            self.namespace.write(transfer.start + offset, data)
        except MemoryFault:
            transfer.status = Status.DATA_TRANSFER_ERROR
        ready = self._take_media(size, self.costs.write_rate)
        if offset + size == transfer.size:
            self._at(ready + self.costs.write_latency, lambda: transfer.done(transfer.status))


class _Transfer:
    """The data of a command: where it goes, and its progress."""

    def __init__(self, command: IOCommand, address: int, route: BusRoute, done: Done) -> None:
        self.start = command.slba * BLOCK
        self.size = size_of(command)
        self.address = address
        self.route = route
        self.done = done
        self.status = Status.SUCCESS

    def piece(self, offset: int) -> int:
        """Return the size of the piece at an offset."""
        return min(_PIECE, self.size - offset)
