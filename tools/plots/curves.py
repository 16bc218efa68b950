"""What each plot of the pages shows, as plain numbers: the same ones on every machine.

Times are in ms, rates in Gb/s, queues in KB (1,000 bytes).
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from examples.fluid import Fluid
from examples.incast import (
    LOSSLESS,
    MARKING,
    Incast,
    Plan,
    per_byte,
    with_dcqcn,
    with_timely,
)
from examples.spread import Plan as SpreadPlan
from examples.spread import Spread
from examples.victim import PLANS, Victim
from rdmawire import gbps, ms, us
from rdmawire.ib.congestion import DcqcnParameters
from rdmawire.wire.management import MTU

Curves = dict[str, Any]

RATE: Final = gbps(40)
FRAME: Final = 4096 + 58
PLAN: Final = Plan(rate=RATE, mtu=MTU.MTU_4096, every=us(200))
INCASTS: Final = {"nothing": PLAN, "DCQCN": with_dcqcn(PLAN), "TIMELY": with_timely(PLAN)}
INCAST_END: Final = ms(80)
VICTIM_END: Final = ms(4)
_TOGETHER: Final = 5
"""Samples of a rate that become one point."""


def incast() -> Curves:
    """Eight write to one: the queue, and the rate of each."""
    found: Curves = {}
    for name, plan in INCASTS.items():
        ran = Incast(plan)
        ran.run(until=INCAST_END)
        found[name] = {
            "queue": [round(data / 1000, 1) for data in ran.queue],
            "rates": [_rates(rates, _TOGETHER) for rates in ran.rates],
            "pauses": ran.pauses,
            "marks": ran.port.marks[LOSSLESS],
            "drops": ran.drops,
        }
    marking = per_byte(MARKING, MTU.MTU_4096)
    model = Fluid(DcqcnParameters(), PLAN.senders, RATE, FRAME).queue(marking)
    return {
        "every": {"queue": PLAN.every / ms(1), "rates": PLAN.every * _TOGETHER / ms(1)},
        "model": round(model / 1000, 1),
        "kmin": marking.kmin / 1000,
        "kmax": marking.kmax / 1000,
        "schemes": found,
    }


def victim() -> Curves:
    """A flow whose way is free, behind others: what it gets, and how much of the time it rests."""
    found: Curves = {}
    every = 0
    for name, plan in PLANS.items():
        ran = Victim(plan)
        paused = ran.sampler.watch(lambda ran=ran: ran.paused("victim"))  # type: ignore[misc]
        ran.run(until=VICTIM_END)
        every = plan.every
        found[name] = {
            "victim": _rates(ran.victim, 1),
            "others": _rates(ran.others, 1),
            "rested": [round(part / every, 3) for part in _differences(paused)],
            "drops": ran.drops,
            "completed": sum(stream.completed for stream in ran.streams),
        }
    return {"every": every / ms(1), "begin": PLANS["pauses"].begin / ms(1), "plans": found}


def spread() -> Curves:
    """Flows between two leaves, by the spine that they took, for two seeds of the hash."""
    plans = {f"seed {seed}": SpreadPlan(hash_seed=seed) for seed in (0, 1)}
    found = {}
    for name, plan in plans.items():
        ran = Spread(plan)
        ran.run()
        found[name] = {spine: len(flows) for spine, flows in ran.flows.items()}
    return {"flows": SpreadPlan().flows, "spines": found}


CURVES: Final[dict[str, Callable[[], Curves]]] = {
    "incast": incast,
    "victim": victim,
    "spread": spread,
}


def _rates(rates: Sequence[float], together: int) -> list[float]:
    """In Gb/s, the means of so many at a time."""
    starts = range(0, len(rates), together)
    parts = [rates[start : start + together] for start in starts]
    return [round(sum(part) / len(part) / 1e9, 2) for part in parts]


def _differences(growing: Sequence[float]) -> list[float]:
    return [now - before for before, now in zip([0, *growing], growing, strict=False)]
