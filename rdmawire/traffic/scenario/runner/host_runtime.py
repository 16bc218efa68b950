"""The hosts of a running scenario and their queue pairs: creation and connection."""

from collections import Counter
from collections.abc import Callable, Iterator
from errno import errorcode
from random import Random
from typing import Any, Final, NamedTuple

from rdmawire.errors import ENOTSUPP, VerbsError
from rdmawire.fabric.host import Host, NotifyingPort, Place
from rdmawire.fabric.pair import ATTRIBUTES
from rdmawire.ib.cm.connection import CMSettings
from rdmawire.ib.cm.machine import Neighbours
from rdmawire.ib.cm.manager import ManagedPort
from rdmawire.ib.congestion.base import CongestionController
from rdmawire.ib.congestion.dcqcn import CNP_INTERVAL, Dcqcn, DcqcnParameters
from rdmawire.ib.congestion.timely import Timely, TimelyParameters
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.ib.rules import Rules
from rdmawire.memory.gpu.device import Gpu
from rdmawire.traffic.scenario.document import Failure
from rdmawire.traffic.scenario.model import (
    ConnectionPlan,
    Content,
    Fill,
    GpuPlan,
    HostPlan,
    MemoryPlan,
    Span,
    SrqPlan,
)
from rdmawire.traffic.scenario.model.connection import QUEUE, SCHEMES, TYPES
from rdmawire.traffic.scenario.model.host import MODELS
from rdmawire.traffic.scenario.runner.buffers import MemoryRegistrar, NamedBuffer, bytes_of
from rdmawire.verbs.ah import AddressHandle
from rdmawire.verbs.cq import CompletionQueue
from rdmawire.verbs.enums import MigrationState, QPState, QPType
from rdmawire.verbs.profile import Profile, named
from rdmawire.verbs.qp_attr import FIELDS, QP_TRANSITIONS, Needs, QPAttributes, QPAttrMask, QPCap
from rdmawire.verbs.srq import SharedReceiveQueue, XRCReceiver
from rdmawire.wire.inet import ECN
from rdmawire.wire.management import MTU

SRQ_SGES: Final = 16

NEARBY: Final = CMSettings(response_timeout=14, packet_life=8)
"""Response timeouts of milliseconds, as hosts of a scenario are close to each other."""

_ANY_MAC: Final = "00:00:00:00:00:00"
_ERRNOS: Final = {**errorcode, ENOTSUPP: "ENOTSUPP"}


def errno_name(error: VerbsError) -> str:
    """Return the name of an error's errno."""
    return _ERRNOS.get(error.errno, str(error.errno))


def refusal(error: VerbsError | None) -> str:
    """Describe an error, or that there was none."""
    return "no refusal" if error is None else f"{errno_name(error)} ({error.reason})"


