"""Capsules and private data: numbers at the offsets of the specification, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import WireError
from rdmawire.gpudirect.storage import (
    AdminCommand,
    ConnectCommand,
    ConnectData,
    FabricsCommand,
    IdentifyController,
    IdentifyNamespace,
    IOCommand,
    NvmeCompletion,
    PropertyCommand,
    RdmaConnectAccept,
    RdmaConnectReject,
    RdmaConnectRequest,
    Status,
)
from rdmawire.testing.strategies import headers
from rdmawire.wire.codec import fused, reader
from rdmawire.wire.header import Header, bits
from rdmawire.wire.ib import RETH
from rdmawire.wire.tables import known_headers

SIZES: dict[type[Header], int] = {
    RdmaConnectRequest: 32,
    RdmaConnectAccept: 32,
    RdmaConnectReject: 4,
    AdminCommand: 64,
    IOCommand: 64,
    FabricsCommand: 64,
    ConnectCommand: 64,
    PropertyCommand: 64,
    ConnectData: 1024,
    NvmeCompletion: 16,
    IdentifyController: 4096,
    IdentifyNamespace: 4096,
}
OFFSETS: list[tuple[type[Header], str, int, int]] = [
    (RdmaConnectRequest, "qid", 2, 2),
    (RdmaConnectRequest, "hsqsize", 6, 2),
    (RdmaConnectAccept, "crqsize", 2, 2),
    (RdmaConnectReject, "sts", 2, 2),
    (IOCommand, "opcode", 0, 1),
    (IOCommand, "cid", 2, 2),
    (IOCommand, "nsid", 4, 4),
    (IOCommand, "address", 24, 8),
    (IOCommand, "length", 32, 3),
    (IOCommand, "key", 35, 4),
    (IOCommand, "slba", 40, 8),
    (IOCommand, "nlb", 48, 2),
    (AdminCommand, "cdw10", 40, 4),
    (AdminCommand, "cdw15", 60, 4),
    (ConnectCommand, "fctype", 4, 1),
    (ConnectCommand, "qid", 42, 2),
    (ConnectCommand, "sqsize", 44, 2),
    (ConnectCommand, "kato", 48, 4),
    (PropertyCommand, "offset", 44, 4),
    (PropertyCommand, "value", 48, 8),
    (ConnectData, "cntlid", 16, 2),
    (NvmeCompletion, "result", 0, 8),
    (NvmeCompletion, "sqhd", 8, 2),
    (NvmeCompletion, "cid", 12, 2),
    (IdentifyController, "mdts", 77, 1),
    (IdentifyController, "cntlid", 78, 2),
    (IdentifyController, "maxcmd", 514, 2),
    (IdentifyController, "nn", 516, 4),
    (IdentifyController, "sgls", 536, 4),
    (IdentifyController, "ioccsz", 1792, 4),
    (IdentifyController, "icdoff", 1800, 2),
    (IdentifyNamespace, "nsze", 0, 8),
    (IdentifyNamespace, "lbads", 130, 1),
]


@pytest.mark.parametrize("table", SIZES, ids=lambda table: table.__name__)
@given(data=st.data())
def test_bytes_and_values_are_inverse(table: type[Header], data: st.DataObject) -> None:
    assert SIZES[table] == table.SIZE
    long = {row.name: row.default for row in table.rows if row.width > 8 * 64}
    found = data.draw(headers(table, **long))
    assert table.parse(found.build()) == found
    noise = data.draw(st.binary(min_size=64, max_size=64)) * (table.SIZE // 64 + 1)
    assert table.parse(noise).build() == noise[: table.SIZE]


@pytest.mark.parametrize(("table", "name", "offset", "size"), OFFSETS)
@given(data=st.data())
def test_numbers_are_little_endian_at_their_offsets(
    table: type[Header], name: str, offset: int, size: int, data: st.DataObject
) -> None:
    value = data.draw(st.integers(0, (1 << 8 * size) - 1))
    built = table(**{name: value}).build()
    assert int.from_bytes(built[offset : offset + size], "little") == value
    assert reader(table, name)(built) == value
    changed = {
        at for at, (one, two) in enumerate(zip(built, table().build(), strict=True)) if one != two
    }
    assert changed <= set(range(offset, offset + size))


def test_rows_of_one_number_begin_with_its_highest_bit() -> None:
    failed = NvmeCompletion(cid=1, status=Status.LBA_OUT_OF_RANGE, dnr=1, phase=1).build()
    assert failed[12:] == bytes.fromhex("0100 0181")  # 0x8101: DNR, status code 0x80, phase
    keyed = IOCommand(opcode=2, psdt=1, fuse=2, sgl_type=4, sgl_subtype=0xF).build()
    assert (keyed[1], keyed[39]) == (0x42, 0x4F)


def test_little_endian_tables_have_their_codec_alone() -> None:
    with pytest.raises(TypeError, match="NvmeCompletion is little-endian"):
        fused(RETH, NvmeCompletion)
    with (
        pytest.raises(TypeError, match="NvmeCompletion is little-endian"),
        known_headers(NvmeCompletion),
    ):
        pass


def test_rows_across_bytes_that_are_no_number_of_them_are_refused() -> None:
    with pytest.raises(TypeError, match="no number of bytes"):

        class _Odd(Header, order="little"):
            """Eleven bits."""

            one: int = bits(11)


def test_what_does_not_fit_is_an_error() -> None:
    with pytest.raises(WireError, match=r"IOCommand.length: 16777216 does not fit 24 bits"):
        IOCommand(length=1 << 24).build()
    with pytest.raises(WireError, match="NvmeCompletion takes 16 bytes, 15 are left"):
        NvmeCompletion.parse(bytes(15))
