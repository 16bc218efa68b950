"""Frames between a requester and its peer: responses from inputs, and requests compared as values.

Most frames are built from a cached head and one CRC; those with unusual fields from the header
tables (:mod:`rdmawire.fuzz.frames`).
"""

from typing import Any, Final

from rdmawire.errors import WireError
from rdmawire.fuzz.exchange import Reply, Request
from rdmawire.fuzz.frames import FrameBuilder, payload_bytes
from rdmawire.fuzz.inputs import AnswerInput, PacketInput
from rdmawire.fuzz.packet_validation import is_to_peer, packet_for, reply_in, request_in
from rdmawire.ib.tx_template import ACKREQ
from rdmawire.wire import roce
from rdmawire.wire.header import Header
from rdmawire.wire.ib import (
    AETH,
    DETH,
    FETH,
    ICRC,
    IETH,
    RETH,
    VCRC,
    XRCETH,
    AtomicAckETH,
    AtomicETH,
    ImmDt,
)
from rdmawire.wire.icrc import icrc_headers_twice
from rdmawire.wire.native import with_vcrc
from rdmawire.wire.opcode import SHAPES, Opcode, Operation, Service
from rdmawire.wire.packet import LAYOUTS

_BITS_64: Final = (1 << 64) - 1
_SYNDROME: Final = 0x7F
"""The bits of an AETH's first byte that have a meaning."""


def reply_to(one: AnswerInput, psn: int, msn: int, service: Service) -> Reply | None:
    """Return the response of an input without unusual parts; ``None`` if it must be dropped.

    ``service`` is that of the requester.
    """
    if SHAPES[one.opcode].service is not service:
        return None
    operation, syndrome = one.opcode & 31, one.syndrome & _SYNDROME
    if operation == Operation.RDMA_READ_RESPONSE_MIDDLE:
        return Reply(operation, psn, -1, 0, payload_bytes(one.seed, one.length))
    if operation == Operation.ATOMIC_ACKNOWLEDGE:
        data = (one.value & _BITS_64).to_bytes(8, "big")
        return None if one.length else Reply(operation, psn, syndrome, msn, data)
    if operation == Operation.ACKNOWLEDGE and one.length:
        return None
    return Reply(operation, psn, syndrome, msn, payload_bytes(one.seed, one.length))


def is_unusual(one: AnswerInput) -> bool:
    """Return whether the effect of a response does not follow from its values alone."""
    return bool(one.fields or one.extra or one.cut or one.checksum != "GOOD")


class AnswerBuilder(FrameBuilder):
    """Builds the responses of a peer, and the requests that are expected of the target.

    ``service`` is that of the requester. With ``flush_twice`` the ICRC of its FLUSHes covers their
    headers twice.
    """

    service: Service = Service.RC
    flush_twice: bool = False

    def answer(self, one: AnswerInput, psn: int, msn: int) -> bytes:
        """Return the frame of a response. Raises :class:`FuzzError` for a bad field."""
        reply = None if is_unusual(one) else reply_to(one, psn, msn, self.service)
        if reply is None:
            return self.frame(packet_of(one, msn), psn)
        extended, data = b"", reply.data
        if reply.syndrome >= 0:
            extended = (one.syndrome << 24 | reply.msn).to_bytes(4, "big")
        if reply.operation == Operation.ATOMIC_ACKNOWLEDGE:
            extended, data = extended + data, b""
        return self._template.frame(one.opcode, reply.psn, extended, data)

    def reply_for(self, one: AnswerInput, psn: int, msn: int) -> Reply | None:
        """Return the response of an input as values; ``None`` if it must be dropped."""
        if is_unusual(one):
            return self.answer_in(self.answer(one, psn, msn))
        return reply_to(one, psn, msn, self.service)

    def answer_in(self, frame: bytes) -> Reply | None:
        """Return the response in a frame for the target; ``None`` if it must be dropped."""
        parsed = packet_for(frame, self.headers, self.numbers.qpn)
        if parsed is None:
            return None
        packet = parsed.packet
        shape = SHAPES.get(packet.bth.opcode)
        if shape is None or not shape.response or shape.service is not self.service:
            return None
        return reply_in(parsed)

    def request(self, one: Request) -> bytes | None:
        """Return the frame of a request of the target; ``None`` until its path is known.

        Also for a FLUSH with ``flush_twice``, which must be parsed.
        """
        if self._replies is None or (self.flush_twice and one.opcode == Opcode.RC_FLUSH):
            return None
        word = one.psn | ACKREQ if one.ackreq else one.psn
        extended = b"".join(header.build() for header in request_headers(one).values())
        return self._replies.frame(one.opcode, word, extended, one.payload)


def request_from(frame: bytes, medium: roce.Medium, *, flush_twice: bool = False) -> Request | None:
    """Return a request of the target; ``None`` if it is damaged, or for another queue pair.

    ``medium`` is what the link carries, ``flush_twice`` as in :class:`AnswerBuilder`.
    """
    try:
        parsed = roce.parse(frame, medium=medium)
    except WireError:
        return None
    bth = parsed.packet.bth
    if flush_twice and bth.opcode == Opcode.RC_FLUSH:
        is_sealed = _covered_twice(parsed.seal(), medium) == frame
    else:
        is_sealed = parsed.seal() == parsed
    return request_in(parsed, malformed=False) if is_sealed and is_to_peer(bth) else None


def _covered_twice(flush: roce.Frame, medium: roce.Medium) -> bytes:
    """Return the bytes of a FLUSH with the ICRC of Linux, which covers its headers twice."""
    frame, is_native = flush.build(), medium is roce.Medium.INFINIBAND
    end = len(frame) - ICRC.SIZE - (VCRC.SIZE if is_native else 0)
    headers = frame[roce.bth_offset(frame, 0, len(frame), medium=medium) : end]
    icrc = int.from_bytes(frame[end : end + ICRC.SIZE], "big")
    changed = frame[:end] + icrc_headers_twice(icrc, headers).to_bytes(ICRC.SIZE, "big")
    return with_vcrc(changed) if is_native else changed


def request_headers(one: Request) -> dict[type[Header], Header]:
    """Return the extended headers of a request, in order."""
    return {table: _FILLED[table](one) for table in LAYOUTS[one.opcode].headers}


_FILLED: Final[dict[Any, Any]] = {
    RETH: lambda one: RETH(one.va, one.rkey, one.dmalen),
    AtomicETH: lambda one: AtomicETH(one.va, one.rkey, one.value, one.compare),
    ImmDt: lambda one: ImmDt(one.value),
    IETH: lambda one: IETH(one.rkey),
    FETH: lambda one: FETH(plt=one.value, sel=one.compare),
    DETH: lambda one: DETH(qkey=one.qkey, srcqp=one.source),
    XRCETH: lambda one: XRCETH(xrcsrq=one.srq),
}
"""How the headers of a request are filled."""


def packet_of(one: AnswerInput, msn: int) -> PacketInput:
    """The packet input with the bytes of an unusual response."""
    headers = LAYOUTS[one.opcode].headers
    fields: tuple[tuple[str, int], ...] = ()
    if AETH in headers:
        fields = (("aeth.resv1", one.syndrome >> 7), ("aeth.msn", msn))
    if AtomicAckETH in headers:
        fields += (("atomicacketh.origremdt", one.value & _BITS_64),)
    return PacketInput(
        opcode=one.opcode,
        ackreq=0,
        length=one.length,
        seed=one.seed,
        value=one.syndrome & _SYNDROME,
        fields=fields + one.fields,
        cut=one.cut,
        extra=one.extra,
        checksum=one.checksum,
    )
