"""Active messages of UCX: the bytes are those of its packed structures."""

from ctypes import LittleEndianStructure, c_int8, c_uint8, c_uint16, c_uint32, c_uint64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import WireError
from rdmawire.gpudirect.ucx import (
    HEADERS,
    TRANSPORTS,
    AckHeader,
    ActiveMessage,
    AmHeader,
    AmId,
    EagerFirstHeader,
    EagerHeader,
    EagerMiddleHeader,
    MemoryType,
    PackedKey,
    RtrHeader,
    RtsHeader,
    mpi_tag,
)

U64 = c_uint64
FIELDS: dict[type[Any], list[Any]] = {
    EagerHeader: [U64],
    EagerFirstHeader: [U64, U64, U64],
    EagerMiddleHeader: [U64, U64],
    RtsHeader: [U64, U64, U64, U64, U64, c_uint8],
    RtrHeader: [U64, U64, U64, U64, U64],
    AckHeader: [U64, c_int8, U64],
    AmHeader: [c_uint16, c_uint16, c_uint32],
}
"""The types of the fields in UCX's structures."""


def structure(kind: type[Any]) -> Any:
    names = [(f"field{number}", field) for number, field in enumerate(FIELDS[kind])]
    return type(kind.__name__, (LittleEndianStructure,), {"_pack_": 1, "_fields_": names})


def numbers(field: Any) -> st.SearchStrategy[int]:
    bits = 8 * len(bytes(field()))
    return st.integers(-128, 127) if field is c_int8 else st.integers(0, (1 << bits) - 1)


@st.composite
def messages(draw: st.DrawFn) -> ActiveMessage:
    am_id = draw(st.sampled_from(AmId))
    values = [draw(numbers(field)) for field in FIELDS[HEADERS[am_id]]]
    return ActiveMessage(am_id, HEADERS[am_id](*values), draw(st.binary(max_size=40)))


@given(messages(), st.sampled_from(sorted(TRANSPORTS)))
def test_messages_are_packed_structures(message: ActiveMessage, name: str) -> None:
    transport = TRANSPORTS[name]
    data = message.build(transport)
    packed = bytes(structure(type(message.header))(*message.header))
    before = {"rc_verbs": b"", "rc_mlx5": b"\0"}[name] + bytes([message.am_id])
    assert data == before + packed + message.rest
    assert ActiveMessage.parse(data, transport) == message


@given(messages(), st.data())
def test_what_is_cut_is_refused(message: ActiveMessage, data: st.DataObject) -> None:
    transport = TRANSPORTS["rc_mlx5"]
    whole = message._replace(rest=b"").build(transport)
    end = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(WireError):
        ActiveMessage.parse(whole[:end], transport)


@given(st.binary(max_size=80), st.sampled_from(sorted(TRANSPORTS)))
def test_any_bytes_are_a_message_or_refused(data: bytes, name: str) -> None:
    try:
        message = ActiveMessage.parse(data, TRANSPORTS[name])
    except WireError:
        return
    assert message.build(TRANSPORTS[name]) == data


def test_ids_that_tag_messages_do_not_use_are_refused() -> None:
    with pytest.raises(WireError, match="1 is no id of an active message"):
        ActiveMessage.parse(bytes([1]) + bytes(40), TRANSPORTS["rc_verbs"])
    with pytest.raises(WireError, match="no header of rc_mlx5"):
        ActiveMessage.parse(bytes([9]) + bytes(80), TRANSPORTS["rc_mlx5"])


@given(st.sampled_from(MemoryType), st.none() | st.integers(0, (1 << 32) - 1))
def test_packed_keys(memory: MemoryType, rkey: int | None) -> None:
    data = PackedKey(memory, rkey).build()
    assert PackedKey.parse(data) == PackedKey(memory, rkey)
    assert data[8] == memory
    assert len(data) == (9 if rkey is None else 19)
    for end in range(len(data)):
        if end != 9:
            with pytest.raises(WireError):
                PackedKey.parse(data[:end])


@given(st.binary(max_size=24))
def test_any_bytes_are_a_key_or_refused(data: bytes) -> None:
    try:
        key = PackedKey.parse(data)
    except WireError:
        return
    assert key.build()[:9] == data[:9]


def test_tags_of_mpi() -> None:
    assert mpi_tag(1, 2, 3) == 0x000001_00002_00003
    assert mpi_tag((1 << 23) - 1, (1 << 20) - 1, (1 << 20) - 1) == 0x7FFFFF_FFFFF_FFFFF
