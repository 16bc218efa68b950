"""Frames that go no further: dropped, counted by reason, and never answered. IBA 9.6."""

from collections.abc import Callable

import pytest

from rdmawire.fabric.pair import Pair
from rdmawire.ib.encapsulation import headers_to
from rdmawire.ib.rx_parser import Drop
from rdmawire.ib.tx_template import MAX_HEADS
from rdmawire.verbs.enums import QPState, QPType, WCStatus
from rdmawire.wire.header import Header
from rdmawire.wire.ib import AETH, DETH, ICRC, RETH, Ack, ImmDt
from rdmawire.wire.icrc import icrc_ipv4
from rdmawire.wire.inet import UDP, VLAN, Ethernet, EtherType, IPv4, IPv6
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame
from tests.ib.stage import PATIENT, Stage, events, key_of, outcomes

WRITE = Opcode.RC_RDMA_WRITE_ONLY


def good(stage: Stage, **bth: int) -> Frame:
    """A WRITE as the client would send it, not sealed yet."""
    there = key_of(stage.server.region, 8)
    return stage.frame_of(Packet.make(WRITE, there, payload=b"8 octets", psn=100, ackreq=1, **bth))


def with_header(frame: Frame, place: int, **fields: int | bytes) -> Frame:
    headers = list(frame.headers)
    header = headers[place]
    assert isinstance(header, Header)
    headers[place] = header.replace(**fields)
    return frame.replace(headers=tuple(headers))


def with_bth(frame: Frame, **fields: int) -> Frame:
    return frame.replace(packet=frame.packet.replace(bth=frame.packet.bth.replace(**fields)))


def flipped(data: bytes, at: int, bit: int = 1) -> bytes:
    return data[:at] + bytes((data[at] ^ bit,)) + data[at + 1 :]


Forgery = Callable[[Stage, Frame], bytes]


def _sealed(change: Callable[[Stage, Frame], Frame]) -> Forgery:
    return lambda stage, frame: change(stage, frame).seal().build()


def _instead(opcode: Opcode, *more: object, payload: bytes = b"") -> Forgery:
    packet = Packet.make(opcode, *more, payload=payload, psn=100)  # type: ignore[arg-type]
    return lambda stage, _: stage.forge(packet)


def _other(frame: Frame, ethertype: int, payload: bytes) -> bytes:
    """Other traffic between the same stations."""
    return frame.seal().build()[:12] + ethertype.to_bytes(2, "big") + payload


def _ipv4(**fields: int) -> bytes:
    """An IPv4 packet of 40 bytes, UDP unless ``fields`` say otherwise."""
    return IPv4(total_length=60, protocol=17).replace(**fields).build() + bytes(40)


DROPPED: dict[str, tuple[Drop, Forgery]] = {
    "a bad ICRC": (Drop.ICRC, lambda _, f: flipped(f.seal().build(), -1)),
    "a payload that changed": (Drop.ICRC, lambda _, f: flipped(f.seal().build(), -6)),
    "a frame cut short": (Drop.MALFORMED, lambda _, f: f.seal().build()[:-20]),
    "an empty frame": (Drop.MALFORMED, lambda _, __: b""),
    "ARP": (Drop.NOT_RDMA, lambda _, f: _other(f, 0x0806, bytes(46))),
    "LLDP": (Drop.NOT_RDMA, lambda _, f: _other(f, 0x88CC, bytes(46))),
    "a TCP segment": (Drop.NOT_RDMA, lambda _, f: _other(f, 0x0800, _ipv4(protocol=6))),
    "a fragment": (Drop.NOT_RDMA, lambda _, f: _other(f, 0x0800, _ipv4(fragment_offset=9))),
    "IPv6 neighbor discovery": (
        Drop.NOT_RDMA,
        lambda _, f: _other(f, 0x86DD, IPv6(payload_length=32, next_header=58).build() + bytes(32)),
    ),
    "another UDP port": (Drop.NOT_RDMA, _sealed(lambda _, f: with_header(f, 2, dstport=4792))),
    "a bad IP checksum": (Drop.HEADERS, lambda _, f: flipped(f.seal().build(), 25)),
    "a bad UDP checksum": (Drop.HEADERS, lambda _, f: flipped(f.seal().build(), 40)),
    "IP version 6 in an IPv4 header": (
        Drop.MALFORMED,
        lambda _, f: with_header(f, 1, version=6).build(),
    ),
    "TVER 1": (Drop.TVER, _sealed(lambda _, f: with_bth(f, tver=1))),
    "another MAC": (Drop.NOT_MINE, _sealed(lambda _, f: with_header(f, 0, dst=b"\2abcde"))),
    "another IP address": (
        Drop.NOT_MINE,
        _sealed(lambda _, f: with_header(f, 1, dst=bytes((10, 0, 0, 9)))),
    ),
    "another sender": (
        Drop.PEER,
        _sealed(lambda _, f: with_header(f, 1, src=bytes((10, 0, 0, 9)))),
    ),
    "no such queue pair": (Drop.NO_QP, _sealed(lambda _, f: with_bth(f, destqp=0x999))),
    "another partition": (Drop.PKEY, _sealed(lambda _, f: with_bth(f, pkey=0x8001))),
    "another service": (Drop.QP_TYPE, _instead(Opcode.UC_SEND_ONLY, payload=b"1234")),
    "a datagram": (Drop.QP_TYPE, _instead(Opcode.UD_SEND_ONLY, DETH(qkey=0x11))),
    "an ACK nobody waits for": (
        Drop.STALE,
        _instead(Opcode.RC_ACKNOWLEDGE, AETH(ack=Ack.ACK, value=31)),
    ),
    "a vendor's opcode": (Drop.OPCODE, _sealed(lambda _, f: _vendor(f))),
}


