"""DDP and RDMAP: what a segment holds, opcode by opcode."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import WireError
from rdmawire.testing.strategies import headers
from rdmawire.wire.header import Header
from rdmawire.wire.rdmap import (
    SHAPES,
    AtomicOpcode,
    AtomicRequestHeader,
    AtomicResponseHeader,
    DDPControl,
    ImmediateData,
    Payload,
    RDMAPControl,
    RDMAPControlInvalidate,
    RDMAPControlReserved,
    RDMAPOpcode,
    ReadRequestHeader,
    TaggedHeader,
    UntaggedHeader,
    layout,
    opcode_word,
    segment,
)
from rdmawire.wire.tables import tables_of
from rdmawire.wire.terminate import (
    Layer,
    TerminateControl,
    TerminatedAtomicRequest,
    TerminatedLength,
    TerminatedReadRequest,
    TerminatedTagged,
    TerminatedUntagged,
    is_mirrored,
    mirrored,
)

TABLES = tables_of("rdmap", "terminate")


def pieces(data: bytes) -> list[Header | bytes]:
    return [piece for _, piece in layout(data)]


def until_error(data: bytes, start: int = 0) -> tuple[list[tuple[int, Header | bytes]], str]:
    """What a layout gives before it raises, and what it raises."""
    try:
        return list(layout(data, start)), ""
    except WireError as error:
        return collected(data, start), error.reason


def collected(data: bytes, start: int) -> list[tuple[int, Header | bytes]]:
    found: list[tuple[int, Header | bytes]] = []
    walk: Iterator[tuple[int, Header | bytes]] = layout(data, start)
    while True:
        try:
            found.append(next(walk))
        except (StopIteration, WireError):
            return found


def joined(found: list[tuple[int, Header | bytes]]) -> bytes:
    return b"".join(p if isinstance(p, bytes) else p.build() for _, p in found)


def sample(opcode: int, payload: bytes = b"") -> bytes:
    """A segment of this opcode whose headers are zero but for what the opcode asks for."""
    shape = SHAPES[opcode]
    own = [shape.header()] if shape.header else []
    return segment(opcode, b"" if shape.payload is Payload.NONE else payload, *own)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
@given(data=st.data())
def test_parse_is_the_inverse_of_build(table: type[Header], data: st.DataObject) -> None:
    header = data.draw(headers(table))
    assert table.parse(header.build()) == header


def test_a_tagged_segment_is_read_as_siw_sent_it() -> None:
    # siw612crc_rping.pcap, frame 13, behind the ULPDU length: a Read Response
    data = bytes.fromhex("c142ed8c560000005635bcd9fca0")
    assert DDPControl.parse(data) == DDPControl(t=1, l=1, rsvd=0, dv=1)
    assert TaggedHeader.parse(data, 2) == TaggedHeader(0xED8C5600, 0x00005635BCD9FCA0)


def test_an_untagged_segment_is_read_as_siw_sent_it() -> None:
    # siw612crc_vt_all.pcap, frame 11: the second segment of a Send of 3000 bytes
    data = bytes.fromhex("014300000000000000000000000300000590")
    assert DDPControl.parse(data) == DDPControl(t=0, l=0, rsvd=0, dv=1)
    assert UntaggedHeader.parse(data, 6) == UntaggedHeader(qn=0, msn=3, mo=0x590)


def test_a_control_field_left_alone_has_the_version_in_use() -> None:
    assert DDPControl().build() == b"\x01"


def test_every_opcode_has_a_shape_and_a_word() -> None:
    assert set(SHAPES) == set(RDMAPOpcode)
    assert [opcode_word(opcode) for opcode in (0, 11, 12, 15)] == [
        *("RDMA_WRITE", "ATOMIC_RESPONSE", "RESERVED", "RESERVED")
    ]


@pytest.mark.parametrize("opcode", RDMAPOpcode)
def test_a_segment_is_laid_out_as_its_shape_says(opcode: RDMAPOpcode) -> None:
    shape = SHAPES[opcode]
    rest = TaggedHeader if shape.tagged else UntaggedHeader
    own = [shape.header] if shape.header else []
    found = pieces(sample(opcode, b"payload"))
    assert [type(piece) for piece in found if not isinstance(piece, bytes)] == [
        *(DDPControl, shape.control, rest),
        *own,
    ]
    assert (b"payload" in found) is (shape.payload is not Payload.NONE)


@pytest.mark.parametrize("opcode", RDMAPOpcode)
@pytest.mark.parametrize("start", [0, 3])
def test_pieces_follow_one_another_and_are_the_whole_segment(
    opcode: RDMAPOpcode, start: int
) -> None:
    data = sample(opcode, bytes(range(40)))
    found = list(layout(bytes(start) + data + b"behind", start, start + len(data)))
    offset = start
    for at, piece in found:
        assert at == offset
        offset += len(piece) if isinstance(piece, bytes) else piece.SIZE
    assert joined(found) == data


@pytest.mark.parametrize("opcode", RDMAPOpcode)
def test_a_segment_that_ends_early_gives_what_stands_before_the_end(opcode: RDMAPOpcode) -> None:
    data = sample(opcode)
    for length in range(len(data)):
        found, reason = until_error(data[:length])
        assert "are left" in reason
        assert data[:length].startswith(joined(found))
        with pytest.raises(WireError) as caught:
            list(layout(data[:length]))
        assert caught.value.offset == len(joined(found))


@given(st.binary(max_size=120), st.integers(0, 3))
def test_any_bytes_give_pieces_and_perhaps_a_wire_error(data: bytes, start: int) -> None:
    found, reason = until_error(data, start)
    assert data[start:].startswith(joined(found))
    assert reason or joined(found) == data[start:]


@given(st.sampled_from([0x41, 0xC1, 0x01]), st.integers(0x40, 0x4F), st.binary(max_size=110))
def test_likely_bytes_give_pieces_and_perhaps_a_wire_error(
    control: int, opcode: int, rest: bytes
) -> None:
    data = bytes([control, opcode]) + rest
    found, _ = until_error(data)
    assert data.startswith(joined(found))


def test_a_send_is_read_as_siw_sent_it() -> None:
    # siw612crc_rping.pcap, frame 10
    data = bytes.fromhex("4143000000000000000000000001000000000000560206bf884085e10d00000000c8")
    assert pieces(data) == [
        DDPControl(l=1),
        RDMAPControlReserved(opcode=RDMAPOpcode.SEND),
        UntaggedHeader(qn=0, msn=1, mo=0),
        bytes.fromhex("0000560206bf884085e10d00000000c8"),
    ]
    assert segment(RDMAPOpcode.SEND, data[18:], msn=1) == data


def test_a_read_request_is_read_as_siw_sent_it() -> None:
    # siw612crc_rping.pcap, frame 12
    data = bytes.fromhex(
        "414100000000000000010000000100000000ed8c560000005635bcd9fca0000000c885e10d00"
        "0000560206bf8840"
    )
    request = ReadRequestHeader(0xED8C5600, 0x5635BCD9FCA0, 200, 0x85E10D00, 0x560206BF8840)
    assert pieces(data)[-1] == request
    assert segment(RDMAPOpcode.RDMA_READ_REQUEST, b"", request, msn=1) == data


def test_reserved_bytes_of_ddp_are_rdmaps_control_field_and_stag() -> None:
    data = segment(RDMAPOpcode.SEND_WITH_INVALIDATE, invalidate_stag=0x99AABBCC)
    control = RDMAPControlInvalidate.parse(data, 1)
    assert control.rsvdulp == 0x4499AABBCC
    assert control.invalidate_stag == 0x99AABBCC


def test_an_atomic_request_names_its_data_by_the_operation() -> None:
    rows = {row.name: row for row in AtomicRequestHeader.rows}
    for opcode, name in ((0, "add"), (1, "swap"), (2, "swap")):
        header = AtomicRequestHeader(aopcode=opcode)
        assert rows["data"].meaning_in(header).wireshark == f"iwarp_rdma.atomic.{name}_data"
        assert rows["mask"].meaning_in(header).wireshark == f"iwarp_rdma.atomic.{name}_mask"
    assert AtomicRequestHeader.SIZE == 52
    assert AtomicResponseHeader.SIZE == 12


def test_atomic_and_immediate_messages_go_on_their_queues() -> None:
    assert [int(SHAPES[opcode].queue or 0) for opcode in (8, 9, 10, 11)] == [0, 0, 1, 3]
    atomic = AtomicRequestHeader(aopcode=AtomicOpcode.SWAP, data=7)
    assert pieces(segment(RDMAPOpcode.ATOMIC_REQUEST, b"", atomic))[-1] == atomic
    data = ImmediateData(b"12345678")
    assert pieces(segment(RDMAPOpcode.IMMEDIATE_DATA, b"", data))[-1] == data


WRONG = [
    (segment(RDMAPOpcode.SEND, b"x", dv=0), "DDP version 0, only 1", 0),
    (segment(RDMAPOpcode.SEND, b"x", rv=2), "RDMAP version 2, only 1", 1),
    (b"\x41\x4c" + bytes(16) + b"x", "opcode 0xc is reserved", 1),
    (segment(RDMAPOpcode.SEND, b"x", qn=1), "SEND goes on queue 0, found 1", 0),
    (segment(RDMAPOpcode.RDMA_WRITE, bytes(9), t=0), "uses the tagged buffer model", 0),
    (segment(RDMAPOpcode.SEND, b"x", t=1), "uses the untagged buffer model, found tagged", 0),
    (sample(RDMAPOpcode.ATOMIC_RESPONSE) + b"xyz", "carries nothing after its header, found 3", 0),
]


@pytest.mark.parametrize(("data", "message", "offset"), WRONG)
def test_a_segment_against_the_rules_is_laid_out_and_then_refused(
    data: bytes, message: str, offset: int
) -> None:
    assert joined(collected(data, 0)) == data
    with pytest.raises(WireError, match=message) as caught:
        list(layout(data))
    assert caught.value.offset == offset


def test_a_segment_with_fields_that_its_opcode_lacks_is_refused() -> None:
    with pytest.raises(WireError, match="SEND has no field 'stag'"):
        segment(RDMAPOpcode.SEND, stag=5)


LENGTH = TerminatedLength(0x64)
TAGGED = TerminatedTagged(1, 1, 0, 1, 1, 0, 0, 0xB66D035A, 0x7FB99C756000)
UNTAGGED = TerminatedUntagged(0, 1, 0, 1, 1, 0, 3, 0, 0, 1, 0)
READ_HEADER = TerminatedUntagged(0, 1, 0, 1, 1, 0, 1, 0, 1, 1, 0)
READ = TerminatedReadRequest(1, 2, 3, 4, 5)
ATOMIC_HEADER = TerminatedUntagged(0, 1, 0, 1, 1, 0, 10, 0, 1, 1, 0)
ATOMIC = TerminatedAtomicRequest(0, 1, 2, 3, 4, 5, 6, 7, 8)

QUOTES: list[tuple[tuple[int, int, int], list[Header]]] = [
    ((0, 0, 0), []),
    ((1, 0, 0), [LENGTH]),
    ((1, 1, 0), [LENGTH, TAGGED]),
    ((0, 1, 0), [LENGTH, UNTAGGED]),
    ((1, 1, 1), [LENGTH, READ_HEADER, READ]),
    ((1, 1, 1), [LENGTH, ATOMIC_HEADER, ATOMIC]),
    ((1, 1, 1), [LENGTH, UNTAGGED]),
    ((0, 0, 1), [READ]),
]


@pytest.mark.parametrize(("flags", "quoted"), QUOTES)
@pytest.mark.parametrize("etype", range(4))
def test_a_terminate_quotes_the_headers_that_its_flags_announce(
    etype: int, flags: tuple[int, int, int], quoted: list[Header]
) -> None:
    control = TerminateControl(Layer.RDMA, etype, 1, *flags)
    data = segment(RDMAPOpcode.TERMINATE, b"", control, *quoted, msn=1)
    assert pieces(data)[3:] == [control, *quoted]
    assert pieces(data + b"rest")[3:] == [control, *quoted, b"rest"]


def test_quoted_headers_are_also_read_as_bytes() -> None:
    assert LENGTH.bytes == 0x64
    assert TAGGED.bytes == int("c140b66d035a00007fb99c756000", 16)
    assert READ.bytes == int.from_bytes(READ.build(), "big")


ERRORS = [
    (0, 1, 0, "iwarp_rdma.term_errcode_rdma", "INVALID_STAG"),
    (0, 2, 6, "iwarp_rdma.term_errcode_rdma", "UNEXPECTED_OPCODE"),
    (0, 0, 0, "iwarp_rdma.term_errcode", ""),
    (1, 1, 1, "iwarp_rdma.term_errcode_ddp_tagged", "BASE_OR_BOUNDS_VIOLATION"),
    (1, 2, 2, "iwarp_rdma.term_errcode_ddp_untagged", "INVALID_MSN_NO_BUFFER_AVAILABLE"),
    (1, 0, 0, "iwarp_rdma.term_errcode", ""),
    (2, 0, 2, "iwarp_rdma.term_errcode_llp", "CRC_ERROR"),
    (2, 0, 7, "iwarp_rdma.term_errcode_llp", "NO_MATCHING_RTR_OPTION"),
    (2, 1, 2, "iwarp_rdma.term_errcode", ""),
    (9, 9, 9, "iwarp_rdma.term_errcode", ""),
]


@pytest.mark.parametrize(("layer", "etype", "code", "name", "word"), ERRORS)
def test_an_error_code_means_what_its_layer_and_type_say(
    layer: int, etype: int, code: int, name: str, word: str
) -> None:
    control = TerminateControl(layer, etype, code)
    row = next(row for row in TerminateControl.rows if row.name == "error_code")
    meaning = row.meaning_in(control)
    assert (meaning.wireshark, meaning.word(code)) == (name, word)


@pytest.mark.parametrize(
    ("data", "meant"),
    [
        ("11000300", TerminateControl(1, 1, 0, m=1, d=1)),  # siw61_err_badstag_write, frame 12
        ("21020300", TerminateControl(1, 2, 2, m=1, d=1)),  # siw61_err_no_recv, frame 10
        ("10000700", TerminateControl(0, 1, 0, m=1, d=1, r=1)),  # siw61_err_badstag_read
    ],
)
def test_a_mirrored_terminate_of_siw_is_recognised(data: str, meant: TerminateControl) -> None:
    control = TerminateControl.parse(bytes.fromhex(data))
    assert is_mirrored(control)
    assert mirrored(control) == meant
    assert not is_mirrored(meant)


MIRRORED: list[tuple[str, list[Header]]] = [
    # siw61_err_badstag_write, frame 12
    ("110003000064c140b66d035a00007fb99c756000", [LENGTH, TAGGED]),
    # siw61_err_no_recv, frame 10
    ("210203000064414300000000000000000000000100000000", [LENGTH, UNTAGGED]),
    # siw61_err_badstag_read, frame 11
    (
        (
            "10000700000041410000000000000001000000640000000052e70d00"
            "00007f71411a91000000006450fed25a00007f3535e64000"
        ),
        [
            TerminatedLength(0),
            TerminatedUntagged(0, 1, 0, 1, 1, 0, 1, 0, 1, 100, 0),
            TerminatedReadRequest(0x52E70D00, 0x7F71411A9100, 100, 0x50FED25A, 0x7F3535E64000),
        ],
    ),
]


@pytest.mark.parametrize(("data", "quoted"), MIRRORED)
def test_headers_are_also_quoted_behind_a_mirrored_control_field(
    data: str, quoted: list[Header]
) -> None:
    control = TerminateControl.parse(bytes.fromhex(data))
    ulpdu = segment(RDMAPOpcode.TERMINATE, bytes.fromhex(data), msn=1)
    assert pieces(ulpdu)[3:] == [control, *quoted]


@pytest.mark.parametrize("data", [data for data, _ in MIRRORED])
def test_a_mirrored_control_field_counts_only_if_just_its_headers_follow(data: str) -> None:
    whole = bytes.fromhex(data)
    version = whole[:6] + bytes([whole[6] ^ 2]) + whole[7:]
    for wrong in (whole + b"x", whole[:-1], version):
        ulpdu = segment(RDMAPOpcode.TERMINATE, wrong, msn=1)
        assert pieces(ulpdu)[4:] == [wrong[4:]]


def test_tagged_and_untagged_segments_have_their_own_control_tables() -> None:
    assert RDMAPControl.SIZE == 1
    assert {SHAPES[opcode].size for opcode in (0, 2)} == {14}
    assert {SHAPES[opcode].size for opcode in (3, 4, 5, 6)} == {18}
    assert SHAPES[RDMAPOpcode.RDMA_READ_REQUEST].size == 46
