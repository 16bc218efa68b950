"""Strategies: legal packets of every opcode; one line where Hypothesis is missing."""

import subprocess
import sys

import pytest
from hypothesis import find, given
from hypothesis import strategies as st

from rdmawire.errors import WireError
from rdmawire.testing.strategies import (
    fpdus,
    frames,
    headers,
    management_packets,
    packets,
    segments,
    start_ups,
)
from rdmawire.wire import rdmap, roce
from rdmawire.wire.ib import BTH, RETH
from rdmawire.wire.layout import joined
from rdmawire.wire.mad import SIZE, layout
from rdmawire.wire.mpa import REPLY_KEY, REQUEST_KEY, MPARequest, parse_fpdu
from rdmawire.wire.opcode import SHAPES, Opcode
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame
from tests.ib.test_rules_own_header import OPCODES, SEND_TAGGED, TagETH

WITHOUT_HYPOTHESIS = """
import sys
sys.modules["hypothesis"] = None
import rdmawire.testing
import rdmawire.testing.strategies
"""


def test_without_hypothesis_the_error_is_one_line_with_the_command_to_install_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_HYPOTHESIS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ImportError: rdmawire.testing.strategies needs Hypothesis: "
        'pip install "rdmawire[hypothesis]"'
    )
    assert "another exception" not in done.stderr


def test_the_smallest_packet_of_an_opcode_is_all_zeros() -> None:
    packet = find(packets(opcodes=[Opcode.RC_RDMA_WRITE_ONLY]), lambda _: True)
    assert packet == Packet(BTH(opcode=Opcode.RC_RDMA_WRITE_ONLY, pkey=0), (RETH(),))


@given(st.data(), st.sets(st.sampled_from(sorted(SHAPES)), min_size=1))
def test_packets_have_one_of_the_opcodes_asked_for(data: st.DataObject, opcodes: set[int]) -> None:
    packet = data.draw(packets(opcodes=opcodes))
    assert packet.bth.opcode in opcodes
    packet.check()


@given(frames(layouts=OPCODES), packets(opcodes=[SEND_TAGGED], layouts=OPCODES))
def test_packets_have_the_headers_of_another_table(frame: Frame, packet: Packet) -> None:
    assert roce.parse(frame.build(), opcodes=OPCODES) == frame
    assert packet.bth.opcode == SEND_TAGGED
    assert packet.header(TagETH) is not None
    assert Packet.parse(packet.build(), opcodes=OPCODES) == packet


def test_opcodes_of_no_packet_are_refused_where_they_are_named() -> None:
    with pytest.raises(WireError, match=r"opcode 0xff has no shape to build a packet by"):
        packets(opcodes=[Opcode.RC_SEND_ONLY, 0xFF])
    with pytest.raises(WireError, match=r"no opcodes to build packets of: name one or more"):
        packets(opcodes=[])


def test_a_fixed_row_that_no_header_has_is_refused_where_it_is_named() -> None:
    with pytest.raises(WireError, match=r"BTH.opcode: 300 does not fit 8 bits"):
        headers(BTH, opcode=300)
    with pytest.raises(TypeError, match="opcod"):
        headers(BTH, opcod=4)


@given(management_packets())
def test_management_packets_are_legal_and_hold_a_datagram(packet: Packet) -> None:
    packet.check()
    assert len(packet.payload) == SIZE
    pieces = [piece for _, piece in layout(packet.payload)]
    assert joined(*pieces) == packet.payload


@given(segments())
def test_segments_are_legal(data: bytes) -> None:
    assert joined(*(piece for _, piece in rdmap.layout(data))) == data


@given(fpdus())
def test_fpdus_have_good_crcs(data: bytes) -> None:
    fpdu = parse_fpdu(data)
    assert fpdu.good
    assert fpdu.size == len(data)


@given(start_ups())
def test_start_up_frames_have_the_length_of_their_private_data(data: bytes) -> None:
    header = MPARequest.parse(data)
    assert header.pd_length == len(data) - header.SIZE
    assert header.key in (REQUEST_KEY, REPLY_KEY)
