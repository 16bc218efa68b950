"""Nodes of FPDUs that lie in several TCP segments."""

from rdmawire.dissect.dissector import Dissector
from rdmawire.dissect.node import Node
from rdmawire.wire.mpa import FPDUCRC, FPDULength
from rdmawire.wire.rdmap import RDMAPOpcode, UntaggedHeader
from tools.make_captures.iwarp_stream import Stream, ulpdu


def test_fpdus_that_one_segment_completes_stay_apart_and_in_order() -> None:
    stream = Stream(crc=True).open()
    fpdus = [stream.fpdu(0, ulpdu(RDMAPOpcode.SEND, 20, msn=msn)) for msn in (1, 2, 3)]
    data, at = b"".join(fpdus), stream.tcp.seq[0]
    stream.tcp.say(0, data[30:], seq=at + 30)
    stream.tcp.say(0, data[:30], seq=at)
    dissector = Dissector()
    frame = [dissector.dissect(data) for data in stream.frames][-1]
    kinds = (FPDULength, UntaggedHeader, FPDUCRC)
    found = [(type(node.header), node.offset) for node in frame.nodes]
    assert [one for one in found if one[0] in kinds] == [
        *((FPDULength, 54), (UntaggedHeader, 62)),
        *((FPDUCRC, 54 + len(fpdus[0]) - 4),),
        *((FPDULength, 0), (UntaggedHeader, 8), (FPDUCRC, len(fpdus[1]) - 4)),
        *((FPDULength, 0), (UntaggedHeader, 8), (FPDUCRC, len(fpdus[2]) - 4)),
    ]
    messages = [h.msn for h in frame.headers() if isinstance(h, UntaggedHeader)]
    assert messages == [1, 2, 3]


def test_a_ddp_segment_that_ends_early_keeps_its_bytes() -> None:
    stream = Stream(crc=True).open()
    stream.tcp.say(0, stream.fpdu(0, ulpdu(RDMAPOpcode.SEND, 20)[:9]))
    dissector = Dissector()
    frame = [dissector.dissect(data) for data in stream.frames][-1]
    assert frame.malformed is not None
    assert b"".join(node.data for node in sorted(frame.nodes, key=_place)) == frame.data


def _place(node: Node) -> tuple[int, int]:
    return node.offset, len(node.data)
