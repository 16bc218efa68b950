"""Which frames a blind spot applies to: questions about a dissection."""

from collections.abc import Callable

from rdmawire.dissect.dissection import Dissection
from rdmawire.wire import ib, rdmap
from rdmawire.wire.header import Header
from rdmawire.wire.mad import MAD
from rdmawire.wire.opcode import SHAPES, Opcode, Operation, Service
from rdmawire.wire.rdmap import UntaggedHeader

Applies = Callable[[Dissection], bool]


def everywhere(_: Dissection) -> bool:
    return True


def found(frame: Dissection, *kinds: type[Header]) -> list[Header]:
    return [header for header in frame.headers() if isinstance(header, kinds)]


def has(*kinds: type[Header], **values: int) -> Applies:
    """Frames with a header of one of these kinds that has these values."""
    return lambda frame: any(
        all(getattr(header, name) == value for name, value in values.items())
        for header in found(frame, *kinds)
    )


def opcode(frame: Dissection) -> int:
    """The BTH's opcode; -1 without a BTH."""
    return next((bth.opcode for bth in found(frame, ib.BTH)), -1)  # type: ignore[attr-defined]


def of_service(service: Service) -> Applies:
    return lambda frame: opcode(frame) >= 0 and opcode(frame) >> 5 == service


def of_operation(*operations: Operation) -> Applies:
    return lambda frame: opcode(frame) in SHAPES and opcode(frame) & 31 in operations


def payload(frame: Dissection) -> bytes:
    """The first payload, with its pad."""
    return b"".join(node.data for node in frame.nodes if node.name in ("payload", "pad"))


def short_send(frame: Dissection) -> bool:
    return _guessed(frame) and len(payload(frame)) <= 12


def zeros_sent(frame: Dissection) -> bool:
    return _guessed(frame) and len(payload(frame)) > 16 and not any(payload(frame))


def _guessed(frame: Dissection) -> bool:
    return of_operation(*_GUESSED)(frame) and not has(MAD)(frame)


_GUESSED = (Operation.SEND_ONLY, Operation.SEND_LAST, Operation.SEND_ONLY_WITH_INVALIDATE)


def immediate_alone(frame: Dissection) -> bool:
    return opcode(frame) == Opcode.UD_SEND_ONLY_WITH_IMMEDIATE and not payload(frame)


def like_eoib(frame: Dissection) -> bool:
    datagram = opcode(frame) >> 5 == Service.UD and len(payload(frame)) > 4
    return datagram and payload(frame)[0] >> 4 == 0xC


def of_class(*classes: int) -> Applies:
    return lambda frame: any(mad.mgmt_class in classes for mad in found(frame, MAD))  # type: ignore[attr-defined]


def rdmap_opcode(*opcodes: int) -> Applies:
    kinds = (rdmap.RDMAPControl, rdmap.RDMAPControlReserved, rdmap.RDMAPControlInvalidate)
    return lambda frame: any(head.opcode in opcodes for head in found(frame, *kinds))  # type: ignore[attr-defined]


def send_in_segments(frame: Dissection) -> bool:
    return any(
        isinstance(node.header, UntaggedHeader) and node.header.qn == 0 for node in frame.nodes
    )
