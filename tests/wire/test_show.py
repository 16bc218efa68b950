"""How values are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.terminal import escape
from rdmawire.wire import show
from rdmawire.wire.show import Show, Value


@pytest.mark.parametrize(
    ("notation", "width", "value", "text"),
    [
        (show.DEC, 24, 0xFFFFFF, "16777215"),
        (show.scaled(4), 4, 5, "20"),
        (show.HEX, 24, 0xAB, "0x0000ab"),
        (show.HEX, 1, 1, "0x01"),
        (show.HEX, 9, 1, "0x0001"),
        (show.hex_digits(8), 24, 0xAB, "0x000000ab"),
        (show.DIGITS, 24, 0xAB, "0000ab"),
        (show.DIGITS, 12, 0xAB, "00ab"),
        (show.BOOL, 1, 1, "1"),
        (show.BOOL, 1, 0, "0"),
        (show.MAC, 48, b"\x52\x54\0\0\0\x01", "52:54:00:00:00:01"),
        (show.IPV4, 32, b"\x0a\x4d\0\x01", "10.77.0.1"),
        (show.IPV6, 128, bytes(15) + b"\x01", "::1"),
        (show.IPV6, 128, b"\xfe\x80" + bytes(13) + b"\xab", "fe80::ab"),
        (show.IPV6, 128, bytes(10) + b"\xff\xff\x0a\x4d\0\x01", "::ffff:10.77.0.1"),
        (show.BYTES, 24, b"\x00\xab\x01", "00ab01"),
        (show.TEXT, 64, b"eth0\0rest", "eth0"),
        (show.TEXT, 64, b"\x1b[31m\xff", r"\x1b[31m\xff"),
        (show.TEXT, 64, "prüf €".encode(), "prüf €"),
        (show.PRESENCE, 96, b"anything", "1"),
    ],
)
def test_each_notation(notation: Show, width: int, value: Value, text: str) -> None:
    assert show.writer(notation, width)(value) == text


def test_every_kind_has_a_writer() -> None:
    for kind in show.Kind:
        assert callable(show.writer(Show(kind), 8))


@pytest.mark.parametrize(("width", "digits"), [(1, 2), (8, 2), (9, 4), (24, 6), (64, 16)])
def test_hexadecimal_digits_are_those_of_whole_bytes(width: int, digits: int) -> None:
    assert len(show.writer(show.HEX, width)(0)) == len("0x") + digits


@pytest.mark.parametrize(("number", "text"), [(0, "0 bytes"), (1, "1 byte"), (2, "2 bytes")])
def test_bytes_are_counted_in_words(number: int, text: str) -> None:
    assert show.byte_count(number) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü", "plain ü"),
        ("a\nb\tc", r"a\nb\tc"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\u202eright to left", r"\u202eright to left"),
        ("quote' and \"", "quote' and \""),
    ],
)
def test_control_characters_become_escapes(text: str, shown: str) -> None:
    assert escape(text) == shown


@given(st.text() | st.binary().map(show.printable))
def test_safe_text_is_printable_and_stays(text: str) -> None:
    assert escape(text).isprintable()
    assert escape(escape(text)) == escape(text)


@given(st.binary(max_size=40))
def test_bytes_as_text_end_at_the_first_nul(data: bytes) -> None:
    assert show.printable(data) == show.printable(data.split(b"\0")[0])
    assert show.printable(data).isprintable()
