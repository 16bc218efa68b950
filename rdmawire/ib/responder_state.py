"""The state of a responder: the message in progress, and the responses that are pending.

A response is in ``pending`` until the port has room for it; a READ takes as many packets as its
bytes need. READs and atomics stay in ``resources`` after their response, so that a peer that lost
it gets the same again (IBA 9.7.5.1.4). There are as many resources as both sides agreed; the oldest
is replaced first.

The response to a duplicate request is pending once, in PSN order, and the last of several ACKs and
NAKs replaces the earlier ones. So a peer cannot make ``pending`` longer than twice the agreed count
(plus what a profile allows beyond that) and a few ACKs for each: responses to duplicates that are
no longer remembered precede all first responses.
"""

from collections import deque
from itertools import islice, takewhile
from typing import NamedTuple

from rdmawire.errors import MemoryFault
from rdmawire.ib.rules import IDLE, MessageKind
from rdmawire.verbs.async_event import Denied
from rdmawire.verbs.sge import NOTHING, Gather, Piece
from rdmawire.verbs.wr import RecvWR
from rdmawire.wire import serial
from rdmawire.wire.ib import RETH, Ack, AtomicETH


class InboundMessage:
    """A message in progress: its destination, and how many bytes were ``placed``.

    ``limit`` is its maximum length in bytes: the receive's for a SEND, RETH.dmalen for a WRITE.
    """

    __slots__ = ("family", "limit", "placed", "sink")

    def __init__(self, family: MessageKind, sink: Piece | Gather, limit: int) -> None:
        self.family = family
        self.sink = sink
        self.limit = limit
        self.placed = 0


NO_MESSAGE = InboundMessage(IDLE, NOTHING, 0)
"""No message is in progress."""

NO_RECEIVE = RecvWR()
"""No receive is in use."""

MAX_ACKNOWLEDGES = 4
"""ACKs and NAKs that may be pending in a row before a new NAK replaces them all."""


class Acknowledge:
    """An ACK or NAK: ``ack`` and ``value`` form the syndrome of its AETH."""

    __slots__ = ("ack", "msn", "psn", "value")

    def __init__(self, psn: int, msn: int, ack: Ack = Ack.ACK, value: int = 0) -> None:
        self.psn = psn
        self.msn = msn
        self.ack = ack
        self.value = value

    def says(self, psn: int, ack: Ack, value: int) -> bool:
        """Whether it has this PSN and this syndrome."""
        return (self.psn, self.ack, self.value) == (psn, ack, value)


