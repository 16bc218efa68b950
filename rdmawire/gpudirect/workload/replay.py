"""A workload in virtual time: dependencies, processors and the matching of messages.

A :class:`Carrier` moves messages; it calls back when something has arrived. A message of at most
``eager`` bytes is sent at once, and its send ends when it is acknowledged. A longer one is
announced; the receiver clears it when a receive matches, and then it is sent (rendezvous). A
computation occupies its stream, a message only with an ``overhead``: before it is sent, and after
its data is there.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

from rdmawire.errors import WorkloadError
from rdmawire.fabric import Simulator
from rdmawire.gpudirect.workload.graph import ANY, Kind, Operation, Workload, followers, is_wild
from rdmawire.terminal import plural

EAGER: Final = 1 << 13
"""Bytes up to which messages are eager: UCX's threshold over RC is of this order."""
_BEGUN: Final = 1
_ENDED: Final = 2


class MessageCosts(NamedTuple):
    """What messages cost beside their bytes: the constants of LogGP, and when a send ends.

    ``overhead`` (LogGP's o) is the time (ns) in which the processor of an operation sends, or
    takes, a message. ``gap`` (g) is the time (ns) that an adapter needs after each message before
    the next one: with a gap, its messages are sent one after the other. ``buffered`` sends of up to
    ``eager`` bytes end when the adapter has them, others when they are acknowledged.
    """

    eager: int = EAGER
    overhead: int = 0
    gap: int = 0
    buffered: bool = False


class RankMessage:
    """A message of the operation ``index`` of its source.

    ``number`` counts the messages from its source to its target, ``payload`` are its bytes if
    they mean something, and ``receive`` is the operation of the target that takes it.
    """

    __slots__ = (
        *("announced", "index", "nic", "number", "payload"),
        *("receive", "size", "source", "tag", "target"),
    )

    def __init__(self, source: int, index: int, operation: Operation, number: int) -> None:
        self.source = source
        self.target = operation.peer
        self.index = index
        self.size = operation.size
        self.tag = operation.tag
        self.nic = operation.nic
        self.number = number
        self.payload: bytes | None = None
        self.receive: int | None = None
        self.announced = False


Done = Callable[[RankMessage], None]
"""Function called with a message to which something has happened."""


class Carrier(Protocol):
    """Moves messages, and calls the methods of a :class:`Replay` when they have arrived.

    Calls :meth:`Replay.arrived` and :meth:`Replay.acknowledged` after :meth:`send`,
    :meth:`Replay.arrived` after :meth:`announce`, :meth:`Replay.cleared` after :meth:`clear`.
    :meth:`finish` raises :class:`WorkloadError` if messages were lost for good.
    """

    def send(self, message: RankMessage) -> None: ...

    def announce(self, message: RankMessage) -> None: ...

    def clear(self, message: RankMessage) -> None: ...

    def finish(self) -> None: ...


Pattern = tuple[int, int]
"""Source and tag of messages, each of which may be :data:`ANY`."""


class _Entry:
    """A receive or a message that waits; ``order`` counts those of its rank."""

    __slots__ = ("is_taken", "order", "value")

    def __init__(self, order: int, value: int | RankMessage) -> None:
        self.order = order
        self.value = value
        self.is_taken = False


