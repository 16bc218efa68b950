"""A managed port offers what its adapter offers, and frames together do what they do alone."""

from inspect import isfunction, signature
from random import Random

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.host import Host, NotifyingPort
from rdmawire.fabric.pair import CAP
from rdmawire.ib.cm.event import ConnectRequest
from rdmawire.ib.cm.manager import ManagedPort
from rdmawire.ib.engine import Nic
from rdmawire.ib.qp import QPInit
from rdmawire.units import us
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.wr import SendOpcode, SendWR
from tests.ib.cm.stage import Two, connected


def managed(number: int = 1) -> tuple[Host, ManagedPort]:
    host = Host(number)
    return host, ManagedPort(host.nic, lambda _: None, Random(number))


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def test_a_managed_port_offers_all_that_its_adapter_offers() -> None:
    host, port = managed()
    assert public(host.nic) <= public(port)
    for name in public(host.nic):
        getattr(port, name)


ENGINE = [name for name, member in vars(Nic).items() if isfunction(member) and name[0] != "_"]
LOOKING = ("next_event", "flow_of")
"""Methods that move no frames and no time."""


@pytest.mark.parametrize("kind", [ManagedPort, NotifyingPort])
@pytest.mark.parametrize("name", [name for name in ENGINE if name not in LOOKING])
def test_frames_and_time_come_and_go_by_the_same_calls(kind: type, name: str) -> None:
    theirs, ours = signature(getattr(Nic, name)), signature(getattr(kind, name))
    assert [(one.name, one.default) for one in ours.parameters.values()] == [
        (one.name, one.default) for one in theirs.parameters.values()
    ]
    assert isinstance(vars(kind)["sends_more"], property)


def test_verbs_of_a_managed_port_are_its_adapters() -> None:
    host, port = managed()
    verbs: Nic = port  # type: ignore[assignment]
    cq = verbs.create_cq(4)
    qp = verbs.create_qp(QPType.RC, QPInit(host.pd, cq, cq, CAP))
    assert host.nic.device.qps[qp.qp_num] is qp
    verbs.up = False
    assert not host.nic.up
    with pytest.raises(AttributeError):
        setattr(port, "drops", 1)  # noqa: B010  read-only there, so here


def test_a_managed_port_gives_no_more_frames_than_asked_for() -> None:
    two, mine, _ = connected()
    for _ in range(5):
        two.client.nic.post_send(mine, [SendWR(SendOpcode.RDMA_WRITE)])
    port = two.client.port
    assert len(port.transmit(two.simulator.now, 2)) == 2
    assert port.sends_more
    assert len(port.transmit(two.simulator.now)) == 3
    assert not port.sends_more


def test_frames_together_do_what_they_do_one_by_one() -> None:
    """Messages of the manager among data: each is answered before the next frame is looked at."""
    told = []
    for together in (False, True):
        two = Two()
        qp = two.request()
        frames = two.client.port.transmit(0)
        two.server.port.receive_all(frames, 0)
        (request,) = two.server.port.events()
        assert isinstance(request, ConnectRequest)
        server_qp = two.server.qp()
        two.server.manager.accept(request.id, server_qp, 0)
        sink = two.server.receives(server_qp, 4096)
        two.client.port.receive_all(two.server.port.transmit(0), 0)
        two.client.send(qp, bytes(range(256)) * 16)
        burst = two.client.port.transmit(0)
        assert len(burst) == 5  # the RTU, and four packets
        burst = [*burst[1:], burst[0], burst[1]]
        if together:
            two.server.port.receive_all(burst, 0)
        else:
            for frame in burst:
                two.server.port.receive(frame, 0)
        two.drive(us(10))
        events = [type(event).__name__ for event in two.server.port.events()]
        told.append((events, sink.read(), two.server.nic.drops, two.server.manager.ignored))
    assert told[0] == told[1]
    assert told[0][1] == bytes(range(256)) * 16


def test_what_is_no_frame_is_refused_and_those_before_it_are_taken_in() -> None:
    two, mine, peers = connected()
    sink = two.server.receives(peers, 4096)
    two.client.send(mine, bytes(range(256)) * 16)
    frames = two.client.port.transmit(two.simulator.now)
    for port in (two.server.port, NotifyingPort(two.server.nic, two.server.port)):
        with pytest.raises(VerbsError):
            port.receive_all(7, two.simulator.now)  # type: ignore[arg-type]
    with pytest.raises(VerbsError):
        two.server.port.receive_all([*frames, None], two.simulator.now)  # type: ignore[list-item]
    assert sink.read() == bytes(range(256)) * 16
