"""Services joined by UDP: devices of one machine reach those of others.

Frames travel inside messages: several to a peer on the same machine, where a datagram may be
large, one to other peers. A message has a kind and the sender's session, a random number that
changes when the service starts again:

- HELLO: the addresses of the sender's devices, and whether it needs those of the receiver.
- FRAMES: an offset for the send window, and frames, each after its length.
- REPORT: the session and the greatest end of the messages received, for the send window.

Messages of other senders than the peers are ignored, and so are messages that cannot be parsed.
"""

import struct
from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from random import SystemRandom
from socket import AF_INET, SOCK_DGRAM, gaierror, getaddrinfo
from typing import Final, NamedTuple

from rdmawire.errors import FabricError, VerbsError
from rdmawire.live import Address, Datagrams, SendWindow, TokenBucket, TransmitQueue, now
from rdmawire.units import ms
from rdmawire.verbs_service.capture import Capture
from rdmawire.verbs_service.device import EmulatedDevice
from rdmawire.verbs_service.diagnostics import warn
from rdmawire.verbs_service.network import DirectNetwork, address_name, by_destination

_HELLO, _FRAMES, _REPORT = 1, 2, 3
_HEAD: Final = struct.Struct("!BI")  # kind, session
_OFFSET: Final = struct.Struct("!Q")
_REPORTED: Final = struct.Struct("!IQ")
_NEEDS: Final = struct.Struct("!BH")  # whether an answer is needed, number of devices
_PORT: Final = struct.Struct("!6sH")  # MAC address, number of GIDs
_LENGTH: Final = struct.Struct("!H")
_GID_BYTES: Final = 16
_MIN_FRAME: Final = 14
"""Bytes of an Ethernet header."""
_MAX_OFFSET: Final = (1 << 64) - 1
_HELLOS_BEFORE_NOTE: Final = 50
"""HELLOs without an answer (5 s) after which a line on standard error names the peer."""
_MAX_OTHERS: Final = 16
"""Maximum services that are named on standard error because they are no peers."""
_LOCAL_MESSAGE: Final = 30_000
"""Maximum bytes of frames in a message to a peer on the same machine."""
_BURST: Final = 128
"""Maximum messages that are received at once."""
_MAX_WAITING: Final = 4096
"""Messages that wait for one peer. More are dropped: the queue pairs retransmit."""
_REPORT_TIMEOUT: Final = ms(20)
_HELLO_EVERY: Final = ms(100)
_WINDOW_SHARE: Final = 4
"""A window is this part of a socket's buffer: the kernel counts its overhead in the buffer, too."""


class UdpSettings(NamedTuple):
    """The port of this service, its peers, and the rate (bytes per second) to each, if limited."""

    port: int
    peers: tuple[Address, ...]
    rate: int | None = None
    burst: int = 1 << 18


class Peer:
    """Another service: its address, session and devices."""

    def __init__(self, address: Address, queue: TransmitQueue, window: SendWindow) -> None:
        self.address = address
        self.queue = queue
        self.window = window
        self.is_local = ip_address(address[0]).is_loopback
        self.session: int | None = None
        self.received = 0
        self.must_report = False
        self.hellos = 0
        self.is_in_conflict = False


