"""Marks that are left to no chance need no generator."""

import pytest

from rdmawire.fabric.egress import Lane
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.link import Link
from rdmawire.fabric.refusal import FabricError
from rdmawire.fabric.settings import Marking, Settings
from rdmawire.fabric.switch import Switch
from tests.fabric.talker import frame_of

FRAMES = 5
SIZE = len(frame_of(1, 2))


@pytest.mark.parametrize(
    ("marking", "marks"),
    [
        (Marking(0, 0), FRAMES - 1),
        (Marking(2 * SIZE, 2 * SIZE), FRAMES - 3),
        (Marking(2 * SIZE, 2 * SIZE + 1), FRAMES - 3),
        (Marking(0, SIZE + 1, 0.0), FRAMES - 2),
    ],
)
def test_a_switch_without_a_generator_marks_all_that_no_chance_decides(
    marking: Marking, marks: int
) -> None:
    switch = Switch(settings=Settings(marking={0: marking}))
    port, lane = switch.add_port(b"\x06" + bytes(5), Link(rate=10)), Lane(0, 0, True)
    for psn in range(FRAMES):
        switch.pass_on(Envelope(frame_of(1, 2, psn)), lane, port, 0)
    assert port.marks[0] == marks


def test_a_switch_without_a_generator_leaves_nothing_to_chance() -> None:
    with pytest.raises(FabricError, match="no Random is given"):
        Switch(settings=Settings(marking={0: Marking(0, 2)}))
