"""Fields of frames by name: those of management datagrams too."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rdmawire.capture import open_capture
from rdmawire.fabric.field import Fields, usual_name
from rdmawire.fabric.pfc import pfc_frame
from rdmawire.wire import roce
from rdmawire.wire.cm import CMAttribute
from rdmawire.wire.header import Header
from rdmawire.wire.ib import AETH, RETH, AtomicETH
from rdmawire.wire.inet import PFC, MACControl
from rdmawire.wire.mad import MANAGEMENT_QPS
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from tests.fabric.talker import frame_of

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


def test_a_field_has_the_names_of_tables_and_of_filters() -> None:
    frame = frame_of(1, 2, psn=7, dscp=26, ecn=1)
    fields = Fields(frame)
    assert {fields.get(name) for name in ("bth.psn", "infiniband.bth.psn", "rdmawire.bth.psn")} == {
        7
    }
    assert fields.get("ip.dsfield.ecn") == fields.get("ip.ecn") == 1
    assert fields.get("ip.dsfield") == 26 << 2 | 1
    assert (fields.get("ip.ihl"), fields.get("ip.hdr_len")) == (5, 20)
    assert usual_name("ip.dsfield.ecn") == "ip.ecn"
    assert usual_name("ip.hdr_len") == "ip.hdr_len"


@pytest.mark.parametrize(
    ("name", "value", "same"),
    [
        ("infiniband.bth.psn", 9, ("bth.psn", 9)),
        ("ip.dsfield", 0x6A, ("ip.dscp", 26)),
        ("ip.hdr_len", 20, ("ip.ihl", 5)),
        ("ip.dsfield.ecn", 3, ("ip.dsfield", 3)),
    ],
)
def test_a_field_is_written_by_any_of_its_names(
    name: str, value: int, same: tuple[str, int]
) -> None:
    changed = Fields(Fields(frame_of(1, 2, ecn=0)).rewritten(name, value, seal=False))
    assert changed.get(name) == value
    assert changed.get(same[0]) == same[1]


def frame_with(opcode: Opcode, header: Header) -> bytes:
    """A frame of a packet without a payload, with this header behind its BTH."""
    around = roce.parse(frame_of(1, 2))
    return around._replace(packet=Packet.make(opcode, header)).seal().build()


def test_a_name_with_a_meaning_is_of_fields_that_mean_it() -> None:
    """The value of an AETH is a count of credits in an ACK, and a code in a NAK. IBA 9.7.5.1.4."""
    aeths = {0x1F: "credit_count", 0x21: "timer", 0x60: "error_code"}
    for syndrome, meant in aeths.items():
        frame = frame_with(Opcode.RC_ACKNOWLEDGE, AETH())
        fields = Fields(Fields(frame).rewritten("aeth.syndrome", syndrome, seal=True))
        assert fields.get("infiniband.aeth.syndrome") == syndrome
        for name in aeths.values():
            found = fields.get(f"infiniband.aeth.syndrome.{name}")
            assert found == (syndrome & 0x1F if name == meant else None)


def test_a_name_may_be_of_several_headers() -> None:
    read = frame_with(Opcode.RC_RDMA_READ_REQUEST, RETH())
    atomic = frame_with(Opcode.RC_FETCH_ADD, AtomicETH())
    for frame, own in (read, "reth.va"), (atomic, "atomiceth.va"):
        changed = Fields(Fields(frame).rewritten("infiniband.reth.va", 99, seal=True))
        assert changed.get("infiniband.reth.va") == changed.get(own) == 99


def test_a_range_is_not_walked_for_what_is_no_number() -> None:
    fields = Fields(frame_of(1, 2))
    assert not fields.has("reth.va", range(1, 1 << 64))
    assert not fields.has("eth.src", range(1 << 48))
    assert fields.has("bth.psn", range(1))
    assert not fields.has("reth.va", (None,))


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
