"""Marks that are left to no chance need no generator."""

import pytest

from rdmawire.fabric.errors import FabricError
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.link import Link
from rdmawire.fabric.port_queue import TrafficClass
from rdmawire.fabric.switch import Switch
from rdmawire.fabric.switch_config import Marking, SwitchSettings
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
    switch = Switch(settings=SwitchSettings(marking={0: marking}))
    port, lane = switch.add_port(b"\x06" + bytes(5), Link(rate=10)), TrafficClass(0, 0, True)
    for psn in range(FRAMES):
        switch.forward(Envelope(frame_of(1, 2, psn)), lane, port, 0)
    assert port.marks[0] == marks


def test_a_switch_without_a_generator_leaves_nothing_to_chance() -> None:
    with pytest.raises(FabricError, match="no Random is given"):
        Switch(settings=SwitchSettings(marking={0: Marking(0, 2)}))
