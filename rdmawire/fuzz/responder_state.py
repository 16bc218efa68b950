"""The state of a responder, as the standard has it: sequence numbers, receives, keys and memory.

:mod:`rdmawire.fuzz.responder_model` executes requests on it. Here are what queue pairs and memory
hold, the keys that are granted, and the replies and completions that end requests.
"""

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

from rdmawire.fuzz.exchange import Expected, Numbers, Reply, Request
from rdmawire.fuzz.setup import AREAS, WINDOW, Setup, receive_start
from rdmawire.fuzz.target import COUNTERS, Completion
from rdmawire.verbs.enums import WCStatus
from rdmawire.verbs.profile import IBTA, Profile
from rdmawire.wire import serial
from rdmawire.wire.ib import CREDITS, NO_CREDITS, Ack, Nak
from rdmawire.wire.opcode import Operation as Op
from rdmawire.wire.opcode import Service

_new: Final = tuple.__new__
_ACKNOWLEDGE: Final = Op.ACKNOWLEDGE


@dataclass(slots=True)
class Grant:
    """Memory that a key allows: addresses, rights, and its start in the arena."""

    va: int
    length: int
    access: int
    start: int
    is_window: bool = False


@dataclass(slots=True)
class Message:
    """A message in progress.

    It has its start in the arena, and the bytes it may have (``limit``) and has (``placed``).
    """

    family: str = ""
    start: int = 0
    limit: int = 0
    placed: int = 0


NO_MESSAGE: Final = Message()
"""``message`` while no message is in progress. It is shared, and nothing changes it."""


class Receive(NamedTuple):
    """A posted receive: its number, its start in the arena, and its length in bytes."""

    number: int
    start: int
    length: int


class Remembered(NamedTuple):
    """A READ or atomic that may be repeated."""

    opcode: int
    psn: int
    packets: int
    length: int
    va: int
    rkey: int
    value: int
    compare: int
    original: bytes | None


def covers(one: Remembered, psn: int) -> bool:
    """Whether a PSN is one of the responses to a request."""
    return serial.in_window(psn, one.psn, one.packets)


