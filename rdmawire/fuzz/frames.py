"""Frames of packet inputs: the bytes that a peer would send.

Most packets are built from a cached head and one CRC, so that making a frame costs less than the
adapter needs to answer it. Packets with unusual fields are built from the header tables.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

from rdmawire.errors import FuzzError, WireError
from rdmawire.fuzz.exchange import Numbers, Reply
from rdmawire.fuzz.inputs import ChecksumState, PacketInput
from rdmawire.fuzz.setup import PEER_QPN, PKEY
from rdmawire.ib.encapsulation import headers_to
from rdmawire.ib.tx_template import ACKREQ, BytesLike, TxTemplate
from rdmawire.terminal import quote_value
from rdmawire.verbs.ah import AddressHandle
from rdmawire.wire.checksum import ipv4_header_checksum
from rdmawire.wire.field_registry import find, unknown
from rdmawire.wire.header import Header, Row
from rdmawire.wire.ib import (
    AETH,
    BTH,
    DETH,
    FETH,
    IETH,
    RETH,
    VCRC,
    XRCETH,
    AtomicAckETH,
    AtomicETH,
    ImmDt,
)
from rdmawire.wire.inet import IPv4
from rdmawire.wire.native import with_vcrc
from rdmawire.wire.opcode import Operation
from rdmawire.wire.packet import LAYOUTS, OpcodeTable, Packet
from rdmawire.wire.roce import Frame, Medium, parse

_PORT: Final = 0xC000
"""The UDP source port of the fuzzer's flow."""
_MAX_PATHS: Final = 64
"""Paths of replies whose frames are kept, for a target that changes its path often."""
_MAX_ACKS: Final = 1 << 14
"""Replies without data whose frames are kept: PSNs of most cases begin with the same numbers."""
_BITS_64: Final = (1 << 64) - 1
_BITS_32: Final = (1 << 32) - 1


@lru_cache(maxsize=4096)
def payload_bytes(seed: int, length: int) -> bytes:
    """Return ``length`` bytes of payload, of which each eight differ from the others."""
    words = (length + 7) // 8
    return b"".join(
        ((seed << 32 | index) * 0x9E3779B97F4A7C15 & _BITS_64).to_bytes(8, "big")
        for index in range(1, words + 1)
    )[:length]


def qkey_of(one: PacketInput, numbers: Numbers) -> int:
    """Return the Q_Key of a datagram."""
    return (numbers.qkey + one.key) & _BITS_32


def srq_of(one: PacketInput, numbers: Numbers) -> int:
    """Return the shared receive queue's number in an XRC packet; 0 if the target has none."""
    return numbers.srqs[one.srq] if numbers.srqs else 0


Filled = Callable[["FrameBuilder", PacketInput], Header]


def _va(frames: "FrameBuilder", one: PacketInput) -> int:
    return (frames.numbers.vas[one.region] + one.offset) & _BITS_64


def _rkey(frames: "FrameBuilder", one: PacketInput) -> int:
    return (frames.numbers.rkeys[one.region] + one.key) & _BITS_32


def _reth(frames: "FrameBuilder", one: PacketInput) -> Header:
    dmalen = one.length if one.dmalen is None else one.dmalen
    numbers = frames.numbers
    va, rkey = numbers.vas[one.region] + one.offset, numbers.rkeys[one.region] + one.key
    return RETH(va & _BITS_64, rkey & _BITS_32, dmalen)


def _atomic(frames: "FrameBuilder", one: PacketInput) -> Header:
    return AtomicETH(_va(frames, one), _rkey(frames, one), one.value, one.compare)


_FILLED: Final[dict[type[Header], Filled]] = {
    RETH: _reth,
    AtomicETH: _atomic,
    ImmDt: lambda _, one: ImmDt(one.value & _BITS_32),
    IETH: lambda frames, one: IETH(_rkey(frames, one)),
    DETH: lambda frames, one: DETH(qkey=qkey_of(one, frames.numbers), srcqp=PEER_QPN),
    AETH: lambda _, one: AETH(0, one.value >> 5 & 3, one.value & 31, one.compare & 0xFFFFFF),
    AtomicAckETH: lambda _, one: AtomicAckETH(one.compare),
    FETH: lambda _, one: FETH(plt=one.value & 3 or 1, sel=one.compare & 1),
    XRCETH: lambda frames, one: XRCETH(xrcsrq=srq_of(one, frames.numbers)),
}
"""How the headers of a packet input are filled. Others have their defaults."""


def _default(table: type[Header]) -> Filled:
    return lambda _, __: table()


MAX_NATIVE_PAYLOAD: Final = 8000
"""Bytes of payload on an InfiniBand link, at most: with all headers they are 2047 words."""