class Mailbox:
    """Receives of a rank that wait, and messages that no receive has taken yet, in their orders.

    A receive waits in the queue of its pattern, a message in those of all patterns that it matches:
    each is found without a search. Without ``wild`` no receive takes any source or any tag.
    """

    def __init__(self, *, wild: bool = True) -> None:
        self._wild = wild
        self._order = 0
        self._receives: dict[Pattern, deque[_Entry]] = defaultdict(deque)
        self._messages: dict[Pattern, deque[_Entry]] = defaultdict(deque)

    def post(self, index: int, operation: Operation) -> RankMessage | None:
        """Take the first message that a receive matches; without one, let it wait."""
        pattern = operation.peer, operation.tag
        found = self._first(self._messages, pattern)
        if found is None:
            self._receives[pattern].append(self._entry(index))
            return None
        found.is_taken = True
        assert isinstance(found.value, RankMessage)
        return found.value

    def deliver(self, message: RankMessage) -> int | None:
        """Return the first receive that a message matches; without one, keep the message."""
        patterns = self._patterns(message)
        heads = (self._first(self._receives, pattern) for pattern in patterns)
        found = min(filter(None, heads), key=lambda one: one.order, default=None)
        if found is None:
            entry = self._entry(message)
            for pattern in patterns:
                self._messages[pattern].append(entry)
            return None
        found.is_taken = True
        assert isinstance(found.value, int)
        return found.value

    def _patterns(self, message: RankMessage) -> tuple[Pattern, ...]:
        """Return the patterns that a message matches; tags of collectives are below 0."""
        source, tag = message.source, message.tag
        if not self._wild:
            return ((source, tag),)
        if tag < 0:
            return (source, tag), (ANY, tag)
        return (source, tag), (ANY, tag), (source, ANY), (ANY, ANY)

    def _entry(self, value: int | RankMessage) -> _Entry:
        self._order += 1
        return _Entry(self._order, value)

    @staticmethod
    def _first(queues: dict[Pattern, deque[_Entry]], pattern: Pattern) -> _Entry | None:
        """Return the first entry of a queue that is not taken."""
        queue = queues.get(pattern)
        while queue and queue[0].is_taken:
            queue.popleft()
        if queue:
            return queue[0]
        queues.pop(pattern, None)
        return None

    def waiting(self) -> list[int]:
        """Return the receives that wait, in order."""
        found = [one for queue in self._receives.values() for one in queue if not one.is_taken]
        found.sort(key=lambda one: one.order)
        return [one.value for one in found if isinstance(one.value, int)]


def _matches(receive: Operation, source: int, tag: int) -> bool:
    is_tag = tag >= 0 if receive.tag == ANY else receive.tag == tag
    return is_tag and receive.peer in {ANY, source}


Work = tuple[int, int, Callable[[int, int], None]]
"""An operation, the time (ns) for which it occupies its stream, and what is called after it."""


class _Rank:
    """What a rank has done: operations that others wait for, busy streams, and its mailbox.

    ``next_sent`` and ``next_taken`` are by adapter the times from which the next message may be
    sent or taken, if messages have a gap.
    """

    def __init__(self, operations: list[Operation]) -> None:
        self.operations = operations
        self.ends, self.starts = followers(operations)
        self.waits = [len(one.after) + len(one.after_start) for one in operations]
        self.mailbox = Mailbox(wild=any(is_wild(one) for one in operations))
        self.left = len(operations)
        self.ended = 0
        self.state = bytearray(len(operations))
        self.busy: set[int] = set()
        self.queues: dict[int, deque[Work]] = defaultdict(deque)
        self.next_sent: dict[int, int] = {}
        self.next_taken: dict[int, int] = {}


