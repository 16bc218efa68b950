"""An adapter whose DMA takes time: between the wire and memory are the links of a host.

The engine of an adapter reads and writes memory at once. A :class:`DmaPort` around it keeps each
frame until its payload has been read from memory, and each received one until its payload could be
written, as :mod:`rdmawire.topology.bus` computes for the route to that memory.
"""

from collections import deque
from collections.abc import Mapping
from heapq import heappop, heappush
from math import ceil
from typing import Final, NamedTuple

from rdmawire.fabric.host import NotifyingPort
from rdmawire.ib.engine import Nic
from rdmawire.memory.page import Path
from rdmawire.memory.region import Region
from rdmawire.topology import Bus, BusRoute, Device, Route, memory_route, peer_route
from rdmawire.verbs.engine import Clock
from rdmawire.wire.ib import BTH, ICRC, VCRC
from rdmawire.wire.packet import LAYOUTS
from rdmawire.wire.roce import Medium, bth_offset

_BURST: Final = 16
"""Frames taken from the engine at once."""
_AT_ONCE: Final = 4
"""Frames given to the MAC at once: while it sends them, the payload of others is read."""
_READ_AHEAD: Final = 1 << 17
"""Bytes of frames whose payload is read, or was read, before they can be sent."""


class _Payload(NamedTuple):
    """Where a frame goes: the queue pair, the bytes of its payload, key and address of its RETH."""

    qpn: int
    size: int
    rkey: int | None = None
    address: int = 0


_RKEY_OFFSET: Final = 8
"""Offset in a RETH (bytes): IBA 9.3.3."""
_NOTHING: Final = _Payload(-1, 0)


def _payload(frame: bytes, medium: Medium = Medium.ETHERNET) -> _Payload:
    at = bth_offset(frame, 0, len(frame), medium=medium)
    layout = LAYOUTS.get(frame[at]) if at >= 0 else None
    if layout is None:
        return _NOTHING
    crcs = ICRC.SIZE + (VCRC.SIZE if medium is Medium.INFINIBAND else 0)
    size = len(frame) - at - BTH.SIZE - layout.size - crcs - (frame[at + 1] >> 4 & 3)
    key, address = None, 0
    if layout.shape is not None and "reth" in layout.shape.headers:
        start = at + BTH.SIZE
        address = int.from_bytes(frame[start : start + _RKEY_OFFSET], "big")
        start += _RKEY_OFFSET
        key = int.from_bytes(frame[start : start + 4], "big")
    return _Payload(int.from_bytes(frame[at + 5 : at + 8], "big"), max(size, 0), key, address)


def adapter_routes(
    bus: Bus, adapter: Device, gpu: Device | None, node: int
) -> dict[Path, BusRoute]:
    """Return the routes of an adapter to memory of a NUMA node and of a GPU, by path of DMA.

    Bounce buffers are in the memory of the node: their bytes go on to the GPU, or come from it.
    """
    memory = memory_route(bus.machine, adapter, node)
    routes = {Path.HOST: bus.route(memory)}
    if gpu is not None:
        onward = memory_route(bus.machine, gpu, node).reversed()
        bounce = Route([*memory.steps, *onward.steps], [*memory.remarks, *onward.remarks])
        routes[Path.GPU_DIRECT] = bus.route(peer_route(bus.machine, adapter, gpu))
        routes[Path.BOUNCE] = bus.route(bounce)
    return routes


