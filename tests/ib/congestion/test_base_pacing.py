"""Pacing by a rate: when the next frame may go."""

from hypothesis import given
from hypothesis import strategies as st

from rdmawire.ib.congestion.base import SECOND, Pacer
from rdmawire.ib.congestion.dcqcn import Dcqcn, DcqcnParameters


def test_the_next_frame_waits_as_long_as_the_last_one_took() -> None:
    pacer = Pacer(Dcqcn(DcqcnParameters(line_rate=8e9)))
    pacer.sent(1_000, 0)
    assert pacer.free_at == 1_000
    pacer.sent(1_000, 1_000)
    assert pacer.free_at == 2_000


def test_a_flow_that_rested_does_not_catch_up() -> None:
    pacer = Pacer(Dcqcn(DcqcnParameters(line_rate=8e9)))
    pacer.sent(1_000, 0)
    pacer.sent(1_000, 50_000)
    assert pacer.free_at == 51_000


@given(st.lists(st.integers(64, 9_000), min_size=1, max_size=50), st.floats(1e7, 4e11))
def test_no_flow_is_faster_than_its_rate(lengths: list[int], rate: float) -> None:
    pacer = Pacer(Dcqcn(DcqcnParameters(line_rate=rate)))
    for length in lengths:
        pacer.sent(length, pacer.free_at)
    assert sum(lengths) * 8 * SECOND <= pacer.free_at * rate * (1 + 1e-12)