class Replay:
    """Runs a workload: :meth:`run` may be called once.

    ``simulator`` is the clock, ``carrier`` moves the messages. ``transfer_time`` returns the time
    (ns) of the bytes of a message, for gaps. ``on_message`` is called with each message when it is
    sent.
    """

    def __init__(
        self,
        workload: Workload,
        simulator: Simulator,
        costs: MessageCosts = MessageCosts(),  # noqa: B008
        transfer_time: Callable[[RankMessage], int] = lambda _: 0,
    ) -> None:
        self.workload = workload
        self.simulator = simulator
        self.costs = costs
        self._transfer_time = transfer_time
        self.carrier: Carrier
        self.on_message: Done = _ignore
        self._ranks = [_Rank(operations) for operations in workload.ranks]
        self._ready: deque[tuple[int, int]] = deque()
        self._is_working = False
        self._sent: dict[tuple[int, int], int] = defaultdict(int)
        self._expected: dict[tuple[int, int], int] = defaultdict(int)
        self._early: dict[tuple[int, int], dict[int, RankMessage]] = defaultdict(dict)

    def run(self) -> list[int]:
        """Run it; return when each rank has ended (ns).

        Raises :class:`WorkloadError` if operations are left that wait for one another, and if a
        message is longer than its receive.
        """
        for number, rank in enumerate(self._ranks):
            self._ready.extend(
                (number, index) for index, count in enumerate(rank.waits) if not count
            )
        self._work()
        self.simulator.run()
        self.carrier.finish()
        left = sum(rank.left for rank in self._ranks)
        if left:
            raise WorkloadError(self._stuck(left))
        return [rank.ended for rank in self._ranks]

    # Operations.

    def _work(self) -> None:
        """Begin all operations that are ready; what they cause may make others ready."""
        if self._is_working:
            return
        self._is_working = True
        while self._ready:
            self._begin(*self._ready.popleft())
        self._is_working = False

    def _begin(self, number: int, index: int) -> None:
        rank = self._ranks[number]
        operation = rank.operations[index]
        if operation.kind is Kind.COMPUTE:
            self._compute(number, index, operation)
        elif operation.kind is Kind.SEND:
            if self.costs.overhead:
                self._occupy(number, (index, self.costs.overhead, self._send))
            else:
                self._started(number, index)
                self._send(number, index)
        else:
            self._started(number, index)
            message = rank.mailbox.post(index, operation)
            if message is not None:
                self._matched(message, index)

    def _compute(self, number: int, index: int, operation: Operation) -> None:
        if operation.size:
            self._occupy(number, (index, operation.size, self._end))
        else:
            self._started(number, index)
            self._end(number, index)

    def _occupy(self, number: int, work: Work) -> None:
        """Occupy the stream of an operation when it is free; an operation begins with it."""
        rank = self._ranks[number]
        index, time, _ = work
        stream = rank.operations[index].stream
        if stream in rank.busy:
            rank.queues[stream].append(work)
            return
        rank.busy.add(stream)
        if not rank.state[index]:
            self._started(number, index)
        end = self.simulator.now + time
        self.simulator.call_at(end, partial(self._occupied, number, stream, work))

    def _occupied(self, number: int, stream: int, work: Work) -> None:
        rank = self._ranks[number]
        rank.busy.discard(stream)
        if rank.queues[stream]:
            self._occupy(number, rank.queues[stream].popleft())
        index, _, done = work
        done(number, index)
        self._work()

    def _started(self, number: int, index: int) -> None:
        rank = self._ranks[number]
        rank.state[index] = _BEGUN
        for after in rank.starts[index]:
            self._release(number, after)

    def _end(self, number: int, index: int) -> None:
        rank = self._ranks[number]
        operation = rank.operations[index]
        if operation.kind is Kind.COMPUTE and operation.move is not None:
            operation.move.apply()
        rank.state[index] = _ENDED
        rank.left -= 1
        rank.ended = self.simulator.now
        for after in rank.ends[index]:
            self._release(number, after)

    def _release(self, number: int, index: int) -> None:
        waits = self._ranks[number].waits
        waits[index] -= 1
        if not waits[index]:
            self._ready.append((number, index))

    # Messages.

    def _send(self, number: int, index: int) -> None:
        operation = self._ranks[number].operations[index]
        pair = number, operation.peer
        message = RankMessage(number, index, operation, self._sent[pair])
        self._sent[pair] += 1
        if operation.move is not None:
            message.payload = operation.move.load()
        self.on_message(message)
        if operation.size <= self.costs.eager:
            self.cleared(message)
            if self.costs.buffered:
                self._end(number, index)
        else:
            message.announced = True
            self.carrier.announce(message)

    def arrived(self, message: RankMessage) -> None:
        """Take a message, or its announcement: the target has it.

        Messages between two ranks are matched in the order in which they were sent.
        """
        if message.receive is not None:
            self._received(message)
            self._work()
            return
        pair = message.source, message.target
        early = self._early[pair]
        early[message.number] = message
        while (found := early.pop(self._expected[pair], None)) is not None:
            self._expected[pair] += 1
            receive = self._ranks[found.target].mailbox.deliver(found)
            if receive is not None:
                self._matched(found, receive)
        self._work()

    def _matched(self, message: RankMessage, receive: int) -> None:
        """Begin the data of a message that was announced; else it is there."""
        message.receive = receive
        room = self._ranks[message.target].operations[receive].size
        if message.size > room:
            text = self.workload.describe(message.target, receive)
            sent = self.workload.describe(message.source, message.index)
            raise WorkloadError(f"{text}, but its message is longer: {sent}")
        if message.announced:
            self.carrier.clear(message)
        else:
            self._received(message)

    def cleared(self, message: RankMessage) -> None:
        """Send a message that needs no receiver, or whose receiver is ready, after the gap."""
        if not self.costs.gap:
            self.carrier.send(message)
            return
        times = self._ranks[message.source].next_sent
        begin = max(self.simulator.now, times.get(message.nic, 0))
        times[message.nic] = begin + self._transfer_time(message) + self.costs.gap
        self._at(begin, partial(self.carrier.send, message))

    def _received(self, message: RankMessage) -> None:
        """Take the data of a message: after the gap, and in the time of the processor.

        Its bytes have come in the meantime, so here the gap does not begin after them.
        """
        if not self.costs.gap:
            self._take(message)
            return
        times = self._ranks[message.target].next_taken
        begin = max(self.simulator.now, times.get(message.nic, 0))
        times[message.nic] = begin + self.costs.gap
        self._at(begin, partial(self._take, message))

    def _at(self, time: int, action: Callable[[], None]) -> None:
        if time == self.simulator.now:
            action()
        else:
            self.simulator.call_at(time, action)

    def _take(self, message: RankMessage) -> None:
        assert message.receive is not None
        operation = self._ranks[message.target].operations[message.receive]
        if operation.move is not None:
            operation.move.store(message.payload or b"")
        if self.costs.overhead:
            work = (message.receive, self.costs.overhead, self._end)
            self._occupy(message.target, work)
        else:
            self._end(message.target, message.receive)
        self._work()

    def awaits_acknowledgment(self, message: RankMessage) -> bool:
        """Return whether the send of a message ends when it is acknowledged."""
        return message.announced or not self.costs.buffered

    def acknowledged(self, message: RankMessage) -> None:
        """End a send that is not buffered: the source knows that its message has arrived."""
        if self.awaits_acknowledgment(message):
            self._end(message.source, message.index)
            self._work()

    # What went wrong.

    def _stuck(self, left: int) -> str:
        counted = f"{plural(left, 'operation')} of {self.workload.operations} not done"
        for number, rank in enumerate(self._ranks):
            for index in rank.mailbox.waiting():
                text = self.workload.describe(number, index)
                return f"{text} waits forever{self._missing(number, index)}; {counted}"
        number, index = next(
            (number, rank.state.index(_BEGUN))
            for number, rank in enumerate(self._ranks)
            if _BEGUN in rank.state
        )
        return f"{self.workload.describe(number, index)} waits forever for a receive; {counted}"

    def _missing(self, number: int, index: int) -> str:
        """Return what is known about a send that a receive waits for."""
        receive = self._ranks[number].operations[index]
        for source, rank in enumerate(self._ranks):
            for place, one in enumerate(rank.operations):
                if rank.state[place] or one.kind is not Kind.SEND or one.peer != number:
                    continue
                if _matches(receive, source, one.tag):
                    return f": {self.workload.name(source, place)} has not begun"
        return ": no message is left for it"


def _ignore(_: RankMessage) -> None:
    """Do nothing: messages are not counted."""
