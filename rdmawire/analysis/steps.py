"""Which step follows which number: the dispatch of the walk, as data."""

from collections.abc import Mapping
from functools import partial

from rdmawire.analysis import internet, link, management, stream, transport
from rdmawire.analysis.walk import By, Selected, Step
from rdmawire.capture.record import LinkType
from rdmawire.wire.erf import ERFType
from rdmawire.wire.ib import LNH
from rdmawire.wire.inet import EtherType, IPProtocol, MACControl

LINK_STEPS: Mapping[int, Step] = {
    LinkType.NULL: link.loopback,
    LinkType.ETHERNET: link.ethernet,
    LinkType.RAW_BSD: link.raw_ip,
    LinkType.RAW_OPENBSD: link.raw_ip,
    LinkType.RAW: link.raw_ip,
    LinkType.LINUX_SLL: link.sll,
    LinkType.ERF: link.erf,
    LinkType.IPV4: internet.ipv4,
    LinkType.IPV6: internet.ipv6,
    LinkType.INFINIBAND: link.local_route,
    LinkType.LINUX_SLL2: link.sll2,
}
"""Link type of the capture to the first step."""

ETHERTYPE_STEPS: Mapping[int, Step] = {
    EtherType.IPV4: internet.ipv4,
    EtherType.IPV6: internet.ipv6,
    EtherType.ARP: link.arp,
    EtherType.VLAN: link.vlan,
    EtherType.QINQ: link.service_vlan,
    EtherType.QINQ_OLD: link.vlan,
    EtherType.MAC_CONTROL: link.mac_control,
    EtherType.ROCE: link.roce_grh,
}

MAC_CONTROL_STEPS: Mapping[int, Step] = {MACControl.PAUSE: link.pause, MACControl.PFC: link.pfc}

IP_STEPS: Mapping[int, Step] = {
    IPProtocol.UDP: internet.udp,
    IPProtocol.TCP: stream.tcp,
    IPProtocol.FRAGMENT: internet.ipv6_fragment,
    **{kind: partial(internet.ipv6_extension, kind) for kind in internet.EXTENSIONS},
}

UDP_STEPS: Mapping[int, Step] = dict.fromkeys(internet.TUNNELS, internet.vxlan)

ERF_STEPS: Mapping[int, Step] = {
    ERFType.ETHERNET: link.ethernet,
    ERFType.INFINIBAND: link.local_route,
    ERFType.INFINIBAND_LINK: link.flow_control,
}

LNH_STEPS: Mapping[int, Step] = {
    LNH.RAW: link.raw_packet,
    LNH.IP_NON_IBA: link.raw_ipv6,
    LNH.IBA_LOCAL: transport.transport,
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
    By.TRANSPORT: {0: transport.transport},
    By.MAD: {0: management.management},
    By.TRAILER: {0: link.trailer},
}

NEXT: dict[Selected, Step] = {
    (selector, key): step for selector, steps in TABLES.items() for key, step in steps.items()
}
"""What is not here is data."""
