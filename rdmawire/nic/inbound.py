"""What a responder remembers: the message that is coming in, and the answers it owes.

An answer waits in ``owed`` until the port has room for it; a READ's takes as many packets as its
octets do. READs and atomics stay in ``resources`` after their answer, so that a peer that lost the
answer gets the same again (IBA 9.7.5.1.4); there are as many as both sides agreed upon, and the
oldest goes first.
"""

from collections import deque
from typing import NamedTuple

from rdmawire.nic.event import Denied
from rdmawire.nic.fault import Fault
from rdmawire.nic.gather import NOTHING, Gather, Piece
from rdmawire.nic.role import IDLE, Family, Role
from rdmawire.nic.unseal import Arrival
from rdmawire.nic.work import RecvWR
from rdmawire.wire import psn as serial
from rdmawire.wire.ib import Ack


class Incoming:
    """A message between its first packet and its last: where it goes and how far it is.

    ``limit`` is the most octets it may have: the receive's for a SEND, RETH.dmalen for a WRITE.
    ``unreachable`` is the fault of memory that goes away meanwhile.
    """

    __slots__ = ("family", "limit", "placed", "sink", "unreachable")

    def __init__(
        self, family: Family, sink: Piece | Gather, limit: int, unreachable: Fault
    ) -> None:
        self.family = family
        self.sink = sink
        self.limit = limit
        self.unreachable = unreachable
        self.placed = 0


NO_MESSAGE = Incoming(IDLE, NOTHING, 0, Fault.OP_SEQUENCE)
"""Between messages."""

NO_RECEIVE = RecvWR()
"""No receive is in use."""


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
    began in the middle of an earlier one.
    """

    __slots__ = ("msn", "packets", "psn", "resumed", "sent", "target")

    def __init__(self, psn: int, msn: int, packets: int, target: Piece) -> None:
        self.psn = psn
        self.msn = msn
        self.packets = packets
        self.target = target
        self.sent = 0
        self.resumed = False


class AtomicResponse(NamedTuple):
    """What stood in memory before an atomic."""

    psn: int
    msn: int
    original: int


Answer = Acknowledge | ReadResponse | AtomicResponse


class Resource(NamedTuple):
    """A READ or atomic that may be asked for again: IBA 9.7.5.1.4.

    Of a READ the octets are read again; of an atomic only the answer is given again, which is
    its ``original``.
    """

    opcode: int
    psn: int
    packets: int
    length: int
    original: int | None = None


class Inbound:
    """Where the conversation stands, as the responder sees it.

    ``ack_due`` is an ACK owed of all that will be done when it is sent: ACKs coalesce; ``cnp_due``
    is a CNP. ``epsn`` is the PSN expected, ``msn`` the number of messages done; ``refused`` says
    that the expected packet was refused, and what comes behind it need not be (one NAK for each
    gap). ``reads`` counts the READs whose responses are owed; what would change memory under them
    waits in ``deferred``. ``starved`` says that the peer was told of no receives. ``recv`` is the
    receive in use, ``target`` what the key of the request in hand allows, ``denied`` what the last
    key that did not allow its request was asked for.
    """

    __slots__ = (
        "ack_due",
        "cnp_due",
        "deferred",
        "denied",
        "epsn",
        "incoming",
        "msn",
        "owed",
        "reads",
        "recv",
        "refused",
        "resources",
        "starved",
        "target",
    )

    def __init__(self) -> None:
        self.owed: deque[Answer] = deque()
        self.resources: deque[Resource] = deque()
        self.deferred: deque[tuple[Role, Arrival]] = deque()
        self.reset(0)

    def reset(self, psn: int) -> None:
        """Nothing owed, nothing begun, with this PSN expected."""
        self.fall_silent()
        self.resources.clear()
        self.deferred.clear()
        self.epsn = psn
        self.msn = 0
        self.refused = self.starved = False
        self.incoming = NO_MESSAGE
        self.recv = NO_RECEIVE
        self.target = NOTHING
        self.denied: Denied | None = None

    def fall_silent(self) -> None:
        """Owe no answer any more."""
        self.owed.clear()
        self.reads = 0
        self.ack_due = self.cnp_due = False

    def owe(self, answer: ReadResponse | AtomicResponse) -> None:
        """Answer in turn."""
        self.owed.append(answer)
        self.reads += isinstance(answer, ReadResponse)

    def skip_to(self, psn: int) -> None:
        """Give the message up that was coming in; its receive is there for the next one."""
        self.incoming = NO_MESSAGE
        self.epsn = psn

    def settle(self) -> None:
        """Put the ACK that is due in its place among what is owed: something comes behind it."""
        if self.ack_due:
            self.owed.append(self.take_ack())

    def take_ack(self) -> Acknowledge:
        """The ACK that is due: of all that is done now."""
        self.ack_due = False
        return Acknowledge(serial.add(self.epsn, -1), self.msn)

    def refuse(self, ack: Ack, value: int) -> None:
        """Owe a NAK of the packet that is expected, with its code or timer.

        One that waits already is not owed again, however often the packet comes meanwhile.
        """
        self.settle()
        last = self.owed[-1] if self.owed else None
        if not (isinstance(last, Acknowledge) and last.says(self.epsn, ack, value)):
            self.owed.append(Acknowledge(self.epsn, self.msn, ack, value))

    def remember(self, resource: Resource, most: int) -> None:
        """Keep what may be asked for again; the oldest goes."""
        self.resources.append(resource)
        while len(self.resources) > most:
            self.resources.popleft()

    def answers_owed(self) -> int:
        """READs and atomics whose answer was not sent in full."""
        return sum(not isinstance(answer, Acknowledge) for answer in self.owed)
