"""MPA: start-up frames, FPDUs, Markers and their CRC."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import WireError
from rdmawire.testing.strategies import headers
from rdmawire.wire.header import Header
from rdmawire.wire.mpa import (
    FPDUCRC,
    MARKER_SPACING,
    NOT_NEGOTIATED,
    FPDULength,
    Marker,
    MPAEnhanced,
    MPAReply,
    MPARequest,
    UnusedCRC,
    build_fpdu,
    crc_of,
    depth_words,
    fpdu_size,
    mulpdu,
    parse_fpdu,
    size_at,
)

TABLES: list[type[Header]] = [
    *(MPARequest, MPAReply, MPAEnhanced, Marker, FPDULength, FPDUCRC, UnusedCRC)
]

REQUEST = bytes.fromhex("4d504120494420526571204672616d655002000400010001")
"""siw612crc_rping.pcap, frame 6."""

REPLY = bytes.fromhex("4d504120494420526570204672616d655002000400010001")
"""siw612crc_rping.pcap, frame 8."""

SEND = bytes.fromhex(
    "00224143000000000000000000000001000000000000560206bf884085e10d00000000c8fabf006e"
)
"""siw612crc_rping.pcap, frame 10: an FPDU with a CRC."""

READ_REQUEST = bytes.fromhex(
    "002e414100000000000000010000000100000000ed8c560000005635bcd9fca0000000c885e10d00"
    "0000560206bf88409f6b65a5"
)
"""siw612crc_rping.pcap, frame 12."""

WITHOUT_CRC = bytes.fromhex(
    "00224143000000000000000000000001000000000000562b1abbe840b6265500000000c800000000"
)
"""siw61_rping.pcap, frame 10."""

LENGTHS = (*range(33), *range(480, 520), 1460, 4096)
POSITIONS = range(0, MARKER_SPACING + 8, 4)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
@given(data=st.data())
def test_parse_is_the_inverse_of_build(table: type[Header], data: st.DataObject) -> None:
    header = data.draw(headers(table))
    assert table.parse(header.build()) == header


def test_a_request_is_read_as_siw_sent_it() -> None:
    request = MPARequest.parse(REQUEST)
    assert request == MPARequest(c=1, s=1, rev=2, pd_length=4)
    assert (request.reserved, request.key) == (0x10, b"MPA ID Req Frame")
    assert MPAEnhanced.parse(REQUEST, MPARequest.SIZE) == MPAEnhanced(ird=1, ord=1)


def test_a_reply_is_read_as_siw_sent_it() -> None:
    assert MPAReply.parse(REPLY) == MPAReply(c=1, s=1, rev=2, pd_length=4)


def test_a_control_flag_that_is_set_says_what_is_offered() -> None:
    header, silent = MPAEnhanced(1, 1, 2, 1, 1, 3), MPAEnhanced()
    assert [header.word(flag) for flag in "abcd"] == [
        *("PEER_TO_PEER", "RTR_BY_ZERO_LENGTH_FULPDU", "RTR_BY_RDMA_WRITE", "RTR_BY_RDMA_READ"),
    ]
    assert {silent.word(flag) for flag in "abcd"} == {""}


def test_start_up_frames_differ_in_their_key_alone() -> None:
    assert [row.name for row in MPARequest.rows] == [row.name for row in MPAReply.rows]
    assert MPARequest.rows[1:] == MPAReply.rows[1:]
    assert not issubclass(MPAReply, MPARequest)


def test_a_depth_of_all_ones_is_not_negotiated() -> None:
    assert [depth_words(depth) for depth in (0, 1, NOT_NEGOTIATED)] == ["", "", "NOT_NEGOTIATED"]


@pytest.mark.parametrize("data", [SEND, READ_REQUEST])
def test_the_crc_of_a_captured_fpdu_is_good(data: bytes) -> None:
    fpdu = parse_fpdu(data)
    assert fpdu.good
    assert fpdu.crc == int.from_bytes(data[-4:], "big")
    assert build_fpdu(fpdu.ulpdu) == data


def test_an_unused_crc_is_zero() -> None:
    fpdu = parse_fpdu(WITHOUT_CRC)
    assert (fpdu.crc, fpdu.good) == (0, False)
    assert build_fpdu(fpdu.ulpdu, crc=False) == WITHOUT_CRC


def test_crc_of_zeros_is_that_of_rfc_3720_appendix_b4() -> None:
    assert crc_of(bytes(32)) == 0xAA36918A


@pytest.mark.parametrize("length", LENGTHS)
def test_an_fpdu_is_a_multiple_of_four_bytes_and_comes_back(length: int) -> None:
    ulpdu = bytes(i % 251 for i in range(length))
    data = build_fpdu(ulpdu)
    fpdu = parse_fpdu(data)
    assert len(data) % 4 == 0
    assert (fpdu.ulpdu, fpdu.pad, fpdu.good) == (ulpdu, bytes(-(2 + length) % 4), True)
    assert fpdu.size == len(data) == fpdu_size(length)


@pytest.mark.parametrize("position", POSITIONS)
def test_markers_stand_at_every_512th_byte_and_point_to_the_length(position: int) -> None:
    for length in (0, 1, 2, 3, 18, 400, 500, 505, 506, 507, 508, 509, 510, 511, 512, 1000, 1500):
        ulpdu = bytes(i % 251 for i in range(length))
        data = build_fpdu(ulpdu, position=position)
        header = 4 if position % 512 == 0 else 0
        places = [at for at in range(len(data)) if (position + at) % 512 == 0]
        pointers = [max(at - header, 0) for at in places]
        assert [Marker.parse(data, at) for at in places] == [Marker(0, p) for p in pointers]
        fpdu = parse_fpdu(b"xyz" + data, 3, position=position)
        assert (fpdu.ulpdu, fpdu.good, fpdu.size) == (ulpdu, True, len(data))
        assert (fpdu.header, [at for at, _ in fpdu.markers]) == (
            3 + header,
            [3 + p for p in places],
        )
        assert not any(fpdu.wrong_markers())
        assert fpdu.size == fpdu_size(length, position)


def test_a_marker_between_fpdus_belongs_to_the_later_one() -> None:
    before = build_fpdu(bytes(502), position=4)
    assert (len(before), parse_fpdu(before, position=4).markers) == (508, ())
    after = build_fpdu(b"", position=512)
    assert parse_fpdu(after, position=512).markers == ((0, Marker(0, 0)),)


def test_a_marker_may_stand_between_pad_and_crc() -> None:
    data = build_fpdu(bytes(505), position=4)
    assert parse_fpdu(data, position=4).markers == ((508, Marker(0, 508)),)
    assert (data[507], data[508:512]) == (0, Marker(0, 508).build())


@given(st.integers(0, 127).map(lambda n: 4 * n), st.integers(0, 1200), st.data())
def test_the_crc_covers_every_byte_before_it(
    position: int, length: int, data: st.DataObject
) -> None:
    raw = bytearray(build_fpdu(bytes(length), position=position))
    header = 4 if position == 0 else 0
    protected = [at for at in range(len(raw) - 4) if at not in (header, header + 1)]
    raw[data.draw(st.sampled_from(protected))] ^= 1 << data.draw(st.integers(0, 7))
    assert not parse_fpdu(bytes(raw), position=position).good


def test_a_marker_that_points_elsewhere_is_found() -> None:
    data = bytearray(build_fpdu(bytes(600), position=100 * 4))
    data[112 + 3] += 8
    assert list(parse_fpdu(bytes(data), position=400).wrong_markers()) == [(112, 112)]


def test_the_two_lowest_bits_of_a_marker_do_not_count() -> None:
    data = bytearray(build_fpdu(bytes(600), position=400))
    data[112 + 3] |= 3
    assert not any(parse_fpdu(bytes(data), position=400).wrong_markers())


@pytest.mark.parametrize("position", [None, 0, 4, 400, 508])
@pytest.mark.parametrize("length", [0, 3, 130, 600])
def test_every_shorter_buffer_is_a_wire_error(length: int, position: int | None) -> None:
    data = build_fpdu(bytes(length), position=position)
    for end in range(len(data)):
        with pytest.raises(WireError, match=rf"bytes, {end} are left") as caught:
            parse_fpdu(b"ab" + data[:end], 2, position=position)
        assert caught.value.offset == 2
        with pytest.raises(WireError):
            parse_fpdu(data, 0, end, position)
        assert size_at(data, 0, end, position) in (0, len(data))


def test_bytes_behind_an_fpdu_are_left_alone() -> None:
    assert parse_fpdu(SEND + b"more") == parse_fpdu(SEND)
    assert parse_fpdu(bytearray(SEND)) == parse_fpdu(SEND)


def test_a_position_that_no_fpdu_can_have_is_refused() -> None:
    with pytest.raises(WireError, match="position 6 of the stream: not a multiple of four"):
        parse_fpdu(SEND, position=6)
    with pytest.raises(WireError, match="multiple of four"):
        build_fpdu(b"", position=1)


def test_a_ulpdu_too_long_for_its_length_is_refused() -> None:
    assert parse_fpdu(build_fpdu(bytes(65535))).ulpdu == bytes(65535)
    with pytest.raises(WireError, match=r"FPDULength\.ulpdu_length: 65536"):
        build_fpdu(bytes(65536))


@given(st.integers(128, 9000))
def test_a_ulpdu_of_mulpdu_fits_its_segment_and_one_byte_more_does_not(emss: int) -> None:
    # RFC 5044, section 4.5
    assert fpdu_size(mulpdu(emss)) <= emss < fpdu_size(mulpdu(emss) + 1)
    longest = mulpdu(emss, markers=True)
    assert max(fpdu_size(longest, position) for position in range(0, 512, 4)) <= emss


@given(st.integers(0, 127), st.integers(0, 1200))
def test_every_byte_of_a_ulpdu_is_found_between_the_markers(position: int, length: int) -> None:
    ulpdu = bytes(i * 7 % 251 for i in range(length))
    data = build_fpdu(ulpdu, position=4 * position)
    fpdu = parse_fpdu(data, position=4 * position)
    assert bytes(data[fpdu.offset_of(2 + i)] for i in range(length)) == ulpdu
    assert fpdu.offset_of(0) == fpdu.header


@given(st.binary(max_size=80), st.one_of(st.none(), st.integers(0, 300)))
def test_any_bytes_give_an_fpdu_or_a_wire_error(data: bytes, position: int | None) -> None:
    try:
        fpdu = parse_fpdu(data, position=position)
    except WireError:
        return
    assert fpdu.size <= len(data)