class _NativeTemplate(TxTemplate):
    """Makes the packets of a path on an InfiniBand link."""

    __slots__ = ()

    def frame(
        self, opcode: int, word: int, extended: bytes, payload: BytesLike, se: int = 0
    ) -> bytes:
        return with_vcrc(super().frame(opcode, word, extended, payload, se))


class FrameBuilder:
    """Builds the frames of one peer of a target.

    ``path`` leads to the target, ``mac`` is the peer's; ``opcodes`` are the layouts of packets.
    """

    def __init__(
        self, path: AddressHandle, mac: bytes, numbers: Numbers, opcodes: OpcodeTable = LAYOUTS
    ) -> None:
        self.numbers: Numbers = numbers
        self.medium = medium = numbers.medium
        self.headers = headers_to(path, mac, _PORT, medium=medium, lid=numbers.peer_lid)
        self._make_template = _NativeTemplate if numbers.peer_lid else TxTemplate
        self.base = 0
        """The service of replies, as the upper bits of their opcodes."""
        self._opcodes = opcodes
        self._fills: dict[int, tuple[Filled, ...]] = {}
        self._bth = BTH(pkey=PKEY, destqp=numbers.qpn)
        self._template = self._make_template(self.headers, self._bth)
        self._replies: TxTemplate | None = None
        self._acks: dict[tuple[int, Reply], bytes] = {}
        self._paths: dict[tuple[tuple[Any, ...], int], TxTemplate] = {}

    def frame(self, one: PacketInput, psn: int) -> bytes:
        """Return the frame of ``one`` with this PSN.

        Raises :class:`FuzzError` for a bad field, and for a payload that the link cannot carry.
        """
        if one.length > MAX_NATIVE_PAYLOAD and self.medium is Medium.INFINIBAND:
            raise FuzzError(
                f"packet input: {one.length} bytes of payload: on an InfiniBand link at most "
                f"{MAX_NATIVE_PAYLOAD}, because LRH.pktlen counts 2047 words"
            )
        if one.fields or one.extra or one.cut:
            return self._unusual(one, psn)
        word = psn | ACKREQ if one.ackreq else psn
        fills = self._fills.get(one.opcode)
        if fills is None:
            fills = self._fills_of(one)
        extended = b""
        for fill in fills:
            extended += fill(self, one).build()
        payload = payload_bytes(one.seed, one.length)
        frame = self._template.frame(one.opcode, word, extended, payload)
        return frame if one.checksum == "GOOD" else self._broken(frame)

    def reply(self, one: Reply) -> bytes | None:
        """Return the frame of a reply; ``None`` until the path of replies is known."""
        if self._replies is None:
            return None
        if one.data:
            return self._built(self._replies, one)
        key = self.base, one
        found = self._acks.get(key)
        if found is None:
            if len(self._acks) >= _MAX_ACKS:
                self._acks.clear()
            self._acks[key] = found = self._built(self._replies, one)
        return found

    def _built(self, template: TxTemplate, one: Reply) -> bytes:
        """Build the frame of a reply."""
        extended = b""
        data = one.data
        if one.syndrome >= 0:
            extended = (one.syndrome << 24 | one.msn).to_bytes(4, "big")
        if one.operation == Operation.ATOMIC_ACKNOWLEDGE:
            extended, data = extended + data, b""
        return template.frame(self.base | one.operation, one.psn, extended, data)

    def learn_path(self, frame: bytes) -> None:
        """Build the frames of replies with the headers and the MigReq bit of this one."""
        found = parse(frame, medium=self.medium)
        headers: tuple[Any, ...] = found.headers
        key = (headers, found.packet.bth.migreq)
        if key not in self._paths:
            if len(self._paths) >= _MAX_PATHS:
                self._paths.clear()
            bth = BTH(pkey=PKEY, destqp=PEER_QPN, migreq=found.packet.bth.migreq)
            self._paths[key] = self._make_template(headers, bth)
        self._replies = self._paths[key]
        self._acks.clear()

    def tables(self, one: PacketInput) -> tuple[type[Header], ...]:
        """Return the extended headers that the opcode has."""
        layout = self._opcodes.get(one.opcode)
        return () if layout is None else layout.headers

    def extended(self, one: PacketInput) -> tuple[Header, ...]:
        """Return the extended headers of a packet: those of its opcode that are left, then added.

        Raises :class:`FuzzError` for a bad field or header.
        """
        values = _by_header(one.fields)
        return tuple(_changed(header, values) for header in _with_extra(self._headers(one), one))

    def _headers(self, one: PacketInput) -> list[Header]:
        return [fill(self, one) for fill in self._fills_of(one)]

    def _fills_of(self, one: PacketInput) -> tuple[Filled, ...]:
        """Return what makes the extended headers of the opcode, from now on without a search."""
        found = tuple(_FILLED.get(table) or _default(table) for table in self.tables(one))
        return self._fills.setdefault(one.opcode, found)

    def _unusual(self, one: PacketInput, psn: int) -> bytes:
        """Build a frame with further fields, other headers or a cut, from the header tables."""
        values = _by_header(one.fields)
        headers = _with_extra(self._headers(one), one)
        bth = self._bth.replace(
            opcode=one.opcode, psn=psn, ackreq=one.ackreq, padcnt=-one.length % 4
        )
        payload = payload_bytes(one.seed, one.length)
        base = Frame(self.headers, Packet(bth, tuple(headers), payload, bytes(bth.padcnt)))
        changed = base._replace(
            packet=Packet(
                _changed(bth, values),
                self.extended(one),
                _cut(payload, one.cut),
                bytes(bth.padcnt),
            ),
        )
        return self._finished(one, base, changed, values)

    def _finished(
        self, one: PacketInput, base: Frame, changed: Frame, values: dict[str, dict[str, int]]
    ) -> bytes:
        """Add checksums, and change the headers before the BTH after lengths were computed."""
        sealed = changed.seal()
        outer = tuple(
            _changed(piece, values) if isinstance(piece, Header) else piece
            for piece in sealed.headers
        )
        if outer != sealed.headers:
            sealed = sealed._replace(headers=_with_ip_checksum(outer, values))
            with suppress(WireError):  # headers that no ICRC can begin with keep the old one
                sealed = sealed._replace(icrc=sealed.expected_icrc())
        if one.checksum == ChecksumState.STALE.name:
            sealed = sealed._replace(icrc=base.seal().icrc)
        frame = self._with_vcrc(sealed.build())
        return self._broken(frame) if one.checksum == ChecksumState.BROKEN.name else frame

    def _with_vcrc(self, frame: bytes) -> bytes:
        """Compute the VCRC of a native packet again."""
        if self.medium is not Medium.INFINIBAND:
            return frame
        return with_vcrc(frame[: -VCRC.SIZE])

    def _broken(self, frame: bytes) -> bytes:
        """Invert one bit of the ICRC."""
        end = len(frame) - (VCRC.SIZE if self.medium is Medium.INFINIBAND else 0)
        return self._with_vcrc(frame[: end - 1] + bytes((frame[end - 1] ^ 1,)) + frame[end:])


