"""Where tshark 4.0.17 is blind or wrong: the only differences that the comparison allows.

Each row names fields (as patterns), says in which frames, and why. Where a frame alone does not
tell, as with a stream joined midway, the row names the captures that show it. A row that no
capture needs any more fails a test, so the table shrinks when tshark learns.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from rdmawire.dissect.dissection import Dissection
from rdmawire.wire import ib, inet, rdmap
from rdmawire.wire.cm import CMAttribute
from rdmawire.wire.erf import ERF
from rdmawire.wire.mad import MAD
from rdmawire.wire.management import VENDOR_OUI_CLASSES, ManagementClass
from rdmawire.wire.notice import Notice
from rdmawire.wire.opcode import SHAPES, Opcode, Operation, Service, is_vendor
from rdmawire.wire.rmpp import RMPP
from rdmawire.wire.terminate import TerminateControl, is_mirrored
from tests.interop.frames import (
    Applies,
    everywhere,
    found,
    has,
    immediate_alone,
    like_eoib,
    of_class,
    of_operation,
    of_service,
    opcode,
    rdmap_opcode,
    short_send,
    zeros_sent,
)


@dataclass(frozen=True, slots=True)
class BlindSpot:
    """Fields that may differ in the frames, and the captures, to which it applies.

    ``seen_in`` is a capture that shows it: a test holds the row to be needed there.
    """

    fields: tuple[str, ...]
    where: str
    reason: str
    seen_in: str
    applies: Applies = everywhere
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

BLIND_SPOTS = (
    # The InfiniBand transport.
    BlindSpot(
        ("infiniband.*", "data.*"),
        "packets of service RD (opcodes 0x40 to 0x5D)",
        "read as Mellanox's dynamically connected transport, with its header after the BTH",
        "roce_v2_ipv4.pcap",
        of_service(Service.RD),
    ),
    BlindSpot(
        ("infiniband.*", "data.*"),
        "packets of service XRC (opcodes 0xA0 to 0xBD)",
        "no header sequence is known: everything after the BTH is a vendor's, the CRCs too",
        "roce_v2_ipv4.pcap",
        of_service(Service.XRC),
    ),
    BlindSpot(
        ("infiniband.reth*", "infiniband.vendor", "infiniband.*variant.crc", "data.*"),
        "FLUSH and ATOMIC WRITE",
        "opcodes 0x1C and 0x1D are not known",
        "rxe612_vt_rc_awrite.pcap",
        of_operation(Operation.FLUSH, Operation.ATOMIC_WRITE),
    ),
    BlindSpot(
        ("infiniband.vendor", "infiniband.*variant.crc"),
        "CNP (opcode 0x81)",
        "not known: its reserved bytes and its CRCs are read as a vendor's",
        "congestion.pcap",
        lambda frame: opcode(frame) == Opcode.CNP,
    ),
    BlindSpot(
        ("infiniband.vendor", "infiniband.*variant.crc"),
        "vendors' and reserved opcodes",
        "the CRCs are taken for the vendor's bytes",
        "malformed.pcap",
        lambda frame: is_vendor(opcode(frame)) or (opcode(frame) not in SHAPES),
    ),
    BlindSpot(
        ("data.*", "infiniband.*variant.crc"),
        "SEND_ONLY, its kin with an invalidate, and SEND_LAST, with 12 bytes of payload or fewer",
        "guessed to be RPC over RDMA, then called malformed, and the ICRC is not reached",
        "rxe612_vt_rc_awrite.pcap",
        short_send,
    ),
    BlindSpot(
        ("data.*",),
        "the same opcodes with more than 16 bytes of payload, all of them zero",
        "guessed to be RPC over RDMA or SMB Direct, and no byte is shown",
        "rxe61_ucmatose.pcap",
        zeros_sent,
    ),
    BlindSpot(
        ("infiniband.*variant.crc",),
        "datagrams with an immediate and no payload",
        "called malformed, and the ICRC is not reached",
        "ud.pcap",
        immediate_alone,
    ),
    BlindSpot(
        ("data.*",),
        "datagrams whose payload begins with 0xC",
        "guessed to be Ethernet over InfiniBand, whose header is then taken off",
        "rxe61_udaddy.pcap",
        like_eoib,
    ),
    BlindSpot(
        ("infiniband_link.*",),
        "link packets with credits",
        "called malformed: six bytes are read as if they were more",
        "link_packets_erf.pcap",
        has(ib.FlowControl),
    ),
    BlindSpot(
        ("frame.interface_name", "frame.interface_description"),
        "records of Endace's format",
        "no file names them: tshark makes names up from the number of the card's port",
        "ethernet_erf.pcap",
        has(ERF),
    ),
    BlindSpot(
        ("infiniband.variant.crc",),
        "raw packets",
        "shown twice",
        "raw_packets_erf.pcap",
        lambda frame: any(lrh.lnh < ib.LNH.IBA_LOCAL for lrh in found(frame, ib.LRH)),  # type: ignore[attr-defined]
    ),
    BlindSpot(
        ("infiniband.*", "data.*", "eth.*", "vxlan.*"),
        "UDP from port 53, 69, 319 or 4789 to port 4791",
        "the source port's protocol wins: DNS, TFTP, PTP and VXLAN are seen instead",
        "neighbours.pcap",
        lambda frame: any(has(inet.UDP, srcport=port)(frame) for port in (53, 69, 319, 4789)),
    ),
    BlindSpot(
        ("data.*",),
        "frames that end before the IP header's length",
        "what is left of the payload is not shown",
        "malformed.pcap",
        lambda frame: frame.malformed is not None and has(ib.BTH)(frame),
    ),
    BlindSpot(
        ("data.*",),
        "frames that the capture has cut",
        "what is left of the payload is not shown",
        "roce_v2_snapped.pcap",
        lambda frame: frame.length > len(frame.data) and has(ib.BTH)(frame),
    ),
    # Management datagrams.
    BlindSpot(
        ("infiniband.smpdirected.d",),
        "directed-route SMPs",
        "one byte is read against the mask of two: always 0",
        "management_erf.pcap",
    ),
    BlindSpot(
        ("infiniband.rmpp.rresptime", "infiniband.rmpp.rmppflags"),
        "RMPP headers",
        "cut between four and four bits; the standard says five and three",
        "management_erf.pcap",
        has(RMPP),
    ),
    BlindSpot(
        ("infiniband.rmpp", "infiniband.rmpp.*"),
        "vendors' classes 0x30 to 0x4F",
        "their RMPP header is not dissected",
        "management_erf.pcap",
        of_class(*VENDOR_OUI_CLASSES),
    ),
    BlindSpot(
        ("infiniband.sa.smkey", "infiniband.sa.attributeoffset", "infiniband.sa.componentmask"),
        "RMPP ACK, STOP and ABORT",
        "read out of bytes that are reserved or carry the error (IBA 13.6.2)",
        "management_erf.pcap",
        lambda frame: any(rmpp.kind in (2, 3, 4) for rmpp in found(frame, RMPP)),  # type: ignore[attr-defined]
    ),
    BlindSpot(
        _RECORDS,
        "tables of records in RMPP transfers",
        "only the first record is shown, and later segments are read as if they began with one",
        "management_erf.pcap",
        lambda frame: any(rmpp.active for rmpp in found(frame, RMPP)),  # type: ignore[attr-defined]
    ),
    BlindSpot(
        ("infiniband.multicastforwardingtable.portmask",),
        "multicast forwarding tables",
        "16 of the 32 entries are shown",
        "management_erf.pcap",
    ),
    BlindSpot(
        ("infiniband.linkspeedwidthpairstable.speed*",),
        "link speed and width pairs",
        "only the uppermost bit of each byte is shown",
        "management_erf.pcap",
    ),
    BlindSpot(
        ("infiniband.trap.*", "infiniband.notice.datadetails", "infiniband.*variant.crc"),
        "trap 259",
        "its DataValid, of two bytes, is read as an IPv6 address, and the rest called malformed",
        "management_erf.pcap",
        has(Notice, trap_number_device_id=259),
    ),
    BlindSpot(
        ("infiniband.classportinfo.*",),
        "ClassPortInfo of class CM",
        "not dissected, though that of SA and PerfMgt is",
        "management_erf.pcap",
        of_class(ManagementClass.COM_MGT),
    ),
    BlindSpot(
        (
            "infiniband.cm.req.*_flowlabel",
            "infiniband.cm.req.*_pktrate",
            "infiniband.cm.req.*_reserved0",
        ),
        "paths in CM REQ",
        "a mask of 32 bits on three bytes: upper bits of the label, the rest from its first byte",
        "rxe61_rping.pcap",
    ),
    BlindSpot(
        ("infiniband.cm.req.prim_localgid*", "infiniband.cm.req.prim_remotegid*"),
        "port GIDs of CM REQ",
        "shown as IPv4 by what carries the REQ; here where both are IPv4-mapped",
        "management_erf.pcap",
    ),
    BlindSpot(
        ("infiniband.cm.req.ip_cm.*",),
        "private data of CM SIDR_REQ",
        "the IP CM header is dissected in REQ only",
        "rxe61_udaddy.pcap",
        has(MAD, attribute_id=CMAttribute.SIDR_REQ),
    ),
    BlindSpot(
        ("infiniband.cm.rej.reserved0",),
        "CM REJ",
        "two of the six bits are shown",
        "management_erf.pcap",
    ),
    BlindSpot(
        ("infiniband.*variant.crc",),
        "management datagrams of which tshark knows no more than the class, or the attribute",
        "the CRCs after them are not reached",
        "management_erf.pcap",
        has(MAD),
    ),
    # iWARP.
    BlindSpot(
        ("iwarp_rdma.reserved",),
        "untagged segments with opcodes 8 to 15",
        "RFC 7306 is known only in part: neither immediate data nor reserved bytes are shown",
        "iwarp_ipv6.pcap",
        rdmap_opcode(*range(8, 16)),
    ),
    BlindSpot(
        ("iwarp_rdma.atomic.*",),
        "atomic requests other than FetchAdd and CmpSwap, or with reserved bits",
        "no add or swap fields, and the compare fields are read 16 bytes too early",
        "iwarp_reserved.pcap",
        has(rdmap.AtomicRequestHeader),
    ),
    BlindSpot(
        _QUOTED,
        "Terminate of Linux's siw, with its control field mirrored",
        "the quoted headers are not shown: the flags that announce them stand where none belong",
        "siw61_err_badstag_write.pcap",
        lambda frame: any(map(is_mirrored, found(frame, TerminateControl))),  # type: ignore[arg-type]
    ),
    BlindSpot(
        _QUOTED,
        "Terminate with quoted headers",
        "their kind is taken from the error type, not from the quoted T bit; and no M without D",
        "iwarp_terminate.pcap",
        has(TerminateControl),
    ),
    BlindSpot(
        ("data.*",),
        "payload of SEND and its kin",
        "guessed to be RPC over RDMA; segments of one message are shown together with the last",
        "iwarp_start_up_split.pcap",
        rdmap_opcode(*_SENDS),
    ),
    BlindSpot(
        ("data.*",),
        "reserved opcodes of RDMAP, and other versions of DDP and RDMAP",
        "what follows is not shown",
        "iwarp_reserved.pcap",
        captures=("iwarp_reserved.pcap",),
    ),
    BlindSpot(
        ("iwarp_mpa.markers", "iwarp_mpa.marker_*", "iwarp_mpa.pad", *_IWARP),
        "streams with Markers",
        "several FPDUs in one segment are not dissected; a Marker before the CRC is shown as pad",
        "iwarp_wrap.pcap",
        captures=("iwarp_markers*.pcap", "iwarp_wrap.pcap"),
    ),
    BlindSpot(
        _IWARP,
        "connections in which only one side asked for Markers",
        "FPDUs of the direction without Markers are not dissected",
        "iwarp_start_up.pcap",
        captures=("iwarp_start_up.pcap",),
    ),
    BlindSpot(
        _IWARP,
        "start-up frames that lie in several segments",
        "the whole connection is not seen to be iWARP",
        "iwarp_start_up_split.pcap",
        captures=("iwarp_start_up_split.pcap",),
    ),
    BlindSpot(
        _IWARP,
        "FPDUs that lie in several segments",
        "never completed",
        "iwarp_segments.pcap",
        captures=("iwarp_segments*.pcap", "iwarp_bad_crc.pcap", "iwarp_disorder*.pcap"),
    ),
    BlindSpot(
        _IWARP,
        "streams joined midway, whose start-up was not captured",
        "not seen to be iWARP",
        "iwarp_joined.pcap",
        captures=("iwarp_joined*.pcap",),
    ),
    BlindSpot(
        _IWARP,
        "streams with segments that were never captured",
        "nothing is dissected after the hole",
        "iwarp_hole.pcap",
        captures=("iwarp_hole*.pcap",),
    ),
    BlindSpot(
        _IWARP,
        "FPDUs that the capture has cut, and what follows them in the stream",
        "no more than their length is shown, also where it is none; nothing is dissected after it",
        "iwarp_snapped.pcap",
        captures=("iwarp_snapped.pcap",),
    ),
    BlindSpot(
        _IWARP,
        "a second connection on the same ports",
        "its start-up frames are read as FPDUs",
        "iwarp_same_ports.pcap",
        captures=("iwarp_same_ports.pcap",),
    ),
    # What rdmawire leaves alone.
    BlindSpot(
        ("data.*",),
        "TCP that carries another protocol",
        "tshark dissects it, or waits for more of it; rdmawire shows its bytes",
        "tcp_odd_numbers.pcap",
        captures=("iwarp_not.pcap", "tcp_odd_numbers.pcap"),
    ),
)
