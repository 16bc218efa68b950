"""Management datagrams: whatever the bytes, the pieces cover them, or a WireError says where."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import WireError
from rdmawire.wire import cm, mad, perf, sa, smp
from rdmawire.wire.layout import Placed, joined, size
from rdmawire.wire.mad import MAD, DirectedMAD
from rdmawire.wire.management import ManagementClass, Method
from rdmawire.wire.rmpp import OUI, RMPP, RMPPType

_KNOWN: dict[int, list[int]] = {
    ManagementClass.SUBN_LID_ROUTED: sorted(smp.ATTRIBUTES),
    ManagementClass.SUBN_DIRECTED_ROUTE: sorted(smp.ATTRIBUTES),
    ManagementClass.SUBN_ADM: sorted(sa.RECORDS),
    ManagementClass.PERF_MGT: sorted(perf.ATTRIBUTES),
    ManagementClass.COM_MGT: sorted(cm.MESSAGES),
    **{other: [0x01, 0x02, 0x10] for other in (0x00, 0x05, 0x09, 0x21, 0x30, 0x4F, 0xFF)},
}
KNOWN = [(mgmt_class, attribute) for mgmt_class, ids in _KNOWN.items() for attribute in ids]
BODIES = st.one_of(
    st.binary(min_size=mad.DATA, max_size=mad.DATA), st.builds(bytes, st.just(mad.DATA))
)


@st.composite
def datagrams(draw: st.DrawFn) -> bytes:
    """Datagrams whose class and attribute are mostly known, with anything behind."""
    mgmt_class, attribute = draw(st.sampled_from(KNOWN))
    method = draw(st.sampled_from([*Method, 0x7F]))
    head = MAD(mgmt_class=mgmt_class, method=method, attribute_id=attribute).build()
    rmpp = RMPP(
        type=draw(st.sampled_from([*RMPPType, 9])),
        active=draw(st.integers(0, 1)),
        last=draw(st.integers(0, 1)),
        data1=draw(st.integers(0, 3)),
        data2=draw(st.integers(0, 230)),
    )
    body = draw(BODIES)
    with_rmpp = draw(st.booleans()) and mgmt_class == ManagementClass.SUBN_ADM
    return head + (rmpp.build() + body[RMPP.SIZE :] if with_rmpp else body)


def pieces_of(data: bytes) -> tuple[list[Placed], WireError | None]:
    """What the layout gives, and the error that ends it."""
    found: list[Placed] = []
    try:
        found.extend(mad.layout(data))
    except WireError as error:
        return found, error
    return found, None


def check_layout(data: bytes) -> WireError | None:
    """Pieces follow one another and rebuild; without an error they cover everything."""
    found, error = pieces_of(data)
    end = 0
    for offset, piece in found:
        assert offset == end
        assert size(piece) > 0
        end += size(piece)
    assert joined(*(piece for _, piece in found)) == data[:end]
    assert error is not None or end == len(data)
    assert error is None or end <= (error.offset or 0) <= len(data)
    return error


@given(datagrams())
def test_the_pieces_of_a_datagram_cover_and_rebuild_it(data: bytes) -> None:
    check_layout(data)


@given(datagrams(), st.binary(max_size=20), st.binary(max_size=20))
def test_start_and_end_bound_the_datagram(data: bytes, before: bytes, after: bytes) -> None:
    alone, error = pieces_of(data)
    if error is None:
        start, end = len(before), len(before + data)
        inside = mad.layout(before + data + after, start, end)
        assert [(offset - start, piece) for offset, piece in inside] == alone


@given(datagrams(), st.data())
def test_a_cut_datagram_ends_in_an_error(raw: bytes, data: st.DataObject) -> None:
    length = data.draw(st.integers(0, mad.SIZE - 1))
    assert check_layout(raw[:length]) is not None


@given(datagrams(), st.data())
def test_changed_bytes_raise_nothing_but_a_wire_error(raw: bytes, data: st.DataObject) -> None:
    changed = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 8))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    check_layout(bytes(changed))


@given(st.binary(max_size=300))
def test_any_bytes_are_pieces_or_a_wire_error(data: bytes) -> None:
    check_layout(data)


@given(datagrams(), st.binary(min_size=1, max_size=9))
def test_bytes_behind_the_datagram_are_plain(data: bytes, more: bytes) -> None:
    alone, error = pieces_of(data)
    if error is None:
        assert list(mad.layout(data + more)) == [*alone, (mad.SIZE, more)]


def test_zeros_of_every_known_attribute_have_a_layout() -> None:
    for mgmt_class, attribute in KNOWN:
        data = mad.build(MAD(mgmt_class=mgmt_class, attribute_id=attribute))
        assert check_layout(data) is None, (mgmt_class, attribute)


def test_build_fills_up_and_refuses_too_much() -> None:
    data = mad.build(MAD(mgmt_class=6, attribute_id=0x10), b"abc")
    assert len(data) == 256
    assert data[24:28] == b"abc\0"
    with pytest.raises(WireError, match=r"a MAD has 256 bytes .* these pieces take 257"):
        mad.build(MAD(), bytes(233))


def test_the_common_header_of_a_directed_route_has_a_direction() -> None:
    # IBA 14.2.1.2: D is the uppermost bit of the status, hop pointer and count follow it.
    data = bytes.fromhex("01810181 8004 0305 0000000000001234 0011 0000 00000001")
    found = mad.header(data)
    assert isinstance(found, DirectedMAD)
    assert (found.d, found.status, found.hop_pointer, found.hop_count) == (1, 4, 3, 5)
    assert (found.mad_status, found.d_and_status, found.class_specific) == (0x8004, 0x8004, 0x0305)
    assert (found.method, found.transaction_id) == (Method.GET_RESP, 0x1234)


def test_another_base_version_has_only_the_common_header() -> None:
    data = mad.build(MAD(base_version=0x80, mgmt_class=7, attribute_id=0x10))
    assert [type(piece) for _, piece in mad.layout(data)] == [MAD, bytes]


def test_vendors_have_an_rmpp_header_and_an_oui() -> None:
    data = mad.build(MAD(mgmt_class=0x32), RMPP(), OUI(oui=0x001405), b"mine")
    pieces = dict(mad.layout(data))
    assert pieces[36] == OUI(oui=0x001405)
    assert pieces[40] == b"mine".ljust(216, b"\0")


@pytest.mark.parametrize("mgmt_class", [0x05, 0x06, 0x08, 0x09, 0x0F, 0x10, 0x21, 0x50, 0x02])
def test_classes_without_tables_are_plain_behind_the_common_header(mgmt_class: int) -> None:
    data = mad.build(MAD(mgmt_class=mgmt_class), bytes(range(232)))
    assert [piece for _, piece in mad.layout(data)][1:] == [bytes(range(232))]
