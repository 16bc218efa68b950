"""What a case shows, in words that people search for: its text, its NAKs, what it loses."""

from collections.abc import Iterator, Sequence

from rdmawire.errors import WireError
from rdmawire.wire import roce
from rdmawire.wire.ib import AETH, Ack, Nak
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from tools.make_captures.golden.case import Case
from tools.make_captures.golden.stage import Sent

_NAKS: dict[int, str] = {
    Nak.PSN_SEQUENCE_ERROR: "PSN sequence error",
    Nak.INVALID_REQUEST: "invalid request",
    Nak.REMOTE_ACCESS_ERROR: "remote access error",
    Nak.REMOTE_OPERATIONAL_ERROR: "remote operational error",
    Nak.INVALID_RD_REQUEST: "invalid RD request",
}


def shown(case: Case, sent: Sequence[Sent]) -> str:
    """The text of a case, then what its frames have of NAKs, and which of them are lost."""
    return "; ".join([case.shows, *_naks(sent), *_lost(case, sent)])


def _naks(sent: Sequence[Sent]) -> Iterator[str]:
    """Each NAK by its name, once."""
    packets = (_packet(one.frame) for one in sent)
    aeths = (each for packet in packets if packet for each in packet.extended)
    names = dict.fromkeys(_name(each) for each in aeths if isinstance(each, AETH))
    yield from (f"NAK: {name}" for name in names if name)


def _name(aeth: AETH) -> str:
    """What an AETH refuses with; empty if it does not."""
    if aeth.ack == Ack.RNR_NAK:
        return "RNR, receiver not ready"
    return _NAKS.get(aeth.value, "reserved code") if aeth.ack == Ack.NAK else ""


def _lost(case: Case, sent: Sequence[Sent]) -> Iterator[str]:
    """The frames that never arrive, by opcode and number in the case."""
    if case.lost:
        frames = (f"{_opcode(sent[number - 1])} (frame {number})" for number in case.lost)
        yield f"lost: {', '.join(frames)}"


def _opcode(sent: Sent) -> str:
    packet = _packet(sent.frame)
    return Opcode(packet.bth.opcode).name if packet else "a frame without a BTH"


def _packet(data: bytes) -> Packet | None:
    """The packet of a frame; ``None`` for pauses and packets that no standard knows."""
    try:
        return roce.parse(data).packet
    except WireError:
        return None
