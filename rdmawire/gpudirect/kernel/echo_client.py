"""A host that sends echo requests at given times, and compares the replies.

Its frames are made outside of an adapter, as by a packet generator. It asks for the server's
Ethernet address first, by ARP.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rdmawire.fabric import Place
from rdmawire.gpudirect.kernel.echo import arp_answer, arp_request

ReplyOf = Callable[[bytes], bytes | None]
"""Returns the right reply to a request, or ``None`` if none is expected."""


class ScheduledFrame(NamedTuple):
    """A frame to send, without the address of the server, and when (ns) after the ARP reply."""

    time: int
    frame: bytes


class EchoClient:
    """The client: a host of a network, and the engine that sends and receives for it.

    It begins at ``start`` (ns). ``quiet`` is the time (ns) without a frame after which it waits for
    replies no longer.
    ``answers`` are the times (ns) that right replies took, by the number of the request; ``wrong``
    are frames that are no right reply, or a second one.
    """

    def __init__(  # noqa: PLR0917  what a test of an echo server needs
        self,
        place: Place,
        server: bytes,
        requests: Sequence[ScheduledFrame],
        reply_of: ReplyOf,
        start: int,
        quiet: int,
    ) -> None:
        self.place = place
        self.answers: dict[int, int] = {}
        self.wrong: list[bytes] = []
        self.sent = 0
        self.expected = 0
        self.is_done = False
        self.server_mac: bytes | None = None
        self._requests = requests
        self._reply_of = reply_of
        self._quiet = quiet
        self._deadline = start + quiet
        self._start = start
        self._question: bytes | None = arp_request(place, server)
        self._out: list[bytes] = []
        self._waiting: dict[bytes, tuple[int, int]] = {}

    @property
    def mac(self) -> bytes:
        """Its Ethernet address."""
        return self.place.mac

    @property
    def nic(self) -> "EchoClient":
        """Its engine."""
        return self

    def receive(self, frame: bytes, now: int) -> None:
        """Take the ARP reply, or compare the reply to a request."""
        self._deadline = now + self._quiet
        answer = arp_answer(frame) if self.server_mac is None else None
        if answer is not None:
            self.server_mac, self._start = answer.src_hw, now
        elif (found := self._waiting.pop(frame, None)) is not None:
            number, time = found
            self.answers[number] = now - time
        else:
            self.wrong.append(frame)
        self._end(now)

    def transmit(self, now: int) -> list[bytes]:  # noqa: ARG002  an engine
        """Return the frames that are due."""
        frames, self._out = self._out, []
        return frames

    def next_timer(self) -> int | None:
        """Return when the next request is due, or when the client waits no longer (ns)."""
        if self.is_done:
            return None
        if self._question is not None:
            return self._start
        if self.server_mac is None or self.sent == len(self._requests):
            return self._deadline
        return self._start + self._requests[self.sent].time

    def handle_timer(self, now: int) -> None:
        """Send what is due, or end."""
        if self._question is not None and now >= self._start:
            self._out.append(self._question)
            self._question = None
        if self.server_mac is not None:
            while self._is_due(now):
                self._send(self.server_mac, now)
        self._end(now)

    def _is_due(self, now: int) -> bool:
        requests = self._requests
        return self.sent < len(requests) and self._start + requests[self.sent].time <= now

    def _send(self, server_mac: bytes, now: int) -> None:
        frame = server_mac + self._requests[self.sent].frame[6:]
        reply = self._reply_of(frame)
        if reply is not None:
            self.expected += 1
            self._waiting[reply] = self.sent, now
        self.sent += 1
        self._deadline = now + self._quiet
        self._out.append(frame)

    def _end(self, now: int) -> None:
        """End if all requests were sent and answered, or if nothing has come for long."""
        has_sent = self.server_mac is not None and self.sent == len(self._requests)
        if (has_sent and not self._waiting) or (
            now >= self._deadline and (has_sent or self.server_mac is None)
        ):
            self.is_done = True
