"""Frames with something wrong in them: checksums that do not hold, bytes that do not parse."""

from collections.abc import Iterator

from rdmawire.wire import ib
from rdmawire.wire.inet import EtherType
from rdmawire.wire.native import NativePacket
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame
from tools.make_captures.transport import ethernet, ipv4, packet


def _frame(checksum: int = 0) -> Frame:
    sent = packet(Opcode.RC_SEND_ONLY, 3)
    return Frame((ethernet(EtherType.IPV4), *ipv4(sent, checksum=checksum)), sent).seal()


def bad_icrc() -> Iterator[bytes]:
    """A good frame, and the same with one bit of its ICRC flipped."""
    frame = _frame()
    yield frame.build()
    yield frame.replace(icrc=frame.icrc ^ 1 << 24).build()


def bad_checksums() -> Iterator[bytes]:
    """A wrong IPv4 header checksum, then a wrong UDP checksum."""
    for place in (24, 40):
        data = bytearray(_frame(checksum=1).build())
        data[place] ^= 0xFF
        yield bytes(data)


def bad_vcrc() -> Iterator[bytes]:
    """A native packet whose VCRC was not computed."""
    sealed = NativePacket(ib.LRH(dlid=2, slid=1), None, packet(Opcode.RC_SEND_ONLY, 3)).seal()
    yield sealed.replace(vcrc=sealed.vcrc ^ 0xFFFF).build()


def malformed() -> Iterator[bytes]:
    """A reserved opcode, a pad longer than the payload, a frame that ends before its length."""
    headers = _frame().headers
    for wrong in (Packet(ib.BTH(opcode=0x1F), (), b"reserved"), Packet(ib.BTH(opcode=4, padcnt=3))):
        yield Frame(headers, wrong).seal().build()
    yield _frame().build()[:-6]


def two_reasons() -> Iterator[bytes]:
    """A length of IPv4 that is too long, and behind it a reserved opcode."""
    wrong = Frame(_frame().headers, Packet(ib.BTH(opcode=0x1F), (), b"reserved")).seal()
    data = bytearray(wrong.build())
    data[16:18] = b"\xff\xff"
    yield bytes(data)
