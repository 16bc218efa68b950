"""One queue pair of a connection, as one end has it: how it is made, and brought up."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from rdmawire.fabric.pair import ATTRIBUTES
from rdmawire.ib.congestion.base import Scheme
from rdmawire.ib.congestion.dcqcn import Dcqcn, DcqcnParameters
from rdmawire.ib.congestion.notification import CNP_INTERVAL
from rdmawire.ib.congestion.timely import Timely, TimelyParameters
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.traffic.scenario.model import ConnectionPlan
from rdmawire.traffic.scenario.playing.machine import SRQ_SGES, Machine
from rdmawire.traffic.scenario.tables import QUEUE, SCHEMES, TYPES
from rdmawire.verbs.ah import AddressHandle
from rdmawire.verbs.cq import CompletionQueue
from rdmawire.verbs.enums import MigrationState, QPState, QPType
from rdmawire.verbs.profile import Profile
from rdmawire.verbs.qp_attr import FIELDS, QP_TRANSITIONS, Needs, QPAttributes, QPAttrMask, QPCap
from rdmawire.verbs.srq import SharedReceiveQueue
from rdmawire.wire.inet import ECN
from rdmawire.wire.management import MTU

_ECN_BITS: Final = 2
"""Below the DSCP in a traffic class."""

_MASKS: Final = {name: mask for mask, names in FIELDS.items() for name in names}


class Lane:
    """A queue pair with its completion queue; ``peer`` is the one at the other end.

    ``side`` is 0 for the connection's first end and 1 for its second, ``number`` counts its queue
    pairs from 1 on. ``ready`` says that work may be posted, ``trouble`` why that will never be.
    ``managed`` is the id of its connection, where a manager made one; ``left`` says that it ends.
    """

    peer: "Lane"

    def __init__(
        self, machine: Machine, plan: ConnectionPlan, side: int, number: int, depth: int
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
        """As scenarios call it."""
        own = f"{self.machine.name}/{self.plan.name}"
        return own if self.plan.count == 1 else f"{own}#{self.number}"

    @property
    def given(self) -> dict[str, Any]:
        """The attributes that the plan has for this end."""
        return {**self.plan.attributes, **self.plan.of_end.get(self.machine.name, {})}

    def _attributes(self) -> QPAttributes:
        plan, side = self.plan, self.side
        base = ATTRIBUTES._replace(
            path_mtu=MTU.of(plan.mtu),
            sq_psn=plan.psn[side],
            rq_psn=plan.psn[1 - side],
        )
        return base._replace(**self.given)

    def _srq(self) -> SharedReceiveQueue | None:
        name = self.plan.srq.get(self.machine.name)
        return None if name is None else self.machine.srqs[name]

    def _cq(self) -> CompletionQueue:
        """Room for all that may complete at once; what an XRC queue receives completes there."""
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
        """DSCP and ECN of what is sent."""
        return self.plan.dscp << 2 | (ECN.ECT_0 if self.plan.ecn else 0)

    @property
    def path(self) -> AddressHandle:
        """The way to the peer. Where a host has several addresses, queue pairs take turns."""
        way = self.machine.host.path_to(self.peer.machine.host)
        return way._replace(sgid=self.gid, dgid=self.peer.gid, traffic_class=self.traffic_class)

    @property
    def gid(self) -> bytes:
        """The address at which it is found."""
        gids = self.machine.gids
        return gids[(self.number - 1) % len(gids)]

    def agree(self) -> None:
        """Complete the attributes by what only the peer knows."""
        self.attributes = self.attributes._replace(ah=self.path, dest_qp_num=self.peer.qp.number)

    def bring_up(self) -> None:
        """From RESET to RTS, at once."""
        self.machine.host.bring_up(self.qp, self.attributes)
        if self.plan.alternate:
            self._rearm()
        self.ready = True

    def leaves(self, why: str) -> None:
        """There is no connection, or none any more."""
        self.left = True
        self.trouble = why

    def _rearm(self) -> None:
        """Have the same path once more as the alternate one. IBA 17.2.8."""
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
        """Change attributes, the state, or both; what the way there needs besides is known."""
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
        """Congestion control, and what is told of marks, as the plan says."""
        nic, plan = self.machine.host.nic, self.plan
        interval = plan.cnp_interval
        if plan.congestion is not None:
            control = CONTROLS[plan.congestion]
            nic.control_congestion(self.qp, control.make(_parameters(plan, line_rate)))
            interval = control.cnp_interval if interval is None else interval
        if interval is not None:
            nic.notify_congestion(self.qp, interval, _traffic_class(plan))


def _traffic_class(plan: ConnectionPlan) -> int | None:
    """That of CNPs, which are never marked themselves; ``None`` for the path's."""
    return None if plan.cnp_dscp is None else plan.cnp_dscp << _ECN_BITS


def _cap(profile: Profile, depth: int) -> QPCap:
    work = min(max(QUEUE, depth), profile.max_qp_wr)
    return QPCap(work, work, SRQ_SGES, SRQ_SGES, profile.max_inline_data)


def _dcqcn(parameters: dict[str, Any]) -> Scheme:
    return Dcqcn(DcqcnParameters(**parameters))


def _timely(parameters: dict[str, Any]) -> Scheme:
    return Timely(TimelyParameters(**parameters))


class Control(NamedTuple):
    """What makes congestion control, and how often marks are told (ns), if it needs that."""

    make: Callable[[dict[str, Any]], Scheme]
    cnp_interval: int | None = None


CONTROLS: Final = {"dcqcn": Control(_dcqcn, CNP_INTERVAL), "timely": Control(_timely)}
"""Congestion control by the names of its schemes."""


def _parameters(plan: ConnectionPlan, line_rate: int | None) -> dict[str, Any]:
    """Flows begin with the rate of their link, unless told otherwise; none is cut to a higher."""
    usual = SCHEMES[plan.congestion or ""]
    given = dict(plan.parameters)
    if line_rate is not None:
        given.setdefault("line_rate", line_rate)
    rates = (given.get(name, getattr(usual, name)) for name in ("line_rate", "min_rate"))
    given["min_rate"] = min(rates)
    return {name: type(getattr(usual, name))(value) for name, value in given.items()}
