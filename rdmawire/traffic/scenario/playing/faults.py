"""Faults as a scenario says them, made into the rules of a link.

``sent_by`` and ``packet`` become fields: the sender's address, the peer's queue pairs, and the PSN
that the packet has. ``nth`` counts each of these packets by itself then, so that 2 is the first
retransmission.
"""

from collections.abc import Iterable, Mapping
from random import Random
from typing import Final, NamedTuple, cast

from rdmawire.fabric.fault import Faults, Rule, Wanted
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.link import Delivery
from rdmawire.traffic.scenario.model import FaultPlan
from rdmawire.wire import serial
from rdmawire.wire.opcode import SHAPES

REQUESTS: Final = frozenset(opcode for opcode, shape in SHAPES.items() if not shape.response)
"""What ends send unasked; answers have the PSNs of the other side."""


class Sender(NamedTuple):
    """Who sends, as frames show it: a MAC address, the queue pairs to which, the first PSN."""

    mac: bytes
    destqps: tuple[int, ...]
    psn: int


def rule_of(plan: FaultPlan, sender: Sender | None) -> Rule:
    """The rule of one fault. What ``where`` says itself goes before what follows from the rest."""
    where: dict[str, object] = {}
    per: tuple[str, ...] = ()
    if sender is not None:
        where = {"eth.src": sender.mac, "bth.destqp": sender.destqps}
        if plan.packet:
            psns = tuple(serial.add(sender.psn, place - 1) for place in plan.packet)
            where |= {"bth.psn": psns, "bth.opcode": REQUESTS}
            per = ("bth.destqp", "bth.psn")
    wanted = cast(Mapping[str, Wanted], where | dict(plan.where))
    return Rule(plan.do, wanted, nth=plan.nth, per=per, chance=plan.chance, **plan.options)


class LinkFaults(Faults):
    """Faults that count what they do."""

    def __init__(self, rules: Iterable[Rule], random: Random) -> None:
        super().__init__(rules, random)
        self.lost = 0

    def apply(self, frame: Envelope, number: int) -> list[Delivery]:
        """What becomes of the frame with this number on its link."""
        deliveries = super().apply(frame, number)
        self.lost += not deliveries
        return deliveries

    def hits(self, do: str) -> int:
        """How many frames one kind of fault befell."""
        return sum(rule.hits for rule in self.rules if rule.do == do)
