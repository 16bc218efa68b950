"""What a switch is told: its buffer, its marks, its pauses, its paths. All numbers are octets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

from rdmawire.bound import Bound, Kind, Real, Table, Whole, Word
from rdmawire.fabric.egress import SCHEDULERS
from rdmawire.fabric.flow import BY_CLASS_SELECTOR, PRIORITIES
from rdmawire.fabric.refusal import FabricError, check_settings
from rdmawire.snapshot import shared

KIB: Final = 1 << 10
MIB: Final = 1 << 20

_OCTETS: Final = Whole(called="a number of octets")
_PRIORITY: Final = Whole(0, PRIORITIES - 1, "a priority")


@dataclass(frozen=True, slots=True)
class Marking:
    """Random early marking with CE by the length of the queue that a frame comes to.

    None up to ``kmin`` octets, all from ``kmax`` on, and between them a share that grows evenly
    up to ``pmax`` (0.0 to 1.0). With ``departing`` it goes by what a frame leaves behind it: its
    sender hears of the queue as it is now, not as it was when the frame came. Y. Zhu et al., ECN
    or Delay, CoNEXT 2016, section 5.2.
    """

    kmin: int
    kmax: int
    pmax: float = 1.0
    departing: bool = False

    def __post_init__(self) -> None:
        check_settings(self, MARKING)
        if self.kmin > self.kmax:
            raise FabricError(f"{self}: kmin <= kmax is what is allowed")

    @property
    def by_chance(self) -> bool:
        """Whether there is a length at which only some frames are marked."""
        return self.kmin + 1 < self.kmax and self.pmax > 0

    def share(self, octets: int) -> float:
        """How many of the frames are marked that find, or leave, so many octets."""
        if octets >= self.kmax:
            return 1.0 if octets > self.kmin else 0.0
        if octets <= self.kmin:
            return 0.0
        return self.pmax * (octets - self.kmin) / (self.kmax - self.kmin)

    def marks(self, octets: int, random: Random | None) -> bool:
        """Whether a frame is marked. Chance is asked only where it decides."""
        share = self.share(octets)
        if share <= 0.0 or share >= 1.0:
            return share >= 1.0
        return random is not None and random.random() < share


@dataclass(frozen=True, slots=True)
class Pausing:
    """Priority flow control by what one port has brought in of one priority.

    Above ``xoff`` octets the port's peer is told to stop, and when there is no room for a frame of
    its; at ``xon`` or below to go on. Up to ``headroom`` octets beyond ``xoff`` are taken in: what
    was under way, for which :func:`rdmawire.fabric.pause.headroom` says how many are enough.
    """

    xoff: int
    xon: int
    headroom: int

    def __post_init__(self) -> None:
        check_settings(self, PAUSING)
        if self.xon > self.xoff:
            raise FabricError(f"{self}: xon <= xoff is what is allowed")


@dataclass(frozen=True, slots=True)
class Settings:
    """A switch. ``buffer`` is shared by all queues; ``queue`` is the most that one queue may hold.

    ``priorities`` maps DSCPs to priorities (those that are not there have 0). ``marking`` and
    ``pausing`` are by priority; what has ``pausing`` is bounded by it, not by ``queue``.
    ``scheduling`` is strict or round_robin. ``seed`` turns the choice among equal paths.
    ``addresses`` is how many MAC addresses it learns.
    """

    buffer: int = 16 * MIB
    queue: int = MIB
    priorities: Mapping[int, int] = field(default_factory=lambda: BY_CLASS_SELECTOR)
    marking: Mapping[int, Marking] = field(default_factory=dict)
    pausing: Mapping[int, Pausing] = field(default_factory=dict)
    scheduling: str = "strict"
    seed: int = 0
    addresses: int = 1 << 14

    __deepcopy__ = shared

    def __post_init__(self) -> None:
        check_settings(self, SETTINGS)


MARKING: Final[dict[str, Bound]] = {
    "kmin": _OCTETS,
    "kmax": _OCTETS,
    "pmax": Real(0, 1),
    "departing": Kind(bool),
}
PAUSING: Final[dict[str, Bound]] = {"xoff": _OCTETS, "xon": _OCTETS, "headroom": _OCTETS}
SETTINGS: Final[dict[str, Bound]] = {
    "buffer": _OCTETS,
    "queue": _OCTETS,
    "priorities": Table(Whole(0, 63, "a DSCP"), _PRIORITY),
    "marking": Table(_PRIORITY, Kind(Marking)),
    "pausing": Table(_PRIORITY, Kind(Pausing)),
    "scheduling": Word(tuple(SCHEDULERS)),
    "seed": Kind(int),
    "addresses": Whole(called="a number of addresses"),
}
"""What each setting may be, by class."""
