"""Differences from tshark 4.0.17 that mutants of frames show, besides those of captures.

A comparison of mutants allows these rows and those of :mod:`rdmawire.fuzz.tshark_differences`. For
each row tests have a small frame, or two, that differs in what the row allows alone.
"""

from typing import Final

from rdmawire.dissect.dissection import Dissection
from rdmawire.fuzz.tshark_differences import (
    KnownDifference,
    has_header,
    headers_of,
    of_service,
    payload_of,
)
from rdmawire.wire import ib, inet
from rdmawire.wire.mad import BASE_VERSION, MAD
from rdmawire.wire.notice import InformInfo, Notice
from rdmawire.wire.opcode import Service
from rdmawire.wire.rmpp import RMPP, RMPPType
from rdmawire.wire.sa import ServiceAssociationRecord
from rdmawire.wire.smp import NodeDescription

_PORTS: Final = frozenset((
    7, 13, 19, 37, 49, 53, 67, 68, 69, 88, 111, 123, 137, 138, 161, 162, 173, 177, 213, 269, 319,
    320, 389, 427, 434, 464, 473, 496, 500, 502, 513, 514, 520, 521, 524, 525, 539, 546, 547, 573,
    623, 631, 646, 654, 664, 698, 699, 701, 750, 853, 854, 910, 921, 925, 1001, 1044, 1052, 1069,
    1089, 1090, 1091, 1101, 1113, 1153, 1194, 1293, 1547, 1628, 1629, 1645, 1646, 1700, 1701,
    1718, 1719, 1745, 1755, 1812, 1813, 1900, 1985, 2029, 2048, 2055, 2067, 2099, 2123, 2152,
    2157, 2190, 2221, 2222, 2231, 2246, 2268, 2269, 2313, 2345, 2424, 2427, 2428, 2727, 2887,
    2944, 2945, 2948, 2949, 2960, 3000, 3121, 3130, 3205, 3222, 3250, 3333, 3343, 3357, 3386,
    3389, 3452, 3455, 3478, 3483, 3503, 3540, 3544, 3567, 3622, 3671, 3784, 3785, 3792, 3799,
    3804, 3819, 3863, 3956, 4000, 4011, 4058, 4305, 4306, 4307, 4341, 4342, 4500, 4533, 4534,
    4551, 4555, 4556, 4569, 4665, 4672, 4713, 4729, 4739, 4754, 4784, 4789, 4790,
))  # fmt: skip
"""UDP ports below 4791 for which tshark has a dissector (``tshark -G decodes``)."""


def _to_management_queue(frame: Dissection) -> bool:
    """Frames to queue pair 0 or 1 that are not datagrams."""
    to = [bth.destqp for bth in headers_of(frame, ib.BTH)]  # type: ignore[attr-defined]
    return any(qpn < 2 for qpn in to) and not of_service(Service.UD)(frame)


def _of_other_version(frame: Dissection) -> bool:
    """A management datagram whose base version is not 1. IBA 13.4.2."""
    return any(one.base_version != BASE_VERSION for one in headers_of(frame, MAD))  # type: ignore[attr-defined]


def _from_management_queue(frame: Dissection) -> bool:
    """Frames from queue pair 0 or 1 to another one."""
    sources = [deth.srcqp for deth in headers_of(frame, ib.DETH)]  # type: ignore[attr-defined]
    to = [bth.destqp for bth in headers_of(frame, ib.BTH)]  # type: ignore[attr-defined]
    return any(qpn < 2 for qpn in sources) and any(qpn > 1 for qpn in to)


def _ends_early(frame: Dissection) -> bool:
    """Frames with bytes after the end that the lengths of UDP, IP or the GRH give."""
    return any(node.name == "trailer" for node in frame.nodes)


def _is_vendors_notice(frame: Dissection) -> bool:
    return any(not one.is_generic for one in headers_of(frame, Notice))  # type: ignore[attr-defined]


def _is_inactive(frame: Dissection) -> bool:
    """Frames with an RMPP header that has a type of its own, but not the flag that says so."""
    typed = (RMPPType.ACK, RMPPType.STOP, RMPPType.ABORT)
    return any(not one.active and one.type in typed for one in headers_of(frame, RMPP))  # type: ignore[attr-defined]


def _is_fragment(frame: Dissection) -> bool:
    return any(ip.mf or ip.fragment_offset for ip in headers_of(frame, inet.IPv4))  # type: ignore[attr-defined]


