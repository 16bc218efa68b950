"""What a switch is told: its buffer, its marks, its pauses, its paths. All numbers are octets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

from rdmawire.fabric.egress import SCHEDULERS
from rdmawire.fabric.flow import BY_CLASS_SELECTOR, PRIORITIES
from rdmawire.fabric.refusal import FabricError

KIB: Final = 1 << 10
MIB: Final = 1 << 20


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
        if not (0 <= self.kmin <= self.kmax and 0.0 <= self.pmax <= 1.0):
            raise FabricError(f"{self}: 0 <= kmin <= kmax and 0 <= pmax <= 1 are what is allowed")

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
        if share <= 0.0 or random is None:
            return False
        return share >= 1.0 or random.random() < share


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
        if not (0 <= self.xon <= self.xoff and self.headroom >= 0):
            raise FabricError(f"{self}: 0 <= xon <= xoff and 0 <= headroom are what is allowed")


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

    def __post_init__(self) -> None:
        if self.scheduling not in SCHEDULERS:
            known = ", ".join(SCHEDULERS)
            raise FabricError(f"scheduling {self.scheduling!r} is not one of {known}")
        named = {*self.priorities.values(), *self.marking, *self.pausing}
        if wrong := sorted(p for p in named if p not in range(PRIORITIES)):
            raise FabricError(f"priority {wrong[0]} is not one of 0 to {PRIORITIES - 1}")