def _cut(payload: bytes, length: int) -> bytes:
    return payload[: max(len(payload) - length, 0)]


def _by_header(fields: tuple[tuple[str, int], ...]) -> dict[str, dict[str, int]]:
    """Return values by header label and row name. Raises :class:`FuzzError` for unknown names."""
    values: dict[str, dict[str, int]] = {}
    for name, value in fields:
        found = [field for field in find(name) if isinstance(field.row, Row)]
        if not found:
            raise FuzzError(f"packet input: {unknown(name)}")
        for field in found:
            values.setdefault(field.table.label, {})[field.row.name] = value
    return values


def _changed(header: Any, values: dict[str, dict[str, int]]) -> Any:
    """Return a header with its new values, each reduced to the width of its field."""
    new = values.get(type(header).label)
    if not new:
        return header
    widths = {row.name: row for row in type(header).rows}
    return header.replace(
        **{
            name: value.to_bytes(widths[name].width // 8, "big")
            if widths[name].is_bytes
            else value & (1 << widths[name].width) - 1
            for name, value in new.items()
        }
    )


def _with_extra(headers: list[Header], one: PacketInput) -> list[Header]:
    """Add and leave out headers by name: ``reth``, ``-reth``."""
    for name in one.extra:
        if name.startswith("-"):
            headers = [header for header in headers if type(header).label != name[1:]]
            continue
        tables = [table for table in _EXTENDED if table.label == name]
        if not tables:
            known = ", ".join(table.label for table in _EXTENDED)
            raise FuzzError(
                f"packet input: no extended header is named {quote_value(name)}; there are {known}"
            )
        headers = [*headers, tables[0]()]
    return headers


_EXTENDED: Final = tuple(_FILLED)


def _with_ip_checksum(
    headers: tuple[Any, ...], values: dict[str, dict[str, int]]
) -> tuple[Any, ...]:
    """Recompute the checksum of a changed IPv4 header, unless the input sets the checksum."""
    if "checksum" in values.get("ip", {}):
        return headers
    return tuple(
        header.replace(checksum=ipv4_header_checksum(header.build()))
        if isinstance(header, IPv4)
        else header
        for header in headers
    )
