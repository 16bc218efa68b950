"""Generated fields: checks, reassembly, and values of the complete frame."""

from typing import NamedTuple

from rdmawire.dissect.node import Check, Derived, Node
from rdmawire.wire.show import BYTES, DEC, HEX, TEXT, Value

# Wireshark's numbers for the state of a checksum.
BAD, GOOD, UNVERIFIED, NOT_PRESENT, ILLEGAL = range(5)
_WORDS = ("good", "bad", "absent")
_STATES = ("bad", "good", "unverified", "not present", "zero, which IPv6 leaves to tunnels")

IP_CHECKSUM_STATUS = Derived(
    "ip.checksum.status", DEC, "whether the header checksum holds", 8, "RFC 791, 3.1", _STATES
)
UDP_CHECKSUM_STATUS = Derived(
    "udp.checksum.status", DEC, "whether the checksum holds", 8, "RFC 768", _STATES
)
TCP_CHECKSUM_STATUS = Derived(
    "tcp.checksum.status", DEC, "whether the checksum holds", 8, "RFC 9293, 3.1", _STATES
)
ICRC_STATUS = Derived(
    "rdmawire.icrc.status",
    TEXT,
    "whether the ICRC holds: good, bad or absent",
    0,
    "IBA 7.8.1",
    _WORDS,
)
ICRC_EXPECTED = Derived(
    "rdmawire.icrc.expected", HEX, "the ICRC that a bad one should have been", 32, "IBA 7.8.1"
)
ICRC_NOTE = Derived(
    "rdmawire.icrc.note", TEXT, "the rule by which an ICRC is good that is bad by the standard", 0
)
VCRC_STATUS = Derived(
    "rdmawire.vcrc.status",
    TEXT,
    "whether the VCRC holds: good, bad or absent",
    0,
    "IBA 7.8.2",
    _WORDS,
)
VCRC_EXPECTED = Derived(
    "rdmawire.vcrc.expected", HEX, "the VCRC that a bad one should have been", 16, "IBA 7.8.2"
)
LPCRC_STATUS = Derived(
    "rdmawire.lpcrc.status",
    TEXT,
    "whether a link packet's CRC holds: good or bad",
    0,
    "IBA 7.9.4",
    ("good", "bad"),
)
LPCRC_EXPECTED = Derived(
    "rdmawire.lpcrc.expected", HEX, "the LPCRC that a bad one should have been", 16, "IBA 7.9.4"
)
MPA_CRC_STATUS = Derived(
    "rdmawire.mpa.crc.status",
    TEXT,
    "whether the CRC holds: good, bad or absent",
    0,
    "RFC 5044, 4",
    _WORDS,
)
MPA_CRC_EXPECTED = Derived(
    "rdmawire.mpa.crc.expected", HEX, "the CRC that a bad one should have been", 32, "RFC 5044, 4"
)
CHECKSUM_EXPECTED = Derived(
    "rdmawire.checksum.expected", HEX, "the IP, UDP or TCP checksum that a bad one should be", 16
)

MALFORMED = Derived("rdmawire.malformed", TEXT, "why the frame does not parse to its end", 0)
CUT = Derived("rdmawire.cut", TEXT, "how much of the frame the capture kept, if not all", 0)

PAYLOAD = Derived("rdmawire.payload", BYTES, "payload, without its pad", 0)
DATA = Derived("data.data", BYTES, "payload and, like Wireshark, its pad", 0, hidden=True)
DATA_LENGTH = Derived("data.len", DEC, "bytes of payload and pad", hidden=True)
PAD = Derived("rdmawire.pad", BYTES, "pad after the payload", 0, "IBA 9.2.5")
SEGMENT = Derived(
    "rdmawire.tcp.segment", BYTES, "bytes of a message that lies in several segments", 0
)
PRIVATE_DATA = Derived(
    "iwarp_mpa.privatedata",
    BYTES,
    "private data of a start-up frame",
    0,
    "RFC 5044, 7.1.1",
    hidden=True,
)
MPA_PAD = Derived("iwarp_mpa.pad", BYTES, "pad of an FPDU", 0, "RFC 5044, 4.1")
MPA_NOTE = Derived("rdmawire.mpa.note", TEXT, "what is missing from an iWARP stream", 0)
TERMINATE_NOTE = Derived(
    "rdmawire.terminate.note", TEXT, "what a Terminate means that is written mirrored", 0
)
TRAILER = Derived("rdmawire.trailer", BYTES, "what the link added after the packet", 0)
VENDOR = Derived("infiniband.vendor", BYTES, "what follows a vendor's opcode", 0, "IBA 9.2.1")

IP_OPTIONS = Derived("rdmawire.ip.options", BYTES, "options of the IPv4 header", 0, "RFC 791, 3.1")
IPV6_OPTIONS = Derived(
    "rdmawire.ipv6.options", BYTES, "what an extension header holds", 0, "RFC 8200, 4.2"
)
UDP_STREAM = Derived("udp.stream", DEC, "number of the conversation")
TCP_OPTIONS = Derived("tcp.options", BYTES, "options", 0, "RFC 9293, 3.1")
TCP_LENGTH = Derived("tcp.len", DEC, "bytes in the segment")
TCP_STREAM = Derived("tcp.stream", DEC, "number of the connection")
TCP_SEQ = Derived("tcp.seq", DEC, "sequence number from the stream's start")
TCP_NEXT_SEQ = Derived("tcp.nxtseq", DEC, "the sequence number that comes next")
TCP_ACK = Derived("tcp.ack", DEC, "acknowledgment number from the stream's start")
TCP_PAYLOAD = Derived("tcp.payload", BYTES, "bytes of the segment", 0, hidden=True)
UDP_PAYLOAD = Derived("udp.payload", BYTES, "bytes of the datagram", 0, hidden=True)


_new = tuple.__new__


class ChecksumFields(NamedTuple):
    """The fields of a checksum; ``bad``, ``good`` and ``absent`` are values of ``status``."""

    name: str
    status: Derived
    expected: Derived
    digits: int
    bad: Value = "bad"
    good: Value = "good"
    absent: Value = "absent"

    def judge(self, node: Node, found: int, expected: int) -> Check:
        """Compare a node's checksum with the expected one, and add the result to the node."""
        if found == expected:
            node.add(self.status, self.good)
        else:
            node.add(self.status, self.bad)
            node.add(self.expected, expected)
        return _new(Check, (self.name, found, expected, self.digits))


def _internet(name: str, status: Derived) -> ChecksumFields:
    return ChecksumFields(name, status, CHECKSUM_EXPECTED, 4, BAD, GOOD, UNVERIFIED)


IPV4_CHECKSUM = _internet("IPv4 header checksum", IP_CHECKSUM_STATUS)
UDP_CHECKSUM = _internet("UDP checksum", UDP_CHECKSUM_STATUS)
TCP_CHECKSUM = _internet("TCP checksum", TCP_CHECKSUM_STATUS)
ICRC = ChecksumFields("ICRC", ICRC_STATUS, ICRC_EXPECTED, 8)
VCRC = ChecksumFields("VCRC", VCRC_STATUS, VCRC_EXPECTED, 4)
LPCRC = ChecksumFields("LPCRC", LPCRC_STATUS, LPCRC_EXPECTED, 4)
MPA_CRC = ChecksumFields("MPA CRC", MPA_CRC_STATUS, MPA_CRC_EXPECTED, 8)
