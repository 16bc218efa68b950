"""The peer of a requester that is learned: it reads requests, and sends any response to them.

It keeps what each PSN of a request must be answered with, and the oldest PSN that it has not
answered validly. Responses have PSNs relative to that one, so that an input means the same in each
state, whatever the first PSN is. Where the service has no responses, a request is answered when the
requester's step ends.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Any, Final, NamedTuple

from rdmawire.errors import WireError
from rdmawire.fuzz.setup import PEER_QPN, QKEY, TARGET_QPN
from rdmawire.ib.encapsulation import headers_to
from rdmawire.ib.tx_template import TxTemplate
from rdmawire.verbs.ah import AddressHandle
from rdmawire.wire import serial
from rdmawire.wire.header import Header
from rdmawire.wire.ib import (
    AETH,
    BTH,
    DETH,
    ICRC,
    NO_CREDITS,
    RETH,
    XRCETH,
    Ack,
    AtomicAckETH,
    AtomicETH,
    Nak,
)
from rdmawire.wire.opcode import SHAPES, Operation, Part, Service, opcode_word
from rdmawire.wire.packet import LAYOUTS
from rdmawire.wire.roce import bth_offset

MTU: Final = 256
"""The path MTU, in bytes."""
SHORT: Final = 64
"""Bytes of a message of one packet, and of the last packet of a longer one."""
REMOTE: Final = 0x10_0000
"""Address of the peer's memory."""
REMOTE_BYTES: Final = bytes((17 * at ^ at >> 8) & 0xFF for at in range(4096))
"""The peer's memory: READs and atomics get these bytes."""
OWN_QKEY: Final = 0x22
"""The Q_Key of the requester's queue pair; that of its peer is QKEY."""
_UDP_PORT: Final = 0xC000
_ATOMIC: Final = 8
_ACKNOWLEDGED: Final = (Service.RC, Service.XRC)
"""Services with responses."""
_FAR: Final = 9
"""Distances of PSNs from here on are described as old or new."""


class PSNPosition(Enum):
    """The PSN of a response."""

    BEFORE = "the one before the oldest unanswered PSN"
    OLDEST = "the oldest unanswered PSN"
    NEXT = "the one after the oldest unanswered PSN"
    NEWEST = "the last PSN that a request used"
    GHOST = "the first PSN that no request used"


class Response(NamedTuple):
    """A response of the peer: an operation, its PSN, the kind and value of its AETH.

    ``missing`` are bytes that its payload lacks, compared with what the request asked for.
    ``service`` is that of its opcode, by default the requester's.
    """

    operation: Operation
    position: PSNPosition = PSNPosition.OLDEST
    ack: Ack = Ack.ACK
    value: int = NO_CREDITS
    missing: int = 0
    service: Service | None = None


_OP = Operation
_P = PSNPosition


def _nak(code: int, position: PSNPosition = PSNPosition.OLDEST) -> Response:
    return Response(_OP.ACKNOWLEDGE, position, Ack.NAK, code)