def _unprintable(frame: Dissection) -> bool:
    texts = [node.node_string for node in headers_of(frame, NodeDescription)]  # type: ignore[attr-defined]
    texts += [one.service_name for one in headers_of(frame, ServiceAssociationRecord)]  # type: ignore[attr-defined]
    return any(not 32 <= byte < 127 for text in texts for byte in text.rstrip(b"\0"))


MUTANT_DIFFERENCES = (
    KnownDifference(
        ("udp.stream",),
        "numbers of conversations",
        "they depend on the frames before: of malformed ones, tshark counts others than rdmawire",
        "",
    ),
    KnownDifference(
        ("infiniband.*", "data.*"),
        "packets to queue pair 0 or 1 that are not datagrams",
        "decoded as management datagrams, whatever the opcode",
        "",
        _to_management_queue,
    ),
    KnownDifference(
        ("udp.*", "infiniband.*", "data.*"),
        "fragments of IPv4",
        "the last one is shown with the packet that all make; rdmawire shows each by itself",
        "",
        _is_fragment,
    ),
    KnownDifference(
        ("ip.len",),
        "an IPv4 header with length 0",
        "taken for a frame that the adapter segments: the length of the rest is shown",
        "",
        has_header(inet.IPv4, total_length=0),
    ),
    KnownDifference(
        ("data.*", "udp.payload", "infiniband.vendor", "infiniband.*variant.crc"),
        "packets that end before the frame, by the length of UDP or of a GRH",
        "these lengths are not used: payload and CRC are looked for at the end of the IP packet",
        "",
        _ends_early,
    ),
    KnownDifference(
        ("data.*", "infiniband.*variant.crc"),
        "payloads that begin with 0xCAFE",
        "decoded as LLT of Veritas",
        "",
        lambda frame: payload_of(frame)[:2] == b"\xca\xfe",
    ),
    KnownDifference(
        ("infiniband.*", "data.*"),
        "management datagrams of another base version",
        "decoded as those of version 1",
        "",
        _of_other_version,
    ),
    KnownDifference(
        ("infiniband.*", "data.*"),
        "datagrams from queue pair 0 or 1 to another one",
        "decoded as management datagrams",
        "",
        _from_management_queue,
    ),
    KnownDifference(
        ("infiniband.*", "data.*", "udp.payload"),
        "UDP from port 4791 to another port",
        "decoded as RoCEv2, whose destination port it is",
        "",
        lambda frame: not headers_of(frame, ib.BTH) and has_header(inet.UDP, srcport=4791)(frame),
    ),
    KnownDifference(
        ("*",),
        "RoCEv2 from a UDP port of another protocol, below 4791",
        "the lower port decides: decoded as that protocol, which may be a tunnel with any headers",
        "",
        lambda frame: any(udp.srcport in _PORTS for udp in headers_of(frame, inet.UDP)),  # type: ignore[attr-defined]
    ),
    KnownDifference(
        (
            "infiniband.nodedescription.nodestring",
            "infiniband.serviceassociationrecord.servicename",
        ),
        "texts with bytes that are not printable ASCII",
        "each byte above 0x7F is shown by itself; rdmawire reads UTF-8, and escapes other bytes",
        "",
        _unprintable,
    ),
    KnownDifference(
        ("infiniband.trap.*", "infiniband.notice.*"),
        "notices of vendors",
        "their details are decoded as those of the generic notice with the same number",
        "",
        _is_vendors_notice,
    ),
    KnownDifference(
        (
            "infiniband.informinfo.producertypevendorid",
            "infiniband.informinfo.trapnumberdeviceid",
        ),
        "InformInfo whose IsGeneric is neither 0 nor 1",
        "shown with any value; rdmawire gives these fields no meaning then",
        "",
        lambda frame: any(one.is_generic > 1 for one in headers_of(frame, InformInfo)),  # type: ignore[attr-defined]
    ),
    KnownDifference(
        ("infiniband.*", "data.*"),
        "RMPP headers of a type above 4",
        "they end after the status: what follows is read eight bytes too early",
        "",
        lambda frame: any(rmpp.type > RMPPType.ABORT for rmpp in headers_of(frame, RMPP)),  # type: ignore[attr-defined]
    ),
    KnownDifference(
        ("infiniband.*",),
        "RMPP headers of type ACK, STOP or ABORT without the Active flag",
        "decoded by their type, which is not used without the flag (IBA 13.6.2.1)",
        "",
        _is_inactive,
    ),
    KnownDifference(
        ("infiniband.*", "data.*"),
        "records in RMPP transfers",
        "decoded as if a record began in each segment",
        "",
        lambda frame: any(rmpp.active for rmpp in headers_of(frame, RMPP)),  # type: ignore[attr-defined]
    ),
)
"""Differences that mutants show, besides those of captures."""
