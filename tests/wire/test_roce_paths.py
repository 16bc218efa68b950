"""The fast path of plain frames and the general one: the same frame or the same error."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.errors import WireError
from rdmawire.testing.strategies import frames, headers, packets
from rdmawire.wire import roce
from rdmawire.wire.inet import ROCE_PORT, UDP, Ethernet, EtherType, IPProtocol, IPv4
from rdmawire.wire.packet import LAYOUTS
from rdmawire.wire.roce import Frame
from tests.effort import examples

_BTH = Ethernet.SIZE + IPv4.SIZE + UDP.SIZE


@st.composite
def plain_frames(draw: st.DrawFn) -> Frame:
    """What the fast path is for: Ethernet, IPv4 without options, UDP."""
    ethernet = draw(headers(Ethernet, type=EtherType.IPV4))
    whole = {"version": 4, "ihl": 5, "mf": 0, "fragment_offset": 0}
    ip = draw(headers(IPv4, protocol=IPProtocol.UDP, **whole))
    udp = draw(headers(UDP, dstport=ROCE_PORT))
    trailer = draw(st.binary(max_size=6))
    return Frame((ethernet, ip, udp), draw(packets()), 0, trailer).seal()


@st.composite
def changed(draw: st.DrawFn) -> bytes:
    """A frame with a few bytes changed, most of them where parsers look, and perhaps cut."""
    data = bytearray(draw(plain_frames() | frames()).build())
    telling = st.integers(12, _BTH + 12) | st.sampled_from([16, 17, 38, 39, _BTH, _BTH + 1])
    places = st.lists(telling | st.integers(0, len(data) - 1), max_size=3)
    for place in draw(places):
        data[place : place + 1] = draw(st.binary(min_size=1, max_size=1))
    return bytes(data[: draw(st.integers(0, len(data)) | st.just(len(data)))])


def outcome(data: bytes, *, general: bool) -> Frame | tuple[str, int | None]:
    """The frame; or the error, whose offset counts from the frame's start."""
    try:
        if general:
            return roce._parse_any(data, ROCE_PORT)
        return roce.parse(b"before" + data + b"behind", start=6, end=6 + len(data))
    except WireError as error:
        return error.reason, error.offset


@settings(max_examples=examples(120))
@given(changed())
def test_both_paths_come_to_the_same(data: bytes) -> None:
    assert outcome(data, general=False) == outcome(data, general=True)


@given(frame=plain_frames(), seed=st.integers(0, 1 << 32))
def test_both_paths_come_to_the_same_for_every_opcode_and_length(frame: Frame, seed: int) -> None:
    """The packet begins with each opcode and is as long as it happens to be."""
    raw, random = bytearray(frame.build()), Random(seed)
    for opcode in range(256):
        raw[_BTH] = opcode
        length = random.randint(0, len(raw) - _BTH + UDP.SIZE)
        raw[38:40] = length.to_bytes(2, "big")
        result = outcome(bytes(raw), general=False)
        assert result == outcome(bytes(raw), general=True)
        if opcode not in LAYOUTS and length >= UDP.SIZE + 12 + 4:
            assert result[0] == f"opcode 0x{opcode:02x} is reserved (IBA 9.2.1)"


@given(changed())
def test_what_parses_has_its_bth_where_a_walk_finds_it(data: bytes) -> None:
    found = outcome(data, general=True)
    if isinstance(found, Frame):
        head = sum(len(p) if isinstance(p, bytes) else p.SIZE for p in found.headers)
        assert roce.bth_offset(data, 0, len(data)) == head


@given(plain_frames())
def test_plain_frames_take_the_fast_path(frame: Frame) -> None:
    data = frame.build()
    assert roce._parse_plain(data, ROCE_PORT, 0, len(data)) == frame
