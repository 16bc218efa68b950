"""VLAN tags, priorities and RoCEv1: what an address handle says acts, and requests are answered
as they came."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.pair import ATTRIBUTES, End, Pair
from rdmawire.ib.encapsulation import PLAIN, encapsulation_of, link_headers
from rdmawire.verbs.ah import AddressHandle, GIDType, check_address
from rdmawire.verbs.enums import QPState, QPType, WCStatus
from rdmawire.verbs.qp_attr import QPAttributes, QPAttrMask
from rdmawire.verbs.wr import SendOpcode, SendWR
from rdmawire.wire import roce
from rdmawire.wire.ib import AETH, GRH
from rdmawire.wire.inet import UDP, VLAN, Ethernet, EtherType, IPv4, IPv6, ServiceVLAN
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.roce import Frame
from tests.ib.stage import Stage, go, only, statuses

SEND = SendWR(SendOpcode.SEND)
VLANS = (None, 0, 1, 4094)
PRIORITIES = (0, 1, 7)
TYPES = (None, GIDType.ROCE_V1, GIDType.ROCE_V2)


def headers_of(frame: bytes) -> tuple[Any, ...]:
    return roce.parse(frame).headers


def tag_of(frame: bytes) -> tuple[int, int] | None:
    """VLAN and priority of a frame's one tag."""
    tags = [(h.id, h.priority) for h in headers_of(frame) if isinstance(h, VLAN | ServiceVLAN)]
    assert len(tags) < 2
    return tags[0] if tags else None


def is_v1(frame: bytes) -> bool:
    return any(isinstance(header, GRH) for header in headers_of(frame))


def carried(frame: bytes, *tags: VLAN | ServiceVLAN, v1: bool = False) -> bytes:
    """The frame with these tags, as RoCEv1 if that is wanted."""
    parsed = roce.parse(frame)
    headers: tuple[Any, ...] = parsed.headers
    ethernet, ip, *_ = headers
    network = headers[1:]
    ethertype = ethernet.type
    if v1:
        sgid, dgid = (b"\0" * 10 + b"\xff\xff" + a if len(a) == 4 else a for a in (ip.src, ip.dst))
        network, ethertype = (GRH(sgid=sgid, dgid=dgid),), EtherType.ROCE
    kinds = [EtherType.QINQ if isinstance(t, ServiceVLAN) else EtherType.VLAN for t in tags]
    types = [*kinds, ethertype]
    stacked = [tag.replace(type=type_) for tag, type_ in zip(tags, types[1:], strict=True)]
    link = ethernet.replace(type=types[0])
    return Frame((link, *stacked, *network), parsed.packet).seal().build()


def reconnect(pair: Pair, change: Callable[[AddressHandle], AddressHandle], end: End) -> None:
    """Have the path of one end changed."""
    for own in (pair.client, pair.server):
        go(own, QPState.RESET)
        ah = own.path_to(own.peer)
        wanted = ATTRIBUTES._replace(
            ah=change(ah) if own is end else ah, dest_qp_num=own.peer.qp.qp_num
        )
        own.bring_up(own.qp, wanted)


@pytest.mark.parametrize("ipv6", [False, True])
@pytest.mark.parametrize(("vlan", "sl", "gid_type"), list(product(VLANS, PRIORITIES, TYPES)))
def test_a_connection_goes_as_its_path_says(
    vlan: int | None, sl: int, gid_type: GIDType | None, ipv6: bool
) -> None:
    stage = Stage(Pair(ipv6=ipv6))
    change = {"vlan": vlan, "sl": sl, "gid_type": gid_type}
    reconnect(stage.pair, lambda ah: ah._replace(**change), stage.client)  # type: ignore[arg-type]
    stage.client.write(bytes(3000), to=stage.server.region)
    stage.client.read(3000, of=stage.server.region)
    stage.drive()
    assert statuses(stage.client) == [WCStatus.SUCCESS] * 2
    tag = None if vlan is None and not sl else (vlan or 0, sl)
    assert len(stage.by(stage.server)) > 3
    for sent in stage.sent:  # the server's path says nothing, so it answers in kind
        assert tag_of(sent.frame) == tag
        assert is_v1(sent.frame) is (gid_type is GIDType.ROCE_V1)
        kinds = {type(header) for header in headers_of(sent.frame)}
        expected = {GRH} if is_v1(sent.frame) else {IPv6 if ipv6 else IPv4, UDP}
        assert kinds == {Ethernet, *expected, *({VLAN} if tag else ())}


