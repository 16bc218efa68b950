"""The kinds of checksums: what each is called, and the fields that say how it stands."""

from dataclasses import dataclass

from rdmawire.dissect import generated
from rdmawire.dissect.node import Check, Derived, Node
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
    states = generated.BAD, generated.GOOD, generated.UNVERIFIED
    return Checksum(name, status, generated.CHECKSUM_EXPECTED, 4, *states)


IPV4 = _internet("IPv4 header checksum", generated.IP_CHECKSUM_STATUS)
UDP = _internet("UDP checksum", generated.UDP_CHECKSUM_STATUS)
TCP = _internet("TCP checksum", generated.TCP_CHECKSUM_STATUS)
ICRC = Checksum("ICRC", generated.ICRC_STATUS, generated.ICRC_EXPECTED, 8)
VCRC = Checksum("VCRC", generated.VCRC_STATUS, generated.VCRC_EXPECTED, 4)
LPCRC = Checksum("LPCRC", generated.LPCRC_STATUS, generated.LPCRC_EXPECTED, 4)
MPA_CRC = Checksum("MPA CRC", generated.MPA_CRC_STATUS, generated.MPA_CRC_EXPECTED, 8)
