"""Faults that befell no frame: a scenario that says one means something else, as a rule."""

from collections.abc import Iterator
from typing import Final

from rdmawire.fabric.fault import Rule
from rdmawire.traffic.scenario.hints import Hint
from rdmawire.traffic.scenario.model import FaultPlan
from rdmawire.traffic.scenario.playing.stage import Stage
from rdmawire.traffic.scenario.playing.wording import fields_text

_SAME: Final = "it leaves them as they were"
_UNCHANGED: Final = {
    "mark": "none is ECN-capable, or all have a mark already; give 'ecn: true' to their connection"
}
"""Why nothing comes of some faults."""


def idle_faults(stage: Stage) -> Iterator[Hint]:
    """A hint for each of them, in the order of the file's links."""
    for link in stage.scenario.links:
        rules = stage.faults[link.name].rules
        for plan, rule in zip(link.faults, rules, strict=True):
            if not rule.hits:
                frames = stage.network.links[link.name].frames
                why = _why(plan, rule, f"{frames} on {link.name}")
                yield Hint(plan.mark, f"this '{plan.do}' befell no frame: {why}")


def _why(plan: FaultPlan, rule: Rule, all_: str) -> str:
    """At what it came to nothing: what frames are, their turn, or chance."""
    if not rule.fits:
        return f"of the {all_} none {_named(plan)}"
    met = f"of the {all_} {rule.turns or rule.fits} could be meant"
    if not rule.turns:
        return f"{met}, but 'nth' {_numbers(plan.nth)} never came"
    if not rule.meant:
        return f"{met}, but chance {plan.chance:g} met none"
    return f"of the {all_} {rule.meant} were meant, but {_UNCHANGED.get(plan.do, _SAME)}"


def _named(plan: FaultPlan) -> str:
    """Which frames a fault names."""
    said = []
    if plan.packet:
        said.append(f"is packet {_numbers(plan.packet)} of what {_sender(plan)} requests")
    elif plan.sent_by:
        said.append(f"is sent by {_sender(plan)}")
    if plan.where:
        said.append(f"has {fields_text(plan.where)}")
    return " and ".join(said) or "came"


def _sender(plan: FaultPlan) -> str:
    end = plan.sent_by
    assert end is not None  # without it there is no packet
    number = "" if end.number is None else f"#{end.number}"
    return f"{end.host}/{end.connection}{number}"


def _numbers(places: tuple[int, ...], shown: int = 4) -> str:
    """The first few of them."""
    more = ", .." if len(places) > shown else ""
    return ", ".join(map(str, places[:shown])) + more
