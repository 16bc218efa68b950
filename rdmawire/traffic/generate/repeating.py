"""Many rounds at once: each is played once for each pattern of losses, and then repeated.

What a round does depends on which of its frames are lost, and on nothing else but where PSNs,
MSNs and time stand. So rounds in which the same frames are lost are one recording, moved on.
"""

from dataclasses import dataclass
from typing import Final

from rdmawire.capture import Writer
from rdmawire.traffic import summary
from rdmawire.traffic.generate.conversation import Conversation
from rdmawire.traffic.generate.ends import Position
from rdmawire.traffic.generate.losses import Pattern
from rdmawire.traffic.generate.order import Order
from rdmawire.traffic.generate.playing import chance
from rdmawire.traffic.generate.progress import Progress
from rdmawire.traffic.generate.recording import Recording, movers, record
from rdmawire.traffic.generate.setup import bth_place
from rdmawire.traffic.generate.stamp import CHUNK, Stamp
from rdmawire.traffic.summary import Summary

MOST_HELD: Final = 64 << 20
"""Octets of recordings that are kept; it begins anew after that many."""

Places = tuple[int, ...]
"""Which frames of a round are lost, by their order on the cable."""


@dataclass(frozen=True, slots=True)
class Take:
    """A recorded round, the ``played``-th of its conversation, and what repeats it."""

    recording: Recording
    stamp: Stamp
    summary: Summary
    played: int


class Repetition:
    """Writes what :func:`~rdmawire.traffic.generate.playing.play` does, the same octets."""

    def __init__(self, order: Order, writer: Writer, progress: Progress) -> None:
        self._order = order
        self._writer = writer
        self._progress = progress
        self._losses = chance(order)
        self._conversation = Conversation(order)
        self._messages = len(self._conversation.messages)
        self._steps: dict[int, Position] = {}
        self._played = 0
        self._takes: dict[Places, Take] = {}
        self._held = 0
        self._rounds = 0
        self._sum = summary.NOTHING

    def run(self) -> Summary:
        """All whole rounds, then the part of one that is left."""
        if self._order.frames is None:
            self._run_messages(self._order.messages or 0)
        else:
            self._run_frames(self._order.frames)
        return self._sum

    def _run_messages(self, messages: int) -> None:
        whole, part = divmod(messages, self._messages)
        while self._rounds < whole:
            take = self._next()
            self._write(take, self._alike(take, whole - self._rounds))
        if part:
            self._write_part(part)

    def _run_frames(self, frames: int) -> None:
        while (left := frames - self._sum.frames) > 0:
            take = self._next()
            if take.summary.frames < left:
                self._write(take, self._alike(take, (left - 1) // take.summary.frames))
            else:
                self._write_part(self._messages, left)

    # Which round comes next.

    def _next(self) -> Take:
        """The next round. Losses change how long it is, and so which losses are in it."""
        places: Places = ()
        while True:
            take = self._take(places)
            sent = take.recording.sent
            found = self._losses.within(sent)
            if found == tuple(place for place in places if place < sent):
                return take
            places = found

    def _take(self, places: Places) -> Take:
        """The round in which these frames are lost."""
        take = self._takes.get(places)
        if take is None:
            take = self._played_take(places)
            if self._held > MOST_HELD:
                self._takes.clear()
                self._held = 0
            self._takes[places] = take
            self._held += take.stamp.size
        return take

    def _played_take(self, places: Places) -> Take:
        conversation = self._conversation
        before = conversation.ends.positions()
        recording = record(conversation, self._messages, Pattern(places))
        self._steps = conversation.ends.step(before)
        self._played += 1
        rows = 1 if places else CHUNK
        return self._taken(recording, self._played - 1, rows)

    def _taken(self, recording: Recording, played: int, rows: int) -> Take:
        moving = list(movers(recording.frames, bth_place(self._order), self._steps))
        stamp = Stamp(recording, moving, self._writer, rows)
        return Take(recording, stamp, recording.summary(), played)

    def _alike(self, take: Take, rounds: int) -> int:
        """How many of so many rounds are like this one, one after the other, and made at once."""
        count = min(take.stamp.rows, rounds)
        lost = self._losses.first(count * take.recording.sent)
        return count if lost is None else max(lost // take.recording.sent, 1)

    # What is written.

    def _write(self, take: Take, count: int) -> None:
        """So many rounds like this one."""
        shift, duration = self._rounds - take.played, take.recording.duration
        octets = take.stamp.rounds(shift, self._sum.virtual_ns, count, duration)
        self._writer.write_built(octets)
        self._losses.pass_by(count * take.recording.sent)
        self._rounds += count
        self._sum = summary.added(self._sum, summary.repeated(take.summary, count))
        self._progress.tell(self._sum)

    def _write_part(self, messages: int, frames: int | None = None) -> None:
        """The beginning of a round, played by adapters that have not sent anything yet."""
        recording = record(Conversation(self._order), messages, self._losses, frames)
        take = self._taken(recording, 0, 1)
        octets = take.stamp.rounds(self._rounds, self._sum.virtual_ns, 1, recording.duration)
        self._writer.write_built(octets)
        self._sum = summary.added(self._sum, take.summary)


def repeat(order: Order, writer: Writer, progress: Progress) -> Summary:
    """What :func:`~rdmawire.traffic.generate.playing.play` does, many rounds at once."""
    return Repetition(order, writer, progress).run()