class UdpNetwork(DirectNetwork):
    """Devices of this service directly, and those of its peers by UDP.

    ``FabricError`` for a peer whose name is unknown, or a port in use.
    """

    def __init__(self, settings: UdpSettings, capture: Capture | None = None) -> None:
        super().__init__(capture)
        addresses = [_resolved(peer) for peer in settings.peers]
        self._others: set[Address] = set()
        try:
            self._socket = Datagrams(settings.port)
        except OSError as error:
            text = f"network udp={settings.port}: {error.strerror}: name another port"
            raise FabricError(text) from error
        self._session = SystemRandom().getrandbits(32)
        self._peers = {address: self._peer(address, settings) for address in addresses}
        self._by_remote_mac: dict[bytes, Peer] = {}
        self._hello_at = now()

    @property
    def port(self) -> int:
        """The port of the socket, also where the settings had 0."""
        return self._socket.address[1]

    def knows(self, gid: bytes) -> bool:
        """Whether a device here or of a peer has this GID."""
        return self.neighbours.knows(gid)

    def resolve(self, gid: bytes) -> bytes:
        try:
            return super().resolve(gid)
        except VerbsError as error:
            peers = self._peers.items()
            silent = [_name(address) for address, peer in peers if peer.session is None]
            if not silent:
                raise
            reason = f"{error.reason}; no answer yet from {', '.join(silent)}"
            raise VerbsError(reason, error.errno) from None

    def add_peer(self, address: Address, settings: UdpSettings) -> None:
        """Add a peer whose address was not known before."""
        self._peers[address] = self._peer(address, settings)

    def _peer(self, address: Address, settings: UdpSettings) -> Peer:
        window = SendWindow(max(self._socket.buffer // _WINDOW_SHARE, 1), _REPORT_TIMEOUT)
        bucket = None if settings.rate is None else TokenBucket(settings.rate, settings.burst)

        def send(message: bytes, offset: int) -> bool:
            head = _HEAD.pack(_FRAMES, self._session) + _OFFSET.pack(offset)
            return self._socket.send(head + message, address)

        return Peer(address, TransmitQueue(send, _MAX_WAITING, bucket, window), window)

    # Sending.

    def move(self, time: int) -> bool:
        received = self._receive(time)
        moved = self.timers.handle(time)
        moved = self.transmit(now()) or moved
        for peer in self._peers.values():
            if len(peer.queue):
                moved = peer.queue.flush(time) > 0 or moved
        if time >= self._hello_at:
            self._greet(time)
        return received or moved

    def route(self, mac: bytes, frames: list[bytes], sender: EmulatedDevice) -> None:
        """Deliver frames here, or put them into the queue of a peer.

        Frames to groups, and to an address that no device has, here or at a peer, go everywhere.
        """
        found = self._by_remote_mac.get(mac)
        peers = [] if found is None else [found]
        if found is None:
            self.deliver(mac, frames, sender)
            if mac not in self.by_mac:
                peers = list(self._peers.values())
        for peer in peers:
            for message in _messages(frames, _LOCAL_MESSAGE if peer.is_local else 0):
                peer.queue.put(message)

    def _greet(self, time: int) -> None:
        """Send HELLO to peers whose devices are unknown."""
        self._hello_at = time + _HELLO_EVERY
        for peer in self._peers.values():
            if peer.session is None:
                self._say_hello(peer, needs_answer=True)
                peer.hellos += 1
                if peer.hellos == _HELLOS_BEFORE_NOTE:
                    warn(f"peer {_name(peer.address)} has not answered: start its service")

    def _say_hello(self, peer: Peer, *, needs_answer: bool) -> None:
        ports = b"".join(
            _PORT.pack(device.mac, len(device.gids)) + b"".join(device.gids)
            for device in self.devices
        )
        head = _HEAD.pack(_HELLO, self._session) + _NEEDS.pack(needs_answer, len(self.devices))
        self._socket.send(head + ports, peer.address)

    # Receiving.

    def _receive(self, time: int) -> bool:
        messages = self._socket.receive_all(_BURST)
        for message, address in messages:
            peer = self._peers.get(address)
            if peer is None:
                self._note_other(message, address)
                continue
            try:
                self._take(peer, message, time)
            except struct.error:
                continue  # truncated, or not a message of a service
        for peer in self._peers.values():
            if peer.must_report:
                peer.must_report = False
                report = _REPORTED.pack(peer.session or 0, peer.received)
                self._socket.send(_HEAD.pack(_REPORT, self._session) + report, peer.address)
        return bool(messages)

    def _take(self, peer: Peer, message: bytes, time: int) -> None:
        kind, session = _HEAD.unpack_from(message)
        if kind == _HELLO:
            self._take_hello(peer, session, message)
        elif kind == _REPORT:
            of, end = _REPORTED.unpack_from(message, _HEAD.size)
            if of == self._session:
                peer.window.reported(end, time)
        elif kind == _FRAMES:
            if session != peer.session:
                self._say_hello(peer, needs_answer=True)
                return
            (offset,) = _OFFSET.unpack_from(message, _HEAD.size)
            start = _HEAD.size + _OFFSET.size
            end = offset + len(message) - start
            if end > _MAX_OFFSET:
                return  # 2**64 bytes: no sender reaches this offset
            peer.received = max(peer.received, end)
            peer.must_report = True
            self._take_frames(list(_frames(message, start)))

    def _take_frames(self, frames: list[bytes]) -> None:
        if frames:
            self.record(frames, now())
            for mac, run in by_destination(frames):
                self.deliver(mac, run, None)

    def _take_hello(self, peer: Peer, session: int, message: bytes) -> None:
        needs_answer, count = _NEEDS.unpack_from(message, _HEAD.size)
        at = _HEAD.size + _NEEDS.size
        for _ in range(count):
            mac, gids = _PORT.unpack_from(message, at)
            at += _PORT.size
            table = [message[at + i * _GID_BYTES :][:_GID_BYTES] for i in range(gids)]
            at += gids * _GID_BYTES
            if at <= len(message):
                self._add_device(peer, mac, table)
        if session != peer.session:
            peer.session, peer.received = session, 0
        if needs_answer:
            self._say_hello(peer, needs_answer=False)

    def _add_device(self, peer: Peer, mac: bytes, gids: list[bytes]) -> None:
        """Add a device of a peer, without addresses that devices here have."""
        own = {gid for device in self.devices for gid in device.gids}
        if (mac in self.by_mac or own & {*gids}) and not peer.is_in_conflict:
            peer.is_in_conflict = True
            found = next((gid for gid in gids if gid in own), self.devices[0].gids[0])
            warn(
                f"peer {_name(peer.address)} has the address {address_name(found)} of a device"
                " here: start it with --first-address N"
            )
        if mac not in self.by_mac:
            self.neighbours.add([gid for gid in gids if gid not in own], mac)
            self._by_remote_mac[mac] = peer

    def _note_other(self, message: bytes, address: Address) -> None:
        """Print a line, once, for a service that sends HELLO and is no peer."""
        is_hello = len(message) >= _HEAD.size + _NEEDS.size and message[0] == _HELLO
        if is_hello and address not in self._others and len(self._others) < _MAX_OTHERS:
            self._others.add(address)
            warn(f"a service at {_name(address)} is no peer of this one: add peer={_name(address)}")

    # The rest of a network.

    def next_timer(self) -> int | None:
        time = now()
        times = [super().next_timer()]
        times += [peer.queue.next_timer(time) for peer in self._peers.values()]
        if any(peer.session is None for peer in self._peers.values()):
            times.append(self._hello_at)
        return min((one for one in times if one is not None), default=None)

    @property
    def fds(self) -> Sequence[int]:
        return (self._socket.fd,)

    def close(self) -> None:
        super().close()
        self._socket.close()


def _resolved(address: Address) -> Address:
    """An IPv4 address of a peer's name. ``FabricError`` if there is none."""
    host, port = address
    try:
        found = getaddrinfo(host, port, AF_INET, SOCK_DGRAM)
    except (gaierror, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FabricError(
            f"network 'peer={host}:{port}': {reason}: give the name of a machine, or its address"
        ) from error
    return str(found[0][4][0]), port


def _name(address: Address) -> str:
    host, port = address
    return f"{host}:{port}"


def _messages(frames: list[bytes], size: int) -> Iterator[bytes]:
    """Frames with their lengths, together up to ``size`` bytes, or each alone."""
    parts: list[bytes] = []
    length = 0
    for frame in frames:
        if parts and length + len(frame) > size:
            yield b"".join(parts)
            parts, length = [], 0
        parts += (_LENGTH.pack(len(frame)), frame)
        length += len(frame) + _LENGTH.size
    if parts:
        yield b"".join(parts)


def _frames(message: bytes, at: int) -> Iterator[bytes]:
    """The whole frames of a message, from ``at`` on."""
    while at + _LENGTH.size <= len(message):
        (length,) = _LENGTH.unpack_from(message, at)
        at += _LENGTH.size
        if at + length > len(message):
            return
        if length >= _MIN_FRAME:
            yield message[at : at + length]
        at += length


_KEYS: Final = "udp=PORT, peer=HOST:PORT (once for each peer)"


def parse_udp(text: str) -> UdpSettings:
    """Read ``udp=4791,peer=10.0.0.7:4791``. ``FabricError`` for any other text."""
    port: int | None = None
    peers: list[Address] = []
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name == "udp" and port is None:
            port = _port_number(part, value)
        elif name == "peer":
            host, _, number = value.rpartition(":")
            if not host:
                raise FabricError(f"network {part!r}: a peer is HOST:PORT")
            peers.append((host, _port_number(part, number)))
        else:
            raise FabricError(f"network {part!r}: no setting of joined services: give {_KEYS}")
    if port is None:
        raise FabricError(f"network {text!r} has no udp=PORT: give {_KEYS}")
    return UdpSettings(port, tuple(peers))


def _port_number(part: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 0xFFFF:
        raise FabricError(f"network {part!r}: {text!r} is no port from 0 to 65535")
    return int(text)
