"""A drive of the host itself: rings of commands and completions in host memory, and a doorbell.

The drive fetches a command by a read of host memory, and its data goes to the BAR1 of the GPU by
peer-to-peer DMA, or to pinned host memory. NVM Express Base Specification 2.0, 3.3.1.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from math import ceil
from typing import Final

from rdmawire.errors import TransferError
from rdmawire.gpudirect.storage.capsule import (
    COMMAND_SIZE,
    COMPLETION_SIZE,
    IOCommand,
    NvmeCompletion,
    SglType,
    Status,
    status_name,
)
from rdmawire.gpudirect.storage.drive import Drive
from rdmawire.gpudirect.storage.host import StorageHost
from rdmawire.gpudirect.storage.workload import Finished
from rdmawire.memory.page import PAGE_64K
from rdmawire.topology import BusRoute

_EXTRA: Final = 1
"""Entries more than commands: a ring that is full has one free entry."""


class LocalQueue:
    """An I/O queue of a drive: ``memory_route`` leads from it to host memory.

    ``data_route`` leads to the memory with the data, and ``base`` is its bus address.
    """

    def __init__(  # noqa: PLR0917
        self,
        host: StorageHost,
        drive: Drive,
        depth: int,
        memory_route: BusRoute,
        data_route: BusRoute,
        base: int,
    ) -> None:
        self._host = host
        self._drive = drive
        self._entries = depth + _EXTRA
        self._memory_route = memory_route
        self._data_route = data_route
        self._base = base
        space = host.host.space
        self._commands = space.allocate(self._entries * COMMAND_SIZE).base
        self._completions = space.allocate(self._entries * COMPLETION_SIZE).base
        self._space = space
        self._tail = self._head = self._written = self._taken = 0
        self._waiting: dict[int, Finished] = {}

    def submit(self, slot: int, command: IOCommand, offset: int, finished: Finished) -> None:
        """Write a command to the ring, and ring the doorbell."""
        command = command.replace(
            cid=slot, sgl_type=SglType.DATA_BLOCK, address=self._base + offset
        )
        self._waiting[slot] = finished
        at = self._commands + self._tail % self._entries * COMMAND_SIZE
        self._space.write(at, command.build())
        self._tail += 1
        self._host.cpu += self._host.costs.post_time
        delay = self._host.costs.post_time + self._memory_route.latency
        self._at(self._host.simulator.now + delay, self._fetch)

    def _at(self, time: float, action: Callable[[], None]) -> None:
        self._host.simulator.call_at(ceil(time), action)

    def _fetch(self) -> None:
        """Fetch the next command, as the drive."""
        at = self._commands + self._head % self._entries * COMMAND_SIZE
        self._head += 1
        end = self._memory_route.read(COMMAND_SIZE, self._host.simulator.now)
        self._at(end, partial(self._execute, at))

    def _execute(self, at: int) -> None:
        command = IOCommand.parse(self._space.read(at, COMMAND_SIZE))
        done = partial(self._complete, command.cid)
        self._drive.execute(command, command.address, self._data_route, done)

    def _complete(self, cid: int, status: Status) -> None:
        """Write a completion, as the drive; its phase is that of the round of the ring."""
        number, self._written = self._written, self._written + 1
        phase = 1 - number // self._entries % 2
        entry = NvmeCompletion(
            sqhd=self._head % self._entries, sqid=1, cid=cid, status=status, phase=phase
        )
        at = self._completions + number % self._entries * COMPLETION_SIZE
        end = self._memory_route.write(COMPLETION_SIZE, self._host.simulator.now)
        self._at(end, partial(self._written_entry, at, entry.build()))

    def _written_entry(self, at: int, entry: bytes) -> None:
        self._space.write(at, entry)
        for completion in list(self._polled()):
            self._waiting.pop(completion.cid)(status_name(completion.status))

    def _polled(self) -> Iterator[NvmeCompletion]:
        """Yield the new completions: those whose phase is that of this round."""
        while True:
            at = self._completions + self._taken % self._entries * COMPLETION_SIZE
            completion = NvmeCompletion.parse(self._space.read(at, COMPLETION_SIZE))
            if completion.phase != 1 - self._taken // self._entries % 2:
                return
            self._taken += 1
            yield completion


def contiguous(pages: list[int]) -> int:
    """Return the first bus address of pages of the GPU, which follow one another."""
    if any(after - before != PAGE_64K for before, after in pairwise(pages)):
        raise TransferError("the pages of the GPU do not follow one another in BAR1")
    return pages[0]
