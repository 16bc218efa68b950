"""Captures of frames in a fabric, and samples of values over virtual time.

::

    sampler = Sampler(network.simulator, us(20))
    queue = sampler.watch(lambda: port.egress.bytes[0])
    rate = sampler.rate(lambda: meter.bytes[mac])
    sampler.begin(until=ms(5))
    network.simulator.run()
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Final, Self

from rdmawire.capture import Interface, LinkType, Record, create_capture
from rdmawire.capture.io import STREAM, AnyPath
from rdmawire.capture.record import COMMENT, Options
from rdmawire.capture.writer import format_named
from rdmawire.errors import FabricError
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.simulator import Simulator, Tap
from rdmawire.units import seconds
from rdmawire.validate import PERIOD, check
from rdmawire.wire.erf import ERF, ERFType
from rdmawire.wire.roce import Medium

_NANOSECONDS: Final = 1_000_000_000


def comments_on(words: Iterable[str]) -> Options:
    """Comments on a frame: the effects of faults on its link."""
    return tuple((COMMENT, f"{word} on the link".encode()) for word in words)


_Seen = tuple[int, int]
"""Number of a frame, and of its hop."""


def _of(frame: Envelope) -> _Seen:
    return frame.id, frame.hops


def _endace_record(packet: bytes, time_ns: int) -> bytes:
    """Return a native InfiniBand packet as a record of Endace's format, with its time."""
    # Rounded up, so that a reader which rounds down has the same ns (a fraction is 0.23 ns).
    stamp = -(-(time_ns << 32) // _NANOSECONDS)
    size = len(packet)
    ts = stamp.to_bytes(8, "little")
    header = ERF(ts, type=ERFType.INFINIBAND, vlen=1, rlen=ERF.SIZE + size, wlen=size)
    return header.build() + packet


class CaptureTap:
    """Writes frames to a pcap or pcapng, by the path's suffix, with nanosecond times.

    The path ``-`` is standard output, always a pcapng, since only that format has comments.

    Time 0 of the simulator is ``epoch``, in ns since 1970. Use it in a ``with`` statement, or
    ``close`` it, to complete the file. A frame that is too long for a capture ends the run
    with a ``CaptureError``.

    In a pcapng, frames have comments such as ``lost on the link`` if ``carried`` is in
    :attr:`rdmawire.fabric.link.Link.on_carried`. With ``Medium.INFINIBAND`` packets are written as
    records of Endace's format, which Wireshark reads; it cannot read a link type of InfiniBand.
    """

    def __init__(self, path: AnyPath, epoch: int = 0, *, medium: Medium = Medium.ETHERNET) -> None:
        by_name = None if os.fsdecode(path) != STREAM else "pcapng"
        self._link_type = LinkType.ERF if medium is Medium.INFINIBAND else LinkType.ETHERNET
        is_pcap = (by_name or format_named(path) or "pcap") == "pcap"
        kind = self._link_type if is_pcap else None  # a pcapng says it for each interface
        self._writer = create_capture(path, format=by_name, link_type=kind)
        self._epoch = epoch
        self._has_comments = self._writer.format == "pcapng"
        self._unnamed: int | None = None
        self._pending: list[tuple[_Seen, Record]] = []

    def __call__(self, frame: Envelope, now: int) -> None:
        self._keep(frame, now, self._interface())

    def point(self, name: str) -> Tap:
        """Return a tap that writes to an interface ``name`` of the same file.

        A pcap has no interfaces: ``name`` is ignored.
        """
        number = self._add(name) if self._has_comments else 0
        return lambda frame, now: self._keep(frame, now, number)

    def carried(self, frame: Envelope, words: Iterable[str]) -> None:
        """Add comments on faults to the frame that the tap has just received."""
        options = comments_on(words)
        if options:
            self._pending = [
                (seen, record._replace(options=options) if seen == _of(frame) else record)
                for seen, record in self._pending
            ]
        self._settle()

    def __deepcopy__(self, _: object) -> Self:
        """Raise ``FabricError``: two simulators cannot write one file."""
        raise FabricError(
            "a simulator that is being captured cannot be copied: remove the tap first"
        )

    def _interface(self) -> int:
        """Interface of frames without a named point."""
        if self._unnamed is None:
            self._unnamed = self._add("") if self._has_comments else 0
        return self._unnamed

    def _add(self, name: str) -> int:
        return self._writer.add_interface(
            Interface(self._link_type, name=name, resolution=_NANOSECONDS)
        )

    def _keep(self, frame: Envelope, now: int, interface: int) -> None:
        """Write a frame; in a pcapng once its faults are known."""
        time = self._epoch + now
        native = self._link_type is LinkType.ERF
        data = _endace_record(frame.data, time) if native else frame.data
        record = Record(data, time, len(data), self._link_type, interface)
        if not self._has_comments:
            self._writer.write(record)
            return
        if self._pending and self._pending[-1][0] != _of(frame):
            self._settle()
        self._pending.append((_of(frame), record))

    def _settle(self) -> None:
        for _, record in self._pending:
            self._writer.write(record)
        self._pending.clear()

    def _finish(self) -> None:
        self._settle()
        if not self._writer.interfaces:
            self._interface()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._writer.discard()

    def close(self) -> None:
        """Complete the file, as leaving the statement does; ``CaptureError`` on failure."""
        with self._writer:
            self._finish()


Question = Callable[[], float]

_SECOND = seconds(1)
_BITS = 8


class Meter:
    """A tap that counts bytes (``bytes``) of frames by their source MAC address."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes: Counter[bytes] = Counter()

    def __call__(self, frame: Envelope, now: int) -> None:  # noqa: ARG002 - a tap
        """Count a frame."""
        self.bytes[frame.data[6:12]] += len(frame.data)


class Sampler:
    """Evaluates functions every ``every`` ns of virtual time; ``times`` are the sample times."""

    def __init__(self, simulator: Simulator, every: int) -> None:
        check("Sampler.every", every, PERIOD, FabricError)
        self.simulator = simulator
        self.every = every
        self.times: list[int] = []
        self._questions: list[tuple[Question, list[float]]] = []

    def watch(self, question: Question) -> list[float]:
        """Sample a function. Return the list of its values, one for each of ``times``."""
        answers: list[float] = []
        self._questions.append((question, answers))
        return answers

    def rate(self, data: Question) -> list[float]:
        """Sample the growth of a byte counter, in bits per second since the last sample."""
        return self.watch(partial(self._growth, data, [data()]))

    def _growth(self, data: Question, last: list[float]) -> float:
        now = data()
        grown = now - last.pop()
        last.append(now)
        return grown * _BITS * _SECOND / self.every

    def begin(self, until: int) -> None:
        """Sample from now on, first after ``every`` ns, up to the time ``until`` (ns)."""
        time = self.simulator.now + self.every
        if time <= until:
            self.simulator.call_at(time, partial(self._ask, until))

    def _ask(self, until: int) -> None:
        self.times.append(self.simulator.now)
        for question, answers in self._questions:
            answers.append(question())
        self.begin(until)
