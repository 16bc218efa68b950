"""Hypothesis strategies made from the wire tables: headers, packets, frames and streams.

    @given(headers(RETH))
    def test_my_parser(reth): ...

Needs hypothesis: ``pip install "rdmawire[hypothesis]"``.
"""

from collections.abc import Collection
from typing import Any, TypeVar

try:
    from hypothesis import strategies as st
except ModuleNotFoundError as error:
    if error.name != "hypothesis":
        raise
    raise ImportError(
        'rdmawire.testing.strategies needs Hypothesis: pip install "rdmawire[hypothesis]"',
        name="hypothesis",
    ) from None

from rdmawire.errors import WireError
from rdmawire.wire import ib, rdmap
from rdmawire.wire.header import Header, Row
from rdmawire.wire.inet import (
    ROCE_PORT,
    UDP,
    VLAN,
    Ethernet,
    EtherType,
    IPProtocol,
    IPv4,
    IPv6,
    ServiceVLAN,
)
from rdmawire.wire.layout import Piece
from rdmawire.wire.mad import MAD, MANAGEMENT_QPS, DirectedMAD
from rdmawire.wire.mad import SIZE as DATAGRAM
from rdmawire.wire.management import ManagementClass, Method
from rdmawire.wire.mpa import MPAEnhanced, MPAReply, MPARequest, build_fpdu
from rdmawire.wire.native import IBA_TRANSPORT, NativePacket
from rdmawire.wire.opcode import Opcode, Payload
from rdmawire.wire.packet import LAYOUTS, OpcodeTable, Packet
from rdmawire.wire.rdmap import SHAPES as SEGMENTS
from rdmawire.wire.roce import Frame
from rdmawire.wire.terminate import TerminateControl

_H = TypeVar("_H", bound=Header)


