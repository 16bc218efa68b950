"""A non-blocking UDP socket: messages are received in batches."""

import socket
from errno import ECONNREFUSED, ENOBUFS, ENOMEM
from typing import Final

_BUFFER: Final = 8 << 20
MAX_DATAGRAM: Final = 65_507
"""Maximum bytes of a UDP datagram over IPv4."""

_FULL: Final = (ENOBUFS, ENOMEM)

Address = tuple[str, int]
"""IP address and port."""


class Datagrams:
    """A bound UDP socket with large buffers. ``OSError`` if the port is in use."""

    def __init__(self, port: int, address: str = "0.0.0.0") -> None:  # noqa: S104  as asked for
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                self._socket.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
            self._socket.setblocking(False)
            self._socket.bind((address, port))
        except OSError:
            self._socket.close()
            raise
        self.fd = self._socket.fileno()
        self.buffer = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        """Bytes of the receive buffer, as the kernel counts them: with its overhead per message."""

    @property
    def address(self) -> Address:
        """The address and port it is bound to."""
        host, port = self._socket.getsockname()
        return host, port

    def send(self, message: bytes, to: Address) -> bool:
        """Send a message; ``False`` if the buffer is full. After another error it is lost."""
        try:
            self._socket.sendto(message, to)
        except BlockingIOError:
            return False
        except OSError as error:
            # No route, or ICMP's answer to an earlier message: it is lost, as on any network.
            return error.errno not in _FULL
        return True

    def receive_all(self, max_messages: int) -> list[tuple[bytes, Address]]:
        """Return the messages that are there, at most ``max_messages``, each with its sender."""
        receive, found = self._socket.recvfrom, []
        for _ in range(max_messages):
            try:
                found.append(receive(MAX_DATAGRAM))
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != ECONNREFUSED:
                    raise
        return found

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
