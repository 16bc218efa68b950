"""Test traffic between adapters, two or more, in rounds."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Final, Protocol

from rdmawire.capture import LinkType, Record
from rdmawire.capture.record import Options
from rdmawire.fabric.capture import comments_on
from rdmawire.fabric.link import FAULT_WORDS
from rdmawire.ib.engine import Nic
from rdmawire.traffic.generate import endpoints as blend
from rdmawire.traffic.generate.endpoints import TestAdapters, Unfinished
from rdmawire.traffic.generate.link import Chance, Losses, Setup, Watcher, bth_place
from rdmawire.traffic.generate.spec import CapturePoint, TrafficSpec, Verb
from rdmawire.traffic.summary import FrameCounter, TrafficSummary, summarise
from rdmawire.wire.opcode import Opcode


class TestNetwork:
    """Adapters on a cable or a switch. ``messages`` are those of one round."""

    def __init__(self, spec: TrafficSpec) -> None:
        self._spec = spec
        self.messages = blend.messages(spec)
        self.ends = TestAdapters(spec, self.messages)
        marks = 1.0 if spec.verb is Verb.CNP else spec.marks or 0.0
        self._setup = Setup(spec, marks)
        self.simulator = self._setup.simulator
        for end in self.ends.hosts:
            self._setup.attach(end.nic, end.mac)
        # Poll the new queue pairs once; from then on all rounds are equal.
        self.simulator.run()
        self._done = 0

    @property
    def nics(self) -> tuple[Nic, ...]:
        """All adapters."""
        return tuple(end.nic for end in self.ends.hosts)

    @property
    def sent(self) -> int:
        """Number of frames that adapters put on their cables."""
        return self._setup.sent

    @property
    def marked(self) -> int:
        """Number of frames marked in transit; 0 for traffic of CNPs only."""
        return 0 if self._spec.verb is Verb.CNP else self._setup.marked

    def play(self, count: int, losses: Losses, watcher: Watcher) -> None:
        """Post the first ``count`` messages of a round, and run until all are completed."""
        if self._spec.verb is Verb.CNP:
            watcher = _CnpsOnly(watcher, bth_place(self._spec))
        self._setup.watch(losses, watcher)
        self.ends.post(count)
        self._done = -count
        if self._spec.marks is None:
            self._rest()
        else:
            self._setup.settle(self._is_done)

    def _rest(self) -> None:
        self._setup.rest()
        if not self._is_done():
            raise Unfinished(f"{-self._done} messages are not done, and nothing goes on")

    def _is_done(self) -> bool:
        self._done += self.ends.poll()
        return not self._done


class _CnpsOnly:
    """Passes on only CNPs, not the frames that cause them."""

    def __init__(self, watcher: Watcher, bth: int) -> None:
        self._watcher = watcher
        self._bth = bth
        self.lost = watcher.lost

    def frame(self, frame: bytes, now: int, lost: bool) -> None:
        if frame[self._bth] == Opcode.CNP:
            self._watcher.frame(frame, now, lost)


OnProgress = Callable[[int, int], object]
"""Called with the finished amount and the total: frames, bytes or messages."""

DATAGRAMS: Final = 5
"""Datagrams of one connection: REQ, REP, RTU, DREQ and DREP."""


class RunCounts(Protocol):
    """The counts so far."""

    @property
    def frames(self) -> int: ...

    @property
    def messages(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    @property
    def frame_bytes(self) -> int: ...

    @property
    def cnps(self) -> int: ...


class Progress:
    """Reports the finished part of a run."""

    def __init__(self, spec: TrafficSpec, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self._count, self._total = _measure(spec)

    def report(self, counted: RunCounts) -> None:
        """Report the counts so far."""
        self._on_progress(min(self._count(counted), self._total), self._total)

    def end(self) -> None:
        """Report that the order is finished."""
        self._on_progress(self._total, self._total)


def _measure(spec: TrafficSpec) -> tuple[Callable[[RunCounts], int], int]:
    """Return the function that measures progress, and the total."""
    if spec.messages is None:
        return lambda counted: counted.frames, spec.frames or 0
    if spec.verb is Verb.CNP:
        return lambda counted: counted.cnps, spec.messages
    if spec.verb is Verb.CM:
        return lambda counted: counted.mads, DATAGRAMS * spec.messages
    data = _bytes(spec, spec.messages)
    if spec.verb is Verb.READ:  # bytes count when requested, long before they arrive
        return lambda counted: counted.frame_bytes, data
    return lambda counted: counted.messages + counted.bytes, data


def _bytes(spec: TrafficSpec, count: int) -> int:
    """Return the bytes of ``count`` messages, plus one for each."""
    lengths = [message.length for message in blend.messages(spec)]
    rounds, part = divmod(count, len(lengths))
    return count + rounds * sum(lengths) + sum(lengths[:part])


ETHERNET: Final = int(LinkType.ETHERNET)
_OFTEN: Final = 1024
"""Frames between two progress reports."""
_LOST: Final[Options] = comments_on((FAULT_WORDS["drop"],))
"""The comment on frames that never arrive, if the format has comments."""


class Taker(Protocol):
    """Takes records: the writer of a capture, or any similar object."""

    def write(self, record: Record) -> object: ...


def lost_options(writer: Taker) -> Options:
    """Return the comment on a lost frame, for a pcapng; a pcap has no comments."""
    return () if getattr(writer, "format", "") == "pcap" else _LOST


class Enough(Exception):
    """Raised to end a run when all requested frames are written."""


class FrameOutput:
    """Writes frames, and ends the run after ``most`` frames (``None``: never)."""

    def __init__(self, writer: Taker, most: int | None, progress: Progress) -> None:
        self.counter = FrameCounter()
        self.losses = 0
        self._write = writer.write
        self._lost_options = lost_options(writer)
        self._most = most
        self._progress = progress

    def frame(self, frame: bytes, now: int, lost: bool) -> None:
        counter = self.counter
        counter.count(frame, now)
        options = self._lost_options if lost else ()
        self._write(Record(frame, now, len(frame), ETHERNET, options=options))
        if not counter.frames % _OFTEN:
            self._progress.report(counter)
        if counter.frames == self._most:
            raise Enough

    def lost(self) -> None:
        self.losses += 1


def chance(spec: TrafficSpec) -> Chance:
    """Return the losses of a run."""
    return Chance(spec.loss, Random(f"{spec.seed}/losses"))  # noqa: S311 - must be repeatable


def play(spec: TrafficSpec, writer: Taker, progress: Progress) -> TrafficSummary:
    """Run all rounds, frame by frame."""
    conversation, losses = TestNetwork(spec), chance(spec)
    output = FrameOutput(writer, spec.frames, progress)
    with suppress(Enough):
        for count in rounds(spec, len(conversation.messages)):
            conversation.play(count, losses, output)
    now = conversation.simulator.now
    summary = summarise(output.counter, conversation.nics, now, lost=output.losses)
    if spec.tap is CapturePoint.ARRIVED:
        return summary
    return summary._replace(marks=conversation.marked)  # set after the tap


def rounds(spec: TrafficSpec, whole: int) -> Iterator[int]:
    """Yield the number of messages of each round; endless if the order counts frames."""
    left = spec.messages
    while left is None or left > 0:
        yield whole if left is None else min(whole, left)
        left = None if left is None else left - whole