RESPONSES: Final[dict[str, Response]] = {
    "ACK": Response(_OP.ACKNOWLEDGE),
    "ACK_ALL": Response(_OP.ACKNOWLEDGE, _P.NEWEST),
    "ACK_OLD": Response(_OP.ACKNOWLEDGE, _P.BEFORE),
    "ACK_GHOST": Response(_OP.ACKNOWLEDGE, _P.GHOST),
    "ACK_0_CREDITS": Response(_OP.ACKNOWLEDGE, value=0),
    "ACK_1_CREDIT": Response(_OP.ACKNOWLEDGE, value=1),
    "ACK_OLD_1_CREDIT": Response(_OP.ACKNOWLEDGE, _P.BEFORE, value=1),
    "ACK_RESERVED": Response(_OP.ACKNOWLEDGE, ack=Ack.RESERVED, value=0),
    "NAK_SEQUENCE": _nak(Nak.PSN_SEQUENCE_ERROR),
    "NAK_SEQUENCE_NEXT": _nak(Nak.PSN_SEQUENCE_ERROR, _P.NEXT),
    "NAK_INVALID": _nak(Nak.INVALID_REQUEST),
    "NAK_ACCESS": _nak(Nak.REMOTE_ACCESS_ERROR),
    "NAK_ACCESS_NEXT": _nak(Nak.REMOTE_ACCESS_ERROR, _P.NEXT),
    "NAK_ACCESS_OLD": _nak(Nak.REMOTE_ACCESS_ERROR, _P.BEFORE),
    "NAK_ACCESS_GHOST": _nak(Nak.REMOTE_ACCESS_ERROR, _P.GHOST),
    "NAK_OPERATION": _nak(Nak.REMOTE_OPERATIONAL_ERROR),
    "NAK_RD": _nak(Nak.INVALID_RD_REQUEST),
    "NAK_RESERVED": _nak(5),
    "RNR": Response(_OP.ACKNOWLEDGE, ack=Ack.RNR_NAK, value=1),
    "RNR_NEXT": Response(_OP.ACKNOWLEDGE, _P.NEXT, Ack.RNR_NAK, 1),
    "RNR_OLD": Response(_OP.ACKNOWLEDGE, _P.BEFORE, Ack.RNR_NAK, 1),
    "READ_FIRST": Response(_OP.RDMA_READ_RESPONSE_FIRST),
    "READ_MIDDLE": Response(_OP.RDMA_READ_RESPONSE_MIDDLE),
    "READ_LAST": Response(_OP.RDMA_READ_RESPONSE_LAST),
    "READ_ONLY": Response(_OP.RDMA_READ_RESPONSE_ONLY),
    "READ_ONLY_SHORT": Response(_OP.RDMA_READ_RESPONSE_ONLY, missing=4),
    "READ_FIRST_SHORT": Response(_OP.RDMA_READ_RESPONSE_FIRST, missing=4),
    "READ_MIDDLE_NEXT": Response(_OP.RDMA_READ_RESPONSE_MIDDLE, _P.NEXT),
    "READ_ONLY_NEXT": Response(_OP.RDMA_READ_RESPONSE_ONLY, _P.NEXT),
    "READ_ONLY_OLD": Response(_OP.RDMA_READ_RESPONSE_ONLY, _P.BEFORE),
    "ATOMIC": Response(_OP.ATOMIC_ACKNOWLEDGE),
    "ATOMIC_NEXT": Response(_OP.ATOMIC_ACKNOWLEDGE, _P.NEXT),
    "ATOMIC_OLD": Response(_OP.ATOMIC_ACKNOWLEDGE, _P.BEFORE),
    "RC_ACK": Response(_OP.ACKNOWLEDGE, _P.BEFORE, service=Service.RC),
    "RC_ACK_ALL": Response(_OP.ACKNOWLEDGE, _P.NEWEST, service=Service.RC),
    "RC_NAK": Response(_OP.ACKNOWLEDGE, _P.BEFORE, Ack.NAK, 1, service=Service.RC),
    "RC_READ_ONLY": Response(_OP.RDMA_READ_RESPONSE_ONLY, _P.BEFORE, service=Service.RC),
    "XRC_ACK": Response(_OP.ACKNOWLEDGE, _P.BEFORE, service=Service.XRC),
    "PEER_SEND": Response(_OP.SEND_ONLY),
}
"""What the peer can send, by the name of the input. IBA 9.7.5.

``PEER_SEND`` is a request, for which the requester has no receive. Responses of a service that the
requester has not are those of RC and XRC, or a reserved opcode.
"""


class Awaited(NamedTuple):
    """What one PSN must be answered with: ``operation`` is that of the request.

    ``offset`` counts the bytes of the message before this packet; for READs and atomics it is the
    address of the bytes of the response. ``left`` are the bytes of a READ from there on.
    """

    operation: int
    offset: int
    left: int = 0
    ends: bool = True

    @property
    def fits(self) -> tuple[Operation, ...]:
        """The responses that answer it, besides an ACK."""
        if self.operation == Operation.RDMA_READ_REQUEST:
            return _READ_ENDS if self.ends else _READ_GOES_ON
        return (Operation.ATOMIC_ACKNOWLEDGE,) if self.operation in _ATOMICS else ()


