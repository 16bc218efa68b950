"""Descriptors that are merged, and the strings of notifications."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import WireError
from rdmawire.gpudirect.nixl import Descriptor, DescriptorPair, deserialize, merged, serialize

LOCAL, REMOTE, SIZE = 1 << 20, 1 << 30, 64


def block(base: int, number: int, tensor: int) -> Descriptor:
    return Descriptor(base + number * SIZE, SIZE, tensor)


NUMBERS = st.integers(0, 5)


@given(st.lists(st.tuples(NUMBERS, NUMBERS, st.integers(0, 1)), max_size=30))
def test_merged_pairs_name_the_same_bytes(blocks: list[tuple[int, int, int]]) -> None:
    pairs = [
        DescriptorPair(block(LOCAL, own, tensor), block(REMOTE, other, tensor))
        for own, other, tensor in blocks
    ]
    found = merged(pairs)
    parts = [
        (pair.local.address + at, pair.remote.address + at, pair.local.tensor)
        for pair in found
        for at in range(0, pair.local.length, SIZE)
    ]
    assert parts == [(one.address, other.address, one.tensor) for one, other in pairs]
    assert all(pair.local.length == pair.remote.length for pair in found)
    breaks = sum(
        now != (before[0] + 1, before[1] + 1, before[2]) for before, now in pairwise(blocks)
    )
    assert len(found) == breaks + bool(blocks)


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.binary(max_size=30), max_size=4))
def test_fields_are_read_as_they_were_written(fields: dict[str, bytes]) -> None:
    data = serialize(fields)
    assert deserialize(data, list(fields)) == fields
    for end in range(len(data) if fields else 0):
        with pytest.raises(WireError):
            deserialize(data[:end], list(fields))


def test_the_bytes_of_a_notification() -> None:
    data = serialize({"name": b"decode", "msg": b"id"})
    assert data == b"nixlSerDes|name\6\0\0\0\0\0\0\0decode|msg\2\0\0\0\0\0\0\0id|"


@given(st.binary(max_size=60))
def test_any_bytes_are_fields_or_refused(rest: bytes) -> None:
    try:
        found = deserialize(b"nixlSerDes|" + rest, ("name",))
    except WireError:
        return
    assert rest.startswith(serialize(found)[11:])
