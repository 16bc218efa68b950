"""Blocks of a pcapng whose records are read many at a time."""

import numpy as np
import pytest

from rdmawire.capture.pcapng import interface_clock
from rdmawire.capture.pcapng_blocks import _times
from rdmawire.capture.record import Interface


@pytest.mark.parametrize("base", [2, 10])
def test_times_of_many_records_are_those_of_each_in_every_resolution(base: int) -> None:
    for exponent in range(128):
        for offset in (0, -5, 1 << 33):
            interface = Interface(1, resolution=base**exponent, offset_seconds=offset)
            clock = interface_clock(interface, 0)
            for last in (0, 1, 1 << 32, (1 << 63) - 1, (1 << 64) - 1):
                ticks = [0, last // 3, last]
                found = _times(clock, np.array(ticks, np.uint64))
                if found is not None:
                    assert list(found) == [clock.time_ns(one) for one in ticks]
