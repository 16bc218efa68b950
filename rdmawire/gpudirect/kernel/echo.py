"""Echo requests and their replies as Ethernet frames: ICMP, UDP, and ARP.

RFC 792 and RFC 1122, 3.2.2.6 (echo); RFC 862 (UDP echo); RFC 826 (ARP). Replies of a GPU are as
those of DOCA's gpu_packet_processing: in the bytes of the request, with addresses (and ports)
swapped and a TTL of 128.
"""

from enum import Enum, IntEnum
from typing import Final, NamedTuple

from rdmawire.errors import WireError
from rdmawire.fabric import Place
from rdmawire.wire.checksum import internet_checksum, ipv4_header_checksum, udp_checksum
from rdmawire.wire.header import Header, bits
from rdmawire.wire.inet import ARP, UDP, Ethernet, EtherType, IPProtocol, IPv4
from rdmawire.wire.show import HEX

ECHO_PORT: Final = 7
"""The UDP port of the echo service. RFC 862."""
GPU_TTL: Final = 128
OS_TTL: Final = 64
"""The TTL of Linux."""
MIN_FRAME: Final = 60
"""Bytes of the shortest Ethernet frame without its FCS. IEEE 802.3, 4A.4.2."""
_BROADCAST: Final = b"\xff" * 6
_IP_AT: Final = Ethernet.SIZE
_IP_END: Final = _IP_AT + IPv4.SIZE
_FIRST_PORT: Final = 40_000


class ICMPType(IntEnum):
    """Types of ICMP messages. RFC 792."""

    ECHO_REPLY = 0
    ECHO_REQUEST = 8


class ICMPEcho(Header, clause="RFC 792", label="icmp"):
    """ICMP echo or echo reply, before its data."""

    type: int = bits(8, "icmp.type", enum=ICMPType)
    code: int = bits(8, "icmp.code")
    checksum: int = bits(16, "icmp.checksum", HEX)
    identifier: int = bits(16, "icmp.ident")
    sequence: int = bits(16, "icmp.seq")


HEADERS: Final = _IP_END + ICMPEcho.SIZE
"""Bytes of Ethernet, IPv4, and ICMP echo or UDP: 42."""


class EchoProtocol(Enum):
    """The protocol of echo requests."""

    ICMP = "icmp"
    UDP = "udp"

    @property
    def number(self) -> IPProtocol:
        """The number in an IP header."""
        return IPProtocol[self.name]


# Requests.


class EchoRequest(NamedTuple):
    """What a request has: ``number`` and ``flow`` from 0 on, and ``size`` bytes of data.

    Requests of a flow have an address (ICMP) or a source port (UDP) of their own.
    """

    protocol: EchoProtocol
    number: int
    flow: int
    size: int
    port: int = ECHO_PORT

    def frame(self, client: Place, server: bytes) -> bytes:
        """Build the frame to a server's IPv4 address; its Ethernet destination is left zero."""
        is_icmp = self.protocol is EchoProtocol.ICMP
        ip = IPv4(
            total_length=HEADERS - _IP_AT + self.size,
            identification=self.number & 0xFFFF,
            df=1,
            ttl=OS_TTL,
            protocol=self.protocol.number,
            src=_address(client, self.flow if is_icmp else 0),
            dst=server,
        )
        body = self._icmp_message() if is_icmp else self._datagram(ip)
        link = Ethernet(bytes(6), client.mac, EtherType.IPV4)
        return padded(link.build() + _with_ip_checksum(ip) + body)

    def _icmp_message(self) -> bytes:
        echo = ICMPEcho(ICMPType.ECHO_REQUEST, 0, 0, self.flow + 1, self.number & 0xFFFF)
        return _with_icmp_checksum(echo.build() + self._data())

    def _datagram(self, ip: IPv4) -> bytes:
        header = UDP(_FIRST_PORT + self.flow, self.port, UDP.SIZE + self.size)
        data = self._data()
        checksum = udp_checksum(ip, header.build() + data)
        return header.replace(checksum=checksum).build() + data

    def _data(self) -> bytes:
        """Return data that says which request it is of, and counts up as that of ping does."""
        counting = bytes(place & 0xFF for place in range(self.size))
        number = self.number.to_bytes(8, "big")[: self.size]
        return number + counting[len(number) :]


def _address(client: Place, flow: int) -> bytes:
    """Return the IPv4 address of a flow: that of the client, and others with another third byte."""
    address = client.gid[12:]
    return address[:2] + bytes([address[2] + flow & 0xFF]) + address[3:]


