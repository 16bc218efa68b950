"""Options of pcapng blocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.capture.io import ChunkBuffer
from rdmawire.capture.pcapng import (
    INTERFACE_NUMBERS,
    PACKET_NUMBERS,
    build_options,
    parse_options,
)
from rdmawire.capture.record import Options
from rdmawire.errors import CaptureError

pairs = st.tuples(st.integers(1, 65535) | st.sampled_from(sorted(PACKET_NUMBERS)), st.binary())


def parsed(built: bytes, order: str = "<") -> Options:
    data = ChunkBuffer(iter([built]), "sample")
    data.need(len(built))
    return parse_options(data, 0, len(built), order, PACKET_NUMBERS)


@given(st.lists(pairs, max_size=5).map(tuple), st.sampled_from("<>"))
def test_what_is_built_is_parsed_again(options: Options, order: str) -> None:
    built = build_options(options, order, PACKET_NUMBERS)
    assert len(built) % 4 == 0
    assert parsed(built, order) == options


def test_no_options_take_no_bytes() -> None:
    assert build_options((), "<", PACKET_NUMBERS) == b""


@pytest.mark.parametrize(
    ("code", "little", "big"),
    [
        (2, "01020304", "04030201"),
        (4, "0102030405060708", "0807060504030201"),
        (7, "010203040506070809", "010908070605040302"),
        (2988, "01020304" + "aabb", "04030201" + "aabb"),
        (1, "01020304", "01020304"),
        (2, "010203", "010203"),
    ],
)
def test_numbers_in_values_follow_the_byte_order(code: int, little: str, big: str) -> None:
    option = ((code, bytes.fromhex(little)),)
    assert build_options(option, "<", PACKET_NUMBERS)[4:].startswith(bytes.fromhex(little))
    assert build_options(option, ">", PACKET_NUMBERS)[4:].startswith(bytes.fromhex(big))


def test_the_same_number_means_something_else_in_an_interface() -> None:
    built = build_options(((2, b"eth0"),), ">", INTERFACE_NUMBERS)
    assert built[4:8] == b"eth0"


def test_what_follows_the_end_mark_is_no_option() -> None:
    assert parsed(bytes.fromhex("01000100 61000000 00000000 01000100 62000000")) == ((1, b"a"),)


def test_the_end_mark_may_be_missing() -> None:
    assert parsed(bytes.fromhex("01000100 61000000")) == ((1, b"a"),)


def test_an_option_longer_than_its_block_is_damage() -> None:
    with pytest.raises(CaptureError) as caught:
        parsed(bytes.fromhex("01000100 61000000 02000900 01020304"))
    assert caught.value.reason == "sample: option 2 claims 9 bytes, its block has 4 left"
    assert caught.value.offset == 8


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (((0, b""),), "options: the code: 0 is not an integer from 1 to 65535"),
        (((1.5, b"x"),), "options: the code: 1.5 .* is not an integer"),
        (((1, "x"),), "options: the value of option 1: 'x' .* is not bytes"),
        (((65536, b""),), "options: the code: 65536 is not an integer from 1 to 65535"),
        (
            ((1, bytes(65536)),),
            "options: the length of option 1: 65536 is not an integer from 0 to 65535",
        ),
        (((1, bytes(65535)),) * 16, "options: 1048644 bytes in one block, 1048576 are allowed"),
    ],
)
def test_what_does_not_fit_is_refused(options: Options, reason: str) -> None:
    with pytest.raises(CaptureError, match=reason):
        build_options(options, "<", PACKET_NUMBERS)
