"""Managers answer in the VLAN, with the priority, by the RoCE and in the partition of requests."""

import pytest

from rdmawire.ib.cm import messages as compose
from rdmawire.ib.encapsulation import encapsulation_of, gids_of
from rdmawire.ib.qp import QueuePair
from rdmawire.units import us
from rdmawire.verbs.ah import AddressHandle, GIDType
from rdmawire.verbs.enums import QPState, QPType
from rdmawire.verbs.qp_attr import QPAttributes, QPAttrMask
from rdmawire.wire import roce
from rdmawire.wire.cm import REQ, CMAttribute
from rdmawire.wire.inet import VLAN
from tests.ib.cm.forge import Forger
from tests.ib.cm.stage import DATAGRAMS, SERVICE, Two

DEFAULT, OTHER = 0xFFFF, 0x8123

WAYS = [
    {"vlan": 100, "sl": 5},
    {"sl": 3},
    {"gid_type": GIDType.ROCE_V1},
    {"vlan": 9, "gid_type": GIDType.ROCE_V1, "traffic_class": 0x68},
]


def frames_of(two: Two) -> list[bytes]:
    """All that is put on the link from now on."""
    frames: list[bytes] = []
    two.simulator.on_sent.append(lambda frame, _: frames.append(frame.data))
    return frames


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [QPType.RC, QPType.UD])
def test_a_connection_stays_where_it_was_asked_for(kind: QPType, way: dict[str, int]) -> None:
    two = Two()
    frames = frames_of(two)
    path = two.client.path_to(two.server)._replace(**way)  # type: ignore[arg-type]
    qp = two.client.qp(kind)
    service = DATAGRAMS if kind is QPType.UD else SERVICE
    two.client.manager.connect(qp, path, service, two.simulator.now)
    two.drive(us(10))
    peer = two.server.accept(kind=kind)
    two.drive(us(10))
    if kind is QPType.RC:
        two.client.receives(qp, 8)
        two.server.send(peer, b"back")
        two.drive(us(10))
        two.client.disconnect()
        two.drive(us(10))
        two.server.disconnect()
        two.drive(us(10))
    messages = [sent.attribute for sent in two.sent]
    assert messages[-1] is (CMAttribute.SIDR_REP if kind is QPType.UD else CMAttribute.DREP)
    ways = {encapsulation_of(roce.parse(frame).headers) for frame in frames}
    assert len(ways) == 1
    sources = {gids_of(roce.parse(frame).headers)[0] for frame in frames}
    assert sources == {two.client.gid, two.server.gid}
    request, answer = (roce.parse(frame).headers for frame in frames[:2])
    assert _priorities(request) == _priorities(answer)


def _priorities(headers: tuple[object, ...]) -> list[tuple[int, ...]]:
    return [
        (getattr(header, "dscp", 0), getattr(header, "tclass", 0), getattr(header, "id", 0))
        for header in headers[1:]
    ]


def test_a_rejection_goes_where_the_request_came_from() -> None:
    two = Two(listens=False)
    frames = frames_of(two)
    path = two.client.path_to(two.server)._replace(vlan=7, sl=6)
    two.client.manager.connect(two.client.qp(), path, SERVICE, two.simulator.now)
    two.drive(us(10))
    assert two.messages() == ["REQ", "REJ"]
    tags = [roce.parse(frame).headers[1] for frame in frames]
    assert [(tag.id, tag.priority) for tag in tags if isinstance(tag, VLAN)] == [(7, 6)] * 2


def two_partitions(two: Two) -> QueuePair:
    """A queue pair of the client's in the second partition."""
    two.client.nic.pkeys = (DEFAULT, OTHER)
    two.server.nic.pkeys = (0x8001, 0x8002, OTHER, DEFAULT)
    qp = two.client.qp()
    mask = QPAttrMask.STATE | QPAttrMask.PKEY_INDEX | QPAttrMask.PORT | QPAttrMask.ACCESS_FLAGS
    two.client.nic.modify_qp(qp, QPAttributes(QPState.INIT, pkey_index=1), mask)
    return qp


def test_a_connection_is_of_the_partition_that_was_asked_for() -> None:
    two = Two()
    frames = frames_of(two)
    qp = two_partitions(two)
    path: AddressHandle = two.client.path_to(two.server)
    two.client.manager.connect(qp, path, SERVICE, two.simulator.now)
    two.drive(us(10))
    peer = two.server.accept()
    two.drive(us(10))
    request = two.sent[0].received.message
    assert isinstance(request, REQ)
    assert request.p_key == OTHER
    assert two.messages() == ["REQ", "REP", "RTU"]
    assert (qp.attributes.pkey_index, peer.attributes.pkey_index) == (1, 2)
    assert {roce.parse(frame).packet.bth.pkey for frame in frames} == {OTHER}


def test_what_is_of_no_connection_is_answered_in_the_partition_of_its_packet() -> None:
    two = Two(listens=False)
    two_partitions(two)
    frames = frames_of(two)
    forger = Forger(two.server, two.client)
    mad = compose.req(forger.asked, two.client.nic.device, two.client.manager.settings)
    two.client.manager.gsi.send(two.client.path_to(two.server), mad, 1)
    two.drive(us(10))
    assert [roce.parse(frame).packet.bth.pkey for frame in frames] == [OTHER] * 2
