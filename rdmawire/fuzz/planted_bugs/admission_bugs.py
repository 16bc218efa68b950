"""Planted bugs of admission: frames that the adapter must drop before its queue pair sees them."""

from rdmawire.fuzz.planted_bugs.bug import PlantedBug
from rdmawire.ib.admission import other_partition, other_peer
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.rules import PacketCheck, Rules
from rdmawire.ib.rx_parser import Flow, other_tver, other_version, wrong_lengths
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.wire import roce
from rdmawire.wire.inet import UDP, IPv4
from rdmawire.wire.layout import Piece


def _any_frame(_: roce.Frame) -> bool:
    return False


def _any_packet(_: QueuePair, __: Flow) -> bool:
    return False


def _of_version_1_too(frame: roce.Frame) -> bool:
    """Compare the upper three bits of the transport version."""
    return frame.packet.bth.tver > 1


def _any_ip_checksum(frame: roce.Frame) -> bool:
    """Check all lengths and checksums, but not the checksum of an IPv4 header."""
    return any(
        header != sealed and not _differs_in_checksum(header, sealed)
        for header, sealed in zip(frame.headers, frame.sealed_headers(), strict=True)
    )


def _differs_in_checksum(header: Piece, sealed: Piece) -> bool:
    if not (isinstance(header, IPv4) and isinstance(sealed, IPv4)):
        return False
    return header.replace(checksum=0) == sealed.replace(checksum=0)


def _any_udp_length(frame: roce.Frame) -> bool:
    """Check all lengths and checksums, but not the length of UDP."""
    pairs = zip(frame.headers, frame.sealed_headers(), strict=True)
    return any(header != sealed and not isinstance(header, UDP) for header, sealed in pairs)


def _same_destination(qp: QueuePair, flow: Flow) -> bool:
    """Compare the destination address alone, not the source address."""
    destinations = {destination for destination, _ in qp.ways_to_peer}
    return qp.service.connected and flow.way_back[0] not in destinations


def _packets(check: PacketCheck, bug: PacketCheck) -> Rules:
    return STANDARD.with_packet_check(check, bug)


BUGS = (
    PlantedBug(
        "any-partition",
        "the P_Key is not compared",
        "IBA 10.9.3",
        _packets(other_partition, _any_packet),
    ),
    PlantedBug(
        "any-peer",
        "packets from another address than the peer's are accepted",
        "IBA 9.6.1.2.3",
        _packets(other_peer, _any_packet),
    ),
    PlantedBug(
        "any-source-address",
        "the source address of packets is not compared with the peer's",
        "IBA 9.6.1.2.3",
        _packets(other_peer, _same_destination),
    ),
    PlantedBug(
        "any-transport-version",
        "the transport version is not checked",
        "IBA 9.6.1.1.1",
        STANDARD.with_frame_check(other_tver, _any_frame),
    ),
    PlantedBug(
        "transport-version-one",
        "the transport version 1 is accepted, too",
        "IBA 9.6.1.1.1",
        STANDARD.with_frame_check(other_tver, _of_version_1_too),
    ),
    PlantedBug(
        "any-ip-checksum",
        "the checksum of an IPv4 header is not checked",
        "RFC 1122, 3.2.1.2",
        STANDARD.with_frame_check(wrong_lengths, _any_ip_checksum),
    ),
    PlantedBug(
        "any-udp-length",
        "length and checksum of a UDP header are not checked",
        "RFC 1122, 4.1.3.4",
        STANDARD.with_frame_check(wrong_lengths, _any_udp_length),
    ),
    PlantedBug(
        "any-ip-version",
        "the version of an IP header or GRH is not checked",
        "IBA 8.3.1; RFC 1122, 3.2.1.1",
        STANDARD.with_frame_check(other_version, _any_frame),
    ),
)
