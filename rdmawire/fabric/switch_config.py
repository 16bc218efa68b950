"""Configuration of switches: buffer, queues, ECN, PFC, equal paths. Sizes are in bytes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

from rdmawire.errors import FabricError
from rdmawire.fabric.classify import BY_CLASS_SELECTOR, PRIORITIES
from rdmawire.fabric.port_queue import SCHEDULERS
from rdmawire.snapshot import shared
from rdmawire.validate import (
    Constraint,
    InstanceOf,
    Integer,
    MappingOf,
    Number,
    OneOf,
    check_attributes,
)

KIB: Final = 1 << 10
MIB: Final = 1 << 20

BALANCINGS: Final = ("flow", "packet", "adaptive")
"""What chooses one of several equal paths."""
_BYTES: Final = Integer(called="a number of bytes")
_PRIORITY: Final = Integer(0, PRIORITIES - 1, "a priority")


@dataclass(frozen=True, slots=True)
class Marking:
    """ECN marking by queue length (RED): CE on frames that enter a long queue.

    Up to ``kmin`` bytes no frame is marked, from ``kmax`` on every frame; between them the
    probability grows linearly up to ``pmax`` (0.0 to 1.0). With ``departing`` the length of the
    queue that a frame leaves counts, so the sender learns the current length. Y. Zhu et al., ECN or
    Delay, CoNEXT 2016, section 5.2.
    """

    kmin: int
    kmax: int
    pmax: float = 1.0
    departing: bool = False

    def __post_init__(self) -> None:
        check_attributes(self, MARKING, FabricError)
        if self.kmin > self.kmax:
            raise FabricError(f"{self}: kmin <= kmax is what is allowed")

    @property
    def by_chance(self) -> bool:
        """Whether at some queue length only a part of the frames is marked."""
        return self.kmin + 1 < self.kmax and self.pmax > 0

    def share(self, size: int) -> float:
        """Probability of a mark at a queue of ``size`` bytes."""
        if size >= self.kmax:
            return 1.0 if size > self.kmin else 0.0
        if size <= self.kmin:
            return 0.0
        return self.pmax * (size - self.kmin) / (self.kmax - self.kmin)

    def marks(self, size: int, random: Random | None) -> bool:
        """Whether to mark a frame. Draws from ``random`` only if the probability is not 0 or 1."""
        share = self.share(size)
        if share <= 0.0 or share >= 1.0:
            return share >= 1.0
        return random is not None and random.random() < share


@dataclass(frozen=True, slots=True)
class Pausing:
    """Priority flow control by the buffered bytes of one ingress port and priority.

    Above ``xoff`` bytes, or when a frame does not fit, the peer of the port is paused; at ``xon``
    or below it is resumed. ``headroom`` bytes beyond ``xoff`` are for frames in transit;
    :func:`rdmawire.fabric.pfc.headroom` computes the number required.
    """

    xoff: int
    xon: int
    headroom: int

    def __post_init__(self) -> None:
        check_attributes(self, PAUSING, FabricError)
        if self.xon > self.xoff:
            raise FabricError(f"{self}: xon <= xoff is what is allowed")


@dataclass(frozen=True, slots=True)
class SwitchSettings:
    """Configuration of a switch.

    - ``buffer``: bytes shared by all queues; ``queue``: limit of one queue in bytes.
    - ``priorities``: DSCP to priority; other DSCPs have priority 0.
    - ``marking``, ``pausing``: ECN and PFC by priority. A priority with PFC is bounded by it, not
      by ``queue``.
    - ``scheduling``: ``strict`` or ``round_robin``.
    - ``balancing``: what chooses one of several equal paths: ``flow``, by a hash of addresses and
      ports, so that a flow keeps its path; ``packet``, each path in turn (packet spray); or
      ``adaptive``, the port with the fewest queued bytes, for each packet.
    - ``seed``: varies the choice of paths by flow.
    - ``addresses``: maximum number of learnt MAC addresses.
    """

    buffer: int = 16 * MIB
    queue: int = MIB
    priorities: Mapping[int, int] = field(default_factory=lambda: BY_CLASS_SELECTOR)
    marking: Mapping[int, Marking] = field(default_factory=dict)
    pausing: Mapping[int, Pausing] = field(default_factory=dict)
    scheduling: str = "strict"
    balancing: str = "flow"
    seed: int = 0
    addresses: int = 1 << 14

    __deepcopy__ = shared

    def __post_init__(self) -> None:
        check_attributes(self, SWITCH_SETTINGS, FabricError)


MARKING: Final[dict[str, Constraint]] = {
    "kmin": _BYTES,
    "kmax": _BYTES,
    "pmax": Number(0, 1),
    "departing": InstanceOf(bool),
}
PAUSING: Final[dict[str, Constraint]] = {"xoff": _BYTES, "xon": _BYTES, "headroom": _BYTES}
SWITCH_SETTINGS: Final[dict[str, Constraint]] = {
    "buffer": _BYTES,
    "queue": _BYTES,
    "priorities": MappingOf(Integer(0, 63, "a DSCP"), _PRIORITY),
    "marking": MappingOf(_PRIORITY, InstanceOf(Marking)),
    "pausing": MappingOf(_PRIORITY, InstanceOf(Pausing)),
    "scheduling": OneOf(tuple(SCHEDULERS)),
    "balancing": OneOf(BALANCINGS),
    "seed": InstanceOf(int),
    "addresses": Integer(called="a number of addresses"),
}
"""Allowed values of each setting, by class."""