@pytest.mark.parametrize("kind", [QPType.UD, QPType.UC])
def test_datagrams_and_unreliable_connections_go_as_their_handle_says(kind: QPType) -> None:
    stage = Stage(Pair(kind=kind))

    def tagged(ah: AddressHandle) -> AddressHandle:
        return ah._replace(vlan=5, sl=3)

    if kind is QPType.UC:
        reconnect(stage.pair, tagged, stage.client)
    got = stage.server.receive(5)
    wr = stage.client._addressed(SEND) if kind is QPType.UD else SEND
    if wr.ah is not None:
        wr = wr._replace(ah=tagged(wr.ah))
    stage.client.post(wr._replace(sges=(stage.client.filled(b"hello").sge(),)))
    stage.drive()
    assert [tag_of(sent.frame) for sent in stage.sent] == [(5, 3)]
    assert got.buffer.read()[-5:] == b"hello"
    assert only(stage.server).status is WCStatus.SUCCESS


TWO_TAGS = ServiceVLAN(id=7, priority=2), VLAN(id=8, priority=3)
IN_KIND: dict[str, tuple[tuple[VLAN | ServiceVLAN, ...], bool]] = {
    "VLAN": ((VLAN(id=100),), False),
    "VLAN and priority": ((VLAN(id=100, priority=5, dei=1),), False),
    "priority": ((VLAN(priority=6),), False),
    "RoCEv1": ((), True),
    "RoCEv1 in a VLAN": ((VLAN(id=9, priority=1),), True),
    "two tags": (TWO_TAGS, False),
}
"""Tags of requests, and whether they are RoCEv1."""


@pytest.mark.parametrize("name", IN_KIND)
def test_requests_are_answered_in_kind(name: str) -> None:
    """ACKs, NAKs, READ and atomic responses, all where the request came from."""
    tags, v1 = IN_KIND[name]
    stage = Stage()
    client, server = stage.client, stage.server
    client.write(bytes(2000), to=server.region)
    client.read(2000, of=server.region)
    client.fetch_add(1, of=server.region)
    client.read(8, of=client.region)  # of a key that the server does not know
    requests = [carried(frame, *tags, v1=v1) for frame in client.nic.transmit(0)]
    for frame in requests:
        server.nic.receive(frame, 0)
    answers = server.nic.transmit(0)
    assert len(answers) == 5
    for answer in answers:
        assert encapsulation_of(headers_of(answer)) == encapsulation_of(headers_of(requests[0]))
        client.nic.receive(answer, 0)
    assert statuses(client)[:3] == [WCStatus.SUCCESS] * 3
    assert roce.parse(answers[-1]).packet.header(AETH) is not None


def test_the_path_wins_where_it_says_something() -> None:
    """As on hardware, whose queue pairs have one address vector for all that they send."""
    stage = Stage()

    def third(ah: AddressHandle) -> AddressHandle:
        return ah._replace(vlan=3, sl=2, gid_type=GIDType.ROCE_V2)

    reconnect(stage.pair, third, stage.server)
    stage.client.write(b"hello", to=stage.server.region)
    (frame,) = stage.client.nic.transmit(0)
    stage.server.nic.receive(carried(frame, VLAN(id=100, priority=5), v1=True), 0)
    (answer,) = stage.server.nic.transmit(0)
    assert (tag_of(answer), is_v1(answer)) == ((3, 2), False)


def test_only_responses_follow_the_request() -> None:
    stage = Stage()
    stage.client.write(b"hello", to=stage.server.region)
    stage.server.write(b"world", to=stage.client.region)
    (frame,) = stage.client.nic.transmit(0)
    stage.server.nic.receive(carried(frame, VLAN(id=100)), 0)
    tags = {roce.parse(f).packet.bth.opcode: tag_of(f) for f in stage.server.nic.transmit(0)}
    assert tags == {Opcode.RC_ACKNOWLEDGE: (100, 0), Opcode.RC_RDMA_WRITE_ONLY: None}


