"""Many rounds at once: each is played once for each pattern of losses, and then repeated.

What a round does depends on which of its frames are lost, and on nothing else but where PSNs,
MSNs and time stand. So rounds in which the same frames are lost are one recording, moved on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rdmawire.capture import Writer
from rdmawire.traffic import summary
from rdmawire.traffic.generate.conversation import Conversation
from rdmawire.traffic.generate.ends import Position
from rdmawire.traffic.generate.order import Order
from rdmawire.traffic.generate.playing import Told, chance
from rdmawire.traffic.generate.recording import Recording, movers, record
from rdmawire.traffic.generate.setup import bth_place
from rdmawire.traffic.generate.stamp import CHUNK, Stamp
from rdmawire.traffic.summary import Summary

MOST_HELD: Final = 64 << 20
"""Octets of recordings that are kept; it begins anew after that many."""

Pattern = tuple[int, ...]
NO_LOSS: Final[Pattern] = ()


@dataclass(frozen=True, slots=True)
class Take:
    """A recorded round, the ``played``-th of its conversation, and what repeats it."""

    recording: Recording
    stamp: Stamp
    summary: Summary
    played: int


class Repetition:
    """Writes what :func:`~rdmawire.traffic.generate.playing.play` does, the same octets.

    There must be two whole rounds at least.
    """

    def __init__(self, order: Order, writer: Writer, told: Told) -> None:
        self._order = order
        self._writer = writer
        self._told = told
        self._losses = chance(order)
        self._conversation = Conversation(order)
        self._played = 0
        self._takes: dict[Pattern, Take] = {}
        self._held = 0
        self._steps: dict[int, Position] = {}
        self._rounds = 0
        self._sum = summary.NOTHING

    def run(self) -> Summary:
        """All rounds, the last of them as far as it is asked for."""
        whole, part = divmod(self._order.messages or 0, len(self._conversation.messages))
        while self._order.frames or self._rounds < whole:
            take = self._next(self._take)
            left = (self._order.frames or 0) - self._sum.frames
            if self._order.frames and left <= take.summary.frames:
                self._write_part(take, left)
                return self._sum
            self._write(take, self._alike(take, whole - self._rounds, left))
        if part:
            self._write(self._next(lambda pattern: self._part(part, pattern)), 1)
        return self._sum

    # Which round comes next.

    def _next(self, take_of: Callable[[Pattern], Take]) -> Take:
        """The next round. Losses change how long it is, and so which losses are in it."""
        pattern = NO_LOSS
        while True:
            take = take_of(pattern)
            sent = take.recording.sent
            found = self._losses.within(sent)
            if found == tuple(place for place in pattern if place < sent):
                return take
            pattern = found

    def _take(self, pattern: Pattern) -> Take:
        """A whole round in which these frames are lost."""
        take = self._takes.get(pattern)
        if take is None:
            take = self._played_take(pattern)
            if self._held > MOST_HELD:
                self._takes.clear()
                self._held = 0
            self._takes[pattern] = take
            self._held += take.stamp.size
        return take

    def _played_take(self, pattern: Pattern) -> Take:
        conversation = self._conversation
        before = conversation.ends.positions()
        recording = record(conversation, len(conversation.messages), pattern)
        self._steps = conversation.ends.step(before)
        self._played += 1
        return self._taken(recording, self._played - 1, pattern)

    def _part(self, count: int, pattern: Pattern) -> Take:
        """The first so many messages of a round, by adapters that have not sent anything yet."""
        return self._taken(record(Conversation(self._order), count, pattern), 0, pattern)

    def _taken(self, recording: Recording, played: int, pattern: Pattern) -> Take:
        moving = list(movers(recording.frames, bth_place(self._order), self._steps))
        rows = 1 if pattern else CHUNK
        stamp = Stamp(recording, moving, self._writer, rows)
        return Take(recording, stamp, recording.summary(), played)

    def _alike(self, take: Take, rounds: int, frames: int) -> int:
        """How many rounds from here on are like this one: no more are left, and none lost."""
        most = (frames - 1) // take.summary.frames if self._order.frames else rounds
        count = min(take.stamp.rows, most)
        lost = self._losses.within(count * take.recording.sent)
        return max(lost[0] // take.recording.sent, 1) if lost else count

    # What is written.

    def _write(self, take: Take, count: int) -> None:
        """So many rounds like this one."""
        self._writer.write_built(self._octets(take, count))
        self._advance(take, summary.repeated(take.summary, count), count)

    def _write_part(self, take: Take, frames: int) -> None:
        """The first frames of a round, which goes on unseen."""
        octets = self._octets(take, 1)[: take.stamp.ends[frames]]
        self._writer.write_built(octets)
        self._advance(take, take.recording.summary(frames), 1)

    def _octets(self, take: Take, count: int) -> memoryview:
        shift = self._rounds - take.played
        return take.stamp.rounds(shift, self._sum.virtual_ns, count, take.recording.duration)

    def _advance(self, take: Take, done: Summary, count: int) -> None:
        self._losses.pass_by(count * take.recording.sent)
        self._rounds += count
        self._sum = summary.added(self._sum, done)
        frames = self._order.frames is not None
        messages = self._rounds * len(self._conversation.messages)
        self._told(self._sum.frames if frames else min(messages, self._order.messages or 0))
