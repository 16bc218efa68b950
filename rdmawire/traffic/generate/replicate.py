"""Many rounds at once: one round is recorded for each pattern of losses, and then repeated.

A round depends only on which of its frames are lost, and on the current PSNs, MSNs and time. So
rounds with the same losses are copies of one recording, with the steps applied.
"""

from collections import Counter
from typing import Final

import numpy as np

from rdmawire.capture import Writer
from rdmawire.traffic import summary
from rdmawire.traffic.generate.frame_table import FrameTable
from rdmawire.traffic.generate.link import Pattern, bth_place
from rdmawire.traffic.generate.recording import FieldMovers, FrameRecorder, record
from rdmawire.traffic.generate.rounds import Progress, TestNetwork, chance
from rdmawire.traffic.generate.spec import TrafficSpec
from rdmawire.traffic.generate.stamp import RecordedRound, RoundBatch
from rdmawire.traffic.summary import TrafficSummary

CHUNK: Final = 2 << 20
"""Bytes of rounds written at once, at least one round; they stay in a CPU cache."""
MAX_HELD: Final = 64 << 20
"""Maximum bytes of recordings kept; beyond it all are discarded."""

_HELD_BY_FRAME: Final = 24
"""Bytes that a recorded round keeps of each frame, besides its record."""

Places = tuple[int, ...]
"""Indexes of the lost frames of a round, in sending order."""


