"""The reaction point of DCQCN: cuts by CNPs, and the three ways back."""

from hypothesis import given
from hypothesis import strategies as st

from rdmawire.ib.congestion.base import GIGABIT, MEGABIT
from rdmawire.ib.congestion.dcqcn import Dcqcn, DcqcnParameters

KNOWN = DcqcnParameters()
STEP = KNOWN.rate_timer


def after_cnps(number: int) -> Dcqcn:
    """A flow that got CNPs at 0, one behind the other."""
    flow = Dcqcn()
    for _ in range(number):
        flow.notified(0)
    return flow


def test_a_flow_begins_at_its_line_rate_and_waits_for_nothing() -> None:
    flow = Dcqcn()
    flow.sent(100_000_000, 0)
    assert flow.rate == 40 * GIGABIT
    assert flow.next_timer() is None


def test_the_first_cnp_halves_the_rate() -> None:
    flow = after_cnps(1)
    assert flow.rate == 20 * GIGABIT
    assert flow.target == 40 * GIGABIT
    assert flow.alpha(0) == 1.0


def test_alpha_goes_down_without_cnps_so_that_cuts_become_small() -> None:
    flow = after_cnps(1)
    later = 10 * KNOWN.alpha_timer
    assert flow.alpha(later - 1) == (1 - 1 / 256) ** 9
    assert flow.alpha(later) == (1 - 1 / 256) ** 10
    before = flow.rate
    flow.notified(later)
    assert flow.rate == before * (1 - (1 - 1 / 256) ** 10 / 2)


def test_fast_recovery_goes_half_way_to_the_target_five_times() -> None:
    flow = after_cnps(1)
    rates = []
    for step in range(1, 6):
        flow.handle_timer(step * STEP)
        rates.append(flow.rate / GIGABIT)
    assert rates == [30, 35, 37.5, 38.75, 39.375]


def test_then_the_target_goes_up_by_the_additive_step() -> None:
    flow = after_cnps(3)
    target = flow.target
    for step in range(1, 8):
        flow.handle_timer(step * STEP)
    assert flow.target == target + 2 * KNOWN.additive


def test_and_by_more_and_more_once_bytes_say_so_too() -> None:
    flow = after_cnps(4)
    target = flow.target
    for step in range(1, 7):
        flow.handle_timer(step * STEP)
        flow.sent(KNOWN.byte_counter, step * STEP)
    # The sixth of the timer is additive; the sixth of both is the first hyper step.
    assert flow.target == target + KNOWN.additive + KNOWN.hyper


def test_bytes_alone_bring_a_flow_back() -> None:
    flow = after_cnps(1)
    flow.sent(3 * KNOWN.byte_counter, 1)
    assert flow.rate == 37.5 * GIGABIT


def test_a_cnp_begins_recovery_anew() -> None:
    flow = after_cnps(1)
    for step in range(1, 8):
        flow.handle_timer(step * STEP)
    flow.notified(8 * STEP)
    target = flow.target
    for step in range(9, 14):
        flow.handle_timer(step * STEP)
    assert flow.target == target


def test_a_flow_that_is_back_waits_for_nothing() -> None:
    flow = after_cnps(1)
    flow.handle_timer(100 * STEP)
    assert flow.rate == KNOWN.line_rate
    assert flow.next_timer() is None


@given(
    st.lists(
        st.tuples(st.sampled_from(("cnp", "sent", "timer")), st.integers(1, 2_000_000)), max_size=80
    )
)
def test_the_rate_stays_within_its_bounds(steps: list[tuple[str, int]]) -> None:
    flow, now = Dcqcn(), 0
    for what, amount in steps:
        now += amount
        if what == "cnp":
            flow.notified(now)
        elif what == "sent":
            flow.sent(amount * 20, now)
        else:
            flow.handle_timer(now)
        assert 10 * MEGABIT <= flow.rate <= flow.target <= KNOWN.line_rate
        assert 0 < flow.alpha(now) <= 1
