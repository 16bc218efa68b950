"""Replies of a responder that wait until its port has room: a plain model of their order.

ACKs coalesce: one ACK answers all requests up to its PSN, and so does a response or a NAK. IBA
9.7.5.1.2. Responses have the order of their PSNs, a duplicate's as well; a duplicate of a request
whose response waits is answered once. IBA 9.7.5.1.4. Credits are those of the time when a reply is
transmitted.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rdmawire.fuzz.exchange import Expected, Reply, Request
from rdmawire.fuzz.request_role import REQUEST_ROLES, SINGLE
from rdmawire.fuzz.responder_model import ResponderModel
from rdmawire.fuzz.responder_state import covers
from rdmawire.wire import serial
from rdmawire.wire.ib import Ack, Nak
from rdmawire.wire.opcode import Operation as Op

_MAX_ACKNOWLEDGES: Final = 4
"""ACKs and NAKs that may wait in a row; another NAK replaces them all."""


@dataclass(slots=True)
class _Pending:
    """The replies to one request, of which ``sent`` were transmitted.

    ``va`` is the address that the request names. ``is_first`` says that it was not answered before.
    """

    replies: tuple[Reply, ...]
    va: int = 0
    is_first: bool = True
    sent: int = 0

    @property
    def psn(self) -> int:
        """The PSN of the first reply."""
        return self.replies[0].psn

    @property
    def is_acknowledge(self) -> bool:
        """Whether it is an ACK or a NAK."""
        return self.replies[0].operation == Op.ACKNOWLEDGE


class PendingReplies:
    """The replies that wait. ``model`` is the responder, and executes requests at once."""

    def __init__(self, model: ResponderModel) -> None:
        self._model = model
        self._waiting: deque[_Pending] = deque()
        self._ack_due = False

    def __bool__(self) -> bool:
        """Whether a reply waits."""
        return bool(self._waiting or self._ack_due)

    # What adds replies.

    def request(self, request: Request) -> Expected:
        """Model a request; the result has its replies as if they did not wait."""
        model = self._model
        completed = serial.add(model.epsn, -1), model.msn
        is_duplicate = serial.distance(model.epsn, request.psn) < 0
        waiting = [one for one in self._waiting if not one.is_acknowledge]
        model.outstanding = sum(one.is_first for one in waiting)
        expected = self._executed(lambda: model.request(request))
        if expected.replies:
            add = self._add_again if is_duplicate else self._add_first
            add(request, expected.replies, completed)
        return expected

    def post_receive(self, length: int, srq: int) -> Expected:
        """Model a posted receive: new credits need an ACK of their own if no response waits."""
        model = self._model
        expected = self._executed(lambda: model.post_receive(length, srq))
        if expected.replies and all(one.is_acknowledge for one in self._waiting):
            self._acknowledge_newest()
        return expected

    def _executed(self, execute: Callable[[], Expected]) -> Expected:
        """Execute, but grant no credits before a reply is transmitted."""
        no_credits_left = self._model.no_credits_left
        expected = execute()
        self._model.no_credits_left = no_credits_left
        return expected

    def _add_first(
        self, request: Request, replies: tuple[Reply, ...], completed: tuple[int, int]
    ) -> None:
        """Add the replies to a request that is not a duplicate.

        ``completed`` are the last PSN and the MSN before the request.
        """
        first = replies[0]
        if first.operation != Op.ACKNOWLEDGE:
            self._settle(*completed)
        elif _is_ack(first) and not self._model.failed:
            self._ack_due = True
            return
        elif not _is_ack(first):
            if self._waits(first):
                self._count(first, -1)
                return
            self._supersede()
        self._settle(*completed)
        self._waiting.append(_Pending(replies, request.va))

    def _settle(self, psn: int, msn: int) -> None:
        """Put the ACK that is due ahead of what follows."""
        if self._ack_due:
            self._waiting.append(_Pending((_ack(psn, msn),)))
            self._ack_due = False

    def _waits(self, reply: Reply) -> bool:
        """Whether an ACK or NAK with the same PSN and syndrome waits."""
        kinds = ((one.psn, _kind(one.replies[0])) for one in self._waiting if one.is_acknowledge)
        return (reply.psn, _kind(reply)) in kinds

    def _supersede(self) -> None:
        """Remove the last ACKs and NAKs, if there are as many as may wait."""
        last = 0
        for one in reversed(self._waiting):
            if not one.is_acknowledge:
                break
            last += 1
        for _ in range(last if last >= _MAX_ACKNOWLEDGES else 0):
            self._count(self._waiting.pop().replies[0], -1)

    def _count(self, reply: Reply, change: int) -> None:
        """Correct the counter of a NAK that is not transmitted."""
        if reply.syndrome >> 5 == Ack.RNR_NAK:
            self._model.counters["send_rnr_err"] += change
        elif reply.syndrome == Ack.NAK << 5 | Nak.PSN_SEQUENCE_ERROR:
            self._model.counters["out_of_seq_request"] += change

    # Duplicates.

    def _add_again(self, request: Request, replies: tuple[Reply, ...], _: tuple[int, int]) -> None:
        """Add the replies to a duplicate."""
        if REQUEST_ROLES[request.opcode & 31].family == SINGLE:
            self._respond_again(request, replies)
        elif self._model.profile.acks_newest:
            self._acknowledge_newest()
        else:
            self._acknowledge_again(request.psn, replies[0])

    def _respond_again(self, request: Request, replies: tuple[Reply, ...]) -> None:
        """Add a response in the order of PSNs, in place of one that waits.

        Responses after it begin again: the peer requests all of them again.
        """
        earlier = self._withdraw(request.psn)
        if earlier is not None and self._reads_the_same(request, earlier):
            replies = _with_data(replies, earlier.replies)
        again = _Pending(replies, request.va, earlier is not None and earlier.is_first)
        later = [one for one in self._waiting if serial.distance(again.psn, one.psn) > 0]
        index = self._waiting.index(later[0]) if later else len(self._waiting)
        self._waiting.insert(index, again)
        for number, one in enumerate(self._waiting):
            if number > index:
                one.sent = 0

    def _reads_the_same(self, request: Request, earlier: _Pending) -> bool:
        """Whether a request names the same bytes for each PSN."""
        skipped = serial.distance(earlier.psn, request.psn)
        return request.va == earlier.va + skipped * self._model.mtu

    def _withdraw(self, psn: int) -> _Pending | None:
        """Remove and return the response that waits for the request with this PSN."""
        found = [one for one in self._model.remembered if covers(one, psn)]
        for one in self._waiting:
            if not one.is_acknowledge and covers(found[-1], one.psn):
                self._waiting.remove(one)
                return one
        return None

    def _acknowledge_again(self, psn: int, ack: Reply) -> None:
        """Acknowledge a duplicate SEND or WRITE, unless a reply that waits does."""
        model = self._model
        newest = serial.span(psn, model.epsn)
        if model.next_response(psn) is None:
            self._ack_due = True
        elif all(serial.span(psn, one.psn) > newest for one in self._waiting):
            self._waiting.append(_Pending((ack,)))

    def _acknowledge_newest(self) -> None:
        """Acknowledge the last request that an ACK answers, unless that ACK waits."""
        model = self._model
        ack = _ack(model.ack_psn, model.msn)
        if model.epsn != model.response_end:
            self._ack_due = True
        elif not self._waits(ack):
            self._waiting.append(_Pending((ack,)))

    # What removes replies.

    def transmit(self, room: int | None = None) -> tuple[Reply, ...]:
        """Remove and return the next replies: ``room`` at most, or all."""
        sent: list[Reply] = []
        while self and (room is None or len(sent) < room):
            sent.append(self._next())
        self._model.outstanding = 0
        return tuple(sent)

    def _next(self) -> Reply:
        model = self._model
        if not self._waiting:
            self._settle(serial.add(model.epsn, -1), model.msn)
        one = self._waiting[0]
        reply = one.replies[one.sent]
        one.sent += 1
        if one.sent == len(one.replies):
            self._waiting.popleft()
        return reply._replace(syndrome=model.grant_credits()) if _is_ack(reply) else reply


def _ack(psn: int, msn: int) -> Reply:
    return Reply(Op.ACKNOWLEDGE, psn, 0, msn)


def _is_ack(reply: Reply) -> bool:
    """Whether it has an AETH that is not a NAK."""
    return reply.syndrome >= 0 and reply.syndrome >> 5 == Ack.ACK


def _kind(reply: Reply) -> int:
    """The syndrome, without the credits of an ACK."""
    return 0 if _is_ack(reply) else reply.syndrome


def _with_data(replies: tuple[Reply, ...], earlier: tuple[Reply, ...]) -> tuple[Reply, ...]:
    """Return replies with the data of earlier ones: a READ that waits was executed before."""
    data = {one.psn: one.data for one in earlier}
    return tuple(_shortened(one, data.get(one.psn, b"")) for one in replies)


def _shortened(reply: Reply, data: bytes) -> Reply:
    """Return a reply with the first bytes of ``data``, if these are enough."""
    length = len(reply.data)
    return reply._replace(data=data[:length]) if len(data) >= length else reply
