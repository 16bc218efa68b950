"""Automatic path migration: when a connection goes over to its alternate path."""

import pytest

from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.link import Arrival, Link
from rdmawire.fabric.pair import ATTRIBUTES, End, Pair
from rdmawire.units import us
from rdmawire.verbs.ah import mapped
from rdmawire.verbs.async_event import GIDChanged, PathMigrated, PathMigrationFailed
from rdmawire.verbs.enums import MigrationState, QPState, WCStatus
from rdmawire.verbs.profile import RXE
from rdmawire.verbs.qp_attr import QPAttributes, QPAttrMask
from rdmawire.wire import roce
from rdmawire.wire.inet import IPv4

SECOND = {1: mapped(bytes((10, 1, 0, 1))), 2: mapped(bytes((10, 1, 0, 2)))}
REARM = QPAttrMask.ALT_PATH | QPAttrMask.PATH_MIG_STATE


class Wire(Link):
    """A link that keeps what it carried, and that may cut the first path off."""

    def __init__(self) -> None:
        super().__init__()
        self.carried: list[roce.Frame] = []
        self.cut = False

    def carry(self, frame: Envelope, now: int) -> list[Arrival]:
        parsed = roce.parse(frame.data)
        self.carried.append(parsed)
        return [] if self.cut and on_first_path(parsed) else super().carry(frame, now)


def on_first_path(frame: roce.Frame) -> bool:
    return any(isinstance(header, IPv4) and header.dst[1] == 0 for header in frame.headers)


def rearm(end: End, number: int, peer: int) -> None:
    """Load the alternate path, between the second addresses of both."""
    end.nic.gids = (*end.nic.gids, SECOND[number])
    alternate = end.path_to(end.peer)._replace(sgid=SECOND[number], dgid=SECOND[peer])
    wanted = QPAttributes(alt_ah=alternate, alt_timeout=14, path_mig_state=MigrationState.REARM)
    end.nic.modify_qp(end.qp, wanted, REARM)


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def pair(wire: Wire) -> Pair:
    """A pair of which both ends are armed, after one message each way."""
    pair = Pair(link=wire)
    rearm(pair.client, 1, 2)
    rearm(pair.server, 2, 1)
    for end in (pair.client, pair.server):
        end.write(b"hello", to=end.peer.region)
        pair.drive()
    return pair


def state_of(end: End) -> MigrationState:
    return end.nic.query_qp(end.qp).path_mig_state


def events_of(end: End) -> list[object]:
    return [event for event in iter(end.nic.next_event, None) if not isinstance(event, GIDChanged)]


def test_migreq_is_set_when_migrated_and_clear_when_armed(wire: Wire, pair: Pair) -> None:
    assert {frame.packet.bth.migreq for frame in wire.carried} == {0}
    plain = Wire()
    first = Pair(link=plain)
    first.client.write(b"hello", to=first.server.region)
    first.drive()
    assert {frame.packet.bth.migreq for frame in plain.carried} == {1}


def test_both_are_armed_once_each_received_migreq_of_the_other(pair: Pair) -> None:
    assert state_of(pair.client) == state_of(pair.server) == MigrationState.ARMED


def test_a_path_that_is_cut_leads_both_to_the_other_path(wire: Wire, pair: Pair) -> None:
    wire.cut = True
    pair.client.poll()
    pair.client.write(b"other way", to=pair.server.region)
    pair.drive()
    assert pair.server.region.read(9) == b"other way"
    assert [done.status for done in pair.client.poll()] == [WCStatus.SUCCESS]
    assert state_of(pair.client) == state_of(pair.server) == MigrationState.MIGRATED
    assert events_of(pair.client) == [PathMigrated(pair.client.qp.qp_num)]
    assert events_of(pair.server) == [PathMigrated(pair.server.qp.qp_num)]


def test_an_owner_sends_its_connection_over(wire: Wire, pair: Pair) -> None:
    wanted = QPAttributes(path_mig_state=MigrationState.MIGRATED)
    pair.client.nic.modify_qp(pair.client.qp, wanted, QPAttrMask.PATH_MIG_STATE)
    wire.carried.clear()
    pair.client.write(b"over", to=pair.server.region)
    pair.drive()
    assert pair.server.region.read(4) == b"over"
    assert not any(map(on_first_path, wire.carried))
    assert events_of(pair.server) == [PathMigrated(pair.server.qp.qp_num)]


def test_once_over_a_cut_path_ends_the_connection(wire: Wire, pair: Pair) -> None:
    wanted = QPAttributes(path_mig_state=MigrationState.MIGRATED)
    pair.client.nic.modify_qp(pair.client.qp, wanted, QPAttrMask.PATH_MIG_STATE)
    pair.client.poll()
    wire.drop = frozenset(range(10_000))
    pair.client.write(b"lost", to=pair.server.region)
    pair.drive()
    assert [done.status for done in pair.client.poll()] == [WCStatus.RETRY_EXC_ERR]
    assert pair.client.qp.state == QPState.ERR


def test_a_peer_that_migrated_to_another_path_is_an_event(pair: Pair) -> None:
    wanted = QPAttributes(
        alt_ah=pair.client.path_to(pair.server), path_mig_state=MigrationState.REARM
    )
    pair.client.nic.modify_qp(pair.client.qp, wanted, REARM)
    pair.server.write(b"rearm", to=pair.client.region)
    pair.drive()
    wanted = QPAttributes(path_mig_state=MigrationState.MIGRATED)
    pair.client.nic.modify_qp(pair.client.qp, wanted, QPAttrMask.PATH_MIG_STATE)
    pair.client.write(b"first path", to=pair.server.region)
    pair.drive(until=pair.simulator.now + us(1))
    assert PathMigrationFailed(pair.server.qp.qp_num) in events_of(pair.server)
    assert state_of(pair.server) == MigrationState.ARMED


def test_soft_roce_always_sends_migreq_clear() -> None:
    wire = Wire()
    pair = Pair(link=wire, profile=RXE, attributes=ATTRIBUTES)
    pair.client.write(b"hello", to=pair.server.region)
    pair.drive()
    assert {frame.packet.bth.migreq for frame in wire.carried} == {0}


def test_soft_roce_takes_another_path_and_never_goes_there() -> None:
    wire = Wire()
    pair = Pair(link=wire, profile=RXE, attributes=ATTRIBUTES._replace(retry_cnt=1, timeout=5))
    rearm(pair.client, 1, 2)
    rearm(pair.server, 2, 1)
    for end in (pair.client, pair.server):
        end.write(b"hello", to=end.peer.region)
        pair.drive()
    assert state_of(pair.client) == state_of(pair.server) == MigrationState.REARM
    wire.drop = frozenset(range(10_000))
    pair.client.write(b"lost", to=pair.server.region)
    pair.drive()
    assert [done.status for done in pair.client.poll()][-1] == WCStatus.RETRY_EXC_ERR
    assert events_of(pair.client) == events_of(pair.server) == []