class ReadResponse:
    """The responses of a READ, in ``packets`` packets, of which ``sent`` were sent.

    ``psn`` is the first response's, ``msn`` counts the messages up to this one. A ``resumed`` READ
    began in the middle of an earlier one; one that is ``replayed`` was answered in full before.
    ``kept`` has the payloads, by PSN, of responses whose memory changed since; ``all_kept`` says
    that no response lacks one. ``whole`` is the payload of all responses, kept when the peer
    invalidated the key (:mod:`rdmawire.ib.responses`).
    """

    __slots__ = (
        "all_kept",
        "kept",
        "msn",
        "packets",
        "psn",
        "replayed",
        "resumed",
        "sent",
        "target",
        "whole",
    )

    def __init__(self, psn: int, msn: int, packets: int, target: Piece) -> None:
        self.psn = psn
        self.msn = msn
        self.packets = packets
        self.target = target
        self.sent = 0
        self.resumed = self.replayed = self.all_kept = False
        self.kept: dict[int, bytes] = {}
        self.whole: bytes | None = None

    @property
    def unchanged_middles(self) -> int:
        """How many middle packets follow whose payloads are in memory; 0 if any payload is kept.

        A first packet must have been sent.
        """
        if self.kept or self.whole is not None:
            return 0
        return self.packets - 1 - self.sent

    def payload(self, mtu: int) -> bytes | memoryview:
        """The payload of the next response. Raises ``MemoryFault`` if it can no longer be read."""
        offset = self.sent * mtu
        length = min(mtu, self.target.length - offset)
        if self.kept or self.whole is not None:
            kept = self._kept_payload(offset, length)
            if kept is not None:
                return kept
        return self.target.read(offset, length) if length else b""

    def _kept_payload(self, offset: int, length: int) -> bytes | None:
        """The kept payload of the next response; ``None`` without one, or if its key is invalid."""
        kept = self.kept.get(serial.add(self.psn, self.sent))
        if kept is not None and len(kept) >= length and (self.whole or self.target.holds):
            return kept[:length]
        return None if self.whole is None else self.whole[offset : offset + length]

    def reads_as(self, other: "ReadResponse", mtu: int) -> bool:
        """Whether each PSN has the same memory as in ``other``."""
        skipped = serial.distance(other.psn, self.psn)
        return self.target.address == other.target.address + skipped * mtu

    def take_kept(self, kept: dict[int, bytes]) -> None:
        """Use what an earlier answer to the same request kept, of the repeated responses."""
        for psn, payload in kept.items():
            if serial.in_window(psn, self.psn, self.packets):
                self.kept[psn] = payload

    def packets_kept(self, mtu: int) -> int:
        """How many response payloads are kept."""
        return len(self.kept) + -(-len(self.whole or b"") // mtu)

    def keep(self, index: int, mtu: int) -> bool:
        """Keep the present payload of response ``index``; ``False`` if nothing new was kept."""
        psn = serial.add(self.psn, index)
        if psn in self.kept:
            return False
        offset = index * mtu
        length = min(mtu, self.target.length - offset)
        try:
            self.kept[psn] = bytes(self.target.read(offset, length))
        except MemoryFault:
            return False  # sending the response fails in the same way, and a NAK is sent
        return True


class AtomicResponse:
    """The original value of an atomic; ``replayed`` as in :class:`ReadResponse`."""

    __slots__ = ("msn", "original", "psn", "replayed")

    def __init__(self, psn: int, msn: int, original: int) -> None:
        self.psn = psn
        self.msn = msn
        self.original = original
        self.replayed = False


Answer = Acknowledge | ReadResponse | AtomicResponse


class Resource(NamedTuple):
    """A READ or atomic that the peer may retransmit: IBA 9.7.5.1.4.

    A duplicate READ reads memory again; a duplicate atomic gets the same response, with its
    ``original`` value. ``asked`` is the header that names the memory, ``length`` the bytes that the
    response reads.
    """

    opcode: int
    psn: int
    packets: int
    length: int
    asked: RETH | AtomicETH
    original: int | None = None

    def covers(self, psn: int) -> bool:
        """Whether ``psn`` is the PSN of one of its responses."""
        return serial.in_window(psn, self.psn, self.packets)


class ResponderContext:
    """State of a connection as the responder sees it.

    ``ack_due`` requests one ACK for all work done when it is sent: ACKs coalesce. ``cnps_due``
    counts pending CNPs. ``epsn`` is the expected PSN, ``msn`` the number of completed messages.
    ``refused`` says that the expected packet was refused: later packets cause no NAK of their own
    (one for each gap). ``reads`` counts READs with pending responses, which keep old bytes before
    their memory changes. ``starved`` says that the last ACK granted no credits,
    ``sends_last_responses`` that the last pending response ended the queue pair. ``recv`` is the
    receive in use, ``target`` the memory that the current request's key allows, ``denied`` the last
    access that a key refused. ``response_end`` is the PSN after the last READ or atomic,
    ``before_responses`` the last PSN before it that an ACK answers.
    """

    __slots__ = (
        "ack_due",
        "before_responses",
        "cnps_due",
        "denied",
        "epsn",
        "incoming",
        "msn",
        "pending",
        "reads",
        "recv",
        "refused",
        "resources",
        "response_end",
        "sends_last_responses",
        "starved",
        "target",
    )

    def __init__(self) -> None:
        self.pending: deque[Answer] = deque()
        self.resources: deque[Resource] = deque()
        self.sends_last_responses: bool
        self.reset(0)

    def reset(self, psn: int, *, keeps_ack: bool = False) -> None:
        """Discard all state, and expect ``psn``.

        With ``keeps_ack`` the PSN of the last ACK is kept.
        """
        self.before_responses = self.ack_psn if keeps_ack else serial.add(psn, -1)
        self.response_end = psn
        self.fall_silent()
        self.resources.clear()
        self.epsn = psn
        self.msn = 0
        self.refused = self.starved = False
        self.incoming = NO_MESSAGE
        self.recv = NO_RECEIVE
        self.target = NOTHING
        self.denied: Denied | None = None

    def fall_silent(self, *, final: bool = False) -> None:
        """Discard all responses; with ``final``, keep them if the last one ended the queue pair."""
        self.cnps_due = 0
        if not (final and self.sends_last_responses):
            self.pending.clear()
            self.reads = 0
            self.ack_due = self.sends_last_responses = False

    def queue_response(self, answer: ReadResponse | AtomicResponse) -> None:
        """Add a response at the end of ``pending``."""
        self.pending.append(answer)
        self.reads += isinstance(answer, ReadResponse)

    def owe_again(
        self, answer: ReadResponse | AtomicResponse, resource: Resource, mtu: int
    ) -> None:
        """Add the response to a duplicate request, in PSN order, in place of a pending one.

        ``mtu`` is the path MTU in bytes. The peer requests all later responses again, too, so those
        in progress restart.
        """
        pending = self._withdraw(resource)
        answer.replayed = pending is None or pending.replayed
        if (
            isinstance(pending, ReadResponse)
            and isinstance(answer, ReadResponse)
            and answer.reads_as(pending, mtu)
        ):
            answer.take_kept(pending.kept)
        later = (i for i, o in enumerate(self.pending) if serial.is_before(answer.psn, o.psn))
        place = next(later, len(self.pending))
        self.pending.insert(place, answer)
        self.reads += isinstance(answer, ReadResponse)
        for behind in islice(self.pending, place + 1, None):
            if isinstance(behind, ReadResponse):
                behind.sent = 0

    def _withdraw(self, resource: Resource) -> ReadResponse | AtomicResponse | None:
        """Remove and return the pending response to this request, if there is one."""
        for answer in self.pending:
            if not isinstance(answer, Acknowledge) and resource.covers(answer.psn):
                self.pending.remove(answer)
                self.reads -= isinstance(answer, ReadResponse)
                return answer
        return None

    @property
    def gives_data(self) -> bool:
        """Whether the next frame is a READ response."""
        return (
            not self.cnps_due and bool(self.pending) and isinstance(self.pending[0], ReadResponse)
        )

    def skip_to(self, psn: int) -> None:
        """Discard the message in progress, and expect ``psn``; its receive is used for the next."""
        self.incoming = NO_MESSAGE
        self.epsn = psn

    def settle(self) -> None:
        """Add the ACK that is due to ``pending``, ahead of the next response."""
        if self.ack_due:
            self.pending.append(self.take_ack())

    def take_ack(self) -> Acknowledge:
        """Return the ACK for all work done so far; it is no longer due."""
        self.ack_due = False
        return Acknowledge(serial.add(self.epsn, -1), self.msn)

    @property
    def ack_psn(self) -> int:
        """The last completed PSN that an ACK answers, not a response."""
        if self.epsn == self.response_end:
            return self.before_responses
        return serial.add(self.epsn, -1)

    def move_past(self, packets: int, *, by_ack: bool = False) -> None:
        """Expect the PSN after a READ or atomic with this many response ``packets``.

        With ``by_ack`` a later ACK may have its PSN, as with Linux (:attr:`Profile.acks_newest`).
        """
        before = self.ack_psn
        self.epsn = serial.add(self.epsn, packets)
        if not by_ack:
            self.before_responses, self.response_end = before, self.epsn

    def acknowledge_again(self, psn: int) -> None:
        """Acknowledge a duplicate SEND or WRITE with this ``psn``.

        The ACK is for the newest completed packet before the next READ or atomic: the peer may have
        lost that response, and Linux takes an ACK with its PSN for the response. A pending response
        after ``psn`` acknowledges it as well. IBA 9.7.5.1.2, 9.7.5.1.4.
        """
        done = serial.span(psn, self.epsn)
        behind = (r.psn for r in self.resources if serial.in_window(r.psn, psn, done))
        response = next(behind, None)
        if response is None:
            self.ack_due = True
        elif not any(serial.in_window(answer.psn, psn, done + 1) for answer in self.pending):
            self.pending.append(Acknowledge(serial.add(response, -1), self.msn))

    def acknowledge_newest(self) -> None:
        """Acknowledge the last request that an ACK answers, unless that ACK is pending."""
        if self.epsn != self.response_end:
            self.ack_due = True
        elif not self._acknowledges(self.ack_psn):
            self.pending.append(Acknowledge(self.ack_psn, self.msn))

    def acknowledge_unasked(self) -> None:
        """Grant credits with an unsolicited ACK. IBA 9.7.7.2.4.

        It covers no READ or atomic, as in :meth:`acknowledge_again`; a pending response grants the
        credits itself.
        """
        if all(isinstance(answer, Acknowledge) for answer in self.pending):
            self.acknowledge_newest()

    def _acknowledges(self, psn: int, ack: Ack = Ack.ACK, value: int = 0) -> bool:
        """Whether an equal ACK or NAK of this PSN is pending."""
        if not self.pending:
            return False
        waiting = (answer for answer in self.pending if isinstance(answer, Acknowledge))
        return any(answer.says(psn, ack, value) for answer in waiting)

    def refuse(self, ack: Ack, value: int) -> None:
        """Add a NAK of the expected packet, with its code or timer.

        An equal NAK that is already pending is not added again.
        """
        if not self._acknowledges(self.epsn, ack, value):
            self._supersede()
            self.settle()
            self.pending.append(Acknowledge(self.epsn, self.msn, ack, value))

    def _supersede(self) -> None:
        """Remove the last ACKs and NAKs if there are too many: the new NAK replaces them."""
        if len(self.pending) < MAX_ACKNOWLEDGES:
            return
        last = list(
            takewhile(lambda answer: isinstance(answer, Acknowledge), reversed(self.pending))
        )
        if len(last) >= MAX_ACKNOWLEDGES:
            for _ in last:
                self.pending.pop()

    def remember(self, resource: Resource, most: int) -> None:
        """Keep a request for duplicates; of more than ``most``, discard the oldest."""
        self.resources.append(resource)
        while len(self.resources) > most:
            self.resources.popleft()

    def owes_fewer(self, most: int) -> bool:
        """Whether fewer than ``most`` READs and atomics have first responses pending."""
        if len(self.pending) < most:
            return True
        answers = (answer for answer in self.pending if not isinstance(answer, Acknowledge))
        return sum(not answer.replayed for answer in answers) < most
