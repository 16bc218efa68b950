"""The steps of a transfer on a host: copies, each of one chunk after the other. Times are ns."""

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from math import ceil
from typing import Final, NamedTuple

from rdmawire.fabric import Simulator
from rdmawire.gpudirect.transfer.host import TransferHost
from rdmawire.topology import BusRoute
from rdmawire.units import SECOND

_PIECE: Final = 1 << 16
"""Bytes that a copy engine puts on the bus at once: others use the links between them."""


class StageKind(Enum):
    """A step of the processor or a copy engine, with what it does as text."""

    COPY_OUT = "copy from the GPU to pinned memory"
    COPY_IN = "copy from pinned memory to the GPU"
    PAGEABLE_OUT = "copy from the GPU to pageable memory"
    PAGEABLE_IN = "copy from pageable memory to the GPU"
    MEMCPY = "copy within host memory"
    TCP_OUT = "copy to the socket"
    TCP_IN = "copy from the socket"
    PEER_COPY = "copy to the other GPU"


class _Cost(NamedTuple):
    """What a stage takes for a chunk: by the names of fields of :class:`Costs`.

    ``latency`` is the time before a chunk if the stage was idle, ``launch`` that before each chunk,
    ``wait`` that after each until software knows of the end. ``rate`` is that of the processor's
    share of the work. ``bus`` says which way data goes over the bus: ``out`` of the GPU, ``in``, or
    to its ``peer``.
    """

    launch: str = ""
    latency: str = ""
    wait: str = ""
    rate: str = ""
    bus: str = ""


_COSTS: Final[Mapping[StageKind, _Cost]] = {
    StageKind.COPY_OUT: _Cost("copy_launch", "copy_sync", bus="out"),
    StageKind.COPY_IN: _Cost("copy_launch", bus="in"),
    StageKind.PAGEABLE_OUT: _Cost("pageable_launch", rate="staging_rate", bus="out"),
    StageKind.PAGEABLE_IN: _Cost("pageable_launch", rate="staging_rate", bus="in"),
    StageKind.MEMCPY: _Cost(rate="memcpy_rate"),
    StageKind.TCP_OUT: _Cost(latency="tcp_latency", rate="tcp_rate"),
    StageKind.TCP_IN: _Cost(latency="tcp_latency", rate="tcp_rate"),
    StageKind.PEER_COPY: _Cost("peer_launch", bus="peer"),
}


class Chunk(NamedTuple):
    """A part of the data: its number, its offset and its bytes."""

    number: int
    offset: int
    data: bytes


_Done = Callable[[Chunk], None]


class Stage:
    """A step that works on one chunk after the other, and passes each on to ``after``.

    The launch of a chunk that waited is done while the chunk before it is copied, and a wait for
    the end of a chunk while the next one is copied. All of it is time of a processor. The buffer
    in host memory has ``slots`` of ``slot_size`` bytes, which chunks use in turn; without them, all
    chunks use one place.
    """

    def __init__(
        self,
        kind: StageKind,
        host: TransferHost,
        simulator: Simulator,
        *,
        slots: int = 1,
        slot_size: int = 0,
    ) -> None:
        self._cost = _COSTS[kind]
        self._slots, self._slot_size = slots, slot_size
        self._host = host
        self._simulator = simulator
        self._route = host.routes.get(self._cost.bus)
        self._waiting: deque[Chunk] = deque()
        self._is_busy = False
        self.after: _Done = _ignore

    def put(self, chunk: Chunk) -> None:
        """Take a chunk, as soon as those before it are done."""
        if self._is_busy:
            self._waiting.append(chunk)
            return
        self._is_busy = True
        latency = self._time(self._cost.latency)
        self._host.cpu += latency
        delay = latency + self._time(self._cost.launch)
        self._at(self._simulator.now + delay, partial(self._begin, chunk))

    def _begin(self, chunk: Chunk) -> None:
        self._host.copies += 1
        self._host.cpu += self._time(self._cost.launch)
        self._move(chunk, len(chunk.data))

    def _time(self, name: str) -> float:
        return float(getattr(self._host.costs, name)) if name else 0.0

    def _at(self, time: float, action: Callable[[], None]) -> None:
        self._simulator.call_at(ceil(time), action)

    def _move(self, chunk: Chunk, left: int) -> None:
        """Put the next piece on the bus, and the others after it."""
        route, now = self._route, self._simulator.now
        if route is None:
            self._work(chunk)
            return
        piece = min(left, _PIECE)
        address = chunk.number % self._slots * self._slot_size + len(chunk.data) - left
        access = route.read if self._cost.bus == "in" else route.write
        end = access(piece, now, address)
        if left > piece:
            self._at(end - _round_trip(route, self._cost), partial(self._move, chunk, left - piece))
        else:
            self._at(end, partial(self._work, chunk))

    def _work(self, chunk: Chunk) -> None:
        """Do the processor's share of the work."""
        rate = self._time(self._cost.rate)
        spent = len(chunk.data) / rate * SECOND if rate else 0.0
        self._host.cpu += spent
        self._at(self._simulator.now + spent, partial(self._end, chunk))

    def _end(self, chunk: Chunk) -> None:
        """Begin with the next chunk, and pass this one on when software knows of its end."""
        wait = self._time(self._cost.wait)
        self._host.cpu += wait
        self._at(self._simulator.now + wait, partial(self.after, chunk))
        if self._waiting:
            self._begin(self._waiting.popleft())
        else:
            self._is_busy = False


def _round_trip(route: BusRoute, cost: _Cost) -> float:
    """Return the latency that the next piece need not wait for."""
    return route.latency * (2 if cost.bus == "in" else 1)


def _ignore(_: Chunk) -> None:
    """Ignore the chunk: nothing is after this stage."""
