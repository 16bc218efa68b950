"""One end of a TCP connection over IPv4, as a port of a simulator: RFC 9293, without SACK.

Congestion control is left out: in flight is what the receiver's window allows. A segment that is
not the next one is discarded, and the sender goes back to it after three duplicate
acknowledgments (RFC 5681, 3.2) or a timeout.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from rdmawire.fabric import Place
from rdmawire.units import ms
from rdmawire.wire.checksum import ipv4_header_checksum, tcp_checksum
from rdmawire.wire.inet import TCP, Ethernet, EtherType, IPProtocol, IPv4

WINDOW: Final = 4 << 20
"""Bytes in flight: what Linux allows by default (the maximum of net.ipv4.tcp_rmem, 6 MiB)."""
TIMEOUT: Final = ms(200)
"""Time (ns) after which the sender goes back: Linux's minimum, TCP_RTO_MIN."""
_SCALE: Final = 7
_BURST: Final = 16
_DUPLICATES: Final = 3
_MASK: Final = 0xFFFF_FFFF
_HEADERS: Final = IPv4.SIZE + TCP.SIZE
_TRIM: Final = 1 << 20


class TcpEndpoint:
    """One end: ``own`` and ``peer`` are the addresses, ``ports`` the numbers of the two ports.

    The ``active`` end opens the connection. ``on_data`` is called with bytes that arrived in order
    and the time (ns), ``on_acknowledged`` after the peer acknowledged more. ``mtu`` is that of IP
    packets in bytes.
    """

    def __init__(
        self,
        own: Place,
        peer: Place,
        ports: tuple[int, int],
        *,
        active: bool,
        on_data: Callable[[bytes, int], None],
        on_acknowledged: Callable[[int], None],
        mtu: int = 9000,
    ) -> None:
        self.mac = own.mac
        self.max_segment = mtu - _HEADERS
        self._ethernet = Ethernet(peer.mac, own.mac, EtherType.IPV4).build()
        self._ends = own.gid[12:], peer.gid[12:]
        self._ports = ports
        self._on_data = on_data
        self._on_acknowledged = on_acknowledged
        self._active = active
        self._isn = 1000 if active else 5000
        self._peer_isn: int | None = None
        self._established = False
        self._control: deque[bytes] = deque()
        self._buffer = bytearray()
        self._base = 0  # offset in the stream of the buffer's first byte
        self._acked = self._next = self._end = 0
        self._closed = False
        self._received = 0
        self._peer_closed = False
        self._unacknowledged = self._duplicates = 0
        self._deadline: int | None = None
        self._identification = 0
        if active:
            self._control.append(self._syn())

    @property
    def nic(self) -> "TcpEndpoint":
        """The port: a network's host has an adapter by this name."""
        return self

    @property
    def acknowledged(self) -> int:
        """Bytes that the peer has acknowledged."""
        return min(self._acked, self._end)

    def send(self, data: bytes) -> None:
        """Append bytes to the stream."""
        self._buffer += data
        self._end += len(data)

    def close(self) -> None:
        """End the stream: a FIN follows the last byte."""
        self._closed = True

    # Segments that are sent.

    def _syn(self) -> bytes:
        options = bytes((2, 4)) + self.max_segment.to_bytes(2, "big") + bytes((1, 3, 3, _SCALE))
        acks = self._peer_isn is not None
        return self._segment(self._isn, options=options, syn=1, ack=int(acks))

    def _segment(
        self, seq: int, payload: bytes = b"", *, options: bytes = b"", **flags: int
    ) -> bytes:
        """Build a frame with a segment."""
        length = _HEADERS + len(options) + len(payload)
        self._identification = (self._identification + 1) & 0xFFFF
        ip = IPv4(
            total_length=length,
            identification=self._identification,
            df=1,
            ttl=64,
            protocol=IPProtocol.TCP,
            src=self._ends[0],
            dst=self._ends[1],
        )
        ip = ip.replace(checksum=ipv4_header_checksum(ip.build()))
        acknowledgment = 0
        if flags.get("ack"):
            assert self._peer_isn is not None
            acknowledgment = self._peer_isn + 1 + self._received + self._peer_closed
        shift = 0 if flags.get("syn") else _SCALE
        tcp = TCP(
            srcport=self._ports[0],
            dstport=self._ports[1],
            seq=seq & _MASK,
            acknowledgment=acknowledgment & _MASK,
            data_offset=(TCP.SIZE + len(options)) // 4,
            window=min(WINDOW >> shift, 0xFFFF),
            **flags,
        )
        segment = tcp.build() + options + payload
        checksum = tcp_checksum(ip, segment).to_bytes(2, "big")
        return self._ethernet + ip.build() + segment[:16] + checksum + segment[18:]

    def transmit(self, now: int) -> list[bytes]:
        """Return the next segments."""
        frames = list(self._control)
        self._control.clear()
        if frames and not self._established and self._active:
            self._deadline = now + TIMEOUT
        while self._established and len(frames) < _BURST and self._may_send:
            frames.append(self._data_segment())
            self._deadline = now + TIMEOUT
        return frames

    @property
    def _may_send(self) -> bool:
        if self._next - self._acked >= WINDOW:
            return False
        return self._next < self._end or (self._closed and self._next == self._end)

    def _data_segment(self) -> bytes:
        start = self._next - self._base
        payload = bytes(self._buffer[start : start + self.max_segment])
        seq = self._isn + 1 + self._next
        self._unacknowledged = 0
        if not payload:
            self._next += 1
            return self._segment(seq, ack=1, fin=1)
        self._next += len(payload)
        return self._segment(seq, payload, ack=1, psh=int(self._next == self._end))

    # Segments that are received.

    def receive(self, frame: bytes, now: int) -> None:
        """Receive a frame; what is no segment of this connection, or damaged, is discarded."""
        found = self._parsed(frame)
        if found is None:
            return
        tcp, payload = found
        if tcp.syn:
            self._opened(tcp)
            return
        if self._peer_isn is None:
            return
        self._established = True
        if tcp.ack:
            self._acknowledge(tcp, now, len(payload))
        if payload or tcp.fin:
            self._take(tcp, payload, now)

    def _parsed(self, frame: bytes) -> tuple[TCP, bytes] | None:
        start = Ethernet.SIZE + IPv4.SIZE
        if len(frame) < start + TCP.SIZE or frame[12:15] != b"\x08\x00\x45":
            return None
        ip = IPv4.parse(frame, Ethernet.SIZE)
        segment = frame[start : Ethernet.SIZE + ip.total_length]
        if (ip.dst, ip.src) != self._ends or ip.protocol != IPProtocol.TCP:
            return None
        if len(segment) < TCP.SIZE or tcp_checksum(ip, segment) != int.from_bytes(
            segment[16:18], "big"
        ):
            return None
        tcp = TCP.parse(segment)
        header = tcp.data_offset * 4
        if (tcp.dstport, tcp.srcport) != self._ports or not TCP.SIZE <= header <= len(segment):
            return None
        return tcp, segment[header:]

    def _opened(self, tcp: TCP) -> None:
        """Answer a SYN, also one that was sent again."""
        self._peer_isn = tcp.seq
        if not self._active:
            self._control.append(self._syn())
            return
        if self._established:  # the answer arrived twice
            self._acknowledge_now()
            return
        self._established = True
        self._deadline = None
        self._acknowledge_now()

    def _acknowledge(self, tcp: TCP, now: int, length: int) -> None:
        acked = (tcp.acknowledgment - self._isn - 1) & _MASK
        if self._acked < acked <= self._next:
            self._acked = acked
            self._duplicates = 0
            self._deadline = now + TIMEOUT if self._acked < self._next else None
            self._trim()
            self._on_acknowledged(now)
        elif acked == self._acked < self._next and not length:
            self._duplicates += 1
            if self._duplicates == _DUPLICATES:
                self._go_back(now)

    def _trim(self) -> None:
        done = min(self._acked, self._end) - self._base
        if done >= _TRIM:
            del self._buffer[:done]
            self._base += done

    def _take(self, tcp: TCP, payload: bytes, now: int) -> None:
        assert self._peer_isn is not None
        offset = (tcp.seq - self._peer_isn - 1) & _MASK
        if offset != self._received or self._peer_closed:
            self._acknowledge_now()
            return
        self._received += len(payload)
        self._peer_closed = bool(tcp.fin)
        self._unacknowledged += 1
        if self._unacknowledged > 1 or tcp.psh or tcp.fin:
            self._acknowledge_now()
        if payload:
            self._on_data(payload, now)
        if tcp.fin:
            self.close()

    def _acknowledge_now(self) -> None:
        self._unacknowledged = 0
        self._control.append(self._segment(self._isn + 1 + self._next, ack=1))

    # Time.

    def _go_back(self, now: int) -> None:
        self._duplicates = 0
        self._next = self._acked
        self._deadline = now + TIMEOUT

    def next_timer(self) -> int | None:
        """Return when the sender goes back (ns), if something is not acknowledged."""
        return self._deadline

    def handle_timer(self, now: int) -> None:
        """Send again what is not acknowledged, if its time has come."""
        if self._deadline is None or now < self._deadline:
            return
        if self._established:
            self._go_back(now)
        else:
            self._control.append(self._syn())
