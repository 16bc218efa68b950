"""DDP headers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import WireError
from rdmawire.testing.strategies import headers
from rdmawire.wire.header import Header
from rdmawire.wire.rdmap import DDPControl, TaggedHeader, UntaggedHeader

TABLES: list[type[Header]] = [DDPControl, TaggedHeader, UntaggedHeader]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
@given(data=st.data())
def test_parse_is_the_inverse_of_build(table: type[Header], data: st.DataObject) -> None:
    header = data.draw(headers(table))
    assert table.parse(header.build()) == header


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
def test_every_shorter_buffer_is_a_wire_error(table: type[Header]) -> None:
    for length in range(table.SIZE):
        with pytest.raises(WireError, match=f"takes {table.SIZE} bytes?, {length} are left"):
            table.parse(bytes(length))


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
