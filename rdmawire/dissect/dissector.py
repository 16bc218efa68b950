"""Frames to dissections, one after the other, remembering what connects them."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from rdmawire.capture import LinkType, Reader, Record
from rdmawire.dissect import ib, inet, iwarp, link
from rdmawire.dissect.node import Dissection
from rdmawire.dissect.walk import By, Selected, Session, Step, Walk
from rdmawire.errors import CaptureError
from rdmawire.wire.erf import ERFType
from rdmawire.wire.ib import LNH
from rdmawire.wire.inet import ROCE_PORT, EtherType, IPProtocol, MACControl

LINK_STEPS: Mapping[int, Step] = {
    LinkType.NULL: link.loopback,
    LinkType.ETHERNET: link.ethernet,
    LinkType.RAW_BSD: link.raw_ip,
    LinkType.RAW_OPENBSD: link.raw_ip,
    LinkType.RAW: link.raw_ip,
    LinkType.LINUX_SLL: link.sll,
    LinkType.ERF: link.erf,
    LinkType.IPV4: inet.ipv4,
    LinkType.IPV6: inet.ipv6,
    LinkType.INFINIBAND: link.local_route,
    LinkType.LINUX_SLL2: link.sll2,
}
"""Link type of the capture to the first step."""

ETHERTYPE_STEPS: Mapping[int, Step] = {
    EtherType.IPV4: inet.ipv4,
    EtherType.IPV6: inet.ipv6,
    EtherType.ARP: link.arp,
    EtherType.VLAN: link.vlan,
    EtherType.QINQ: link.service_vlan,
    EtherType.QINQ_OLD: link.vlan,
    EtherType.MAC_CONTROL: link.mac_control,
    EtherType.ROCE: link.roce_grh,
}

MAC_CONTROL_STEPS: Mapping[int, Step] = {MACControl.PAUSE: link.pause, MACControl.PFC: link.pfc}

IP_STEPS: Mapping[int, Step] = {
    IPProtocol.UDP: inet.udp,
    IPProtocol.TCP: iwarp.tcp,
    IPProtocol.FRAGMENT: inet.ipv6_fragment,
    **{kind: partial(inet.ipv6_extension, kind) for kind in inet.EXTENSIONS},
}

UDP_STEPS: Mapping[int, Step] = dict.fromkeys(inet.TUNNELS, inet.vxlan)

ERF_STEPS: Mapping[int, Step] = {
    ERFType.ETHERNET: link.ethernet,
    ERFType.INFINIBAND: link.local_route,
    ERFType.INFINIBAND_LINK: link.flow_control,
}

LNH_STEPS: Mapping[int, Step] = {
    LNH.RAW: link.raw_packet,
    LNH.IP_NON_IBA: link.raw_ipv6,
    LNH.IBA_LOCAL: ib.transport,
    LNH.IBA_GLOBAL: link.global_route,
}

TABLES: dict[str, Mapping[int, Step]] = {
    By.LINK: LINK_STEPS,
    By.ETHERTYPE: ETHERTYPE_STEPS,
    By.MAC_CONTROL: MAC_CONTROL_STEPS,
    By.IP: IP_STEPS,
    By.UDP: UDP_STEPS,
    By.ERF: ERF_STEPS,
    By.LNH: LNH_STEPS,
    By.TRANSPORT: {0: ib.transport},
    By.MAD: {0: ib.management},
    By.TRAILER: {0: link.trailer},
}

NEXT: dict[Selected, Step] = {
    (selector, key): step for selector, steps in TABLES.items() for key, step in steps.items()
}
"""What is not here is data."""


_NAMELESS = "unknown"
"""What Wireshark calls an interface that a pcapng tells nothing of."""


class Dissector:
    """Dissects the frames of one capture, in order.

    ``roce_ports`` are the UDP destination ports that carry RoCEv2. Dissecting never raises:
    what does not parse is the last node of its dissection.
    """

    def __init__(self, roce_ports: Iterable[int] = (ROCE_PORT,)) -> None:
        self._session = Session(roce_ports)
        self._number = 0
        self._first_ns: int | None = None
        self._previous_ns = 0

    def dissect(
        self, data: bytes, *, link_type: int = 1, time_ns: int = 0, length: int | None = None
    ) -> Dissection:
        """Dissect one frame.

        ``data`` are the captured bytes, ``length`` counts those on the wire, ``time_ns`` is
        nanoseconds since the epoch, ``link_type`` is the capture's (tcpdump's registry).
        """
        self._number += 1
        found = Dissection(self._number, data, len(data) if length is None else length, time_ns)
        Walk(found, self._session).run((By.LINK, link_type), NEXT)
        if self._first_ns is None:
            self._first_ns = self._previous_ns = found.time_ns
        found.first_ns, found.previous_ns = self._first_ns, self._previous_ns
        self._previous_ns = found.time_ns
        return found

    def capture(self, reader: Reader) -> Iterator[Dissection]:
        """Dissect all records of a capture, with their interfaces and comments.

        :class:`~rdmawire.errors.CaptureError` for damage, after the last record before it; for
        link types that are not known, at once where all records have one, else at the end.
        """
        if reader.format == "pcap":
            _check_known(reader, {reader.interfaces[0].link_type})
        link_types = set()
        for record in reader:
            link_types.add(record.link_type)
            yield self.record(record, reader)
        _check_known(reader, link_types)

    def record(self, record: Record, reader: Reader) -> Dissection:
        """Dissect the next record of a capture, with its interface and comments."""
        frame = self.dissect(
            record.data,
            link_type=record.link_type,
            time_ns=record.time_ns,
            length=record.length,
        )
        if reader.format == "pcapng":
            frame.interface, frame.comments = record.interface, record.comments
            there = reader.interfaces[record.interface]
            frame.interface_description = there.description
            frame.interface_name = there.name or there.description or _NAMELESS
        frame.file = reader.name
        return frame


def _check_known(reader: Reader, link_types: set[int]) -> None:
    """:class:`CaptureError` naming the link types that say nothing to us."""
    if unknown := sorted(link_types - LINK_STEPS.keys()):
        known = ", ".join(f"{LinkType(number).name} ({number})" for number in sorted(LINK_STEPS))
        said = " and ".join(map(str, unknown))
        raise CaptureError(f"{reader.name}: link type {said} is not known; known are {known}")
