"""RMPP headers: what the type makes of the two data words."""

import pytest

from rdmawire.wire import mad
from rdmawire.wire.header import Meaning
from rdmawire.wire.mad import MAD
from rdmawire.wire.management import ManagementClass, Method
from rdmawire.wire.rmpp import RMPP, ExtendedErrorData, RMPPStatus, RMPPType, resp_time_words


def names(header: RMPP) -> list[str]:
    """The Wireshark names of the two data words."""
    rows = [row for row in RMPP.rows if row.name in ("data1", "data2")]
    meanings: list[Meaning] = [row.meaning_in(header) for row in rows]
    return [meaning.wireshark.removeprefix("infiniband.rmpp.") for meaning in meanings]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (RMPPType.NOT_USED, ["data1", "data2"]),
        (RMPPType.DATA, ["segmentnumber", "payloadlength"]),
        (RMPPType.ACK, ["segmentnumber", "newwindowlast"]),
        (RMPPType.STOP, ["", ""]),
        (RMPPType.ABORT, ["", ""]),
    ],
)
def test_the_type_names_the_data_words(kind: RMPPType, expected: list[str]) -> None:
    assert names(RMPP(type=kind)) == expected


def test_response_time_takes_five_bits_and_flags_three() -> None:
    # IBA 13.6.2.1: RRespTime, then Last, First, Active.
    header = RMPP.parse(bytes.fromhex("01 01 97 00 00000001 000000dc"))
    assert (header.resp_time, header.flags) == (18, 7)
    assert (header.last, header.first, header.active) == (1, 1, 1)
    assert resp_time_words(header.resp_time) == "1.074 s"
    assert resp_time_words(31) == "no time provided"


def test_a_header_that_is_not_active_is_not_used() -> None:
    assert RMPP(type=RMPPType.ABORT).kind == RMPPType.NOT_USED
    assert RMPP(type=RMPPType.ABORT, active=1).kind == RMPPType.ABORT


@pytest.mark.parametrize("kind", [RMPPType.STOP, RMPPType.ABORT])
def test_stop_and_abort_carry_error_data(kind: RMPPType) -> None:
    head = MAD(mgmt_class=ManagementClass.SUBN_ADM, method=Method.GET_TABLE, attribute_id=0x35)
    rmpp = RMPP(type=kind, active=1, status=RMPPStatus.TOO_MANY_RETRIES)
    error = ExtendedErrorData(data=bytes(range(220)))
    assert list(mad.layout(mad.build(head, rmpp, error))) == [(0, head), (24, rmpp), (36, error)]


def test_what_follows_an_ack_is_reserved() -> None:
    head = MAD(mgmt_class=ManagementClass.SUBN_ADM, method=Method.GET_TABLE, attribute_id=0x35)
    rmpp = RMPP(type=RMPPType.ACK, active=1, data1=3, data2=67)
    pieces = list(mad.layout(mad.build(head, rmpp)))
    assert pieces == [(0, head), (24, rmpp), (36, bytes(220))]
