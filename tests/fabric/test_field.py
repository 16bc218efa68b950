"""Fields of frames by name: those of management datagrams too."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rdmawire.capture import open_capture
from rdmawire.fabric.field import Fields
from rdmawire.fabric.pause import pfc_frame
from rdmawire.wire.cm_code import CMAttribute
from rdmawire.wire.header import Header
from rdmawire.wire.inet import PFC, MACControl
from rdmawire.wire.mad import MANAGEMENT_QPS

LINUX = Path("captures/linux")
CAPTURES = ("rxe61_rping.pcap", "rxe61_udaddy.pcap")


def datagrams(name: str) -> Iterator[bytes]:
    with open_capture(LINUX / name) as capture:
        for record in capture:
            if Fields(record.data).get("bth.destqp") in MANAGEMENT_QPS:
                yield record.data


@pytest.mark.parametrize("name", CAPTURES)
def test_real_management_datagrams_are_the_same_when_nothing_changes(name: str) -> None:
    found = list(datagrams(name))
    assert found
    for frame in found:
        fields = Fields(frame)
        kinds = {piece.label for piece in fields.pieces if isinstance(piece, Header)}
        assert "mad" in kinds
        for seal in False, True:
            class_ = fields.get("mad.mgmt_class")
            assert isinstance(class_, int)
            assert fields.rewritten("mad.mgmt_class", class_, seal=seal) == frame


def test_a_field_of_a_real_request_is_found_and_written() -> None:
    request = next(
        frame
        for frame in datagrams("rxe61_rping.pcap")
        if Fields(frame).get("mad.attribute_id") == CMAttribute.REQ
    )
    changed = Fields(request).rewritten("cm_req.local_qpn", 0x1234, seal=True)
    assert Fields(request).get("cm_req.local_qpn") != 0x1234
    assert Fields(changed).get("cm_req.local_qpn") == 0x1234
    assert len(changed) == len(request)
    assert Fields(changed).rewritten("bth.fecn", 0, seal=True) == changed


def test_fields_of_a_pause_are_found_and_written() -> None:
    frame = pfc_frame(b"\x02\0\0\0\0\1", priority=3, quanta=0x1234)
    fields = Fields(frame)
    assert fields.get("macc.opcode") == MACControl.PFC
    assert (fields.get("pfc.c3"), fields.get("pfc.c2"), fields.get("pfc.time3")) == (1, 0, 0x1234)
    assert fields.get("pause.pause_time") is None
    changed = fields.rewritten("pfc.time3", 7, seal=True)
    assert (Fields(changed).get("pfc.time3"), len(changed)) == (7, len(frame))
    assert Fields(changed).rewritten("pfc.time3", 0x1234, seal=True) == frame


def test_a_pause_that_is_cut_off_has_the_fields_that_are_there() -> None:
    frame = pfc_frame(b"\x02\0\0\0\0\1", priority=3, quanta=1)
    for length in range(len(frame)):
        fields = Fields(frame[:length])
        assert (fields.get("macc.opcode") is not None) == (length >= 16)
        assert (fields.get("pfc.c3") is not None) == (length >= 16 + PFC.SIZE)
