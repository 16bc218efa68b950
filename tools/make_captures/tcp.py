"""TCP conversations as Ethernet frames, with lengths and checksums right."""

from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from rdmawire.wire.checksum import ipv4_header_checksum, tcp_checksum
from rdmawire.wire.inet import TCP, Ethernet, EtherType, IPProtocol, IPv4, IPv6
from rdmawire.wire.serial import BITS_32


class Endpoint(NamedTuple):
    """Addresses of one side."""

    mac: bytes
    ip: bytes
    port: int


CLIENT = Endpoint(b"\x52\x54\0\0\0\2", IPv4Address("10.77.0.2").packed, 50001)
SERVER = Endpoint(b"\x52\x54\0\0\0\1", IPv4Address("10.77.0.1").packed, 7174)
CLIENT_V6 = CLIENT._replace(ip=IPv6Address("fd77::2").packed)
SERVER_V6 = SERVER._replace(ip=IPv6Address("fd77::1").packed)


class Conversation:
    """A TCP connection; way 0 is the client's, way 1 the server's.

    ``seq`` are the sequence numbers that each side uses next, not reduced modulo 2**32.
    """

    def __init__(
        self,
        client: Endpoint = CLIENT,
        server: Endpoint = SERVER,
        isn: tuple[int, int] = (1_000_000, 5_000_000),
    ) -> None:
        self.frames: list[bytes] = []
        self.seq = [*isn]
        self._ends = (client, server)
        self._identification = 0

    def open(self) -> None:
        """The handshake of three frames."""
        self._add(0, b"", self.seq[0], syn=1)
        self.seq[0] += 1
        self._add(1, b"", self.seq[1], syn=1, ack=1)
        self.seq[1] += 1
        self.acknowledge(0)

    def close(self) -> None:
        """FIN both ways."""
        for way in (0, 1):
            self._add(way, b"", self.seq[way], fin=1, ack=1)
            self.seq[way] += 1
        self.acknowledge(0)

    def acknowledge(self, way: int) -> None:
        """A segment without payload."""
        self._add(way, b"", self.seq[way], ack=1)

    def say(self, way: int, payload: bytes, seq: int | None = None) -> None:
        """A segment with this payload, at ``seq`` or where the side's last byte ended."""
        start = self.seq[way] if seq is None else seq
        self._add(way, payload, start, ack=1, psh=1)
        self.seq[way] = max(self.seq[way], start + len(payload))

    def send(self, way: int, payload: bytes, *, seq: int | None = None, **flags: int) -> None:
        """A segment with these flags, which moves no sequence number."""
        self._add(way, payload, self.seq[way] if seq is None else seq, **flags)

    def _add(self, way: int, payload: bytes, seq: int, **flags: int) -> None:
        source, sink = self._ends[way], self._ends[1 - way]
        number = BITS_32.add(seq, 0)
        acknowledgment = BITS_32.add(self.seq[1 - way], 0) if flags.get("ack") else 0
        tcp = TCP(source.port, sink.port, number, acknowledgment, window=0xFFF0).replace(**flags)
        self._identification += 1
        self.frames.append(_frame(source, sink, tcp, payload, self._identification))


def _frame(source: Endpoint, sink: Endpoint, tcp: TCP, payload: bytes, number: int) -> bytes:
    length = tcp.data_offset * 4 + len(payload)
    ip: IPv4 | IPv6
    if len(source.ip) == 4:
        ip = IPv4(
            total_length=20 + length,
            identification=number % 0x10000,
            protocol=IPProtocol.TCP,
            src=source.ip,
            dst=sink.ip,
        )
        ip = ip.replace(checksum=ipv4_header_checksum(ip.build()))
    else:
        ip = IPv6(payload_length=length, next_header=IPProtocol.TCP, src=source.ip, dst=sink.ip)
    tcp = tcp.replace(checksum=tcp_checksum(ip, tcp.build() + payload))
    kind = EtherType.IPV4 if isinstance(ip, IPv4) else EtherType.IPV6
    ethernet = Ethernet(sink.mac, source.mac, kind)
    return ethernet.build() + ip.build() + tcp.build() + payload