@dataclass
class ResponderState:
    """The state of a responder. Memory is ``memory``, from the arena.

    - ``wire``: the service of its packets.
    - ``any_sender``: whether it receives from every address.
    - ``selected``: the shared receive queue that was named last, an index.
    - ``profile``: fields of it are the differences from ``ibta`` that are accepted.
    - ``no_credits_left``: whether the last ACK granted no credits.
    - ``outstanding``: the READs and atomics whose first response is pending, as the caller counts
      them (:mod:`rdmawire.fuzz.pending_replies`).
    - ``undefined``: start and end of bytes of the arena that may have any value since the last
      input.
    """

    wire: ClassVar[Service] = Service.RC
    any_sender: ClassVar[bool] = False
    selected = 0

    setup: Setup
    numbers: Numbers
    memory: bytearray
    completions: list[Completion] = field(default_factory=list)
    undefined: list[tuple[int, int]] = field(default_factory=list)
    profile: Profile = IBTA

    def __post_init__(self) -> None:
        self.posted = 0
        self._granted = self._grants()
        self.restart(self.setup.psn)

    def restart(self, psn: int) -> None:
        """Model a fresh queue pair that expects ``psn``; memory and keys stay as they are."""
        self.epsn = psn
        self.msn = 0
        self.failed = False
        self.nak_sent = False
        self.receives: deque[Receive] = deque()
        self.receive: Receive | None = None
        self.message = NO_MESSAGE
        self.remembered: deque[Remembered] = deque()
        self.no_credits_left = False
        self.outstanding = 0
        self.response_end = psn
        self._before_responses = serial.add(psn, -1)
        self.counters = dict.fromkeys(COUNTERS, 0)

    def enter_error(self) -> None:
        """Model the error state after a failure that is not the responder's: all is flushed."""
        if not self.failed:
            self._fail(WCStatus.WR_FLUSH_ERR, clause="IBA 10.8.3.3", why="the error state")

    def take_numbers(self, numbers: Numbers) -> None:
        """Use other keys: a region was registered again, or the window bound again."""
        before = self._granted.get(numbers.rkeys[-1])
        self.numbers = numbers
        self._granted = self._grants()
        if before is not None:
            self._granted[numbers.rkeys[-1]] = before

    def invalidate_window(self) -> None:
        """Model a local invalidation of the window's key."""
        grant = self._granted[self.numbers.rkeys[-1]]
        grant.access, grant.length = 0, -1

    def _grants(self) -> dict[int, Grant]:
        made = {}
        areas = [*AREAS, WINDOW]
        for number, (area, va, rkey) in enumerate(
            zip(areas, self.numbers.vas, self.numbers.rkeys, strict=True)
        ):
            window = number == len(AREAS)
            made[rkey] = Grant(va, area.length, area.access, area.start, window)
        return made

    def _next_receive(self, length: int) -> Receive:
        """Number the next receive, and choose its start in the arena."""
        start = receive_start(self.posted, length)
        self.posted += 1
        return Receive(self.posted, start, length)

    def _start_of(self, request: Request, length: int, needed: int) -> int | None:
        """The start in the arena of the bytes that the key allows, or ``None``."""
        grant = self._granted.get(request.rkey)
        if grant is None or needed & ~grant.access:
            return None
        offset = request.va - grant.va
        if offset < 0 or offset + length > grant.length:
            return None
        return grant.start + offset

    # Replies.

    @property
    def ack_psn(self) -> int:
        """The last PSN that an ACK answers, not a response."""
        if self.epsn == self.response_end:
            return self._before_responses
        return serial.add(self.epsn, -1)

    def _ack(self, psn: int) -> Reply:
        """Make an ACK with this PSN, with the credits for the receives that are left."""
        return _new(Reply, (_ACKNOWLEDGE, psn, self.grant_credits(), self.msn, b""))

    @property
    def max_outstanding(self) -> int:
        """The READs and atomics whose responses may be pending. IBA 9.7.4.1.5."""
        agreed = self.setup.rd_atomic
        return agreed + self.profile.reads_beyond if agreed else 0

    def waiting(self, _: int) -> int:
        """Return how many receives are posted."""
        return len(self.receives)

    @property
    def mtu(self) -> int:
        """The most bytes of payload in a packet."""
        return self.setup.mtu

    def grant_credits(self) -> int:
        """Return the syndrome of an ACK, a credit count, and note if it is 0. IBA 9.7.7.2.2."""
        if not self.profile.end_to_end_credits:
            return NO_CREDITS
        self.no_credits_left = not self.receives
        return bisect_right(CREDITS, len(self.receives)) - 1

    def _nak(self, code: int) -> Reply:
        return Reply(Op.ACKNOWLEDGE, self.epsn, Ack.NAK << 5 | code, self.msn)

    def _fail(self, status: WCStatus, *replies: Reply, clause: str, why: str) -> Expected:
        """End the queue pair: the receive in use gets ``status``, the others are flushed."""
        self.failed = True
        if self.receive is not None:
            self.completions.append(Completion(self.receive.number, status))
            self.receive = None
        for receive in self.receives:
            self.completions.append(Completion(receive.number, WCStatus.WR_FLUSH_ERR))
        self.receives.clear()
        return Expected(replies, clause, why)

    def _invalid(self, clause: str, why: str) -> Expected:
        nak = self._nak(Nak.INVALID_REQUEST)
        return self._fail(WCStatus.REM_INV_REQ_ERR, nak, clause=clause, why=why)

    def _access_error(self, why: str) -> Expected:
        self.counters["resp_remote_access_errors"] += 1
        nak = self._nak(Nak.REMOTE_ACCESS_ERROR)
        return self._fail(WCStatus.REM_ACCESS_ERR, nak, clause="IBA 9.7.4.1.5", why=why)

    def _ack_before(self, psn: int) -> int:
        """The PSN of the ACK for a duplicate: before the next READ or atomic, or the newest."""
        response = self.next_response(psn)
        return serial.add(self.epsn if response is None else response, -1)

    def next_response(self, psn: int) -> int | None:
        """Return the PSN of the first READ or atomic from ``psn`` on that is remembered."""
        done = serial.span(psn, self.epsn)
        for one in self.remembered:
            if serial.in_window(one.psn, psn, done):
                return one.psn
        return None
