"""A host of a scenario: its adapter and port, its GPUs, its memory and shared receive queues."""

from collections import Counter
from collections.abc import Iterator
from errno import errorcode
from random import Random
from typing import Final

from rdmawire.errors import ENOTSUPP, VerbsError
from rdmawire.fabric.host import Host, NotifyingPort, Place
from rdmawire.ib.cm.connection import CMSettings
from rdmawire.ib.cm.machine import Neighbours
from rdmawire.ib.cm.manager import ManagedPort
from rdmawire.memory.gpu.device import Gpu
from rdmawire.traffic.scenario.model import (
    Content,
    Fill,
    GpuPlan,
    HostPlan,
    MemoryPlan,
    Span,
    SrqPlan,
)
from rdmawire.traffic.scenario.playing.failure import Failure
from rdmawire.traffic.scenario.playing.holding import Held, Registering, octets_of
from rdmawire.traffic.scenario.tables import MODELS
from rdmawire.verbs.profile import named
from rdmawire.verbs.srq import SharedReceiveQueue, XRCReceiver

SRQ_SGES: Final = 16

NEARBY: Final = CMSettings(response_timeout=14, packet_life=8)
"""Hosts of a scenario are near one another: answers take milliseconds at the most, not seconds."""

_ANY_MAC: Final = "00:00:00:00:00:00"
_ERRNOS: Final = {**errorcode, ENOTSUPP: "ENOTSUPP"}


def errno_name(error: VerbsError) -> str:
    """What a refusal's errno is called."""
    return _ERRNOS.get(error.errno, str(error.errno))


def refusal(error: VerbsError | None) -> str:
    """How a refusal is told, or that there was none."""
    return "no refusal" if error is None else f"{errno_name(error)} ({error.reason})"


class Machine:
    """One host. ``held`` has memory and windows by name, ``events`` counts what was told unasked.

    ``gids`` are all its addresses. ``random`` is for what its memory holds, if that is left to
    chance.
    """

    def __init__(self, plan: HostPlan, place: Place, random: Random) -> None:
        self.plan = plan
        self.name = plan.name
        self.host = Host(profile=named(plan.profile), place=place)
        self.gids = (place.gid, *(Place.of(_ANY_MAC, other).gid for other in plan.further))
        self._take_gids()
        self.port = NotifyingPort(self.host.nic)
        self.registering = Registering(self.host)
        self.gpus: dict[str, Gpu] = {gpu.name: self._gpu(gpu) for gpu in plan.gpus}
        self.held: dict[str, Held] = {}
        self.srqs: dict[str, SharedReceiveQueue] = {}
        self.events: Counter[str] = Counter()
        self._random = random
        self.domain = self.host.nic.open_xrcd() if any(srq.xrc for srq in plan.srqs) else 0

    @property
    def mac(self) -> bytes:
        """Six octets."""
        return self.host.mac

    @property
    def nic(self) -> NotifyingPort:
        """What a network sees of it."""
        return self.port

    def _take_gids(self) -> None:
        """Have all its addresses. That they changed is told to nobody: nothing has happened yet."""
        if self.plan.further:
            self.host.nic.gids = self.gids
            self.host.events()

    def manage(self, neighbours: Neighbours, random: Random) -> None:
        """Have connections made by a manager."""
        managed = ManagedPort(self.host.nic, neighbours, random, NEARBY)
        self.port = NotifyingPort(self.host.nic, managed)

    def _gpu(self, plan: GpuPlan) -> Gpu:
        profile = MODELS[plan.model]
        return self.registering.driver.add(
            profile if plan.bar1 is None else profile._replace(bar1=plan.bar1)
        )

    def furnish(self) -> Iterator[Failure]:
        """Make what the plan has of memory and queues; what does not go as it says."""
        for window in self.plan.windows:
            self.held[window.name] = held = Held(f"{self.name}.{window.name}")
            held.window = self.host.nic.memory.alloc_mw(self.host.pd, 2)
            held.key = held.window.rkey
        for srq in self.plan.srqs:
            self.srqs[srq.name] = self._srq(srq)
        for memory in self.plan.memory:
            yield from self._memory(memory)

    def _srq(self, plan: SrqPlan) -> SharedReceiveQueue:
        nic, xrc = self.host.nic, None
        if plan.xrc:
            xrc = XRCReceiver(self.domain, nic.create_cq(plan.max_wr))
        srq = nic.create_srq(self.host.pd, plan.max_wr, SRQ_SGES, xrc)
        if plan.limit:
            srq.modify(limit=plan.limit)
        return srq

    def _memory(self, plan: MemoryPlan) -> Iterator[Failure]:
        self.held[plan.name] = held = Held(f"{self.name}.{plan.name}", plan)
        held.length = plan.size
        try:
            self._allocate(held, plan)
        except VerbsError as error:
            yield Failure(plan.mark, f"memory {held.name}", "to be there", refusal(error))
            return
        if plan.content.fill is not Fill.ZEROS:
            self.fill(held, Span(self.name, plan.name), plan.content)
        if plan.registered:
            yield from self._register(held, plan)

    def _allocate(self, held: Held, plan: MemoryPlan) -> None:
        if plan.gpu is None:
            window = self.host.space.allocate(plan.size, plan.page)
            held.memory, held.start = window, window.base
        else:
            gpu = self.gpus[plan.gpu]
            held.start = gpu.allocate(plan.size).address
            held.memory = held.gpu = gpu
        held.iova = held.start

    def _register(self, held: Held, plan: MemoryPlan) -> Iterator[Failure]:
        refused: VerbsError | None = None
        try:
            self.registering.register(held, plan.access)
        except VerbsError as error:
            refused = error
        if plan.refused != (refused and errno_name(refused)):
            expected = plan.refused or "no refusal"
            what = f"registration of {held.name}"
            yield Failure(plan.mark, what, expected, refusal(refused))

    def fill(self, held: Held, span: Span, content: Content) -> None:
        """Put octets into memory."""
        _, length = held.extent(span)
        held.put(span, octets_of(content, length, self._random))

    def flush(self) -> None:
        """Let all kernels see what was written to the GPUs."""
        for gpu in self.gpus.values():
            gpu.flush()
