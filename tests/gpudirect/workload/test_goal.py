"""GOAL schedules: text and binary form, and what is wrong in them."""

from io import BytesIO
from pathlib import Path
from struct import pack, pack_into

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.gpudirect.workload import (
    ANY,
    Kind,
    Operation,
    Workload,
    WorkloadError,
    parse_goal,
    parse_goal_binary,
    read_trace,
)
from tests.gpudirect.workload.schedules import binary_of, content, goal, schedules, text_of

EXCHANGE = Path(__file__).parents[3] / "examples" / "workloads" / "exchange.goal"


@given(schedules(circles=True))
def test_text_and_binary_form_give_the_operations(ranks: list[list[Operation]]) -> None:
    wanted = content(Workload("GOAL", ["x"], ranks))
    assert content(goal(text_of(ranks))) == wanted
    assert content(parse_goal_binary(BytesIO(binary_of(ranks)))) == wanted


def test_an_example_is_read() -> None:
    third = read_trace([EXCHANGE]).ranks[2]
    assert [(one.label, one.peer, one.line) for one in third] == [
        ("first", ANY, 27),
        ("second", ANY, 28),
    ]
    assert list(third[1].after_start) == [0]


def test_braces_comments_and_labels_may_be_anywhere() -> None:
    text = "/* a\n b */ num_ranks 2 rank 1 { recv 5 b from -1 tag -1 } // c\nrank 0 { calc 3 }"
    found = goal(text)
    assert [one.kind for rank in found.ranks for one in rank] == [Kind.COMPUTE, Kind.RECEIVE]
    assert (found.ranks[1][0].tag, found.ranks[1][0].line) == (ANY, 2)


def test_any_may_be_a_number_of_32_bits() -> None:
    """Schedgen writes MPI_ANY_TAG so."""
    (found,) = goal("num_ranks 1\nrank 0 {\nrecv 8b from 4294967295 tag 4294967295\n}").ranks[0]
    assert (found.peer, found.tag) == (ANY, ANY)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "windows.goal"
    path.write_bytes(b"\xef\xbb\xbfnum_ranks 1\r\nrank 0 {\r\ncalc 3\r\n}\r\n")
    assert read_trace([path]).ranks[0][0].size == 3


HEAD = "num_ranks 2\nrank 0 {\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.goal: no num_ranks; a GOAL schedule begins with it"),
        ("num_ranks 0", "x.goal, line 1: 0 ranks; 1 to 1024 are supported"),
        ("num_ranks 2000", "x.goal, line 1: 2000 ranks; 1 to 1024 are supported"),
        ("num_ranks 2\nnum_ranks 2", "line 2: num_ranks is there already"),
        ("rank 0 {\n}", "line 1: a rank before num_ranks"),
        ("num_ranks 1\nrank 1 {", "line 2: rank 1, but ranks are 0 to 0"),
        ("num_ranks 2\nrank 0 {\nrank 1 {", "line 3: a rank inside a rank: } is missing"),
        ("num_ranks 1\nrank 0 {\n}\nrank 0 {", "line 4: rank 0 is there already"),
        ("num_ranks 2\nrank 0 {\n}", "line 3: the file ends without rank 1 of 2"),
        ("num_ranks 2\n}", "line 2: } without a rank"),
        ("num_ranks 2\ncalc 3", "line 2: 'calc 3': expected num_ranks or rank N {"),
        (HEAD, "line 2: rank 0 does not end: } is missing"),
        (HEAD + "send 5 to 1", "line 3: 'send 5 to 1': expected num_ranks"),
        (HEAD + "send 5b to -1", "line 3: 'send 5b to -1': expected"),
        (HEAD + "send 5b to 1 tag -1", "line 3: a send needs a tag: -1 is for receives"),
        (HEAD + "calc 5 tag 1", "line 3: calc has no tag"),
        (HEAD + "l: calc 5\nl: calc 6", "line 4: label l is there already, in line 3"),
        (HEAD + "a: calc 5\na requires b", "line 4: label b is not defined in rank 0 before"),
        (HEAD + "calc " + "9" * 21, "line 3: a number of 21 digits; at most 20"),
        (HEAD + "calc 9999999999999999", "line 3: 9999999999999999 ns, at most 1000000000000000"),
        (HEAD + "send 9999999999999b to 1", "bytes, at most 1099511627776 are supported"),
        (HEAD + "/* never", "line 3: a comment does not end: */ is missing"),
        (HEAD + " " * 5000, "line 3: more than 4096 bytes in a line"),
        (HEAD + "é", "line 3: no ASCII text"),
    ],
)
def test_errors_name_the_file_and_the_line(text: str, message: str) -> None:
    with pytest.raises(WorkloadError) as error:
        goal(text)
    assert str(error.value).startswith("x.goal")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def changed(offset: int, number: int) -> bytes:
    data = bytearray(binary_of([[Operation(Kind.COMPUTE, 7), Operation(Kind.COMPUTE, 8)], []]))
    pack_into("<I", data, offset, number)
    return bytes(data)


