"""Differences from tshark 4.0.17: the only ones that a comparison allows.

Each row has fields (as patterns), the frames concerned, and what tshark does. If that depends on
more than the frame, as in a stream without its start, the row also has the captures concerned.
The rows are seen in captures of the project; those of :mod:`rdmawire.fuzz.tshark_mutants` in
mutants of their frames alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rdmawire.dissect.dissection import Dissection
from rdmawire.wire import ib, inet, rdmap
from rdmawire.wire.cm import CMAttribute
from rdmawire.wire.erf import ERF
from rdmawire.wire.header import Header
from rdmawire.wire.mad import MAD
from rdmawire.wire.management import VENDOR_OUI_CLASSES, ManagementClass
from rdmawire.wire.notice import Notice
from rdmawire.wire.opcode import SHAPES, Opcode, Operation, Service, is_vendor
from rdmawire.wire.rmpp import RMPP
from rdmawire.wire.terminate import TerminateControl, is_mirrored

Applies = Callable[[Dissection], bool]


def _everywhere(_: Dissection) -> bool:
    return True


def headers_of(frame: Dissection, *kinds: type[Header]) -> list[Header]:
    """Return the headers of a frame that are of one of these tables."""
    return [header for header in frame.headers() if isinstance(header, kinds)]


def has_header(*kinds: type[Header], **values: int) -> Applies:
    """Frames with a header of one of these kinds that has these values."""
    return lambda frame: any(
        all(getattr(header, name) == value for name, value in values.items())
        for header in headers_of(frame, *kinds)
    )


def _opcode(frame: Dissection) -> int:
    """The BTH's opcode; -1 without a BTH."""
    return next((bth.opcode for bth in headers_of(frame, ib.BTH)), -1)  # type: ignore[attr-defined]


def of_service(service: Service) -> Applies:
    """Frames of a transport service."""
    return lambda frame: _opcode(frame) >= 0 and _opcode(frame) >> 5 == service


def of_operation(*operations: Operation) -> Applies:
    """Frames of one of these operations."""
    return lambda frame: _opcode(frame) in SHAPES and _opcode(frame) & 31 in operations


def payload_of(frame: Dissection) -> bytes:
    """The first payload, with its pad."""
    return b"".join(node.data for node in frame.nodes if node.name in ("payload", "pad"))


def _short_send(frame: Dissection) -> bool:
    return _guessed(frame) and len(payload_of(frame)) <= 12


def _like_rpc(frame: Dissection) -> bool:
    """Frames whose fourth word of payload is a message type of RPC over RDMA. RFC 8166, 4.1."""
    word = payload_of(frame)[12:16]
    return _guessed(frame) and len(word) == 4 and int.from_bytes(word, "big") <= 4


def _guessed(frame: Dissection) -> bool:
    return of_operation(*_GUESSED)(frame) and not has_header(MAD)(frame)


_GUESSED = (
    Operation.SEND_ONLY,
    Operation.SEND_LAST,
    Operation.SEND_ONLY_WITH_INVALIDATE,
    Operation.SEND_LAST_WITH_INVALIDATE,
)


def _immediate_alone(frame: Dissection) -> bool:
    return _opcode(frame) == Opcode.UD_SEND_ONLY_WITH_IMMEDIATE and not payload_of(frame)


def _like_eoib(frame: Dissection) -> bool:
    datagram = _opcode(frame) >> 5 == Service.UD and len(payload_of(frame)) > 4
    return datagram and payload_of(frame)[0] >> 4 == 0xC


def _of_class(*classes: int) -> Applies:
    return lambda frame: any(mad.mgmt_class in classes for mad in headers_of(frame, MAD))  # type: ignore[attr-defined]


def _rdmap_opcode(*opcodes: int) -> Applies:
    kinds = (rdmap.RDMAPControl, rdmap.RDMAPControlReserved, rdmap.RDMAPControlInvalidate)
    return lambda frame: any(head.opcode in opcodes for head in headers_of(frame, *kinds))  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class KnownDifference:
    """Fields that may differ in the frames, and the captures, to which it applies.

    ``seen_in`` is a capture that shows it; a test checks that the row is needed there.
    """

    fields: tuple[str, ...]
    where: str
    reason: str
    seen_in: str
    applies: Applies = _everywhere
    captures: tuple[str, ...] = ("*",)

    def covers(self, name: str, frame: Dissection, capture: str) -> bool:
        """Whether this row allows a difference in that field of that frame."""
        return (
            any(fnmatchcase(name, field) for field in self.fields)
            and any(fnmatchcase(capture, pattern) for pattern in self.captures)
            and self.applies(frame)
        )


