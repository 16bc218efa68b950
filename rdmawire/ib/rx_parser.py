"""Parse frames into packets, with the checks that precede the transport. IBA 9.6.

All frames of one path, opcode and length begin with the same bytes, up to the PSN. What these bytes
must be (addresses, lengths, checksum of IP, port of UDP, version and opcode of the BTH) is checked
once for each such head, and kept as a :class:`Flow` with the ICRC's state after it. A frame whose
head is known costs one look-up and one run of the CRC over the rest. Frames of other formats (two
tags, options, UDP with a checksum) are parsed each time.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from struct import Struct
from typing import Any, Final, NamedTuple

from isal.isal_zlib import crc32

from rdmawire.errors import WireError
from rdmawire.ib.encapsulation import PLAIN, Address, encapsulation_of, ends_of, origin_of
from rdmawire.ib.tx_template import (
    ACKREQ,
    HEADS,
    MAX_HEADS,
    state_behind,
    word_offset,
)
from rdmawire.wire import roce
from rdmawire.wire.ib import BTH, GRH, HEAD_OF_BTH, ICRC, LRH
from rdmawire.wire.icrc import RESIDUE
from rdmawire.wire.inet import ECN, UDP, IPv4, IPv6
from rdmawire.wire.layout import Piece
from rdmawire.wire.native import has_good_vcrc
from rdmawire.wire.opcode import SHAPES, Opcode, Operation, Service, Shape, service_of
from rdmawire.wire.packet import LAYOUTS, OpcodeTable
from rdmawire.wire.roce import Medium
from rdmawire.wire.serial import MODULUS


class Drop(Enum):
    """Why a frame was dropped. No response is sent."""

    __hash__ = object.__hash__  # that of Enum is a function in Python: the counters need many

    NOT_RDMA = "traffic other than RoCE, such as ARP, IPv6 neighbor discovery, TCP or LLDP"
    MALFORMED = "not a RoCE packet that the standard and the device profile allow"
    NOT_MINE = "to another address"
    HEADERS = "wrong version, length or checksum of IP or UDP"
    TVER = "transport version other than 0"
    OPCODE = "vendor opcode, or an operation that the queue pair does not allow"
    ICRC = "bad ICRC"
    VCRC = "bad VCRC"
    NO_QP = "no such queue pair"
    QP_STATE = "queue pair in a state that does not receive"
    QP_TYPE = "opcode that the type of the queue pair does not receive"
    PKEY = "P_Key of another partition"
    QKEY = "Q_Key other than the queue pair's"
    PEER = "from an address that the queue pair is not connected to"
    NO_WQE = "no receive posted"
    FLOW = "a flow rule drops it"
    LENGTH = "payload longer than allowed"
    SEQUENCE = "out of sequence, on an unacknowledged service"
    ACCESS = "memory access refused, on an unacknowledged service"
    PORT_DOWN = "the port's link is down"
    STALE = "response without a pending request"
    PAGE_FAULT = "for a page of an on-demand region that is not present yet"
    FORGOTTEN = "request whose response is no longer available or allowed"


class Layout(NamedTuple):
    """Offsets in the frames of a flow, in bytes from their start.

    ``word`` has AckReq and PSN; the ICRC's state there is ``crc``, and the ICRC ends at ``end``.
    ``read`` parses the headers between ``word`` and ``payload``; ``None`` if there are none.
    """

    read: Callable[..., Any] | None
    word: int
    payload: int
    pad: int
    end: int
    crc: int


class Flow:
    """The parsed head of a frame.

    ``marked`` packets met
    congestion (RFC 3168, 5); CNPs never are, or both ends would send CNPs for ever. ``solicited``
    is the Solicited Event bit (IBA 9.2.3). ``malformed`` requests have a reserved opcode, or a
    payload that their operation does not allow; all after their BTH counts as payload. ``origin``
    has the link's fields of a datagram's completion (:func:`origin_of`). ``local`` packets have no
    GRH. ``special`` packets are
    marked, tagged or RoCE: the path of each is examined. ``headers_twice`` says that the ICRC
    covers the headers twice. ``ways`` is set by the engine: queue pairs that accept such packets,
    each with its rule; and with them ``run``, the loop that processes several such packets.
    """

    __slots__ = (
        "_way_back",
        "bth",
        "encapsulation",
        "headers",
        "headers_twice",
        "layout",
        "local",
        "malformed",
        "marked",
        "opcode",
        "origin",
        "run",
        "shape",
        "solicited",
        "special",
        "ways",
    )

    def __init__(
        self,
        bth: BTH,
        headers: tuple[Piece, ...],
        layout: Layout,
        shape: Shape,
        *,
        malformed: bool = False,
    ) -> None:
        self.headers_twice = False
        self.bth = bth
        self.opcode = bth.opcode
        self.malformed = malformed
        self.shape = shape
        self.solicited = bool(bth.se)
        self.headers = headers
        self.encapsulation = encapsulation_of(headers)
        self.origin = origin_of(headers)
        self.local = len(headers) == 1 and isinstance(headers[0], LRH)
        self.layout = layout
        self.marked = bth.opcode != Opcode.CNP and any(
            isinstance(p, IPv4 | IPv6) and p.ecn == ECN.CE for p in headers
        )
        self.special = self.marked or self.encapsulation is not PLAIN
        self.ways: tuple[tuple[Any, Any], ...] = ()
        self.run: Run | None = None
        self._way_back: tuple[Address, Address] | None = None

    @property
    def way_back(self) -> tuple[Address, Address]:
        """The destination and the source address, as in ``ways_to_peer`` of a queue pair."""
        found = self._way_back
        if found is None:
            source, destination = ends_of(self.headers)
            self._way_back = found = destination, source
        return found


Run = Callable[[Flow, Sequence[bytes], int], int]
"""Processes packets of the flow, in frames from an index on. Returns how many it processed."""


_MALFORMED = {
    service: replace(SHAPES[service << 5 | Operation.SEND_ONLY], headers=())
    for service in (Service.RC, Service.XRC)
}
"""Services in which malformed requests are answered, with the shape used for them: SEND ONLY."""


def _malformed_shape(opcode: int, opcodes: OpcodeTable) -> Shape | None:
    """The shape of a malformed request to be answered: its opcode is RC's or XRC's, or reserved."""
    found = opcodes.get(opcode)
    if found is not None and (found.shape is None or found.shape.response):
        return None
    return _MALFORMED.get(service_of(opcode))


class Arrival(NamedTuple):
    """A packet from a valid frame. ``extended`` are the headers after its BTH."""

    flow: Flow
    psn: int
    ackreq: int
    extended: tuple[Any, ...]
    payload: bytes


_read_word = Struct(">I").unpack_from
_new = tuple.__new__


FrameCheck = Callable[[roce.Frame], bool]
"""Returns whether a frame is dropped."""

_VERSIONS = ((IPv6, "version", 6), (GRH, "ipver", 6), (LRH, "lver", 0))


def other_version(frame: roce.Frame) -> bool:
    """The version in an IPv6 header, GRH or LRH is wrong; the parser rejects such IPv4 headers."""
    return any(
        getattr(header, row) != version
        for kind, row, version in _VERSIONS
        for header in frame.headers
        if isinstance(header, kind)
    )


def wrong_lengths(frame: roce.Frame) -> bool:
    """A length or checksum of IP or UDP, or a length of a GRH or LRH, is wrong."""
    return frame.sealed_headers() != frame.headers


def other_tver(frame: roce.Frame) -> bool:
    """The transport version is not 0. IBA 9.6.1.1.1."""
    return frame.packet.bth.tver != 0


FRAME_CHECKS: Final[tuple[tuple[Drop, FrameCheck], ...]] = (
    (Drop.HEADERS, other_version),
    (Drop.HEADERS, wrong_lengths),
    (Drop.TVER, other_tver),
)
"""Reasons to drop a frame whatever its addresses, each with its test, in the headers' order."""


