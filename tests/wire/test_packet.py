"""Transport packets: what the standard can mean, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import WireError
from rdmawire.testing.strategies import packets
from rdmawire.wire.ib import AETH, BTH, DETH, RETH, ImmDt
from rdmawire.wire.opcode import SHAPES, Opcode, is_vendor
from rdmawire.wire.packet import LAYOUTS, Packet


@given(packets(), st.binary(max_size=5), st.binary(max_size=5))
def test_parse_is_the_inverse_of_build(packet: Packet, before: bytes, after: bytes) -> None:
    octets = packet.build()
    packet.check()
    assert Packet.parse(before + octets + after, len(before), len(before + octets)) == packet


@given(st.binary(max_size=120))
def test_any_octets_are_a_packet_or_a_wire_error(octets: bytes) -> None:
    try:
        packet = Packet.parse(octets)
    except WireError:
        return
    assert packet.build() == octets


@given(packets(), st.data())
def test_every_truncation_is_an_error_or_a_shorter_packet(
    packet: Packet, data: st.DataObject
) -> None:
    octets = packet.build()
    length = data.draw(st.integers(0, len(octets) - 1))
    try:
        shorter = Packet.parse(octets[:length])
    except WireError:
        return
    assert shorter.build() == octets[:length]
    assert len(shorter.payload) < len(packet.payload) + len(packet.pad)


def test_make_works_out_the_pad() -> None:
    packet = Packet.make(Opcode.RC_SEND_ONLY, payload=b"hello", psn=7, destqp=9)
    assert (packet.bth.padcnt, packet.pad, packet.bth.psn) == (3, bytes(3), 7)
    assert len(packet.build()) == 12 + 8


def test_header_finds_what_the_packet_has() -> None:
    packet = Packet.make(Opcode.UD_SEND_ONLY_WITH_IMMEDIATE, DETH(1, 0, 2), ImmDt(5))
    assert packet.header(ImmDt) == ImmDt(5)
    assert packet.header(DETH) == DETH(1, 0, 2)
    assert packet.header(RETH) is None


@pytest.mark.parametrize(
    ("opcode", "headers", "payload", "message"),
    [
        (Opcode.RC_SEND_ONLY, (RETH(),), b"", "has no header after the BTH, found RETH"),
        (Opcode.RC_RDMA_WRITE_ONLY, (), b"", "has RETH after the BTH, found no header"),
        (Opcode.RC_ACKNOWLEDGE, (AETH(),), b"abcd", "carries nothing after its headers, found 4"),
        (Opcode.RC_ATOMIC_WRITE, (RETH(),), b"abcd", "carries eight octets after its headers"),
        (0x1F, (), b"", "opcode 0x1f is reserved"),
    ],
)
def test_what_the_opcode_does_not_allow_is_refused(
    opcode: int, headers: tuple[RETH, ...], payload: bytes, message: str
) -> None:
    with pytest.raises(WireError, match=message):
        Packet.make(opcode, *headers, payload=payload)


def test_a_pad_count_that_the_octets_contradict_is_refused() -> None:
    send = BTH(opcode=Opcode.RC_SEND_ONLY, padcnt=3)
    with pytest.raises(WireError, match="padcnt 3 exceeds the 0 octets"):
        Packet.parse(send.build())
    with pytest.raises(WireError, match="make 5 octets, no multiple of four"):
        Packet.parse(send.build() + b"12345")
    with pytest.raises(WireError, match="padcnt says 3 octets of pad, found 0"):
        Packet(send, (), b"1234").check()


def test_octets_missing_from_the_headers_are_counted() -> None:
    octets = BTH(opcode=Opcode.RC_RDMA_READ_REQUEST).build() + bytes(10)
    with pytest.raises(WireError, match=r"needs 16 octets .* 10 are left \(at octet 12\)"):
        Packet.parse(octets)


def test_vendors_opcodes_keep_their_octets() -> None:
    for opcode in filter(is_vendor, range(256)):
        octets = BTH(opcode=opcode, padcnt=1).build() + b"vendor"
        packet = Packet.parse(octets)
        assert (packet.extended, packet.payload, packet.pad) == ((), b"vendo", b"r")
        assert packet.build() == octets


def test_every_opcode_has_a_layout_or_is_reserved() -> None:
    for opcode in range(256):
        assert (opcode in LAYOUTS) == (opcode in SHAPES or is_vendor(opcode))