class HostRuntime:
    """One host. ``buffers`` has memory and windows by name, ``events`` counts its events.

    ``gids`` are all its addresses. ``random`` generates the random content of its memory, ``rules``
    are those of its adapter.
    """

    def __init__(self, plan: HostPlan, place: Place, random: Random, rules: Rules) -> None:
        self.plan = plan
        self.name = plan.name
        self.host = Host(profile=named(plan.profile), place=place, rules=rules)
        self.gids = (place.gid, *(Place.of(_ANY_MAC, other).gid for other in plan.further))
        self._take_gids()
        self.port = NotifyingPort(self.host.nic)
        self.registering = MemoryRegistrar(self.host)
        self.gpus: dict[str, Gpu] = {gpu.name: self._gpu(gpu) for gpu in plan.gpus}
        self.buffers: dict[str, NamedBuffer] = {}
        self.srqs: dict[str, SharedReceiveQueue] = {}
        self.events: Counter[str] = Counter()
        self._random = random
        self.domain = self.host.nic.open_xrcd() if any(srq.xrc for srq in plan.srqs) else 0

    @property
    def mac(self) -> bytes:
        """MAC address (6 bytes)."""
        return self.host.mac

    @property
    def nic(self) -> NotifyingPort:
        """The port that is attached to the network."""
        return self.port

    def _take_gids(self) -> None:
        """Set all addresses, and discard the resulting event."""
        if self.plan.further:
            self.host.nic.gids = self.gids
            self.host.events()

    def manage(self, neighbours: Neighbours, random: Random) -> None:
        """Add a connection manager."""
        managed = ManagedPort(self.host.nic, neighbours, random, NEARBY)
        self.port = NotifyingPort(self.host.nic, managed)

    def _gpu(self, plan: GpuPlan) -> Gpu:
        profile = MODELS[plan.model]
        return self.registering.driver.add(
            profile if plan.bar1 is None else profile._replace(bar1=plan.bar1)
        )

    def allocate(self) -> Iterator[Failure]:
        """Make the memory and the queues of the plan; yield failures."""
        for window in self.plan.windows:
            self.buffers[window.name] = buffer = NamedBuffer(f"{self.name}.{window.name}")
            buffer.window = self.host.nic.memory.alloc_mw(self.host.pd, 2)
            buffer.key = buffer.window.rkey
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
        self.buffers[plan.name] = buffer = NamedBuffer(f"{self.name}.{plan.name}", plan)
        buffer.length = plan.size
        try:
            self._allocate(buffer, plan)
        except VerbsError as error:
            yield Failure(plan.mark, f"memory {buffer.name}", "to be there", refusal(error))
            return
        if plan.content.fill is not Fill.ZEROS:
            self.fill(buffer, Span(self.name, plan.name), plan.content)
        if plan.registered:
            yield from self._register(buffer, plan)

    def _allocate(self, buffer: NamedBuffer, plan: MemoryPlan) -> None:
        if plan.gpu is None:
            window = self.host.space.allocate(plan.size, plan.page)
            buffer.memory, buffer.start = window, window.base
        else:
            gpu = self.gpus[plan.gpu]
            buffer.start = gpu.allocate(plan.size).address
            buffer.memory = buffer.gpu = gpu
        buffer.iova = buffer.start

    def _register(self, buffer: NamedBuffer, plan: MemoryPlan) -> Iterator[Failure]:
        refused: VerbsError | None = None
        try:
            self.registering.register(buffer, plan.access)
        except VerbsError as error:
            refused = error
        if plan.refused != (refused and errno_name(refused)):
            expected = plan.refused or "no refusal"
            what = f"registration of {buffer.name}"
            yield Failure(plan.mark, what, expected, refusal(refused))

    def fill(self, buffer: NamedBuffer, span: Span, content: Content) -> None:
        """Write content to a span of memory."""
        _, length = buffer.extent(span)
        buffer.put(span, bytes_of(content, length, self._random))

    def flush(self) -> None:
        """Make writes to all GPUs visible to kernels."""
        for gpu in self.gpus.values():
            gpu.flush()


_ECN_BITS: Final = 2
"""Bits of a traffic class below the DSCP."""

_MASKS: Final = {name: mask for mask, names in FIELDS.items() for name in names}


