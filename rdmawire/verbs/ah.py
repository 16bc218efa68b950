"""Address handles, IBA 10.2.2 and 11.2.2: the destination of packets, and the path to it.

GIDs are 16 bytes. For RoCEv2 over IPv4 they are IPv4-mapped IPv6 addresses (RFC 4291, 2.5.5.2; IBA
A17).
"""

from enum import IntEnum
from errno import EINVAL
from typing import NamedTuple

from rdmawire.errors import VerbsError
from rdmawire.validate import check_bytes, check_type
from rdmawire.verbs.profile import IBTA, Bounds, Profile, up_to

GID_BYTES = 16
MAC_BYTES = 6
MAPPED_IPV4 = bytes(10) + b"\xff\xff"
"""Prefix of the GID of an IPv4 address."""

LAST_PRIORITY = 7
"""The highest priority code point, and service level of RoCE. IEEE 802.1Q, 9.6."""
LAST_SL = 15
"""The highest service level of native InfiniBand. IBA 7.6.5."""
PATH_BITS = 1 << 7
"""LIDs of a port, at most: the lower bits of its LID select a path. IBA 7.7.8, 4.1.3."""
FIRST_MULTICAST_LID = 0xC000
"""LIDs from here on are those of multicast groups. IBA 4.1.3."""
PERMISSIVE_LID = 0xFFFF
"""The LID of management packets to a port without one. IBA 4.1.3."""
LAST_VLAN = 4094
"""The highest VLAN identifier that may be used. IEEE 802.1Q, 9.6."""

FLOW_LABELS = 1 << 20
GOLDEN_RATIO = 0x61C88647
"""Multiplier of Linux's hash of 32-bit numbers."""

SOURCE_PORTS = 0xC000
"""First UDP source port of RoCEv2, which uses the dynamic ports 0xC000 to 0xFFFF. IBA A17."""


class GIDType(IntEnum):
    """The packet format of a GID: the numbers of ibv_gid_type."""

    ROCE_V1 = 1
    """A GRH after EtherType 0x8915."""
    ROCE_V2 = 2
    """UDP over IPv4 or IPv6."""


class AddressHandle(NamedTuple):
    """A path to a destination, as in ibv_ah_attr, with ``dmac`` and ``sgid`` already resolved.

    ``dmac`` is the next hop's 6 bytes, ``dgid`` and ``sgid`` have 16. ``hop_limit`` is also the
    TTL; ``traffic_class`` holds DSCP and ECN. With ``flow_label`` 0 the UDP source port depends on
    the queue pairs' numbers.

    ``sl`` 0 to 7 is the priority of the VLAN tag, and ``vlan`` 0 to 4094 its VLAN: with neither
    there is no tag, with ``sl`` alone a priority tag. ``vlan`` and ``gid_type`` belong to the
    source GID, as in Linux. If they are not set, responses use the encapsulation of the request
    (:mod:`rdmawire.ib.encapsulation`).

    Of native InfiniBand, ``dlid`` is the destination's LID, ``src_path_bits`` are the lower bits of
    the source LID, and packets have a GRH only if ``is_global``; ``dmac`` is not used, and the GIDs
    only by a GRH. ``sl`` is 0 to 15.

    ``sgid_index`` is the index of ``sgid`` in the GID table with which the path was set, and has no
    effect: queries return it, since a table may have a GID more than once.
    """

    dmac: bytes
    dgid: bytes
    sgid: bytes
    hop_limit: int = 64
    traffic_class: int = 0
    flow_label: int = 0
    sl: int = 0
    port_num: int = 1
    vlan: int | None = None
    gid_type: GIDType | None = None
    dlid: int = 0
    src_path_bits: int = 0
    is_global: bool = True
    sgid_index: int | None = None


_BYTES = {"dmac": MAC_BYTES, "dgid": GID_BYTES, "sgid": GID_BYTES}

_BOUNDS = {
    "hop_limit": up_to(0xFF),
    "traffic_class": up_to(0xFF),
    "flow_label": up_to(FLOW_LABELS - 1),
    "dlid": up_to(PERMISSIVE_LID),
    "src_path_bits": up_to(PATH_BITS - 1),
    "port_num": Bounds(1, lambda profile: profile.phys_port_cnt),
}


_OPTIONAL_BOUNDS = {
    "vlan": up_to(LAST_VLAN),
    "gid_type": Bounds(GIDType.ROCE_V1, lambda _: GIDType.ROCE_V2, GIDType),
    "sgid_index": Bounds(0, lambda profile: profile.gid_tbl_len - 1),
}


def check_address(handle: AddressHandle, profile: Profile = IBTA) -> None:
    """``VerbsError`` EINVAL for a handle with a field out of range. ibv_create_ah(3)."""
    check_type("ah", handle, AddressHandle)
    for field, data in _BYTES.items():
        check_bytes(field, getattr(handle, field), data)
    for field, bounds in _BOUNDS.items():
        bounds.check(field, getattr(handle, field), profile)
    for field, bounds in _OPTIONAL_BOUNDS.items():
        if getattr(handle, field) is not None:
            bounds.check(field, getattr(handle, field), profile)
    up_to(LAST_SL if handle.dlid else LAST_PRIORITY).check("sl", handle.sl, profile)
    check_type("is_global", handle.is_global, bool)
    if is_ipv4(handle.dgid) != is_ipv4(handle.sgid):
        raise VerbsError("of dgid and sgid one is an IPv4 address, the other is not", EINVAL)


def mapped(address: bytes) -> bytes:
    """The GID of an IPv4 address of 4 bytes."""
    return MAPPED_IPV4 + address


def is_ipv4(gid: bytes) -> bool:
    """Whether a GID is that of an IPv4 address."""
    return gid[:12] == MAPPED_IPV4


def is_multicast(gid: bytes) -> bool:
    """Whether a GID is a multicast address: ff00::/8, or 224.0.0.0/4 for IPv4. IBA 4.1.1."""
    return gid[12] >> 4 == 0xE if is_ipv4(gid) else gid[0] == 0xFF


def multicast_mac(gid: bytes) -> bytes:
    """The Ethernet address of a group: RFC 2464, section 7, and RFC 1112, section 6.4."""
    if is_ipv4(gid):
        return b"\x01\x00\x5e" + bytes((gid[13] & 0x7F,)) + gid[14:]
    return b"\x33\x33" + gid[12:]


def udp_source_port(flow_label: int, local_qpn: int = 0, remote_qpn: int = 0) -> int:
    """The UDP source port of a flow, from its flow label, or else from the two QPNs.

    IBA A17 requires one port for each flow, with any mapping. This is Linux's, so that flows take
    the same paths: the 20 bits of the flow label are folded to 14.
    """
    label = flow_label or qpn_label(local_qpn, remote_qpn)
    return SOURCE_PORTS | (label & 0x3FFF) ^ (label >> 14)


def sender_port(qpn: int) -> int:
    """The UDP source port of a queue pair's datagrams in Linux: its number, hashed to 14 bits."""
    return SOURCE_PORTS + (qpn * GOLDEN_RATIO % (1 << 32) >> 18)


def qpn_label(local_qpn: int, remote_qpn: int) -> int:
    """The flow label for two queue pairs, the same at both ends."""
    product = local_qpn * remote_qpn
    product ^= product >> 20
    product ^= product >> 40
    return product % FLOW_LABELS
