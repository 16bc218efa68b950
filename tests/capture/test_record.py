"""Records, their link types and lengths."""

import pytest

from rdmawire.capture import COMMENT, MAX_RECORD, LinkType, Record
from rdmawire.capture.record import longest_record


def test_numbers_are_those_of_the_registry() -> None:
    numbers = {member.name: int(member) for member in LinkType}
    assert numbers == {
        "NULL": 0,
        "ETHERNET": 1,
        "RAW_BSD": 12,
        "RAW_OPENBSD": 14,
        "RAW": 101,
        "LINUX_SLL": 113,
        "ERF": 197,
        "IPV4": 228,
        "IPV6": 229,
        "INFINIBAND": 247,
        "LINUX_SLL2": 276,
    }


@pytest.mark.parametrize("link_type", LinkType)
def test_each_link_type_has_a_meaning_of_one_line(link_type: LinkType) -> None:
    assert link_type.meaning
    assert "\n" not in link_type.meaning
    assert LinkType(int(link_type)) is link_type


@pytest.mark.parametrize(
    ("link_type", "size"),
    [(1, MAX_RECORD), (247, MAX_RECORD), (9999, MAX_RECORD), (231, 1 << 27), (279, 1 << 23)],
)
def test_only_frames_that_are_long_by_nature_may_be_long(link_type: int, size: int) -> None:
    assert longest_record(link_type) == size


def test_comments_are_the_options_of_that_number() -> None:
    record = Record(
        b"", 0, 0, 1, 0, ((2, b"\1\0\0\0"), (COMMENT, "µs".encode()), (COMMENT, b"\xff"))
    )
    assert record.comments == ("µs", "\ufffd")


def test_a_record_without_options_has_no_comments() -> None:
    assert Record(b"", 0, 0, 1).comments == ()