_ATOMICS: Final = (Operation.CMP_SWAP, Operation.FETCH_ADD)
_READ_ENDS: Final = (_OP.RDMA_READ_RESPONSE_LAST, _OP.RDMA_READ_RESPONSE_ONLY)
_READ_GOES_ON: Final = (_OP.RDMA_READ_RESPONSE_FIRST, _OP.RDMA_READ_RESPONSE_MIDDLE)
_NONE: Final = Awaited(0, REMOTE)


_Headers = dict[type[Header], Any]


class Peer:
    """The peer: ``path`` leads to the requester's queue pair, from the address ``mac``.

    ``source`` are the bytes that each message of the requester begins with, ``service`` is that of
    its packets.
    """

    def __init__(
        self, path: AddressHandle, mac: bytes, source: bytes, service: Service = Service.RC
    ) -> None:
        bth = BTH(destqp=TARGET_QPN, pkey=0xFFFF)
        self._template = TxTemplate(headers_to(path, mac, _UDP_PORT), bth)
        self._mac, self._source, self._service = mac, source, service
        self.reset(0)

    def reset(self, psn: int) -> None:
        """Forget all requests; the next one has this PSN."""
        self.oldest = self.next = psn
        self._awaited: dict[int, Awaited] = {}
        self._passed = 0

    # Requests.

    def take(self, frame: bytes) -> str:
        """Note a request. Return its opcode, ``?`` for AckReq, and its PSN from the oldest one.

        Frames that are not requests of the service are only described.
        """
        at = bth_offset(frame, 0, len(frame))
        if at < 0 or len(frame) < at + BTH.SIZE + ICRC.SIZE:
            return "no_RoCE"
        bth = BTH.parse(frame, at)
        shape = SHAPES.get(bth.opcode)
        if shape is None or shape.response or shape.service is not self._service:
            return opcode_word(bth.opcode)
        rest = frame[at + BTH.SIZE : len(frame) - ICRC.SIZE - bth.padcnt]
        try:
            headers = _headers_in(rest, LAYOUTS[bth.opcode].headers)
        except WireError:
            return "damaged"
        awaited = self._read(bth, headers)
        ahead = self._note(bth.psn, awaited)
        text = f"{Operation(bth.opcode & 31).name}{'?' if bth.ackreq else ''}@{ahead}"
        if awaited[0].operation == Operation.RDMA_READ_REQUEST:
            text += f"*{len(awaited)}"
        text += _destination(headers)
        if (frame[:_MAC], bth.destqp) != (self._mac, PEER_QPN):
            text += ".other_peer"
        payload = rest[sum(header.SIZE for header in headers) :]
        return text if self._is_source(payload, awaited[0]) else f"{text}.other_bytes"

    def _read(self, bth: BTH, headers: _Headers) -> list[Awaited]:
        """What each PSN of a request must be answered with."""
        operation, part = bth.opcode & 31, SHAPES[bth.opcode].part
        if operation == Operation.RDMA_READ_REQUEST:
            reth = headers[RETH]
            offsets = range(0, max(reth.dmalen, 1), MTU)
            return [
                Awaited(operation, reth.va + at, reth.dmalen - at, at == offsets[-1])
                for at in offsets
            ]
        if operation in _ATOMICS:
            return [Awaited(operation, headers[AtomicETH].va)]
        ends = part in (Part.LAST, Part.ONLY)
        if part in (Part.FIRST, Part.ONLY):
            return [Awaited(operation, 0, ends=ends)]
        before = self._awaited.get(serial.add(bth.psn, -1), _NONE)
        return [Awaited(operation, before.offset + MTU, ends=ends)]

    def _note(self, psn: int, awaited: list[Awaited]) -> str:
        """Note a request with this PSN; return the PSN's distance from the oldest unanswered."""
        ahead = serial.distance(self.oldest, psn)
        for index, one in enumerate(awaited):
            self._awaited[serial.add(psn, index)] = one
        end = serial.add(psn, len(awaited))
        if serial.distance(self.next, end) > 0:
            self.next = end
        return str(ahead) if abs(ahead) < _FAR else "old" if ahead < 0 else "new"

    def _is_source(self, payload: bytes, awaited: Awaited) -> bool:
        """Whether a message has the bytes of the requester's memory."""
        if awaited.fits:
            return True
        return payload == self._source[awaited.offset : awaited.offset + len(payload)]

    # Responses.

    def respond(self, name: str) -> bytes:
        """Return the frame of a response, and note what it answers."""
        one = RESPONSES[name]
        psn = self._psn(one.position)
        awaited = self._awaited.get(psn, _NONE)
        data = self._data(one, awaited)
        service = self._service if one.service is None else one.service
        if service is self._service:
            self._answer(one, psn, awaited)
        filled = {
            AETH: AETH(0, one.ack, one.value, self._passed),
            AtomicAckETH: AtomicAckETH(int.from_bytes(data, "little")),
            DETH: DETH(qkey=OWN_QKEY, srcqp=PEER_QPN),
        }
        opcode = service << 5 | one.operation
        tables = LAYOUTS[opcode].headers if opcode in SHAPES else (AETH,)
        extended = b"".join(filled.get(table, table()).build() for table in tables)
        if one.operation == Operation.ATOMIC_ACKNOWLEDGE:
            data = b""
        return self._template.frame(opcode, psn, extended, data)

    def _psn(self, position: PSNPosition) -> int:
        ends = {PSNPosition.NEWEST: (self.next, -1), PSNPosition.GHOST: (self.next, 0)}
        starts = {PSNPosition.BEFORE: -1, PSNPosition.OLDEST: 0, PSNPosition.NEXT: 1}
        return serial.add(*(ends.get(position) or (self.oldest, starts[position])))

    @staticmethod
    def _data(one: Response, awaited: Awaited) -> bytes:
        """The payload of a response: the bytes that were asked for, as many as its opcode has."""
        if one.operation == Operation.ACKNOWLEDGE:
            return b""
        length = _ATOMIC
        if one.operation == Operation.SEND_ONLY:
            length = SHORT
        elif one.operation != Operation.ATOMIC_ACKNOWLEDGE:
            full = one.operation in _READ_GOES_ON
            length = MTU if full else min(awaited.left or SHORT, MTU)
        start = (awaited.offset - REMOTE) % len(REMOTE_BYTES)
        return REMOTE_BYTES[start : start + length - one.missing].ljust(length - one.missing, b"\0")

    def _answer(self, one: Response, psn: int, awaited: Awaited) -> None:
        """Note what a response answers: messages by its PSN, a READ or atomic by its data."""
        if not serial.in_window(psn, self.oldest, serial.span(self.oldest, self.next)):
            return
        plain = one.operation == Operation.ACKNOWLEDGE and one.ack is Ack.ACK
        until = serial.add(psn, 1) if plain else psn
        while self.oldest != until and not self._awaited.get(self.oldest, _NONE).fits:
            self._pass()
        if self.oldest == psn and one.operation in awaited.fits and not one.missing:
            self._pass()

    def _pass(self) -> None:
        self._passed += self._awaited.get(self.oldest, _NONE).ends
        self.oldest = serial.add(self.oldest, 1)

    def complete(self, messages: int) -> None:
        """Note that the requester completed this many messages, whatever they were answered with.

        Else the PSNs of a requester that completes too early would have no bound.
        """
        while self._passed < messages and self.oldest != self.next:
            self._pass()

    def end_step(self) -> None:
        """Count all requests as answered, if the service has no responses."""
        if self._service not in _ACKNOWLEDGED:
            self.oldest = self.next


def _headers_in(data: bytes, tables: Iterable[type[Header]]) -> _Headers:
    """Return the extended headers at the start of ``data``. Raises :class:`WireError`."""
    headers: _Headers = {}
    at = 0
    for table in tables:
        headers[table] = table.parse(data, at)
        at += table.SIZE
    return headers


def _destination(headers: _Headers) -> str:
    """Describe a Q_Key that is not the peer's, another source, and a shared receive queue."""
    text = ""
    if (deth := headers.get(DETH)) is not None:
        text += _QKEYS.get(deth.qkey, ".other_qkey")
        text += "" if deth.srcqp == TARGET_QPN else ".other_source"
    if (xrceth := headers.get(XRCETH)) is not None:
        text += f".queue{number}" if (number := xrceth.xrcsrq) else ""
    return text


_MAC: Final = 6
_QKEYS: Final = {QKEY: "", OWN_QKEY: ".own_qkey"}
"""How the Q_Key of a datagram is described."""