def padded(frame: bytes) -> bytes:
    """Return a frame with at least the bytes that Ethernet asks for."""
    return frame.ljust(MIN_FRAME, b"\0")


def _with_ip_checksum(ip: IPv4) -> bytes:
    return ip.replace(checksum=ipv4_header_checksum(ip.build())).build()


def _with_icmp_checksum(message: bytes) -> bytes:
    checksum = internet_checksum(message[:2] + bytes(2) + message[4:])
    return message[:2] + checksum.to_bytes(2, "big") + message[4:]


def arp_request(client: Place, server: bytes) -> bytes:
    """Build the question for the Ethernet address of a server's IPv4 address."""
    link = Ethernet(_BROADCAST, client.mac, EtherType.ARP)
    question = ARP(1, EtherType.IPV4, 6, 4, _ARP_REQUEST, client.mac, client.gid[12:], bytes(6))
    return padded(link.build() + question.replace(dst_proto=server).build())


_ARP_REQUEST, _ARP_REPLY = 1, 2


def arp_answer(frame: bytes) -> ARP | None:
    """Return the ARP reply in a frame, if it is one."""
    message = _arp(frame)
    return message if message is not None and message.opcode == _ARP_REPLY else None


def _arp(frame: bytes) -> ARP | None:
    is_arp = frame[12:14] == EtherType.ARP.to_bytes(2, "big")
    return ARP.parse(frame, _IP_AT) if is_arp and len(frame) >= _IP_AT + ARP.SIZE else None


# Replies.


def echo_reply(frame: bytes, ttl: int, udp_port: int | None = None) -> bytes | None:
    """Return the reply to an echo request; ``None`` if the frame is none.

    With ``udp_port`` datagrams to this port are requests, without it ICMP echo messages. As DOCA's
    kernels, it knows no IP options, does not look at the checksums of the request, and keeps the
    identification and the padding.
    """
    try:
        link, ip = Ethernet.parse(frame), IPv4.parse(frame, _IP_AT)
        message = _message(frame, ip)
        if link.type != EtherType.IPV4 or message is None:
            return None
        answer = ip.replace(ttl=ttl, src=ip.dst, dst=ip.src)
        body = _icmp_reply(ip, message) if udp_port is None else _udp_reply(ip, message, udp_port)
    except WireError:
        return None
    if body is None:
        return None
    swapped = Ethernet(link.src, link.dst, link.type).build()
    end = _IP_END + len(body)
    return swapped + _with_ip_checksum(answer) + body + frame[end:]


def _message(frame: bytes, ip: IPv4) -> bytes | None:
    """Return what an IPv4 packet without options carries, if it is whole."""
    if (ip.version, ip.ihl) != (4, IPv4.SIZE // 4) or ip.mf or ip.fragment_offset:
        return None
    end = _IP_AT + ip.total_length
    return frame[_IP_END:end] if HEADERS <= end <= len(frame) else None


def _icmp_reply(ip: IPv4, message: bytes) -> bytes | None:
    echo = ICMPEcho.parse(message)
    if ip.protocol != IPProtocol.ICMP or (echo.type, echo.code) != (ICMPType.ECHO_REQUEST, 0):
        return None
    reply = echo.replace(type=ICMPType.ECHO_REPLY).build()
    return _with_icmp_checksum(reply + message[ICMPEcho.SIZE :])


def _udp_reply(ip: IPv4, message: bytes, port: int) -> bytes | None:
    """Swap the ports; the checksum stays right, as the sum of its words stays the same."""
    header = UDP.parse(message)
    if ip.protocol != IPProtocol.UDP or header.dstport != port:
        return None
    swapped = header.replace(srcport=header.dstport, dstport=header.srcport)
    return swapped.build() + message[UDP.SIZE :]


CHANGED: Final = (range(12), range(_IP_AT + 8, _IP_END), range(_IP_END, HEADERS))
"""Bytes that a reply changes: Ethernet addresses; TTL, checksum and addresses; ICMP or UDP."""


def os_reply(frame: bytes, place: Place) -> bytes | None:
    """Return how the operating system of a host answers a frame: ARP and ICMP echo requests."""
    message = _arp(frame)
    address = place.gid[12:]
    if message is None:
        return echo_reply(frame, OS_TTL) if frame[30:34] == address else None
    if message.opcode != _ARP_REQUEST or message.dst_proto != address:
        return None
    answer = message.replace(
        opcode=_ARP_REPLY,
        src_hw=place.mac,
        src_proto=address,
        dst_hw=message.src_hw,
        dst_proto=message.src_proto,
    )
    return padded(Ethernet(message.src_hw, place.mac, EtherType.ARP).build() + answer.build())
