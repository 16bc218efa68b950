"""Series over virtual time: questions asked of a world every so often, and what was answered.

::

    sampler = Sampler(network.world, us(20))
    queue = sampler.watch(lambda: port.egress.octets[0])
    rate = sampler.rate(lambda: meter.octets[mac])
    sampler.begin(until=ms(5))
    network.world.run()
"""

from collections import Counter
from collections.abc import Callable
from functools import partial

from rdmawire.bound import PERIOD
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.refusal import check_values
from rdmawire.fabric.world import World
from rdmawire.units import seconds

Question = Callable[[], float]

_SECOND = seconds(1)
_BITS = 8


class Meter:
    """A tap that counts ``octets`` of frames by the MAC address that they come from."""

    __slots__ = ("octets",)

    def __init__(self) -> None:
        self.octets: Counter[bytes] = Counter()

    def __call__(self, frame: Envelope, now: int) -> None:  # noqa: ARG002 - a tap
        """A frame passes."""
        self.octets[frame.data[6:12]] += len(frame.data)


class Sampler:
    """Asks every ``every`` ns of virtual time. ``times`` (ns) are those at which it asked."""

    def __init__(self, world: World, every: int) -> None:
        check_values("Sampler", {"every": every}, {"every": PERIOD})
        self.world = world
        self.every = every
        self.times: list[int] = []
        self._questions: list[tuple[Question, list[float]]] = []

    def watch(self, question: Question) -> list[float]:
        """The list that the answers will stand in, one for each of ``times``."""
        answers: list[float] = []
        self._questions.append((question, answers))
        return answers

    def rate(self, octets: Question) -> list[float]:
        """As :meth:`watch`, for a number of octets that grows: bits a second since last asked."""
        return self.watch(partial(self._growth, octets, [octets()]))

    def _growth(self, octets: Question, last: list[float]) -> float:
        now = octets()
        grown = now - last.pop()
        last.append(now)
        return grown * _BITS * _SECOND / self.every

    def begin(self, until: int) -> None:
        """Ask from now on, the first time in one step, up to the time ``until`` (ns)."""
        time = self.world.now + self.every
        if time <= until:
            self.world.at(time, partial(self._ask, until))

    def _ask(self, until: int) -> None:
        self.times.append(self.world.now)
        for question, answers in self._questions:
            answers.append(question())
        self.begin(until)