def test_a_reset_forgets_how_requests_came() -> None:
    stage = Stage()
    for tags, expected in (((VLAN(id=100),), (100, 0)), ((), None)):
        stage.client.write(b"hello", to=stage.server.region)
        (frame,) = stage.client.nic.transmit(0)
        stage.server.nic.receive(carried(frame, *tags), 0)
        (answer,) = stage.server.nic.transmit(0)
        assert tag_of(answer) == expected
        stage.client.nic.receive(answer, 0)
    stage.client.write(b"hello", to=stage.server.region)
    (frame,) = stage.client.nic.transmit(0)
    stage.server.nic.receive(carried(frame, VLAN(id=100)), 0)
    server = stage.server
    server.nic.modify_qp(server.qp, QPAttributes(QPState.RESET), QPAttrMask.STATE)
    assert server.qp.request_encapsulation is PLAIN


def test_a_changed_path_keeps_answering_as_requests_came() -> None:
    stage = Stage()
    stage.client.write(b"hello", to=stage.server.region)
    (frame,) = stage.client.nic.transmit(0)
    stage.server.nic.receive(carried(frame, VLAN(id=100)), 0)
    stage.server.nic.pkeys = (0xFFFF, 0x8123)
    (answer,) = stage.server.nic.transmit(0)
    assert tag_of(answer) == (100, 0)


def test_congestion_is_notified_where_the_marked_packet_came_from() -> None:
    stage = Stage()
    stage.server.nic.notify_congestion(stage.server.qp)
    stage.client.write(b"hello", to=stage.server.region)
    (frame,) = stage.client.nic.transmit(0)
    parsed = roce.parse(frame)
    ip = parsed.headers[1]
    assert isinstance(ip, IPv4)
    headers = (parsed.headers[0], ip.replace(ecn=3), *parsed.headers[2:])
    marked = Frame(headers, parsed.packet).seal().build()
    stage.server.nic.receive(carried(marked, VLAN(id=100, priority=4)), 0)
    sent = stage.server.nic.transmit(0)
    found = {(roce.parse(one).packet.bth.opcode, tag_of(one)) for one in sent}
    assert found == {(Opcode.CNP, (100, 4)), (Opcode.RC_ACKNOWLEDGE, (100, 4))}


def test_tagged_frames_are_known_by_their_heads() -> None:
    """They cost no more than others: what was found out about a head is kept."""
    stage = Stage()
    reconnect(stage.pair, lambda ah: ah._replace(vlan=7), stage.client)
    stage.client.write(bytes(1000 * 64), to=stage.server.region)
    first, second, *rest = stage.client.nic.transmit(0)
    rx_parser = stage.server.nic._rx_parser
    stage.server.nic.receive_all([first, second], 0)
    assert rx_parser.flow_of(rest[0]) is rx_parser.flow_of(rest[1])


@pytest.mark.parametrize(
    "change",
    [{"sl": 8}, {"sl": -1}, {"vlan": 4095}, {"vlan": -1}, {"vlan": "5"}, {"gid_type": 0}],
)
def test_what_no_frame_can_say_is_refused(change: dict[str, Any]) -> None:
    pair = Pair()
    handle = pair.client.path_to(pair.server)._replace(**change)
    with pytest.raises(VerbsError, match=next(iter(change))):
        check_address(handle)


def test_a_tag_announces_what_follows_it() -> None:
    frame = carried(_request(), ServiceVLAN(id=1), VLAN(id=2))
    headers = headers_of(frame)
    tags = encapsulation_of(headers).tags
    ethernet = headers[0]
    assert link_headers(ethernet.dst, ethernet.src, tags, EtherType.IPV4) == headers[:3]


def _request() -> bytes:
    pair = Pair()
    pair.client.write(b"hello", to=pair.server.region)
    return pair.client.nic.transmit(0)[0]