BASE = 8 + 6 + 2 * 16
"""Offset of the first rank."""


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"abc", "no GOAL schedule in binary form: the magic number is wrong"),
        (pack("<Q", 2342), "a simulation has used it up; write it with txt2bin again"),
        (pack("<QI", 4223, 1), "the file ends in its header"),
        (changed(8, 5000), "5000 ranks; 1 to 1024 are supported"),
        (changed(8, 700), "the file ends in the table of 700 ranks"),
        (changed(BASE, 3), "rank 0: 3 operations do not fit into 94 bytes"),
        (changed(BASE + 4, 1 << 31), "rank 0: 2 operations do not fit"),
        (changed(BASE + 16 + 4, 9), "rank 0, operation 0: type 9; there are 1 to 3"),
        (changed(BASE + 16 + 23, 1 << 30), "rank 0, operation 0: its list is cut off"),
        (binary_of([[Operation(Kind.COMPUTE, 7)]])[:-1], "rank 0: bytes 22 to 73 of 72: the file"),
        (binary_of([[Operation(Kind.SEND, 1, 0, ANY)]]), "operation 0: a send needs a tag"),
        (
            binary_of([[Operation(Kind.COMPUTE, 7), Operation(Kind.COMPUTE, 8, after=[0])]])[:-4]
            + pack("<I", 2),
            "operation 0: operation 2 waits for it, but there are 2",
        ),
    ],
)
def test_damaged_binary_schedules_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(WorkloadError, match=r"^x\.bin") as error:
        parse_goal_binary(BytesIO(data), "x.bin")
    assert message in str(error.value)


WORDS = [
    *("num_ranks", "1", "2", "rank", "0", "{", "}", "l:", "l", "requires", "irequires", "send"),
    *("5b", "to", "recv", "from", "-1", "tag", "cpu", "nic", "calc", "//", "/*", "*/", "\n"),
]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=24).map(lambda words: " ".join(words).encode())


@settings(max_examples=100)
@given(st.one_of(st.binary(max_size=120), TEXTS))
def test_any_text_is_read_or_refused(data: bytes) -> None:
    try:
        found = parse_goal(BytesIO(data))
    except WorkloadError:
        return
    assert len(found.ranks) >= 1


@settings(max_examples=100)
@given(schedules(), st.data())
def test_any_bytes_are_read_or_refused(ranks: list[list[Operation]], data: st.DataObject) -> None:
    good = bytearray(binary_of(ranks))
    at = data.draw(st.integers(8, len(good) - 1))
    good[at] = data.draw(st.integers(0, 255))
    try:
        found = parse_goal_binary(BytesIO(good))
    except WorkloadError:
        return
    assert len(found.ranks) >= 1
