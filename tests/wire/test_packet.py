"""Transport packets: what the standard can mean, and nothing else."""

from typing import Any

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
    data = packet.build()
    packet.check()
    assert Packet.parse(before + data + after, len(before), len(before + data)) == packet


@given(st.binary(max_size=120))
def test_any_bytes_are_a_packet_or_a_wire_error(data: bytes) -> None:
    try:
        packet = Packet.parse(data)
    except WireError:
        return
    assert packet.build() == data


@given(packets(), st.data())
def test_every_truncation_is_an_error_or_a_shorter_packet(
    packet: Packet, data: st.DataObject
) -> None:
    raw = packet.build()
    length = data.draw(st.integers(0, len(raw) - 1))
    try:
        shorter = Packet.parse(raw[:length])
    except WireError:
        return
    assert shorter.build() == raw[:length]
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
        (Opcode.RC_ACKNOWLEDGE, (AETH(),), b"abcd", "nothing after its headers, found 4 bytes$"),
        (Opcode.RC_ATOMIC_WRITE, (RETH(),), b"", "eight bytes after its headers, found 0 bytes$"),
        (Opcode.RC_ATOMIC_WRITE, (RETH(),), b"1", "headers, found 1 byte and 3 of pad$"),
        (Opcode.RC_ATOMIC_WRITE, (RETH(),), b"12345", "headers, found 5 bytes and 3 of pad$"),
        (Opcode.RC_ATOMIC_WRITE, (RETH(),), bytes(16), "headers, found 16 bytes$"),
        (0x1F, (), b"", "opcode 0x1f is reserved"),
    ],
)
def test_what_the_opcode_does_not_allow_is_refused(
    opcode: int, headers: tuple[RETH, ...], payload: bytes, message: str
) -> None:
    with pytest.raises(WireError, match=message):
        Packet.make(opcode, *headers, payload=payload)


def test_the_payload_of_an_atomic_write_is_eight_bytes() -> None:
    packet = Packet.make(Opcode.RC_ATOMIC_WRITE, RETH(dmalen=8), payload=b"8 octets")
    assert Packet.parse(packet.build()) == packet
    padded = BTH(opcode=Opcode.RC_ATOMIC_WRITE, padcnt=3).build() + RETH(dmalen=8).build()
    with pytest.raises(WireError, match=r"found 5 bytes and 3 of pad \(at byte 28\)$"):
        Packet.parse(padded + bytes(8))
    with pytest.raises(WireError, match=r"padcnt 3 exceeds the 2 bytes"):
        Packet.parse(padded + bytes(2))


@pytest.mark.parametrize(
    ("opcode", "parts", "message"),
    [
        (256, {}, r"^BTH.opcode: 256 does not fit 8 bits"),
        (-1, {}, r"^BTH.opcode: -1 does not fit"),
        ("4", {}, r"^BTH.opcode: takes a number of 8 bits, found str '4'"),
        (4.0, {}, r"^BTH.opcode: takes a number of 8 bits, found float"),
        (None, {}, r"^BTH.opcode: takes a number"),
        (4, {"psn": 1 << 24}, r"^BTH.psn: 16777216 does not fit 24 bits"),
        (4, {"destqp": "17"}, r"^BTH.destqp: takes a number"),
        (4, {"payload": "text"}, r"^Packet.payload takes bytes, found str 'text'$"),
        (4, {"payload": None}, r"^Packet.payload takes bytes, found NoneType None$"),
        (4, {"payload": 5}, r"^Packet.payload takes bytes, found int 5$"),
    ],
)
def test_make_names_what_does_not_fit(opcode: Any, parts: Any, message: str) -> None:
    with pytest.raises(WireError, match=message):
        Packet.make(opcode, **parts)


def test_make_refuses_a_header_that_is_none_and_a_header_that_does_not_fit() -> None:
    wrong: Any = b"reth"
    with pytest.raises(WireError, match=r"^Packet.extended takes Header, found bytes b'reth'$"):
        Packet.make(Opcode.RC_RDMA_WRITE_ONLY, wrong)
    with pytest.raises(WireError, match=r"^RETH.rkey: 4294967296 does not fit 32 bits"):
        Packet.make(Opcode.RC_RDMA_WRITE_ONLY, RETH(rkey=1 << 32))


