"""The replay: a capture's frames are fed to our NIC, which must send what the captured end sent.

The captured order rules. A frame of the peer is received at its time; a frame of the end itself
asks our NIC for its next one, and before that, if it begins a message, the work is posted that
became it. Our NIC is never asked for more than was sent, so it has come just as far when the next
answer arrives. What it is asked for in vain it may owe to a timer: then the clock moves on to
that, and stays ahead of the capture's by as much.
"""

from collections import defaultdict, deque
from typing import NamedTuple

from rdmawire.verbs.profile import RXE_6_1, RXE_6_12, Profile
from rdmawire.wire import roce
from rdmawire.wire.ib import AETH, Ack
from rdmawire.wire.opcode import SHAPES
from tests.ib.replay.capture import Seen
from tests.ib.replay.conversation import Pair, Side
from tests.ib.replay.end import End, Line, Shape, plain
from tests.ib.replay.exceptions import SPURIOUS
from tests.ib.replay.facts import LOST, TWICE, options
from tests.ib.replay.memory import Written, before
from tests.ib.replay.posted import Message

RECEIVES = 64
_Stream = tuple[Pair, bool]
"""The queue pair that frames come from, and whether they are responses: these keep their order."""


class Compared(NamedTuple):
    """A frame of the captured end, and ours in its place; ``None`` where we sent none."""

    captured: Seen
    ours: bytes | None


class Wait(NamedTuple):
    """A frame that a timer sent: when ours fired (ns), on the clock of the replay, and Linux's."""

    captured: Seen
    ours: int
    linux: int


def kernel_of(side: Side) -> Profile:
    """The profile of the kernel that a capture is of, by its name."""
    return RXE_6_12 if side.capture.name.startswith("rxe612") else RXE_6_1


class Replay:
    """One end of a capture, played by our NIC.

    It is asked for its answers after each request, as Linux's responder answers one request at a
    time; in ``bursts``, only when the captured end answered. Its requests are those that the
    captured end had come to; a ``hasty`` one sends all that it may as soon as work is posted.
    The ``profile`` is that of the capture's kernel, if none is given.
    """

    def __init__(
        self,
        side: Side,
        *,
        bursts: bool = False,
        hasty: bool = False,
        shape: Shape = plain,
        profile: Profile | None = None,
    ) -> None:
        self.side = side
        self.end = End(side, options(side), shape, profile or kernel_of(side))
        self.nic = self.end.nic
        self.compared: list[Compared] = []
        self.waits: list[Wait] = []
        self.written = Written()
        self._bursts, self._hasty = bursts, hasty
        self._last_rnr = {pair: self._rnr_naks(pair)[-1:] for pair in self.end.lines}
        self._lost = LOST.get(side.capture.name, frozenset())
        self._twice = TWICE.get(side.capture.name, frozenset())
        self._spurious = SPURIOUS.get(side.capture.name, frozenset())
        self._now = self._ahead = 0
        self._fired: int | None = None
        self._sent: dict[_Stream, deque[bytes]] = defaultdict(deque)
        self._taken: set[tuple[Pair, int]] = set()

    def run(self) -> "Replay":
        self.end.connect()
        for pair, line in self.end.lines.items():
            if not self._last_rnr[pair]:
                self.end.post_receives(line, RECEIVES)
        for seen in self.side.capture.frames:
            self._set_clock(seen.time)
            if seen.source == self.side.gid:
                self._expect(seen)
            elif seen.number not in self._lost:
                self._receive(seen)
        return self

    def _set_clock(self, time: int) -> None:
        """It is so late in the capture; what is due is done."""
        self._now = time + self._ahead
        while (due := self.nic.next_timer()) is not None and due <= self._now:
            self._fire(due)

    def _fire(self, due: int) -> None:
        self._fired = due
        self.nic.handle_timer(due)

    def _rnr_naks(self, pair: Pair) -> list[Seen]:
        """Where the captured end said that it has no receive: its program posted them late."""
        responses = self.side.of(pair, self.side.sent, response=True)
        return [seen for seen in responses if _ack(seen) == Ack.RNR_NAK]

    # Frames of the peer.

    def _receive(self, seen: Seen) -> None:
        line = self.end.lines[self.side.pair_of(seen)]
        for _ in range(2 if seen.number in self._twice else 1):
            if not seen.shape.response:
                self._set_memory(line, seen)
            self.nic.receive(seen.data, self._now)
            if not seen.shape.response and not self._bursts:
                self._drain()

    def _set_memory(self, line: Line, seen: Seen) -> None:
        """A message is done with this frame; what it found and no peer wrote, the program put."""
        message = self._done_with(line, seen)
        if message is None:
            return
        if message.is_read or message.is_atomic:
            self.written.fill_in(self.end.space, *before(message, line.answers_of_ours))
        self.written.add(message, line.answers_of_ours)

    def _done_with(self, line: Line, seen: Seen) -> Message | None:
        """The message that this frame ends for the first time, if it was accepted."""
        key = (line.pair, seen.psn)
        found = line.accepted_by_end.get(seen.psn)
        if found is None or key in self._taken:
            return None
        self._taken.add(key)
        return found

    # Frames of the end.

    def _expect(self, seen: Seen) -> None:
        if seen.number in self._spurious:
            return
        line = self.end.lines[self.side.pair_of(seen)]
        if seen.number in line.first_frames:
            self.end.post(line, line.first_frames[seen.number], self._now)
            if self._hasty:
                self._drain()
        self.compared.append(Compared(seen, self._next(line, seen)))
        if not seen.shape.response:
            self._note_wait(seen)
        elif seen in self._last_rnr[line.pair]:
            self.end.post_receives(line, RECEIVES)

    def _note_wait(self, seen: Seen) -> None:
        if self._fired is not None:
            self.waits.append(Wait(seen, self._fired, seen.time + self._ahead))
            self._ahead += self._now - self.waits[-1].linux
            self._fired = None

    def _next(self, line: Line, seen: Seen) -> bytes | None:
        """Our next frame of this kind."""
        sent = self._sent[line.pair, seen.shape.response]
        while not sent:
            if not self._pull() and not self._wait(seen):
                return None
        return sent.popleft()

    def _pull(self) -> bool:
        """Ask our NIC for a frame."""
        frames = self.nic.transmit(self._now, 1)
        for data in frames:
            frame = roce.parse(data)
            seen = Seen(0, self._now, data, frame)
            self._sent[self.side.pair_of(seen), SHAPES[frame.packet.bth.opcode].response].append(
                data
            )
        return bool(frames)

    def _drain(self) -> None:
        while self._pull():
            pass

    def _wait(self, seen: Seen) -> bool:
        """Let the clock go on to the next timer; only a request waits for one."""
        due = self.nic.next_timer()
        if due is None or seen.shape.response:
            return False
        self._now = max(due, self._now)
        self._fire(due)
        return True

    # Afterwards.

    def left_over(self) -> list[bytes]:
        """What our NIC would send besides, without waiting."""
        self._drain()
        return [data for sent in self._sent.values() for data in sent]

    def give_up(self) -> None:
        """Let one more timer fire."""
        due = self.nic.next_timer()
        assert due is not None
        self.nic.handle_timer(due)
        self._drain()


def _ack(seen: Seen) -> int | None:
    aeth = seen.header(AETH)
    return aeth.ack if aeth else None