class QueuePairRuntime:
    """A queue pair with its completion queue; ``peer`` is the one at the other end.

    ``side`` is 0 for the connection's first end and 1 for its second, ``number`` counts its queue
    pairs from 1 on. ``ready``: work may be posted; ``trouble``: why that is not possible.
    ``managed`` is the id of its connection, if a manager made one; ``left``: it has ended.
    """

    peer: "QueuePairRuntime"

    def __init__(
        self, machine: HostRuntime, plan: ConnectionPlan, side: int, number: int, depth: int
    ) -> None:
        self.machine = machine
        self.plan = plan
        self.side = side
        self.number = number
        self.ready = False
        self.left = False
        self.trouble = ""
        self.managed = 0
        self.type = TYPES[plan.type][side]
        self.attributes = self._attributes()
        self.srq = self._srq()
        self.cap = _cap(machine.host.nic.device.profile, depth)
        self.cq = self._cq()
        self.qp = self._qp()

    @property
    def name(self) -> str:
        """Its name in scenarios."""
        own = f"{self.machine.name}/{self.plan.name}"
        return own if self.plan.count == 1 else f"{own}#{self.number}"

    @property
    def given(self) -> dict[str, Any]:
        """The attributes that the plan gives for this end."""
        return {**self.plan.attributes, **self.plan.of_end.get(self.machine.name, {})}

    def _attributes(self) -> QPAttributes:
        plan, side = self.plan, self.side
        base = ATTRIBUTES._replace(
            path_mtu=MTU.of(plan.mtu), sq_psn=plan.psn[side], rq_psn=plan.psn[1 - side]
        )
        return base._replace(**self.given)

    def _srq(self) -> SharedReceiveQueue | None:
        name = self.plan.srq.get(self.machine.name)
        return None if name is None else self.machine.srqs[name]

    def _cq(self) -> CompletionQueue:
        """Return a CQ with room for all work; for receives of an XRC queue, that queue's CQ."""
        if self.srq is not None and self.srq.xrc is not None:
            return self.srq.xrc.cq
        shared = 0 if self.srq is None else self.srq.max_wr
        room = self.cap.max_send_wr + self.cap.max_recv_wr + shared
        nic = self.machine.host.nic
        return nic.create_cq(min(room, nic.device.profile.max_cqe))

    def _qp(self) -> QueuePair:
        host, xrc = self.machine.host, self.type in (QPType.XRC_INI, QPType.XRC_TGT)
        init = QPInit(
            host.pd,
            self.cq,
            self.cq,
            self.cap,
            srq=None if xrc else self.srq,
            xrc_domain=self.machine.domain if self.type is QPType.XRC_TGT else 0,
        )
        qp = host.nic.create_qp(self.type, init)
        if self.plan.packets_in_flight is not None:
            host.nic.limit_in_flight(qp, self.plan.packets_in_flight)
        return qp

    @property
    def traffic_class(self) -> int:
        """Traffic class of sent packets."""
        return self.plan.dscp << 2 | (ECN.ECT_0 if self.plan.ecn else 0)

    @property
    def path(self) -> AddressHandle:
        """The path to the peer. Queue pairs use the addresses of a host in turn."""
        way = self.machine.host.path_to(self.peer.machine.host)
        return way._replace(sgid=self.gid, dgid=self.peer.gid, traffic_class=self.traffic_class)

    @property
    def gid(self) -> bytes:
        """The address of this queue pair."""
        gids = self.machine.gids
        return gids[(self.number - 1) % len(gids)]

    def agree(self) -> None:
        """Complete the attributes with those of the peer."""
        self.attributes = self.attributes._replace(ah=self.path, dest_qp_num=self.peer.qp.number)

    def bring_up(self) -> None:
        """Change the state from RESET to RTS, without a connection manager."""
        self.machine.host.bring_up(self.qp, self.attributes)
        if self.plan.alternate:
            self._rearm()
        self.ready = True

    def mark_gone(self, why: str) -> None:
        """Record that there is no connection, and why."""
        self.left = True
        self.trouble = why

    def _rearm(self) -> None:
        """Load the same path as the alternate path. IBA 17.2.8."""
        own = self.attributes
        self.modify(
            {
                "alt_ah": own.ah,
                "alt_pkey_index": own.pkey_index,
                "alt_port_num": own.port_num,
                "alt_timeout": own.timeout,
                "path_mig_state": MigrationState.REARM,
            }
        )

    def modify(self, given: dict[str, Any], state: QPState | None = None) -> None:
        """Change attributes, the state, or both; add those that the transition requires."""
        mask = QPAttrMask(0)
        for name in given:
            mask |= _MASKS[name]
        if state is not None:
            needs = QP_TRANSITIONS.get((self.type, self.qp.state, state), Needs())
            mask |= QPAttrMask.STATE | needs.required
            given = {**given, "qp_state": state}
        wanted = self.attributes._replace(**given)
        self.machine.host.nic.modify_qp(self.qp, wanted, mask)

    def control(self, line_rate: int | None) -> None:
        """Set up congestion control and CNPs as the plan says."""
        nic, plan = self.machine.host.nic, self.plan
        interval = plan.cnp_interval
        if plan.congestion is not None:
            control = CONTROLS[plan.congestion]
            nic.control_congestion(self.qp, control.make(_parameters(plan, line_rate)))
            interval = control.cnp_interval if interval is None else interval
        if interval is not None:
            nic.notify_congestion(self.qp, interval, _traffic_class(plan))


def _traffic_class(plan: ConnectionPlan) -> int | None:
    """Return the traffic class of CNPs, which are not ECN-capable; ``None`` for the path's."""
    return None if plan.cnp_dscp is None else plan.cnp_dscp << _ECN_BITS


def _cap(profile: Profile, depth: int) -> QPCap:
    work = min(max(QUEUE, depth), profile.max_qp_wr)
    return QPCap(work, work, SRQ_SGES, SRQ_SGES, profile.max_inline_data)


def _dcqcn(parameters: dict[str, Any]) -> CongestionController:
    return Dcqcn(DcqcnParameters(**parameters))


def _timely(parameters: dict[str, Any]) -> CongestionController:
    return Timely(TimelyParameters(**parameters))


class Control(NamedTuple):
    """A congestion control scheme, and the interval of its CNPs (ns) if it needs them."""

    make: Callable[[dict[str, Any]], CongestionController]
    cnp_interval: int | None = None


CONTROLS: Final = {"dcqcn": Control(_dcqcn, CNP_INTERVAL), "timely": Control(_timely)}
"""Congestion control by name."""


def _parameters(plan: ConnectionPlan, line_rate: int | None) -> dict[str, Any]:
    """Return the parameters; ``line_rate`` is the link's unless given, and bounds ``min_rate``."""
    usual = SCHEMES[plan.congestion or ""]
    given = dict(plan.parameters)
    if line_rate is not None:
        given.setdefault("line_rate", line_rate)
    rates = (given.get(name, getattr(usual, name)) for name in ("line_rate", "min_rate"))
    given["min_rate"] = min(rates)
    return {name: type(getattr(usual, name))(value) for name, value in given.items()}