@pytest.mark.parametrize("version", [0, 4, 5, 7])
def test_an_ipv6_header_of_another_version_is_dropped_and_what_comes_behind_it_taken(
    version: int,
) -> None:
    stage = Stage(Pair(ipv6=True, attributes=PATIENT))
    frame = stage.forge(Packet.make(Opcode.RC_SEND_ONLY, payload=b"1234", psn=100))
    stage.server.receive(4)
    bad = frame[:14] + bytes((version << 4,)) + frame[15:]
    stage.server.nic.receive_all([bad, frame], 0)
    assert stage.server.nic.drops == {Drop.HEADERS: 1}
    assert outcomes(stage.server) == [(1, WCStatus.SUCCESS)]


def _vendor(frame: Frame) -> Frame:
    return frame.replace(packet=Packet(frame.packet.bth.replace(opcode=0xC0), (), b"own"))


@pytest.mark.parametrize("name", DROPPED)
def test_dropped_and_counted_and_never_answered(name: str) -> None:
    reason, forgery = DROPPED[name]
    stage = Stage(Pair(attributes=PATIENT))
    server = stage.server
    frame = forgery(stage, good(stage))
    for _ in range(2):
        server.nic.receive(frame, 0)
    assert server.nic.drops == {reason: 2}
    stage.drive()
    assert stage.sent == []
    assert server.region.read(8) == bytes(8)
    assert server.qp.state is QPState.RTS
    assert events(server) == []


def test_the_good_one_is_taken_before_and_after_those() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    for _, forgery in DROPPED.values():
        stage.server.nic.receive(forgery(stage, good(stage)), 0)
    stage.server.nic.receive(good(stage).seal().build(), 0)
    stage.drive()
    assert stage.server.region.read(8) == b"8 octets"
    assert [aeth.ack for aeth in stage.aeths(stage.server)] == [Ack.ACK]


FECN = 46
"""The byte of the BTH with the marks of congestion, which no checksum covers."""


@pytest.mark.parametrize("at", range(8))
def test_a_frame_cut_anywhere_or_with_a_bit_changed_is_no_other_frame(at: int) -> None:
    stage = Stage(Pair(attributes=PATIENT))
    frame = good(stage).seal().build()
    nic = stage.server.nic
    for length in range(at, len(frame), 8):
        nic.receive(frame[:length], 0)
    for place in set(range(16 + at, len(frame), 8)) - {FECN}:
        nic.receive(flipped(frame, place, 0x80), 0)
    assert stage.server.region.read(8) == bytes(8)
    assert stage.server.qp.state is QPState.RTS


