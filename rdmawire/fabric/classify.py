"""Classification of frames: priority, ECN capability and flow.

All frames of a flow have the same *key*: the bytes that do not change from packet to packet. The
rest is computed once for each key.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from rdmawire.wire.inet import ECN, VLAN, Ethernet, EtherType, IPv6

PRIORITIES: Final = 8
MAX_KEYS: Final = 1 << 16
"""Cached keys; the cache is cleared when it is full."""

BY_CLASS_SELECTOR: Final[Mapping[int, int]] = MappingProxyType({n: n >> 3 for n in range(64)})
"""DSCP to priority: the upper three bits. RFC 2474, 4.2.2."""

_IPV4: Final = EtherType.IPV4.to_bytes(2, "big") + b"\x45"
_IPV6: Final = EtherType.IPV6.to_bytes(2, "big")
_VLAN: Final = EtherType.VLAN.to_bytes(2, "big")
_CAPABLE: Final = (ECN.ECT_0, ECN.ECT_1)
_IPV4_KEY: Final = 16 + 1 + 12
_IPV6_KEY: Final = 18 + 1 + 36
"""Bytes of a key with all addresses and ports."""


class FlowInfo(NamedTuple):
    """Priority (0 to 7), whether an ECN mark may be set, and the bytes that identify the flow.

    These are addresses, protocol and ports of IP, or both MAC addresses and the EtherType.
    """

    priority: int
    markable: bool
    tuple: bytes


def key_of(frame: bytes) -> bytes:
    """The bytes that all frames of a flow share, ports included.

    For IPv4 with options and for tagged frames these are only the first bytes.
    """
    if frame[12:15] == _IPV4:
        return frame[:16] + frame[23:24] + frame[26:38]
    if frame[12:14] == _IPV6:
        return frame[:18] + frame[20:21] + frame[22:58]
    return frame[:18]


class Classifier:
    """Classifies frames by DSCP; a VLAN tag has the priority itself.

    Other frames have priority 0.
    """

    def __init__(self, priorities: Mapping[int, int] = BY_CLASS_SELECTOR) -> None:
        self._priorities = dict(priorities)
        self._known: dict[bytes, FlowInfo] = {}

    def traits(self, frame: bytes) -> FlowInfo:
        """Return the classification of a frame."""
        key = key_of(frame)
        return self._known.get(key) or self._learnt(key)

    def _learnt(self, key: bytes) -> FlowInfo:
        if len(self._known) >= MAX_KEYS:
            self._known.clear()
        self._known[key] = found = self.read(key)
        return found

    def read(self, key: bytes) -> FlowInfo:
        """Return the classification of the frames with a key."""
        if key[12:15] == _IPV4 and len(key) >= 16:
            return self._of_ip(key[15] >> 2, key[15] & 3, key[16:], whole=len(key) == _IPV4_KEY)
        if key[12:14] == _IPV6 and len(key) >= 16:
            tclass = (key[14] & 0xF) << 4 | key[15] >> 4
            return self._of_ip(tclass >> 2, tclass & 3, key[18:], whole=len(key) == _IPV6_KEY)
        if key[12:14] == _VLAN and len(key) >= Ethernet.SIZE + VLAN.SIZE:
            return FlowInfo(VLAN.parse(key, Ethernet.SIZE).priority, False, key[:14])
        return FlowInfo(0, False, key[:14])

    def _of_ip(self, dscp: int, ecn: int, flow: bytes, *, whole: bool) -> FlowInfo:
        """Classification by DSCP and ECN. A truncated header (not ``whole``) cannot be marked."""
        return FlowInfo(self._priorities.get(dscp, 0), whole and ecn in _CAPABLE, flow)


def marked(frame: bytes) -> bytes:
    """Return an IP frame with Congestion Experienced and a valid checksum. RFC 3168, 5.

    The ICRC stays valid: it treats these bits as ones (IBA A17).
    """
    if frame[12:14] == _IPV6:
        tclass = IPv6.parse(frame, Ethernet.SIZE).replace(ecn=ECN.CE).build()
        return frame[: Ethernet.SIZE] + tclass + frame[Ethernet.SIZE + IPv6.SIZE :]
    before = frame[14] << 8 | frame[15]
    after = before | ECN.CE
    # RFC 1624, equation 3: update the checksum by the word that changed.
    total = (~(frame[24] << 8 | frame[25]) & 0xFFFF) + (~before & 0xFFFF) + after
    total = (total & 0xFFFF) + (total >> 16)
    checksum = (~((total & 0xFFFF) + (total >> 16)) & 0xFFFF).to_bytes(2, "big")
    return b"".join((frame[:15], after.to_bytes(2, "big")[1:], frame[16:24], checksum, frame[26:]))
