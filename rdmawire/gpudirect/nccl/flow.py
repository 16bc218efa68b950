"""Collective operations as flows: when each message is sent and arrives, without its packets.

Rings are computed message by message for all ranks at once, by the rates and latencies of a
:class:`~rdmawire.gpudirect.CollectiveRun`: a rank sends a message when it has it, when its link is
free, and when the receiver has a free buffer. Channels that use one adapter wait for one another.
Between pairs of ranks, the adapter with the most bytes decides. Other operations are followed event
by event. There are no losses.
"""

from collections import deque
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.errors import CollectiveError
from rdmawire.fabric import Cable
from rdmawire.gpudirect.message_time import message_time
from rdmawire.gpudirect.nccl.collective import Algorithm, Collective, CollectiveSpec, bytes_sent
from rdmawire.gpudirect.nccl.flow_events import ENTRY, CollectiveFlowReport, EventFlow
from rdmawire.gpudirect.nccl.layout import LOCAL_PATHS
from rdmawire.units import SECOND

Times = NDArray[Any]
MAX_RANKS: Final = 8192
_STEPS: Final = {
    Collective.ALL_REDUCE: lambda ranks: 2 * ranks - 1,
    Collective.ALL_GATHER: lambda ranks: ranks,
    Collective.REDUCE_SCATTER: lambda ranks: ranks,
}
"""Steps of a rank in one loop, as those of :func:`~rdmawire.gpudirect.ring_steps`."""


class _EdgeTimes(NamedTuple):
    """An edge of a ring: how long (ns) a message occupies it, and when it has arrived."""

    busy: float
    arrival: float


def _edges(spec: CollectiveSpec, cable: Cable, size: int) -> tuple[_EdgeTimes, _EdgeTimes]:
    """Return an edge over NVLink, and one between hosts, for messages of this size in bytes."""
    near = size / spec.nvlink_rate * SECOND
    return _EdgeTimes(near, near + spec.nvlink_latency), _EdgeTimes(*message_time(size, cable))