def values(row: Row) -> st.SearchStrategy[Any]:
    """Return a strategy for every value that a row can hold."""
    if row.is_bytes:
        return st.binary(min_size=row.width // 8, max_size=row.width // 8)
    number = st.integers(0, (1 << row.width) - 1)
    if row.times == 1:
        return number
    return st.tuples(*[number] * row.times)


def headers(table: type[_H], **fixed: Any) -> st.SearchStrategy[_H]:
    """Return a strategy for headers of one table: any bit pattern but the rows ``fixed``.

    Raises :class:`WireError` for a value that its row cannot hold, ``TypeError`` for a name that
    is no row's.
    """
    table(**fixed).build()
    free = {row.name: values(row) for row in table.rows if row.name not in fixed}
    return st.builds(table, **free, **{name: st.just(value) for name, value in fixed.items()})


def payloads(rule: Payload, longest: int) -> st.SearchStrategy[bytes]:
    """Return a strategy for payloads that an opcode with this rule may carry, in bytes."""
    if rule is Payload.ANY:
        return st.binary(max_size=longest)
    length = 8 if rule is Payload.EIGHT else 0
    return st.binary(min_size=length, max_size=length)


def packets(
    longest: int = 64,
    opcodes: Collection[int] | None = None,
    layouts: OpcodeTable = LAYOUTS,
) -> st.SearchStrategy[Packet]:
    """Return a strategy for legal transport packets with up to ``longest`` bytes of payload.

    ``opcodes`` are by default all that ``layouts``, the standard's table or a copy of it, allow.
    Raises :class:`WireError` for an opcode that the table does not define, such as a vendor's,
    and for an empty collection.
    """
    known = {opcode: layout.shape for opcode, layout in layouts.items() if layout.shape}
    wanted = sorted(known if opcodes is None else opcodes)
    if unknown := [opcode for opcode in wanted if opcode not in known]:
        raise WireError(f"opcode {unknown[0]:#04x} has no shape to build a packet by")
    if not wanted:
        raise WireError("no opcodes to build packets of: name one or more")
    rows = [(opcode, layouts[opcode].headers, known[opcode].payload) for opcode in wanted]
    return _packets(longest, rows)


@st.composite
def _packets(
    draw: st.DrawFn, longest: int, rows: list[tuple[int, tuple[type[Header], ...], Payload]]
) -> Packet:
    opcode, tables, rule = draw(st.sampled_from(rows))
    extended = [draw(headers(table)) for table in tables]
    payload = draw(payloads(rule, longest))
    bth = draw(headers(ib.BTH, opcode=opcode, padcnt=-len(payload) % 4))
    pad = draw(st.binary(min_size=bth.padcnt, max_size=bth.padcnt))
    return Packet(bth, tuple(extended), payload, pad)


_TAGS = {VLAN: EtherType.VLAN, ServiceVLAN: EtherType.QINQ}


@st.composite
def _link(draw: st.DrawFn, ethertype: int) -> list[Piece]:
    """An Ethernet header with up to two tags, ending with this EtherType."""
    tags = draw(st.lists(st.sampled_from(sorted(_TAGS, key=str)), max_size=2))
    link: list[Piece] = []
    for tag in reversed(tags):
        link.insert(0, draw(headers(tag, type=ethertype)))
        ethertype = _TAGS[tag]
    return [draw(headers(Ethernet, type=ethertype)), *link]


@st.composite
def _udp_over_ipv4(draw: st.DrawFn) -> list[Piece]:
    options = draw(st.integers(0, 10).flatmap(lambda n: st.binary(min_size=4 * n, max_size=4 * n)))
    ip = draw(
        headers(
            IPv4, version=4, ihl=5 + len(options) // 4, mf=0, fragment_offset=0,
            protocol=IPProtocol.UDP,
        )
    )  # fmt: skip
    return [ip, *([options] if options else []), draw(_udp())]


@st.composite
def _udp_over_ipv6(draw: st.DrawFn) -> list[Piece]:
    return [draw(headers(IPv6, version=6, next_header=IPProtocol.UDP)), draw(_udp())]


def _udp() -> st.SearchStrategy[UDP]:
    return headers(UDP, dstport=ROCE_PORT)


_NETWORKS: dict[EtherType, st.SearchStrategy[list[Piece]]] = {
    EtherType.IPV4: _udp_over_ipv4(),
    EtherType.IPV6: _udp_over_ipv6(),
    EtherType.ROCE: st.tuples(headers(ib.GRH, ipver=6, nxthdr=IBA_TRANSPORT)).map(list),
}
"""The headers between link and transport, by EtherType."""


@st.composite
def frames(draw: st.DrawFn, longest: int = 64, layouts: OpcodeTable = LAYOUTS) -> Frame:
    """Sealed RoCEv2 (IPv4 with options, IPv6) and RoCE frames, tagged or not.

    Their packets are those of :func:`packets`.
    """
    packet = draw(packets(longest, layouts=layouts))
    ethertype = draw(st.sampled_from(list(_NETWORKS)))
    network = draw(_NETWORKS[ethertype])
    trailer = draw(st.binary(max_size=18))
    return Frame((*draw(_link(ethertype)), *network), packet, 0, trailer).seal()


@st.composite
def native_packets(draw: st.DrawFn, longest: int = 64) -> NativePacket:
    """Sealed packets of InfiniBand's own links, with and without a GRH."""
    grh = draw(st.none() | headers(ib.GRH, ipver=6))
    return NativePacket(draw(headers(ib.LRH)), grh, draw(packets(longest))).seal()


_ATTRIBUTES = [
    (mgmt_class, attribute.value)
    for row in MAD.rows
    if row.name == "attribute_id"
    for mgmt_class, meaning in sorted((row.cases or {}).items())
    for attribute in meaning.enum or ()
]
"""The management classes that have tables, with their attributes."""


@st.composite
def mads(draw: st.DrawFn) -> bytes:
    """Management datagrams of every class and attribute that has a table, with any contents."""
    mgmt_class, attribute_id = draw(st.sampled_from(_ATTRIBUTES))
    method = draw(st.sampled_from(Method))
    table = DirectedMAD if mgmt_class == ManagementClass.SUBN_DIRECTED_ROUTE else MAD
    fields = {"mgmt_class": mgmt_class, "attribute_id": attribute_id, "method": method}
    rest = DATAGRAM - table.SIZE
    return draw(headers(table, **fields)).build() + draw(st.binary(min_size=rest, max_size=rest))


@st.composite
def management_packets(draw: st.DrawFn) -> Packet:
    """Legal transport packets with a management datagram, for queue pair 0 or 1."""
    qp = draw(st.sampled_from(MANAGEMENT_QPS))
    bth = draw(headers(ib.BTH, opcode=Opcode.UD_SEND_ONLY, padcnt=0, destqp=qp))
    return Packet(bth, (draw(headers(ib.DETH)),), draw(mads()), b"")


@st.composite
def segments(draw: st.DrawFn, longest: int = 64) -> bytes:
    """Legal DDP segments of every RDMAP opcode, with up to ``longest`` bytes of payload.

    Terminates quote no headers.
    """
    opcode = draw(st.sampled_from(sorted(SEGMENTS)))
    shape = SEGMENTS[opcode]
    quotes = {"m": 0, "d": 0, "r": 0, "reserved": 0} if shape.header is TerminateControl else {}
    own = [draw(headers(shape.header, **quotes))] if shape.header else []
    last = 1 if shape.whole else draw(st.integers(0, 1))
    free = shape.payload is rdmap.Payload.ANY
    payload = draw(st.binary(max_size=longest)) if free else b""
    return rdmap.segment(opcode, payload, *own, l=last)


def fpdus(longest: int = 64) -> st.SearchStrategy[bytes]:
    """Return a strategy for FPDUs with valid CRCs and without Markers, a segment in each."""
    return segments(longest).map(build_fpdu)


@st.composite
def start_ups(draw: st.DrawFn, longest: int = 64) -> bytes:
    """Start-up frames of both sides, with and without the enhanced data of RFC 6581."""
    table = draw(st.sampled_from((MPARequest, MPAReply)))
    enhanced = draw(st.none() | headers(MPAEnhanced))
    private = (enhanced.build() if enhanced else b"") + draw(st.binary(max_size=longest))
    fixed = {"key": table().key, "s": int(enhanced is not None), "pd_length": len(private)}
    return draw(headers(table, **fixed)).build() + private
