"""Which frame changed an octet last, or was almost wanted: a scenario is played again, and watched.

The same scenario gives the same frames, so their numbers are those of the first time.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from rdmawire.errors import MemoryFault
from rdmawire.fabric.station import Tap
from rdmawire.fabric.world import Unsettled
from rdmawire.traffic.scenario.model import PacketExpectation, Scenario, Span
from rdmawire.traffic.scenario.playing.near import FEWEST_FIELDS, NearMiss
from rdmawire.traffic.scenario.playing.observe import Observer
from rdmawire.traffic.scenario.playing.player import Player
from rdmawire.traffic.scenario.playing.stage import Stage
from rdmawire.wire.roce import bth_offset

MOST_FRAMES: Final = 1 << 16
"""A run with more is not played again; of so many it is known where they are in the capture."""

MOST_RUNS: Final = 4

_TO_BTH: Final = 12


def _key(frame: bytes) -> bytes:
    """What is the same when a frame is sent and when it arrives: addresses, opcode, QP, PSN."""
    at = bth_offset(frame, 0, len(frame))
    return frame[:_TO_BTH] + (frame[at : at + 1] + frame[at + 5 : at + 12] if at >= 0 else b"")


class Probe:
    """Looks at one octet whenever a frame arrives. ``writer`` is the frame that changed it last."""

    def __init__(self, stage: Stage, span: Span) -> None:
        self.writer: int | None = None
        self._held = stage.held(span)
        self._offset = span.offset
        self._numbers: dict[bytes, int] = {}
        self._sent = 0
        self._arrived: int | None = None
        self._value = self._look()

    def sent(self, frame: bytes, now: int) -> None:  # noqa: ARG002 - a tap
        """A frame comes into the capture."""
        self._sent += 1
        self._numbers[_key(frame)] = self._sent

    def arrives(self, frame: bytes, now: int) -> None:  # noqa: ARG002 - a tap
        """A frame is about to be taken in by the host."""
        self.look()
        self._arrived = self._numbers.get(_key(frame))

    def look(self) -> None:
        """Whether the frame that came before has changed the octet."""
        value = self._look()
        if value != self._value:
            self._value = value
            self.writer = self._arrived

    def _look(self) -> bytes:
        try:
            return self._held.read(self._offset, 1)
        except MemoryFault:
            return b""


class Tracer:
    """Finds who wrote what, for the first few that ask: each answer costs a run.

    ``frames`` is how many the capture has, ``points`` and ``arrived`` say what it is of.
    """

    def __init__(
        self, scenario: Scenario, frames: int, points: tuple[str, ...], *, arrived: bool
    ) -> None:
        self._scenario = scenario
        self._points = points
        self._left = 0 if arrived or frames > MOST_FRAMES else MOST_RUNS

    def writer(self, span: Span) -> int | None:
        """The number of the frame that changed the first octet of a span last, if it is known."""
        if not self._left:
            return None
        stage = Stage(self._scenario)
        probe = Probe(stage, span)
        self._play(stage, probe.sent, lambda _: _tap_arrivals(stage, span.host, probe))
        stage.machines[span.host].flush()
        probe.look()
        return probe.writer

    def nearest(self, plan: PacketExpectation) -> str:
        """A frame that has all fields but one as they are wanted, if that says anything."""
        if not self._left or len(plan.where) < FEWEST_FIELDS:
            return ""
        misses: list[NearMiss] = []

        def look(observer: Observer) -> None:
            misses.append(NearMiss(plan, observer.sender_of(plan)))
            observer.watch(plan, misses[0].at)

        self._play(Stage(self._scenario), None, look)
        return misses[0].text

    def _play(self, stage: Stage, keep: Tap | None, look: Callable[[Observer], None]) -> None:
        """Play it once more."""
        self._left -= 1
        observer = Observer(stage, keep, self._points)
        stage.befall({name: observer.on_loss(name) for name in stage.network.links})
        look(observer)
        Player(stage, observer).start()
        with suppress(Unsettled):
            stage.network.world.run()


def _tap_arrivals(stage: Stage, host: str, probe: Probe) -> None:
    stage.network.tap(host, probe.arrives, arrivals=True)