class RxParser:
    """Parses the frames that arrive at one port.

    ``is_mine`` returns whether the addresses in the headers before the BTH are the port's.
    ``take_raw`` is called with each frame without a BTH; if it returns ``False``, the frame is
    dropped. ``medium`` sets the first header of frames, ``opcodes`` the layouts of packets.
    ``flush_twice`` says that the ICRC of a FLUSH covers its headers twice. ``checks`` are the
    reasons to drop a frame, each with its test.
    """

    def __init__(
        self,
        is_mine: Callable[[tuple[Piece, ...]], bool],
        drops: Counter[Drop],
        take_raw: Callable[[bytes], bool] = lambda _: False,
        *,
        medium: Medium = Medium.ETHERNET,
        opcodes: OpcodeTable = LAYOUTS,
        flush_twice: bool = False,
        checks: tuple[tuple[Drop, FrameCheck], ...] = FRAME_CHECKS,
    ) -> None:
        self._medium = medium
        self._checks = checks
        self._opcodes = opcodes
        self._head = HEADS[medium]
        self._flush_twice = flush_twice
        self._is_mine = is_mine
        self._take_raw = take_raw
        self._drops = drops
        self._flows: dict[bytes, Flow] = {}
        self._routed: list[Flow] = []  # flows with ways, those that are not kept included
        self._size = 0  # of the last head: most frames have the format of the preceding one

    def forget(self) -> None:
        """Discard all flows: the port's addresses changed."""
        self.forget_routes()
        self._flows.clear()

    def route(self, flow: Flow, ways: tuple[tuple[Any, Any], ...], run: "Run | None") -> None:
        """Store the queue pairs that accept packets of this flow, each with its rule, and ``run``.

        ``run`` is the loop that processes several such packets, if there is one.
        """
        if len(self._routed) >= MAX_HEADS:
            self.forget()
        flow.ways, flow.run = ways, run
        self._routed.append(flow)

    def forget_routes(self) -> None:
        """Forget which queue pairs accept packets of which flow: a queue pair changed."""
        for flow in self._routed:
            flow.ways, flow.run = (), None
        self._routed.clear()

    def flow_of(self, frame: bytes) -> Flow | None:
        """The flow of a frame; ``None`` if the frame was dropped and counted."""
        return self._flows.get(frame[: self._size]) or self._find(frame)

    def _find(self, frame: bytes) -> Flow | None:
        """The flow of a frame whose head may differ in size from the preceding one's."""
        key, sizes, other_size = self._head
        self._size = size = sizes.get(frame[key]) or other_size(frame)
        return self._flows.get(frame[:size]) or self._admit(frame, size)

    def parse(self, frame: bytes, flow: Flow | None = None) -> Arrival | None:
        """Return the packet in a frame; ``None`` if the frame was dropped and counted.

        ``flow`` is the result of :meth:`flow_of`, if the caller has it.
        """
        if flow is None:
            try:
                flow = self._flows[frame[: self._size]]
            except KeyError:
                flow = self._find(frame)
                if flow is None:
                    return None
        read, start, payload, pad, end, crc = flow.layout
        state = crc32(frame[start:end], crc)
        if flow.headers_twice:
            state = _headers_twice(frame, start, end, crc)
        if len(frame) < end or state != RESIDUE:
            self._drops[Drop.ICRC] += 1
            return None
        (word,) = _read_word(frame, start)
        extended = read(frame, start + 4) if read else ()
        return _new(Arrival, (flow, word % MODULUS, word & ACKREQ, extended, frame[payload:pad]))

    def _admit(self, frame: bytes, head: int) -> Flow | None:
        """Return a new flow for a frame with an unknown head.

        ``None`` if the frame went to raw packet queue pairs, or was dropped.
        """
        if self._bth_offset(frame) < 0 and self._take_raw(frame):
            return None
        try:
            parsed = roce.parse(frame, medium=self._medium, opcodes=self._opcodes)
            malformed = False
        except WireError as error:
            found = self._malformed_request(frame)
            if found is None:
                other = isinstance(error, roce.NotRoce)
                return self._drop(Drop.NOT_RDMA if other else Drop.MALFORMED)
            parsed, malformed = found, True
        if reason := self._refused(parsed, malformed=malformed):
            return self._drop(reason)
        flow = self._flow(frame, parsed, malformed=malformed)
        flow.headers_twice = self._flush_twice and flow.bth.opcode == Opcode.RC_FLUSH
        if flow.layout.word == head and not _has_checksum(parsed):
            self._keep(frame[:head], flow)
        return flow

    def _bth_offset(self, frame: bytes) -> int:
        """The offset of the BTH in a frame; -1 if it has none."""
        return roce.bth_offset(frame, 0, len(frame), medium=self._medium)

    def _malformed_request(self, frame: bytes) -> roce.Frame | None:
        """Parse a frame with a malformed request; ``None`` if it holds none.

        Only the BTH is parsed, as for a vendor's opcode. ``None`` also if the length after the BTH
        is no multiple of four bytes (IBA 9.2.5), or less than the opcode's headers need.
        """
        place = self._bth_offset(frame)
        if place < 0 or _malformed_shape(opcode := frame[place], self._opcodes) is None:
            return None
        try:
            parsed = roce.parse(frame[:place] + _VENDOR + frame[place + 1 :], medium=self._medium)
        except WireError:
            return None
        packet = parsed.packet
        length = len(packet.payload) + len(packet.pad)
        layout = self._opcodes.get(opcode)
        if length % 4 or (layout is not None and length < layout.size):
            return None
        return parsed._replace(packet=packet._replace(bth=packet.bth.replace(opcode=opcode)))

    def _flow(self, frame: bytes, parsed: roce.Frame, *, malformed: bool) -> Flow:
        bth = parsed.packet.bth
        word = word_offset(parsed.headers)
        payload = word - HEAD_OF_BTH + BTH.SIZE + sum(h.SIZE for h in parsed.packet.extended)
        pad = payload + len(parsed.packet.payload)
        crc = state_behind(frame[:word], parsed.headers)
        end = pad + bth.padcnt + ICRC.SIZE
        if malformed:
            read, shape = None, _malformed_shape(bth.opcode, self._opcodes)
        else:
            read, shape = self._opcodes.reader(bth.opcode), self._opcodes[bth.opcode].shape
        assert shape is not None, bth  # ``_refused`` dropped all others
        layout = Layout(read, word, payload, pad, end, crc)
        return Flow(bth, parsed.headers, layout, shape, malformed=malformed)

    def _keep(self, head: bytes, flow: Flow) -> None:
        if len(self._flows) >= MAX_HEADS:
            self.forget()
        self._flows[head] = flow

    def _refused(self, frame: roce.Frame, *, malformed: bool) -> Drop | None:
        """Return why a frame is dropped, or ``None``."""
        for reason, broken in self._checks:
            if broken(frame):
                return reason
        if not malformed and self._opcodes[frame.packet.bth.opcode].shape is None:
            return Drop.OPCODE
        return None if self._is_mine(frame.headers) else Drop.NOT_MINE

    def _drop(self, reason: Drop) -> Flow | None:
        self._drops[reason] += 1
        return None


