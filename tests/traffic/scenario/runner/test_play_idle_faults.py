"""Faults that changed no frame give a hint, with the reason."""

import pytest

from rdmawire.traffic.scenario.model.network import FaultPlan
from rdmawire.traffic.scenario.model.step import StepPlan
from rdmawire.traffic.scenario.runner.play import play
from tests.traffic.scenario.scene import (
    CLIENT,
    SERVER,
    fault,
    link,
    scene,
    write,
)

NOT_MARKED = "none is ECN-capable, or all have a mark already; give 'ecn: true' to their connection"
COUNTED = "of the 9 on client-server"


def hints(plan: FaultPlan, *steps: StepPlan) -> list[str]:
    """What is said of a WRITE of eight packets, one ACK, and this fault."""
    outcome = play(scene(*(steps or (write(),)), links=(link(plan),)))
    return [hint.text("x.yaml") for hint in outcome.hints]


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (
            fault("drop", sent_by=CLIENT, packet=(300,)),
            "none is packet 300 of what client/a requests",
        ),
        (
            fault("drop", sent_by=SERVER, packet=(1, 2, 3, 4, 5)),
            "none is packet 1, 2, 3, 4, .. of what server/a requests",
        ),
        (fault("mark", where={"bth.psn": 5000}), "none has bth.psn 5000"),
        (
            fault("corrupt", sent_by=CLIENT, where={"bth.opcode": 17}),
            "none is sent by client/a and has bth.opcode RC_ACKNOWLEDGE",
        ),
        (
            fault("drop", sent_by=CLIENT, nth=(9, 99)),
            "8 could be meant, but 'nth' 9, 99 never came",
        ),
        (
            fault("mark", sent_by=CLIENT, nth=(2, 3)),
            f"2 were meant, but {NOT_MARKED}",
        ),
        (
            fault("set", nth=(1,), options={"field": "bth.resv7", "value": 0}),
            "1 were meant, but it leaves them as they were",
        ),
        (fault("delay", chance=1e-9), "9 could be meant, but chance 1e-09 met none"),
        (
            fault("drop", sent_by=CLIENT, nth=(1, 2), chance=1e-9),
            "2 could be meant, but chance 1e-09 met none",
        ),
    ],
)
def test_a_fault_that_changed_no_frame_gives_a_hint(plan: FaultPlan, why: str) -> None:
    said = f"x.yaml:7:5: the fault '{plan.do}' changed no frame: {COUNTED} {why}"
    assert hints(plan) == [said]


@pytest.mark.parametrize("more", [{}, {"nth": (8,)}, {"sent_by": CLIENT, "packet": (1, 300)}])
def test_one_that_changed_a_frame_gives_none(more: dict[str, object]) -> None:
    assert hints(fault("delay", **more)) == []