_QUOTED = ("iwarp_rdma.term_ddp_h", "iwarp_rdma.term_rdma_h", "iwarp_rdma.term_ddp_seg_len")
_IWARP = ("iwarp_*", "data.*")
_SENDS = (
    rdmap.RDMAPOpcode.SEND,
    rdmap.RDMAPOpcode.SEND_WITH_INVALIDATE,
    rdmap.RDMAPOpcode.SEND_WITH_SE,
    rdmap.RDMAPOpcode.SEND_WITH_SE_AND_INVALIDATE,
)
_RECORDS = (
    *("infiniband.pathrecord.*", "infiniband.nodeinfo.*", "infiniband.nodedescription.*"),
    *("infiniband.linkrecord.*", "infiniband.sa.*"),
)

KNOWN_DIFFERENCES = (
    # The InfiniBand transport.
    KnownDifference(
        ("infiniband.*", "data.*"),
        "packets of service RD (opcodes 0x40 to 0x5D)",
        "decoded as Mellanox's dynamically connected transport, with its header after the BTH",
        "roce_v2_ipv4.pcap",
        of_service(Service.RD),
    ),
    KnownDifference(
        ("infiniband.*", "data.*"),
        "packets of service XRC (opcodes 0xA0 to 0xBD)",
        "no header is known: everything after the BTH is shown as vendor bytes, the CRCs too",
        "roce_v2_ipv4.pcap",
        of_service(Service.XRC),
    ),
    KnownDifference(
        ("infiniband.reth*", "infiniband.vendor", "infiniband.*variant.crc", "data.*"),
        "FLUSH and ATOMIC WRITE",
        "the opcodes 0x1C and 0x1D are unknown",
        "rxe612_vt_rc_awrite.pcap",
        of_operation(Operation.FLUSH, Operation.ATOMIC_WRITE),
    ),
    KnownDifference(
        ("infiniband.vendor", "infiniband.*variant.crc"),
        "CNP (opcode 0x81)",
        "the opcode is unknown: reserved bytes and CRCs are shown as vendor bytes",
        "congestion.pcap",
        lambda frame: _opcode(frame) == Opcode.CNP,
    ),
    KnownDifference(
        ("infiniband.vendor", "infiniband.*variant.crc"),
        "vendors' and reserved opcodes",
        "the CRCs are shown as vendor bytes",
        "malformed.pcap",
        lambda frame: is_vendor(_opcode(frame)) or (_opcode(frame) not in SHAPES),
    ),
    KnownDifference(
        ("data.*", "infiniband.*variant.crc"),
        "SEND_ONLY and SEND_LAST, with Invalidate too, with a payload of at most 12 bytes",
        "decoded as RPC over RDMA, then reported as malformed; the ICRC is not shown",
        "rxe612_vt_rc_awrite.pcap",
        _short_send,
    ),
    KnownDifference(
        ("data.*", "infiniband.*variant.crc"),
        "the same opcodes with a number from 0 to 4 in bytes 12 to 15 of the payload",
        "taken for the type of a message of RPC over RDMA: no byte is shown, nor the ICRC if the "
        "message is malformed",
        "rxe61_ucmatose.pcap",
        _like_rpc,
    ),
    KnownDifference(
        ("infiniband.*variant.crc",),
        "datagrams with immediate data and without payload",
        "reported as malformed; the ICRC is not shown",
        "ud.pcap",
        _immediate_alone,
    ),
    KnownDifference(
        ("data.*",),
        "datagrams whose payload begins with 0xC",
        "decoded as Ethernet over InfiniBand; its header is removed from the payload",
        "rxe61_udaddy.pcap",
        _like_eoib,
    ),
    KnownDifference(
        ("infiniband_link.*",),
        "link packets with credits",
        "reported as malformed: more than the six bytes of the packet are read",
        "link_packets_erf.pcap",
        has_header(ib.FlowControl),
    ),
    KnownDifference(
        ("frame.interface_name", "frame.interface_description"),
        "records of Endace's format",
        "the file has no interface names; tshark makes them from the port number of the card",
        "ethernet_erf.pcap",
        has_header(ERF),
    ),
    KnownDifference(
        ("infiniband.variant.crc",),
        "raw packets",
        "shown twice",
        "raw_packets_erf.pcap",
        lambda frame: any(lrh.lnh < ib.LNH.IBA_LOCAL for lrh in headers_of(frame, ib.LRH)),  # type: ignore[attr-defined]
    ),
    KnownDifference(
        ("infiniband.*", "data.*", "eth.*", "vxlan.*"),
        "UDP from port 53, 69, 319 or 4789 to port 4791",
        "the source port decides: decoded as DNS, TFTP, PTP or VXLAN",
        "neighbours.pcap",
        lambda frame: any(
            has_header(inet.UDP, srcport=port)(frame) for port in (53, 69, 319, 4789)
        ),
    ),
    KnownDifference(
        ("data.*",),
        "frames that end before the IP header's length",
        "the remaining payload is not shown",
        "malformed.pcap",
        lambda frame: frame.malformed is not None and has_header(ib.BTH)(frame),
    ),
    KnownDifference(
        ("data.*",),
        "frames that the capture truncated",
        "the remaining payload is not shown",
        "roce_v2_snapped.pcap",
        lambda frame: frame.length > len(frame.data) and has_header(ib.BTH)(frame),
    ),
    # Management datagrams.
    KnownDifference(
        ("infiniband.smpdirected.d",),
        "directed-route SMPs",
        "the mask is for two bytes, but the field is read from one: always 0",
        "management_erf.pcap",
    ),
    KnownDifference(
        ("infiniband.rmpp.rresptime", "infiniband.rmpp.rmppflags"),
        "RMPP headers",
        "the byte is split into four and four bits; the standard has five and three",
        "management_erf.pcap",
        has_header(RMPP),
    ),
    KnownDifference(
        ("infiniband.rmpp", "infiniband.rmpp.*"),
        "vendors' classes 0x30 to 0x4F",
        "their RMPP header is not dissected",
        "management_erf.pcap",
        _of_class(*VENDOR_OUI_CLASSES),
    ),
    KnownDifference(
        ("infiniband.sa.smkey", "infiniband.sa.attributeoffset", "infiniband.sa.componentmask"),
        "RMPP ACK, STOP and ABORT",
        "shown from bytes that are reserved or contain the error (IBA 13.6.2)",
        "management_erf.pcap",
        lambda frame: any(rmpp.kind in (2, 3, 4) for rmpp in headers_of(frame, RMPP)),  # type: ignore[attr-defined]
    ),
    KnownDifference(
        _RECORDS,
        "tables of records in RMPP transfers",
        "only the first record is shown; later segments are decoded as if a record began there",
        "management_erf.pcap",
        lambda frame: any(rmpp.active for rmpp in headers_of(frame, RMPP)),  # type: ignore[attr-defined]
    ),
    KnownDifference(
        ("infiniband.multicastforwardingtable.portmask",),
        "multicast forwarding tables",
        "16 of the 32 entries are shown",
        "management_erf.pcap",
    ),
    KnownDifference(
        ("infiniband.linkspeedwidthpairstable.speed*",),
        "link speed and width pairs",
        "only the highest bit of each byte is shown",
        "management_erf.pcap",
    ),
    KnownDifference(
        ("infiniband.trap.*", "infiniband.notice.datadetails", "infiniband.*variant.crc"),
        "trap 259",
        "DataValid, of two bytes, is decoded as an IPv6 address; the rest is reported as malformed",
        "management_erf.pcap",
        has_header(Notice, trap_number_device_id=259),
    ),
    KnownDifference(
        ("infiniband.classportinfo.*",),
        "ClassPortInfo of class CM",
        "not dissected, unlike those of SA and PerfMgt",
        "management_erf.pcap",
        _of_class(ManagementClass.COM_MGT),
    ),
    KnownDifference(
        (
            "infiniband.cm.req.*_flowlabel",
            "infiniband.cm.req.*_pktrate",
            "infiniband.cm.req.*_reserved0",
        ),
        "paths in CM REQ",
        "32-bit masks on three bytes: only upper bits of the label, the rest from its first byte",
        "rxe61_rping.pcap",
    ),
    KnownDifference(
        ("infiniband.cm.req.prim_localgid*", "infiniband.cm.req.prim_remotegid*"),
        "port GIDs of CM REQ",
        "shown as IPv4 if the REQ is carried over IPv4; in rdmawire if both GIDs are IPv4-mapped",
        "management_erf.pcap",
    ),
    KnownDifference(
        ("infiniband.cm.req.ip_cm.*",),
        "private data of CM SIDR_REQ",
        "the IP CM header is dissected in REQ only",
        "rxe61_udaddy.pcap",
        has_header(MAD, attribute_id=CMAttribute.SIDR_REQ),
    ),
    KnownDifference(
        ("infiniband.cm.rej.reserved0",),
        "CM REJ",
        "two of the six bits are shown",
        "management_erf.pcap",
    ),
    KnownDifference(
        ("infiniband.*variant.crc",),
        "management datagrams of which tshark decodes only the class or the attribute",
        "the CRCs after them are not shown",
        "management_erf.pcap",
        has_header(MAD),
    ),
    # iWARP.
    KnownDifference(
        ("iwarp_rdma.reserved",),
        "untagged segments with opcodes 8 to 15",
        "RFC 7306 is decoded only in part: no immediate data and no reserved bytes",
        "iwarp_ipv6.pcap",
        _rdmap_opcode(*range(8, 16)),
    ),
    KnownDifference(
        ("iwarp_rdma.atomic.*",),
        "atomic requests other than FetchAdd and CmpSwap, or with reserved bits",
        "no add or swap fields; the compare fields are shown from 16 bytes too early",
        "iwarp_reserved.pcap",
        has_header(rdmap.AtomicRequestHeader),
    ),
    KnownDifference(
        _QUOTED,
        "Terminate of Linux's siw, with its control field mirrored",
        "the quoted headers are not shown: the flags that announce them are at other bits",
        "siw61_err_badstag_write.pcap",
        lambda frame: any(map(is_mirrored, headers_of(frame, TerminateControl))),  # type: ignore[arg-type]
    ),
    KnownDifference(
        _QUOTED,
        "Terminate with quoted headers",
        "the error type decides what they are, not the quoted T bit; M is not shown without D",
        "iwarp_terminate.pcap",
        has_header(TerminateControl),
    ),
    KnownDifference(
        ("data.*",),
        "payload of SEND, with Invalidate and with Solicited Event too",
        "decoded as RPC over RDMA; all segments of a message are shown with its last one",
        "iwarp_start_up_split.pcap",
        _rdmap_opcode(*_SENDS),
    ),
    KnownDifference(
        ("data.*",),
        "reserved opcodes of RDMAP, unknown versions of DDP and RDMAP",
        "the bytes after it are not shown",
        "iwarp_reserved.pcap",
        captures=("iwarp_reserved.pcap",),
    ),
    KnownDifference(
        ("iwarp_mpa.markers", "iwarp_mpa.marker_*", "iwarp_mpa.pad", *_IWARP),
        "streams with Markers",
        "several FPDUs in one segment are not dissected; a Marker before the CRC is shown as pad",
        "iwarp_wrap.pcap",
        captures=("iwarp_markers*.pcap", "iwarp_wrap.pcap"),
    ),
    KnownDifference(
        _IWARP,
        "connections in which only one side asked for Markers",
        "FPDUs of the direction without Markers are not dissected",
        "iwarp_start_up.pcap",
        captures=("iwarp_start_up.pcap",),
    ),
    KnownDifference(
        _IWARP,
        "start-up frames in several TCP segments",
        "the connection is not recognised as iWARP",
        "iwarp_start_up_split.pcap",
        captures=("iwarp_start_up_split.pcap",),
    ),
    KnownDifference(
        _IWARP,
        "FPDUs in several TCP segments",
        "not reassembled",
        "iwarp_segments.pcap",
        captures=("iwarp_segments*.pcap", "iwarp_bad_crc.pcap", "iwarp_disorder*.pcap"),
    ),
    KnownDifference(
        _IWARP,
        "streams whose start-up was not captured",
        "not recognised as iWARP",
        "iwarp_joined.pcap",
        captures=("iwarp_joined*.pcap",),
    ),
    KnownDifference(
        _IWARP,
        "streams with segments that were never captured",
        "nothing is dissected after the missing segment",
        "iwarp_hole.pcap",
        captures=("iwarp_hole*.pcap",),
    ),
    KnownDifference(
        _IWARP,
        "FPDUs that the capture truncated, and the stream after them",
        "only their length is shown, even if it is not one; nothing after it is dissected",
        "iwarp_snapped.pcap",
        captures=("iwarp_snapped.pcap",),
    ),
    KnownDifference(
        _IWARP,
        "a second connection on the same ports",
        "its start-up frames are decoded as FPDUs",
        "iwarp_same_ports.pcap",
        captures=("iwarp_same_ports.pcap",),
    ),
    # Protocols that rdmawire does not dissect.
    KnownDifference(
        ("data.*",),
        "TCP that carries another protocol",
        "tshark dissects it, or waits for more of it; rdmawire shows its bytes",
        "tcp_odd_numbers.pcap",
        captures=("iwarp_not.pcap", "tcp_odd_numbers.pcap"),
    ),
)
