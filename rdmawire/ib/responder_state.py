"""The state of a responder: the message that is coming in, and the responses that are pending.

A response is in ``pending`` until the port has room for it; a READ takes as many packets as its
bytes need. READs and atomics stay in ``resources`` after their response, so that a peer that lost
it gets the same again (IBA 9.7.5.1.4). There are as many resources as both sides agreed; the oldest
is replaced first.

A response to a duplicate request is pending once, in its place by PSN, and the last of several ACKs
and NAKs replaces those before it. So a peer cannot make ``pending`` longer than twice what was
agreed (and what a profile answers beyond that), and a few ACKs for each: responses to duplicates
that are no longer remembered precede all first responses.
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
    """A message between its first packet and its last: where it goes and how far it is.

    ``limit`` is the most bytes it may have: the receive's for a SEND, RETH.dmalen for a WRITE.
    """

    __slots__ = ("family", "limit", "placed", "sink")

    def __init__(self, family: MessageKind, sink: Piece | Gather, limit: int) -> None:
        self.family = family
        self.sink = sink
        self.limit = limit
        self.placed = 0


NO_MESSAGE = InboundMessage(IDLE, NOTHING, 0)
"""Between messages."""

NO_RECEIVE = RecvWR()
"""No receive is in use."""

MAX_ACKNOWLEDGES = 4
"""ACKs and NAKs that wait one behind the other, before a NAK takes the place of them all."""


class Acknowledge:
    """An ACK, or what an AETH says instead, with its value."""

    __slots__ = ("ack", "msn", "psn", "value")

    def __init__(self, psn: int, msn: int, ack: Ack = Ack.ACK, value: int = 0) -> None:
        self.psn = psn
        self.msn = msn
        self.ack = ack
        self.value = value

    def says(self, psn: int, ack: Ack, value: int) -> bool:
        """Whether it is of this packet, and says this."""
        return (self.psn, self.ack, self.value) == (psn, ack, value)


class ReadResponse:
    """What a READ asked for, and how many of its ``packets`` were sent.

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

    def payload(self, mtu: int) -> bytes | memoryview:
        """The bytes of the next response; ``MemoryFault`` if they can no longer be read."""
        offset = self.sent * mtu
        length = min(mtu, self.target.length - offset)
        if self.kept or self.whole is not None:
            kept = self._kept_payload(offset, length)
            if kept is not None:
                return kept
        return self.target.read(offset, length) if length else b""

    def _kept_payload(self, offset: int, length: int) -> bytes | None:
        """What was kept of the next response, if anything was, and may be told still."""
        kept = self.kept.get(serial.add(self.psn, self.sent))
        if kept is not None and len(kept) >= length and (self.whole or self.target.holds):
            return kept[:length]
        return None if self.whole is None else self.whole[offset : offset + length]

    def packets_kept(self, mtu: int) -> int:
        """How many responses' payloads it keeps."""
        return len(self.kept) + -(-len(self.whole or b"") // mtu)

    def keep(self, index: int, mtu: int) -> bool:
        """Keep what memory now holds of response ``index``; ``False`` if nothing new was kept."""
        psn = serial.add(self.psn, index)
        if psn in self.kept:
            return False
        offset = index * mtu
        length = min(mtu, self.target.length - offset)
        try:
            self.kept[psn] = bytes(self.target.read(offset, length))
        except MemoryFault:
            return False  # the response will find the same, and end in a NAK
        return True


class AtomicResponse:
    """What stood in memory before an atomic; ``replayed`` is as a READ's."""

    __slots__ = ("msn", "original", "psn", "replayed")

    def __init__(self, psn: int, msn: int, original: int) -> None:
        self.psn = psn
        self.msn = msn
        self.original = original
        self.replayed = False


Answer = Acknowledge | ReadResponse | AtomicResponse


class Resource(NamedTuple):
    """A READ or atomic that may be asked for again: IBA 9.7.5.1.4.

    Of a READ the bytes are read again; of an atomic only the answer is given again, which is
    its ``original``. ``asked`` is the header that named the memory; ``length`` counts the bytes
    that the answer reads from there.
    """

    opcode: int
    psn: int
    packets: int
    length: int
    asked: RETH | AtomicETH
    original: int | None = None

    def covers(self, psn: int) -> bool:
        """Whether this is the PSN of one of its responses."""
        return serial.in_window(psn, self.psn, self.packets)


class ResponderContext:
    """Where the conversation stands, as the responder sees it.

    ``ack_due`` is an ACK owed of all that will be done when it is sent: ACKs coalesce; ``cnps_due``
    counts the CNPs owed. ``epsn`` is the PSN expected, ``msn`` the number of messages done;
    ``refused`` says that the expected packet was refused, and what comes behind it need not be (one
    NAK for each gap). ``reads`` counts the READs whose responses are owed; before anything changes
    memory under them, they keep what they need of it. ``starved`` says that the last ACK granted
    no credits. ``sends_last_responses`` says that the last pending one ended the queue pair.
    ``recv`` is the receive in use, ``target`` what the key of the request in hand allows,
    ``denied`` what the last key that did not allow its request was asked for. ``response_end`` is
    the PSN behind the last READ or atomic, ``before_responses`` the last PSN before it that an ACK
    answers.
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
        self.epsn = self.response_end = self.before_responses = 0
        self.reset(0)

    def reset(self, psn: int, *, keeps_ack: bool = False) -> None:
        """Nothing owed, nothing begun, with this PSN expected.

        With ``keeps_ack`` the PSN of the last ACK stays what it was.
        """
        self.before_responses = self.ack_psn if keeps_ack else serial.add(psn, -1)
        self.response_end = psn
        self.sends_last_responses = False
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
        """Discard all answers; with ``final`` those stay that end in what ended the queue pair."""
        self.cnps_due = 0
        self.starved = False
        if not (final and self.sends_last_responses):
            self.pending.clear()
            self.reads = 0
            self.ack_due = self.sends_last_responses = False

    def owe(self, answer: ReadResponse | AtomicResponse) -> None:
        """Answer in turn."""
        self.pending.append(answer)
        self.reads += isinstance(answer, ReadResponse)

    def owe_again(self, answer: ReadResponse | AtomicResponse, resource: Resource) -> None:
        """Answer a request that came again, in the place of what is still owed to it.

        Who lost an answer asks for all behind it, too: what was begun of that begins anew.
        """
        owed = self._withdraw(resource)
        answer.replayed = owed is None or owed.replayed
        if isinstance(owed, ReadResponse) and isinstance(answer, ReadResponse):
            answer.kept = owed.kept
        later = (i for i, o in enumerate(self.pending) if serial.is_before(answer.psn, o.psn))
        place = next(later, len(self.pending))
        self.pending.insert(place, answer)
        self.reads += isinstance(answer, ReadResponse)
        for behind in islice(self.pending, place + 1, None):
            if isinstance(behind, ReadResponse):
                behind.sent = 0

    def _withdraw(self, resource: Resource) -> ReadResponse | AtomicResponse | None:
        """What is owed to this request, no more."""
        for answer in self.pending:
            if not isinstance(answer, Acknowledge) and resource.covers(answer.psn):
                self.pending.remove(answer)
                self.reads -= isinstance(answer, ReadResponse)
                return answer
        return None

    @property
    def gives_data(self) -> bool:
        """Whether the next answer is a READ response."""
        return (
            not self.cnps_due and bool(self.pending) and isinstance(self.pending[0], ReadResponse)
        )

    def skip_to(self, psn: int) -> None:
        """Give the message up that was coming in; its receive is there for the next one."""
        self.incoming = NO_MESSAGE
        self.epsn = psn

    def settle(self) -> None:
        """Put the ACK that is due in its place among what is owed: something comes behind it."""
        if self.ack_due:
            self.pending.append(self.take_ack())

    def take_ack(self) -> Acknowledge:
        """The ACK that is due: of all that is done now."""
        self.ack_due = False
        return Acknowledge(serial.add(self.epsn, -1), self.msn)

    @property
    def ack_psn(self) -> int:
        """The last PSN done that an ACK answers, not a response."""
        if self.epsn == self.response_end:
            return self.before_responses
        return serial.add(self.epsn, -1)

    def move_past(self, packets: int, *, by_ack: bool = False) -> None:
        """Expect the PSN behind a READ or atomic that has this many response ``packets``.

        With ``by_ack`` a later ACK may have its PSN, as with Linux (:attr:`Profile.acks_newest`).
        """
        before = self.ack_psn
        self.epsn = serial.add(self.epsn, packets)
        if not by_ack:
            self.before_responses, self.response_end = before, self.epsn

    def acknowledge_again(self, psn: int) -> None:
        """Acknowledge a SEND or WRITE that came again with this ``psn``.

        The ACK is for the newest packet done, but for nothing from the next READ or atomic on: the
        peer may have lost the response, and Linux takes an ACK with its PSN for the response.
        A pending answer to anything behind ``psn`` acknowledges it as well. IBA 9.7.5.1.2,
        9.7.5.1.4.
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
        waiting = (answer for answer in self.pending if isinstance(answer, Acknowledge))
        return any(answer.says(psn, ack, value) for answer in waiting)

    def refuse(self, ack: Ack, value: int) -> None:
        """Owe a NAK of the packet that is expected, with its code or timer.

        One that waits already is not owed again, however often the packet comes meanwhile.
        """
        if not self._acknowledges(self.epsn, ack, value):
            self._supersede()
            self.settle()
            self.pending.append(Acknowledge(self.epsn, self.msn, ack, value))

    def _supersede(self) -> None:
        """Of ACKs and NAKs that a busy port has not sent for long, the NAK that comes says all."""
        last = list(
            takewhile(lambda answer: isinstance(answer, Acknowledge), reversed(self.pending))
        )
        if len(last) >= MAX_ACKNOWLEDGES:
            for _ in last:
                self.pending.pop()

    def remember(self, resource: Resource, most: int) -> None:
        """Keep what may be asked for again; the oldest goes."""
        self.resources.append(resource)
        while len(self.resources) > most:
            self.resources.popleft()

    def owes_fewer(self, most: int) -> bool:
        """Whether fewer READs and atomics than that wait for their first answer in full."""
        if len(self.pending) < most:
            return True
        answers = (answer for answer in self.pending if not isinstance(answer, Acknowledge))
        return sum(not answer.replayed for answer in answers) < most