class DmaPort:
    """A port of a simulator: an adapter, and the time of its DMA.

    ``port`` is the adapter with its application, ``medium`` what its frames begin with,
    ``routes`` are the routes from the adapter to memory, by the path that its accesses take.
    ``max_buffered`` is the number of bytes of received frames that may wait for the bus; frames
    beyond it are discarded and counted in ``discarded``. Without it no frame is discarded, as if
    the link paused the sender.
    """

    def __init__(
        self,
        port: NotifyingPort,
        nic: Nic,
        routes: Mapping[Path, BusRoute],
        *,
        max_buffered: int | None = None,
    ) -> None:
        self.port = port
        self.discarded = 0
        self.most_buffered = 0
        self._nic = nic
        self._counters = nic.memory.counter
        self._routes = routes
        self._max_buffered = max_buffered
        self._buffered = 0
        self._received: deque[tuple[int, bytes, _Payload]] = deque()
        self._ready: list[tuple[int, int, bytes]] = []
        self._last_ready: dict[int, int] = {}
        self._paths: dict[int, Path] = {}
        self._following: dict[int, int] = {}
        translated = any(route.is_translated for route in routes.values())
        self._burst = 1 if translated else _BURST  # the address of each frame's payload is needed
        self._number = 0
        self._read_ahead = 0
        self._now = 0
        self.medium = port.medium

    @property
    def clock(self) -> Clock | None:
        """The adapter's clock: returns the time (ns) for verbs."""
        return self.port.clock

    @clock.setter
    def clock(self, clock: Clock | None) -> None:
        self.port.clock = clock

    # From the wire to memory.

    def receive(self, frame: bytes, now: int) -> None:
        """Keep a frame until its payload could be written to memory.

        The memory is the one that its RETH names, else that of the queue pair's last frame that was
        delivered, else the host's.
        """
        self._now = now
        if self._max_buffered is not None and self._buffered + len(frame) > self._max_buffered:
            self.discarded += 1
            return
        payload, due = _payload(frame, self.medium), now
        if payload.size:
            route, address = self._target(payload)
            due = ceil(route.write(payload.size, now, address))
        if self._received:
            due = max(due, self._received[-1][0])
        self._buffered += len(frame)
        self.most_buffered = max(self.most_buffered, self._buffered)
        self._received.append((due, frame, payload))
        self._deliver(now)

    def _target(self, payload: _Payload) -> tuple[BusRoute, int | None]:
        """Return the route to the memory that a frame's RETH names, else to that of the last frame.

        The address, if it is known, is that of the RETH, else the one after the last frame.
        """
        qpn = payload.qpn
        if payload.rkey is not None:
            region = self._nic.memory.keys.find(payload.rkey)
            if isinstance(region, Region) and region.backing is not None:
                self._paths[qpn] = region.backing.path
                self._following[qpn] = region.address + payload.address - region.iova
        address = self._following.get(qpn)
        if address is not None:
            self._following[qpn] = address + payload.size
        return self._routes[self._paths.get(qpn, Path.HOST)], address

    def _deliver(self, now: int) -> None:
        while self._received and self._received[0][0] <= now:
            _, frame, payload = self._received.popleft()
            self._buffered -= len(frame)
            before = self._bytes()
            self.port.receive(frame, now)
            self._learn(payload, before)

    def _bytes(self) -> dict[Path, int]:
        return {path: self._counters[path].bytes for path in self._routes}

    def _learn(self, payload: _Payload, before: dict[Path, int]) -> None:
        """Note which memory a queue pair uses."""
        if not payload.size:
            return
        for path, count in before.items():
            if self._counters[path].bytes - count >= payload.size:
                self._paths[payload.qpn] = path
                end = self._counters[path].address + payload.size
                self._following.setdefault(payload.qpn, end)

    # From memory to the wire.

    def transmit(self, now: int) -> list[bytes]:
        """Return the frames whose payload has been read."""
        self._now = now
        self._take(now)
        ready: list[bytes] = []
        while self._ready and self._ready[0][0] <= now and len(ready) < _AT_ONCE:
            frame = heappop(self._ready)[2]
            self._read_ahead -= len(frame)
            ready.append(frame)
        return ready

    def _take(self, now: int) -> None:
        """Take frames from the engine while few wait for their payload."""
        while self._read_ahead < _READ_AHEAD:
            before = self._bytes()
            frames = self.port.transmit(now, self._burst)
            if not frames:
                return
            read = {path: self._counters[path].bytes - count for path, count in before.items()}
            for frame in frames:
                self._read(frame, read, now)

    def _read(self, frame: bytes, read: dict[Path, int], now: int) -> None:
        """Keep a frame until its payload has been read; ``read`` are the bytes of the burst.

        Inline data is not read from memory. A payload of two memories takes the route to the one of
        which most was read. Frames of one queue pair stay in order.
        """
        qpn, size, *_ = _payload(frame, self.medium)
        due = now
        most = max(read, key=read.__getitem__)
        path = next((path for path, left in read.items() if left >= size), most)
        if size and read[path] > 0:
            read[path] -= size
            address = self._counters[path].address if self._burst == 1 else None
            due = ceil(self._routes[path].read(size, now, address))
        due = self._last_ready[qpn] = max(due, self._last_ready.get(qpn, 0))
        self._number += 1
        self._read_ahead += len(frame)
        heappush(self._ready, (due, self._number, frame))

    # Time.

    def next_timer(self) -> int | None:
        """Return when a frame is ready, or a timer of the adapter is due (ns), if any is.

        A frame that is ready already waits for a free wire: the MAC asks again without a timer.
        """
        times = [self._received[0][0]] if self._received else []
        if self._ready and self._ready[0][0] > self._now:
            times.append(self._ready[0][0])
        due = self.port.next_timer()
        if due is not None:
            times.append(due)
        return min(times, default=None)

    def handle_timer(self, now: int) -> None:
        """Deliver what could be written, and handle the timers of the adapter that are due."""
        self._now = now
        self._deliver(now)
        due = self.port.next_timer()
        if due is not None and due <= now:
            self.port.handle_timer(now)
