"""Records."""

from rdmawire.capture import COMMENT, Record


def test_comments_are_the_options_of_that_number() -> None:
    record = Record(
        b"", 0, 0, 1, 0, ((2, b"\1\0\0\0"), (COMMENT, "µs".encode()), (COMMENT, b"\xff"))
    )
    assert record.comments == ("µs", "\ufffd")


def test_a_record_without_options_has_no_comments() -> None:
    assert Record(b"", 0, 0, 1).comments == ()
