"""What a switch or a port reads of a frame: its priority, and what marks its flow.

All frames of a flow have the same *key*: the octets that do not change from packet to packet.
What follows from them is worked out once per key.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from rdmawire.wire.inet import ECN, VLAN, Ethernet, EtherType, IPv6

PRIORITIES: Final = 8
MOST_KEYS: Final = 1 << 16
"""Keys that are remembered; it begins anew after that many."""

BY_CLASS_SELECTOR: Final[Mapping[int, int]] = MappingProxyType({n: n >> 3 for n in range(64)})
"""DSCP to priority: the upper three bits. RFC 2474, 4.2.2."""

_IPV4: Final = EtherType.IPV4.to_bytes(2, "big") + b"\x45"
_IPV6: Final = EtherType.IPV6.to_bytes(2, "big")
_VLAN: Final = EtherType.VLAN.to_bytes(2, "big")
_CAPABLE: Final = (ECN.ECT_0, ECN.ECT_1)
_IPV4_KEY: Final = 16 + 1 + 12
_IPV6_KEY: Final = 18 + 1 + 36
"""Octets of a key with all addresses and ports in it."""


class Traits(NamedTuple):
    """``priority`` 0 to 7; whether a mark would be new to it; ``tuple`` is what is hashed.

    That is addresses, protocol and ports of IP, and both MAC addresses and the type of others.
    """

    priority: int
    markable: bool
    tuple: bytes


def key_of(frame: bytes) -> bytes:
    """What all frames of a flow share, ports included.

    Of IPv4 with options and of tagged frames it is only the beginning.
    """
    if frame[12:15] == _IPV4:
        return frame[:16] + frame[23:24] + frame[26:38]
    if frame[12:14] == _IPV6:
        return frame[:18] + frame[20:21] + frame[22:58]
    return frame[:18]


class Classifier:
    """Reads traits, by a table from DSCP to priority; frames with a VLAN tag have theirs in it.

    All else has priority 0.
    """

    def __init__(self, priorities: Mapping[int, int] = BY_CLASS_SELECTOR) -> None:
        self._priorities = dict(priorities)
        self._known: dict[bytes, Traits] = {}

    def traits(self, frame: bytes) -> Traits:
        """The traits of a frame's flow."""
        key = key_of(frame)
        return self._known.get(key) or self._learnt(key)

    def _learnt(self, key: bytes) -> Traits:
        if len(self._known) >= MOST_KEYS:
            self._known.clear()
        self._known[key] = found = self.read(key)
        return found

    def read(self, key: bytes) -> Traits:
        """The traits that a key stands for."""
        if key[12:15] == _IPV4 and len(key) >= 16:
            return self._of_ip(key[15] >> 2, key[15] & 3, key[16:], whole=len(key) == _IPV4_KEY)
        if key[12:14] == _IPV6 and len(key) >= 16:
            tclass = (key[14] & 0xF) << 4 | key[15] >> 4
            return self._of_ip(tclass >> 2, tclass & 3, key[18:], whole=len(key) == _IPV6_KEY)
        if key[12:14] == _VLAN and len(key) >= Ethernet.SIZE + VLAN.SIZE:
            return Traits(VLAN.parse(key, Ethernet.SIZE).priority, False, key[:14])
        return Traits(0, False, key[:14])

    def _of_ip(self, dscp: int, ecn: int, flow: bytes, *, whole: bool) -> Traits:
        """Of a ``whole`` IP header, and of one that a fault cut short: no mark fits in that."""
        return Traits(self._priorities.get(dscp, 0), whole and ecn in _CAPABLE, flow)


def marked(frame: bytes) -> bytes:
    """An IP frame with Congestion Experienced, and the checksum that fits. RFC 3168, 5.

    No ICRC changes by it: it counts these bits as ones (IBA A17).
    """
    if frame[12:14] == _IPV6:
        tclass = IPv6.parse(frame, Ethernet.SIZE).replace(ecn=ECN.CE).build()
        return frame[: Ethernet.SIZE] + tclass + frame[Ethernet.SIZE + IPv6.SIZE :]
    before = frame[14] << 8 | frame[15]
    after = before | ECN.CE
    # RFC 1624, equation 3: the checksum moves with the word that changed.
    total = (~(frame[24] << 8 | frame[25]) & 0xFFFF) + (~before & 0xFFFF) + after
    total = (total & 0xFFFF) + (total >> 16)
    checksum = (~((total & 0xFFFF) + (total >> 16)) & 0xFFFF).to_bytes(2, "big")
    return b"".join((frame[:15], after.to_bytes(2, "big")[1:], frame[16:24], checksum, frame[26:]))
