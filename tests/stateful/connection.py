"""Connections between hosts, each direction a :class:`Flow` with a model beside it."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from rdmawire.fabric.host import Host
from rdmawire.fabric.link import Link
from rdmawire.fabric.pair import ATTRIBUTES
from rdmawire.fabric.simulator import Simulator
from rdmawire.ib.qp import QPInit
from rdmawire.verbs.cq import CompletionQueue
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.profile import IBTA, RXE, Profile
from rdmawire.verbs.qp_attr import QPAttributes, QPCap
from rdmawire.verbs.srq import XRCReceiver
from tests.stateful.arena import Arena
from tests.stateful.flow import ARENA, Flow, Place
from tests.stateful.strategies import MAX_PIECES

CAP: Final = QPCap(32, 32, MAX_PIECES, MAX_PIECES, 300)
ENDLESS: Final = 7
PATIENT: Final = tuple(
    replace(profile, endless_retry_cnt=ENDLESS, flush_icrc_covers_headers_twice=False)
    for profile in (IBTA, RXE)
)
"""Devices that never give up: what they are given to do is done, whatever the link does.

All compute the ICRC of a FLUSH by the standard: soft-RoCE and other adapters drop each other's.
"""


class Machine(Host):
    """A host with one completion queue for all."""

    def __init__(self, number: int, profile: Profile, ipv6: bool) -> None:
        super().__init__(number, profile=profile, ipv6=ipv6)
        self.cq: CompletionQueue = self.nic.create_cq(1000)


class Lan(NamedTuple):
    """Hosts on one link."""

    simulator: Simulator
    link: Link
    hosts: list[Machine]


def lan(
    hosts: int, profiles: Iterable[Profile], *, ipv6: bool, latency: int, rate: int | None = None
) -> Lan:
    """So many hosts on one link, with these devices in turn."""
    simulator, link = Simulator(), Link(latency, rate=rate)
    machines = [Machine(n + 1, profile, ipv6) for n, profile in zip(range(hosts), profiles)]  # noqa: B905
    for machine in machines:
        simulator.attach(machine.nic, machine.mac, link)
    return Lan(simulator, link, machines)


def place(host: Machine, kind: QPType, seed: int, *, shared: bool = False) -> Place:
    """A queue pair with an arena; ``shared``: it receives from a shared receive queue."""
    srq = host.nic.create_srq(host.pd, CAP.max_recv_wr, MAX_PIECES) if shared else None
    qp = host.nic.create_qp(kind, QPInit(host.pd, host.cq, host.cq, CAP, srq))
    return Place(Arena(host, ARENA, seed), qp, srq)


def xrc_target(host: Machine, seed: int) -> Place:
    """A target of XRC, and the shared receive queue that its peer names."""
    domain = host.nic.open_xrcd()
    receiver = XRCReceiver(domain, host.cq)
    srq = host.nic.create_srq(host.pd, CAP.max_recv_wr, MAX_PIECES, receiver)
    init = QPInit(host.pd, host.cq, host.cq, QPCap(0, 0, 0, 0, 0), xrc_domain=domain)
    return Place(Arena(host, ARENA, seed), host.nic.create_qp(QPType.XRC_TGT, init), srq)


def connect(one: Place, two: Place, psns: tuple[int, int], attributes: QPAttributes) -> None:
    """Bring both up; ``psns`` are the first of each."""
    first, second = psns
    _point(one, two, attributes._replace(sq_psn=first, rq_psn=second))
    _point(two, one, attributes._replace(sq_psn=second, rq_psn=first))


def _point(here: Place, there: Place, attributes: QPAttributes) -> None:
    path = here.host.path_to(there.host)
    here.host.bring_up(here.qp, attributes._replace(ah=path, dest_qp_num=there.qp.qp_num))


def reliable(one: Machine, two: Machine, *, shared: bool) -> tuple[Place, Place]:
    return place(one, QPType.RC, 1, shared=shared), place(two, QPType.RC, 2, shared=shared)


def extended(one: Machine, two: Machine, *, shared: bool) -> tuple[Place, Place]:
    del shared  # it always is
    return place(one, QPType.XRC_INI, 3), xrc_target(two, 4)


def flows_between(simulator: Simulator, one: Place, two: Place) -> list[Flow]:
    """The directions in which work may be posted."""
    pairs = ((one, two), (two, one))
    return [Flow(simulator, here, there) for here, there in pairs if here.qp.service.sends]


PATIENCE: Final = ATTRIBUTES._replace(rnr_retry=ENDLESS, retry_cnt=ENDLESS)