def _ring(spec: CollectiveSpec, cable: Cable) -> CollectiveFlowReport:
    """Follow the messages of all rings, loop by loop and step by step."""
    protocol = spec.chosen_protocol
    item = np.dtype(spec.dtype).itemsize
    in_place = spec.collective is Collective.ALL_REDUCE
    parts = spec.ranks if in_place else 1
    share = spec.size // (1 if in_place else spec.ranks) // spec.chosen_channels
    steps = _STEPS[spec.collective](spec.ranks)
    times = _RingTimes(spec, steps, 2 * cable.latency + ENTRY)
    left, messages = share, 0
    while left > 0:
        chunk = min(protocol.chunk // item * item, -(-left // parts))
        size = protocol.wire_size(-(-chunk // protocol.slices))
        times.loop(*_edges(spec, cable, size))
        left -= chunk * parts
        messages += (steps - 1) * protocol.slices * spec.hosts * spec.chosen_channels
    return CollectiveFlowReport(
        round(times.end), *_ring_bytes(spec), messages if spec.hosts > 1 else 0
    )


def _ring_bytes(spec: CollectiveSpec) -> tuple[int, int]:
    """Return the bytes that the busiest adapter sends, and those over all NVLinks."""
    far = bytes_sent(spec.collective, spec.size, spec.ranks)
    by_adapter = far * _busiest(spec) // spec.chosen_channels if spec.hosts > 1 else 0
    inner = spec.ranks - (spec.hosts if spec.hosts > 1 else 0)
    return by_adapter, spec.chosen_protocol.wire_size(far * inner) if spec.gpus > 1 else 0


def _busiest(spec: CollectiveSpec) -> int:
    """Return the channels of the adapter that most channels use."""
    return -(-spec.chosen_channels // spec.gpus)


class _RingTimes:
    """When each rank sends its messages, in all channels.

    ``offer`` is the time (ns) of an entry that offers a buffer. The k-th message of a step arrives
    for the k-th one of the next step of the next rank. An adapter, and the NVLinks of a GPU, send
    the messages of their channels one after the other.
    """

    def __init__(self, spec: CollectiveSpec, steps: int, offer: int) -> None:
        protocol = spec.chosen_protocol
        self.end = 0.0
        self._steps = steps
        self._slices = protocol.slices
        self._slots = protocol.slots
        self._ranks = spec.ranks
        last = np.arange(spec.ranks) % spec.gpus == spec.gpus - 1
        self._is_far = last & (spec.hosts > 1)
        self._offer = np.where(self._is_far, float(offer), 0.0)
        channels = range(spec.chosen_channels)
        self._adapters = [(channel + spec.gpus - 1) % spec.gpus for channel in channels]
        self._adapter_free = {number: self._offer.copy() for number in set(self._adapters)}
        places = np.arange(spec.ranks)
        within = places % spec.gpus
        self._gpus = [places - within + (channel + within) % spec.gpus for channel in channels]
        self._nvlink_free = np.zeros(spec.ranks)
        self._done: list[deque[Times]] = [deque(maxlen=self._slots) for _ in channels]

    def loop(self, near: _EdgeTimes, far: _EdgeTimes) -> None:
        """Follow one loop, with edges for messages of its size."""
        edges = tuple(
            np.where(self._is_far, over_wire, over_nvlink)
            for over_nvlink, over_wire in zip(near, far, strict=True)
        )
        slots = [(channel, part) for part in range(self._slices) for channel in self._channels]
        arrived = dict.fromkeys(slots, np.zeros(self._ranks))
        for step in range(self._steps):
            for slot in slots:
                taken, channel = arrived[slot], slot[0]
                if step:
                    self._done[channel].append(taken)
                if step < self._steps - 1:
                    arrived[slot] = self._send(channel, taken, *edges)
                else:
                    self.end = max(self.end, float(taken.max()))

    @property
    def _channels(self) -> range:
        return range(len(self._adapters))

    def _send(self, channel: int, ready: Times, busy: Times, arrival: Times) -> Times:
        """Send a message of each rank; return when those arrive that each rank receives."""
        adapter = self._adapter_free[self._adapters[channel]]
        gpus = self._gpus[channel]
        nvlink = self._nvlink_free[gpus]
        done = self._done[channel]
        sent = np.maximum(ready, np.where(self._is_far, adapter, nvlink))
        if len(done) == self._slots:  # a buffer of the next rank was offered again
            sent = np.maximum(sent, np.roll(done[0], -1) + self._offer)
        free = sent + busy
        np.copyto(adapter, free, where=self._is_far)
        self._nvlink_free[gpus] = np.where(self._is_far, nvlink, free)
        return np.roll(sent + arrival, 1)


def _pairs(spec: CollectiveSpec, cable: Cable) -> CollectiveFlowReport:
    """Return what messages between pairs take: the adapter with the most bytes decides."""
    every = spec.collective is Collective.SEND_RECEIVE
    block = spec.size if every else spec.size // spec.ranks
    far = 1 if every else spec.ranks - spec.gpus
    near = 0 if every else spec.gpus - 1
    far = far if spec.hosts > 1 else 0
    near = near if spec.hosts > 1 or not every else 1
    busy, arrival = message_time(block, cable)
    over_wire = far * busy + (arrival - busy) + 2 * cable.latency if far else 0.0
    over_nvlink = near * block / spec.nvlink_rate * SECOND + spec.nvlink_latency if near else 0.0
    duration = round(max(over_wire, over_nvlink))
    return CollectiveFlowReport(duration, far * block, near * block * spec.ranks, 0)


def _is_regular(spec: CollectiveSpec) -> bool:
    """Return whether all ranks do the same steps, so that they can be computed at once."""
    is_ring = spec.algorithm is Algorithm.RING and not spec.collective.has_root
    return is_ring and spec.layout is None


def flow_run(spec: CollectiveSpec, cable: Cable) -> CollectiveFlowReport:
    """Return what an operation takes; :class:`CollectiveError` for what cannot be."""
    spec.check(MAX_RANKS)
    if spec.spines:
        raise CollectiveError("flows have one switch: leave --flows out, or the spines")
    if spec.net.differs_on_queue_pairs:
        raise CollectiveError(
            "flows have one queue pair for each connection, without adaptive routing and flushes:"
            " leave --flows out, or those"
        )
    if spec.collective.is_ring and not _is_regular(spec):
        return EventFlow(spec, cable).run()
    if spec.layout is not None:
        raise CollectiveError(
            f"flows of {spec.collective.value} have an adapter for each GPU: leave --flows or"
            " the topology out"
        )
    return _ring(spec, cable) if spec.collective.is_ring else _pairs(spec, cable)


LAUNCH: Final = 32_000
"""Time (ns) of a collective of few bytes, from the call to its end: measured on H200 by PyTorch."""


def local_time(collective: Collective, gpus: int, size: int, path: str) -> int:
    """Return the time (ns) of an operation of NCCL by GPUs of one host.

    ``size`` in bytes is rounded up to values for each GPU; ``path`` is one of
    :data:`LOCAL_PATHS`.
    """
    rate, delay, _ = LOCAL_PATHS[path]
    unit = 4 * gpus
    whole = -(-size // unit) * unit
    spec = CollectiveSpec(collective, 1, gpus, whole, nvlink_rate=rate, nvlink_latency=delay)
    return LAUNCH + flow_run(spec, Cable()).duration
