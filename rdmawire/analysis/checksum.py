"""The kinds of checksums: what each is called, and the fields that say how it stands."""

from dataclasses import dataclass

from rdmawire.analysis import derived
from rdmawire.analysis.node import Check, Derived, Node
from rdmawire.wire.show import Value


@dataclass(frozen=True, slots=True)
class Checksum:
    """A kind of checksum; ``bad``, ``good`` and ``absent`` are values of its ``status`` field."""

    name: str
    status: Derived
    expected: Derived
    digits: int
    bad: Value = "bad"
    good: Value = "good"
    absent: Value = "absent"

    def judge(self, node: Node, found: int, expected: int) -> Check:
        """Hold what stands in a node against what should, and say so beside it."""
        check = Check(self.name, found, expected, self.digits)
        node.add(self.status, self.good if check.good else self.bad)
        if not check.good:
            node.add(self.expected, expected)
        return check


def _internet(name: str, status: Derived) -> Checksum:
    states = derived.BAD, derived.GOOD, derived.UNVERIFIED
    return Checksum(name, status, derived.CHECKSUM_EXPECTED, 4, *states)


IPV4 = _internet("IPv4 header checksum", derived.IP_CHECKSUM_STATUS)
UDP = _internet("UDP checksum", derived.UDP_CHECKSUM_STATUS)
TCP = _internet("TCP checksum", derived.TCP_CHECKSUM_STATUS)
ICRC = Checksum("ICRC", derived.ICRC_STATUS, derived.ICRC_EXPECTED, 8)
VCRC = Checksum("VCRC", derived.VCRC_STATUS, derived.VCRC_EXPECTED, 4)
LPCRC = Checksum("LPCRC", derived.LPCRC_STATUS, derived.LPCRC_EXPECTED, 4)
MPA_CRC = Checksum("MPA CRC", derived.MPA_CRC_STATUS, derived.MPA_CRC_EXPECTED, 8)