class NativeRxParser(RxParser):
    """Parses the packets that arrive at a port of an InfiniBand link. IBA 7.8.2.

    The arguments are those of :class:`RxParser`. A packet with a bad VCRC is dropped first.
    """

    def flow_of(self, frame: bytes) -> Flow | None:
        return super().flow_of(frame) if self._is_whole(frame) else None

    def parse(self, frame: bytes, flow: Flow | None = None) -> Arrival | None:
        # With a flow, the VCRC was checked when the flow was found.
        return super().parse(frame, flow) if flow is not None or self._is_whole(frame) else None

    def _is_whole(self, frame: bytes) -> bool:
        if has_good_vcrc(frame):
            return True
        self._drop(Drop.VCRC)
        return False


_VENDOR = bytes([Service.VENDOR_6 << 5])


def _headers_twice(frame: bytes, start: int, end: int, crc: int) -> int:
    """CRC state after an ICRC that covers the headers twice; the packet has no payload.

    ``start`` and ``end`` are offsets in ``frame``: the PSN's word, where the CRC state is ``crc``,
    and the end of the ICRC.
    """
    last, bth = end - ICRC.SIZE, start - HEAD_OF_BTH
    crc = crc32(frame[bth:last], crc32(frame[start:last], crc))
    return crc32(frame[last:end], crc)


def _has_checksum(frame: roce.Frame) -> bool:
    """Whether a UDP checksum covers the payload, so that checking the head alone is not enough."""
    last = frame.headers[-1]
    return isinstance(last, UDP) and last.checksum != 0


NO_PACKET = (
    Drop.NOT_RDMA,
    Drop.MALFORMED,
    Drop.NOT_MINE,
    Drop.HEADERS,
    Drop.TVER,
    Drop.ICRC,
    Drop.VCRC,
)
"""Reasons found before a frame is known to be a RoCE packet for this port."""

DAMAGED = (Drop.MALFORMED, Drop.HEADERS, Drop.ICRC, Drop.VCRC)
"""Reasons that corruption on the wire may cause."""
