"""The capture of a scenario: of which places it has the frames, and their numbers in it."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

from rdmawire.fabric.capture import CaptureTap
from rdmawire.fabric.errors import FabricError
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.simulator import Tap
from rdmawire.screen import quoted
from rdmawire.traffic.scenario.model import link_called
from rdmawire.traffic.scenario.playing.numbers import Numbers
from rdmawire.traffic.scenario.playing.stage import Stage


class UnknownPoint(FabricError):
    """A capture was asked for of a place that there is not."""


class Place(NamedTuple):
    """A link, a host or a switch's port, and which end of the way: where frames arrive, or go."""

    name: str
    arrived: bool

    @property
    def title(self) -> str:
        """As a capture of it is asked for."""
        return f"{self.name} --arrived" if self.arrived else self.name


class FrameCount:
    """Counts the frames that pass a place."""

    def __init__(self) -> None:
        self.frames = 0

    def __call__(self, frame: Envelope, now: int) -> None:  # noqa: ARG002 - a tap
        """A frame passes."""
        self.frames += 1


class Recording(FrameCount):
    """Counts the frames of the capture, which ``keep`` writes if there is to be one.

    It has everything that is sent, once; or what passes ``points``: links, hosts or switches'
    ports, whose names interfaces have then. With ``arrived`` it has them where they arrive.
    ``places`` are those all of whose frames are among them, ``numbers`` knows the frames.
    """

    def __init__(self, stage: Stage, keep: Tap | None, points: Iterable[str], *, arrived: bool):
        super().__init__()
        self._stage = stage
        self._network = stage.network
        self.numbers = Numbers()
        self._link = ""
        named = list(dict.fromkeys(map(self._named, points)))
        names = named or list(self._everywhere())
        for name in names:
            own = keep.point(name) if named and isinstance(keep, CaptureTap) else keep
            self._network.tap(name, self._tap(name, own), arrivals=arrived)
        if isinstance(keep, CaptureTap) and not arrived:
            self._hear(keep)
        self.places = {Place(name, arrived) for name in (*names, *self._ends_of(names))}

    def _named(self, point: str) -> str:
        """The point that a word names; a link is named from either end."""
        known = [*self._network.links, *self._network.attachments]
        name = link_called(point, known)
        if name not in known:
            raise UnknownPoint(f"{quoted(point)} is none of {', '.join(known)}")
        return name

    def _everywhere(self) -> Iterator[str]:
        """Links between two hosts, and all other hosts that are on a link."""
        hosts = self._stage.machines
        covered: set[str] = set()
        for link in self._stage.scenario.links:
            if all(end in hosts for end in link.ends):
                covered.update(link.ends)
                yield link.name
        yield from (
            name for name in self._network.attachments if name in hosts and name not in covered
        )

    def _ends_of(self, points: list[str]) -> Iterator[str]:
        """Hosts all of whose frames a link shows before any tap of their own."""
        for link in self._stage.scenario.links:
            if link.name in points:
                yield from link.ends

    def _tap(self, name: str, keep: Tap | None) -> Tap:
        """What numbers the frames of a place, and has them written."""
        link = self._link_of(name)

        def take(frame: Envelope, now: int) -> None:
            self.frames += 1
            if self.numbers.needed:
                self.numbers.add(frame, self.frames)
            self._link = link
            if keep is not None:
                keep(frame, now)

        return take

    def _link_of(self, name: str) -> str:
        """The link that a place is on: itself, or that of a host or a port."""
        if name in self._network.links:
            return name
        one, _, other = name.partition(":")
        ends = {one, other} if other else {one}
        return next(link.name for link in self._stage.scenario.links if ends <= {*link.ends})

    def _hear(self, keep: CaptureTap) -> None:
        """Have it told what befell the frames that it has from the very link."""
        for name, link in self._network.links.items():
            link.on_carried.append(partial(self._carried, keep, name))

    def _carried(
        self, keep: CaptureTap, link: str, frame: Envelope, words: tuple[str, ...]
    ) -> None:
        if link == self._link:
            keep.carried(frame, words)