@pytest.mark.parametrize("burst", [False, True])
@pytest.mark.parametrize("end", [56, 60, 64, 70, 76])
def test_a_frame_cut_short_is_none_though_its_crc_be_good_there(end: int, burst: bool) -> None:
    stage = Stage(Pair(attributes=PATIENT))
    nic = stage.server.nic
    nic.receive(good(stage).seal().build(), 0)
    whole = with_bth(good(stage), psn=101).seal().build()
    crc = icrc_ipv4(whole, Ethernet.SIZE, end).to_bytes(ICRC.SIZE, "big")
    cut = whole[:end] + crc
    assert len(cut) < len(whole)
    if burst:
        nic.receive_all([cut], 0)
    else:
        nic.receive(cut, 0)
    assert nic.drops == {Drop.ICRC: 1}
    assert stage.server.qp.state is QPState.RTS


def test_what_routers_change_does_not_matter() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    frame = with_header(good(stage), 1, ttl=3, dscp=46, ecn=3)
    stage.server.nic.receive(frame.seal().build(), 0)
    assert stage.server.region.read(8) == b"8 octets"


def test_bytes_behind_the_icrc_do_not_matter() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    stage.server.nic.receive(good(stage).seal().build() + bytes(20), 0)
    assert stage.server.region.read(8) == b"8 octets"


def test_a_udp_checksum_is_looked_at_where_there_is_one() -> None:
    for right in (True, False):
        stage = Stage(Pair(attributes=PATIENT))
        frame = with_header(good(stage), 2, checksum=1).seal()
        udp = frame.headers[2]
        assert isinstance(udp, UDP)
        assert udp.checksum
        data = frame.build()
        stage.server.nic.receive(data if right else flipped(data, 41), 0)
        assert (stage.server.region.read(8) == b"8 octets") is right


def test_a_vlan_tag_is_stepped_over() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    frame = good(stage)
    ethernet, *rest = frame.headers
    assert isinstance(ethernet, Ethernet)
    tagged = ethernet.replace(type=EtherType.VLAN)
    headers = (tagged, VLAN(id=5, type=EtherType.IPV4), *rest)
    stage.server.nic.receive(frame.replace(headers=headers).seal().build(), 0)
    assert stage.server.region.read(8) == b"8 octets"


@pytest.mark.parametrize(
    ("mine", "theirs", "match"),
    [
        (0xFFFF, 0xFFFF, True),
        (0xFFFF, 0x7FFF, True),
        (0x7FFF, 0xFFFF, True),
        (0x7FFF, 0x7FFF, False),
        (0x8123, 0x8123, True),
        (0x8123, 0xFFFF, False),
    ],
)
def test_partitions_match_if_one_is_a_full_member(mine: int, theirs: int, match: bool) -> None:
    stage = Stage(Pair(attributes=PATIENT))
    stage.server.qp.pkey = mine
    stage.server.nic.receive(good(stage, pkey=theirs).seal().build(), 0)
    assert (stage.server.region.read(8) == b"8 octets") is match
    assert stage.server.nic.drops[Drop.PKEY] == (not match)


def test_an_initiator_drops_requests_of_another_service() -> None:
    for kind, opcode in ((QPType.UC, WRITE), (QPType.UD, Opcode.UC_SEND_ONLY_WITH_IMMEDIATE)):
        stage = Stage(Pair(kind=kind, attributes=PATIENT))
        header = RETH(0, 0, 0) if opcode is WRITE else ImmDt(1)
        stage.request(opcode, header, psn=100)
        assert stage.server.nic.drops == {Drop.QP_TYPE: 1}


def test_heads_that_are_kept_are_bounded() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    path = stage.client.path_to(stage.server)
    packet = good(stage).packet
    for port in range(0xC000, 0xC000 + MAX_HEADS + 50):
        headers = headers_to(path, stage.client.mac, port)
        stage.server.nic.receive(Frame(headers, packet).seal().build(), 0)
    assert stage.server.nic.drops == {}
    assert len(stage.server.nic._rx_parser._flows) <= MAX_HEADS


def test_a_head_that_was_good_is_looked_at_anew_when_the_queue_pair_changed() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    frame = good(stage).seal().build()
    stage.server.nic.receive(frame, 0)
    stage.server.nic.destroy_qp(stage.server.qp)
    stage.server.nic.receive(frame, 0)
    assert stage.server.nic.drops == {Drop.NO_QP: 1}
