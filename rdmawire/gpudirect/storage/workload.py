"""READs and WRITEs between a namespace and GPU memory: which, how many at once, and checks.

The memory of a command is that of the GPU, or with a bounce a slot of pinned host memory, from or
to which a copy engine copies. Times are ns.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final, NamedTuple

from rdmawire.errors import TransferError
from rdmawire.fabric import Registered
from rdmawire.gpudirect.storage.capsule import IOCommand, IOOpcode, Status
from rdmawire.gpudirect.storage.drive import BLOCK, Namespace
from rdmawire.gpudirect.storage.host import StorageHost
from rdmawire.gpudirect.transfer.stage import Chunk, Stage, StageKind

ABORTED: Final = "ABORTED"
"""Status of a command whose connection ended before its response."""


class PlannedCommand(NamedTuple):
    """A command of the workload: its number, what it does, and the offset of its data (bytes)."""

    number: int
    opcode: IOOpcode
    slba: int
    offset: int


class Executed(NamedTuple):
    """A command and its end: ``status`` is a name of :class:`Status`, or ``ABORTED``.

    ``start`` is when it was begun, ``end`` when its data could be used (ns).
    """

    opcode: str
    slba: int
    start: int
    end: int
    status: str


Finished = Callable[[str], None]
"""Function called with the status of a command."""
Submit = Callable[[int, IOCommand, int, Finished], None]
"""Function that submits a command in a slot, whose data is at an offset of the memory."""


class StorageWorkload:
    """The commands of a run, of which as many as there are ``slots`` are in progress.

    ``staging`` is pinned memory with a part for each slot, or nothing if commands use the memory of
    the GPU. ``submit`` is set by what carries the commands; ``on_end`` is called after the last.
    ``revoke_at`` is the number of commands after which the memory of the GPU is freed.
    """

    def __init__(  # noqa: PLR0917
        self,
        accesses: list[PlannedCommand],
        size: int,
        slots: int,
        host: StorageHost,
        namespace: Namespace,
        staging: Registered | None,
        revoke_at: int | None = None,
    ) -> None:
        self.size = size
        self.executed: list[Executed | None] = [None] * len(accesses)
        self.submit: Submit = _no_submit
        self.on_end: Callable[[], None] = _nothing
        self._accesses = accesses
        self._waiting = deque(accesses)
        self._slots = range(min(slots, len(accesses)))
        self._host = host
        self._namespace = namespace
        self._staging = staging
        self._revoke_at = revoke_at
        self._starts: dict[int, int] = {}
        self._places: dict[int, int] = {}
        self._left = len(accesses)
        self._before = namespace.read(0, namespace.blocks * BLOCK)
        self._memory = host.result(len(accesses) * size)
        self._out, self._in = (
            Stage(kind, host, host.simulator, slots=len(self._slots), slot_size=size)
            for kind in (StageKind.COPY_OUT, StageKind.COPY_IN)
        )
        self._out.after, self._in.after = self._copied_out, self._copied_in

    @property
    def revoked(self) -> bool:
        """Whether the memory of the GPU was freed."""
        return self._revoke_at is not None and len(self._accesses) - self._left >= self._revoke_at

    def start(self) -> None:
        """Begin with a command in each slot."""
        for slot in self._slots:
            self._next(slot)

    def _next(self, slot: int) -> None:
        if not self._waiting:
            return
        access = self._waiting.popleft()
        self._places[access.number] = slot
        self._starts[access.number] = self._host.simulator.now
        if self._staging is not None and access.opcode is IOOpcode.WRITE:
            data = self._host.result(self.size, access.offset)
            self._out.put(Chunk(access.number, access.offset, data))
        else:
            self._send(access)

    def _copied_out(self, chunk: Chunk) -> None:
        assert self._staging is not None
        self._staging.write(chunk.data, self._places[chunk.number] * self.size)
        self._send(self._accesses[chunk.number])

    def _send(self, access: PlannedCommand) -> None:
        slot = self._places[access.number]
        at = access.offset if self._staging is None else slot * self.size
        command = IOCommand(
            access.opcode,
            nsid=self._namespace.nsid,
            length=self.size,
            slba=access.slba,
            nlb=self.size // BLOCK - 1,
        )
        self.submit(slot, command, at, partial(self._responded, access))

    def _responded(self, access: PlannedCommand, status: str) -> None:
        """Take the status of a command; copy the data of a READ to the GPU."""
        is_good = status == Status.SUCCESS.name
        if is_good and self._staging is not None and access.opcode is IOOpcode.READ:
            data = self._staging.read(self.size, self._places[access.number] * self.size)
            self._in.put(Chunk(access.number, access.offset, data))
        else:
            self._finish(access, status)

    def _copied_in(self, chunk: Chunk) -> None:
        self._host.store(chunk.offset, chunk.data)
        self._finish(self._accesses[chunk.number], Status.SUCCESS.name)

    def _finish(self, access: PlannedCommand, status: str) -> None:
        now = self._host.simulator.now
        start = self._starts.pop(access.number, now)
        self.executed[access.number] = Executed(access.opcode.name, access.slba, start, now, status)
        self._left -= 1
        if len(self._accesses) - self._left == self._revoke_at:
            self._host.revoke()
        if not self._left:
            self.on_end()
        else:
            self._next(self._places[access.number])

    # Checks.

    def check(self) -> None:
        """Compare the namespace and the memory of the GPU with what the commands make of them.

        Blocks of failed commands are not compared. :class:`TransferError` for a difference.
        """
        disk, memory = bytearray(self._before), bytearray(self._memory)
        for access, executed in zip(self._accesses, self.executed, strict=True):
            at, place = access.slba * BLOCK, slice(access.offset, access.offset + self.size)
            if executed is None or executed.status != Status.SUCCESS.name:
                self._forget(disk, memory, at, place)
            elif access.opcode is IOOpcode.READ:
                memory[place] = self._before[at : at + self.size]
            else:
                disk[at : at + self.size] = self._memory[place]
        if self._namespace.read(0, len(disk)) != bytes(disk):
            raise TransferError("the namespace has other data than the commands wrote")
        if not self.revoked:
            self._host.gpu.flush()
            if self._host.result(len(memory)) != bytes(memory):
                raise TransferError("the memory of the GPU has other data than the commands read")

    def _forget(self, disk: bytearray, memory: bytearray, at: int, place: slice) -> None:
        """Take the data of a failed command as right, whatever it is."""
        disk[at : at + self.size] = self._namespace.read(at, self.size)
        if not self.revoked:
            memory[place] = self._host.result(self.size, place.start)


def _no_submit(_slot: int, _command: IOCommand, _at: int, _finished: Finished) -> None:
    raise AssertionError("nothing carries the commands")


def _nothing() -> None:
    """Do nothing after the last command."""


def plan(reads: int, writes: int, size: int, blocks: int, seed: int) -> list[PlannedCommand]:
    """Return READs and WRITEs of ``size`` bytes in random order, each of other blocks.

    ``blocks`` is the number of blocks of the namespace.
    """
    random = Random(seed)  # noqa: S311 - repeatable
    opcodes = [IOOpcode.READ] * reads + [IOOpcode.WRITE] * writes
    random.shuffle(opcodes)
    each = size // BLOCK
    places = random.sample(range(blocks // each), len(opcodes))
    return [
        PlannedCommand(number, opcode, place * each, number * size)
        for number, (opcode, place) in enumerate(zip(opcodes, places, strict=True))
    ]