def test_make_says_that_it_works_out_the_pad_count() -> None:
    with pytest.raises(TypeError, match=r"works out BTH.padcnt from the payload: leave it out"):
        Packet.make(Opcode.RC_SEND_ONLY, payload=b"hello", padcnt=3)
    with pytest.raises(TypeError, match=r"BTH.*'psm'"):
        Packet.make(Opcode.RC_SEND_ONLY, psm=3)


@pytest.mark.parametrize("payload", [bytearray(b"hello"), memoryview(b"hello")])
def test_make_takes_any_bytes(payload: Any) -> None:
    packet = Packet.make(Opcode.RC_SEND_ONLY, payload=payload)
    assert packet == Packet.make(Opcode.RC_SEND_ONLY, payload=b"hello")
    assert type(packet.payload) is bytes


@given(packets())
def test_replacing_nothing_changes_nothing(packet: Packet) -> None:
    assert packet.replace() == packet


def test_replace_works_out_the_pad_of_a_new_payload() -> None:
    packet = Packet.make(Opcode.RC_SEND_ONLY, payload=b"hello", psn=7)
    shorter = packet.replace(payload=b"hi", bth=packet.bth.replace(psn=8))
    assert shorter == Packet.make(Opcode.RC_SEND_ONLY, payload=b"hi", psn=8)
    assert packet.replace(bth=packet.bth.replace(psn=9)).pad == bytes(3)
    with_immediate = packet.bth.replace(opcode=Opcode.RC_SEND_ONLY_WITH_IMMEDIATE)
    assert packet.replace(bth=with_immediate, extended=(ImmDt(5),)).header(ImmDt) == ImmDt(5)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"extended": (RETH(),)}, "RC_SEND_ONLY has no header after the BTH, found RETH"),
        ({"bth": BTH(opcode=4, padcnt=1)}, "padcnt says 1 byte of pad, found 3"),
        ({"bth": BTH(opcode=4, padcnt=3, psn=-1)}, "BTH.psn: -1 does not fit"),
        ({"bth": b"bth"}, "Packet.bth takes BTH, found bytes b'bth'"),
        ({"payload": "text"}, "Packet.payload takes bytes, found str 'text'"),
    ],
)
def test_replace_refuses_what_makes_no_packet(parts: Any, message: str) -> None:
    with pytest.raises(WireError, match=message):
        Packet.make(Opcode.RC_SEND_ONLY, payload=b"hello").replace(**parts)


def test_a_pad_count_that_the_bytes_contradict_is_refused() -> None:
    send = BTH(opcode=Opcode.RC_SEND_ONLY, padcnt=3)
    with pytest.raises(WireError, match="padcnt 3 exceeds the 0 bytes"):
        Packet.parse(send.build())
    with pytest.raises(WireError, match="make 5 bytes, no multiple of four"):
        Packet.parse(send.build() + b"12345")
    with pytest.raises(WireError, match="padcnt says 3 bytes of pad, found 0"):
        Packet(send, (), b"1234").check()


def test_bytes_missing_from_the_headers_are_counted() -> None:
    data = BTH(opcode=Opcode.RC_RDMA_READ_REQUEST).build() + bytes(10)
    with pytest.raises(WireError, match=r"needs 16 bytes .* 10 are left \(at byte 12\)"):
        Packet.parse(data)


def test_vendors_opcodes_keep_their_bytes() -> None:
    for opcode in filter(is_vendor, range(256)):
        data = BTH(opcode=opcode, padcnt=1).build() + b"vendor"
        packet = Packet.parse(data)
        assert (packet.extended, packet.payload, packet.pad) == ((), b"vendo", b"r")
        assert packet.build() == data


def test_every_opcode_has_a_layout_or_is_reserved() -> None:
    for opcode in range(256):
        assert (opcode in LAYOUTS) == (opcode in SHAPES or is_vendor(opcode))


def test_a_reserved_opcode_is_said_with_its_place() -> None:
    data = b"before" + BTH(opcode=0x1F).build()
    with pytest.raises(WireError, match=r"opcode 0x1f is reserved \(IBA 9.2.1\) \(at byte 6\)"):
        Packet.parse(data, 6)