class Repetition:
    """Writes the same bytes as :func:`~rdmawire.traffic.generate.rounds.play`."""

    def __init__(self, spec: TrafficSpec, writer: Writer, progress: Progress) -> None:
        self._spec = spec
        self._output = RoundOutput(writer, progress)
        self._losses = chance(spec)
        self._recordings = Recordings(spec, writer)
        self._rounds = self._frames = 0

    @property
    def held(self) -> int:
        """Number of bytes of recordings that are kept."""
        return self._recordings.held

    def run(self) -> TrafficSummary:
        """Write all complete rounds, then the remaining part of a round."""
        if self._spec.frames is None:
            self._run_messages(self._spec.messages or 0)
        else:
            self._run_frames(self._spec.frames)
        return self._output.sum

    def _run_messages(self, messages: int) -> None:
        whole, part = divmod(messages, self._recordings.messages)
        while self._rounds < whole:
            take = self._next()
            self._add(take, self._alike(take, whole - self._rounds))
        if part:
            self._write_part(part)
        self._output.flush()

    def _run_frames(self, frames: int) -> None:
        while (left := frames - self._frames) > 0:
            take = self._next()
            count = len(take.numbers)
            if count < left:
                self._add(take, self._alike(take, (left - 1) // count))
            else:
                self._write_part(self._recordings.messages, left)
                break
        self._output.flush()

    # Selection of the next round.

    def _next(self) -> RecordedRound:
        """Return the next round. Losses change its length, and so which losses are in it."""
        places: Places = ()
        while True:
            take = self._recordings.of(places)
            found = self._losses.within(take.sent)
            if found == tuple(place for place in places if place < take.sent):
                return take
            places = found

    def _alike(self, take: RecordedRound, rounds: int) -> int:
        """Return how many of the next ``rounds`` rounds equal this one and are written at once."""
        count = min(self._output.room // max(take.size, 1), rounds)
        if count <= 1:
            return 1
        lost = self._losses.first(count * take.sent)
        return count if lost is None else max(lost // take.sent, 1)

    # Output.

    def _add(self, take: RecordedRound, count: int) -> None:
        """Add ``count`` rounds like this one."""
        self._output.add(take, count)
        self._losses.pass_by(count * take.sent)
        self._rounds += count
        self._frames += count * len(take.numbers)

    def _write_part(self, messages: int, frames: int | None = None) -> None:
        """Write the beginning of a round, played by new adapters."""
        recording = record(TestNetwork(self._spec), messages, self._losses, frames)
        take = self._recordings.made(recording, 0)
        self._output.add(take, 1)


class Recordings:
    """The recorded rounds, by their losses. ``messages`` is the number of messages of a round.

    ``held`` are the bytes kept: records of distinct frames, and what each round holds of them.
    """

    def __init__(self, spec: TrafficSpec, writer: Writer) -> None:
        self._conversation = TestNetwork(spec)
        self._writer = writer
        self._played = 0
        self._rounds: dict[Places, RecordedRound] = {}
        self._held_by_rounds = 0
        self.messages = len(self._conversation.messages)
        before = self._conversation.ends.positions()
        recording = self._play(())
        self._movers = FieldMovers(bth_place(spec), self._conversation.ends.step(before))
        self._table = FrameTable(writer, self._movers)
        self._keep((), self.made(recording, 0))

    @property
    def held(self) -> int:
        return self._table.size + self._held_by_rounds

    def of(self, places: Places) -> RecordedRound:
        """Return the recorded round in which these frames are lost."""
        found = self._rounds.get(places)
        if found is None:
            if self.held > MAX_HELD:
                self._discard()
            found = self.made(self._play(places), self._played - 1)
            self._keep(places, found)
        return found

    def made(self, recording: FrameRecorder, played: int) -> RecordedRound:
        """Return a round recorded as the ``played``-th of its conversation."""
        numbers = self._table.add(recording, played)
        records = tuple(self._table.records[number] for number in numbers)
        return RecordedRound(
            table=self._table,
            numbers=np.array(numbers, np.intp),
            times=np.array(recording.times, np.int64),
            records=records,
            size=sum(map(len, records)),
            sent=recording.sent,
            duration=recording.duration,
            summary=recording.summary(),
        )

    def _play(self, places: Places) -> FrameRecorder:
        self._played += 1
        return record(self._conversation, self.messages, Pattern(places))

    def _keep(self, places: Places, one: RecordedRound) -> None:
        self._rounds[places] = one
        self._held_by_rounds += _HELD_BY_FRAME * len(one.records)

    def _discard(self) -> None:
        self._rounds.clear()
        self._held_by_rounds = 0
        self._table = FrameTable(self._writer, self._movers)


class RoundOutput:
    """Writes rounds, some at a time. ``sum`` is the summary of the written ones."""

    def __init__(self, writer: Writer, progress: Progress) -> None:
        self.sum = summary.NOTHING
        self._writer = writer
        self._progress = progress
        self._pending: list[RecordedRound] = []
        self._size = 0
        self._written = 0
        self._last: list[RecordedRound] = []
        self._batch: RoundBatch | None = None

    @property
    def room(self) -> int:
        """Number of bytes that can be added before the next are written."""
        return CHUNK - self._size

    def add(self, one: RecordedRound, count: int) -> None:
        """Add ``count`` rounds like this one."""
        if self._pending and (
            self._size + one.size > CHUNK or self._pending[-1].table is not one.table
        ):
            self.flush()
        self._pending += [one] * count
        self._size += count * one.size

    def flush(self) -> None:
        """Write the rounds that were added."""
        pending = self._pending
        if not pending:
            return
        if pending != self._last or self._batch is None:
            self._batch = None  # before the next is made: a batch can be large
            self._batch, self._last = RoundBatch(pending), pending
        self._writer.write_built(self._batch.stamp(self._written, self.sum.virtual_ns))
        self._written += len(pending)
        for one, count in Counter(pending).items():
            self.sum = summary.added(self.sum, summary.repeated(one.summary, count))
        self._pending, self._size = [], 0
        self._progress.report(self.sum)


def repeat(spec: TrafficSpec, writer: Writer, progress: Progress) -> TrafficSummary:
    """Write the same as :func:`~rdmawire.traffic.generate.rounds.play`, many rounds at once."""
    return Repetition(spec, writer, progress).run()
