"""Parameters of congestion control: what no flow could go on with is refused when it is made."""

from dataclasses import asdict
from errno import EINVAL
from typing import Any

import pytest

from rdmawire.errors import VerbsError
from rdmawire.ib.congestion import dcqcn, timely
from rdmawire.ib.congestion.base import CongestionController
from rdmawire.ib.congestion.dcqcn import Dcqcn, DcqcnParameters
from rdmawire.ib.congestion.timely import Timely, TimelyParameters

NAN = float("nan")
SCHEMES: dict[str, tuple[Any, Any, Any]] = {
    "dcqcn": (DcqcnParameters, Dcqcn, dcqcn.BOUNDS),
    "timely": (TimelyParameters, Timely, timely.BOUNDS),
}
FIELDS = [(scheme, name) for scheme, (_, _, bounds) in SCHEMES.items() for name in bounds]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: DcqcnParameters(byte_counter=0), "DcqcnParameters.byte_counter: 0 is not a num"),
        (lambda: DcqcnParameters(alpha_timer=-1), "alpha_timer: -1 is not a number of nanosec"),
        (lambda: DcqcnParameters(alpha_timer=0), "alpha_timer: 0 is not"),
        (lambda: DcqcnParameters(line_rate=0), r"line_rate: 0 is not a number from 1 to 1e\+15"),
        (lambda: DcqcnParameters(g=5), "g: 5 is not a number from 0 to 1"),
        (lambda: DcqcnParameters(min_rate=1e12), r"min_rate 1e\+12 is more than line_rate 4e\+10"),
        (lambda: TimelyParameters(min_rtt=0), "TimelyParameters.min_rtt: 0 is not"),
        (lambda: TimelyParameters(line_rate=1e6), "min_rate 1e.07 is more than line_rate 1e.06"),
    ],
)
def test_the_error_has_what_was_found_and_what_is_allowed(make: Any, reason: str) -> None:
    with pytest.raises(VerbsError, match=reason) as error:
        make()
    assert error.value.errno == EINVAL


def exercised(scheme: CongestionController) -> None:
    """All that a flow does to a scheme, once."""
    for now in (0, 1_000, 10**6):
        scheme.notified(now)
        scheme.sent(1 << 16, now)
        scheme.acknowledged(60_000 + now, now)
        scheme.handle_timer(now)
        assert scheme.rate > 0


@pytest.mark.parametrize(("scheme", "name"), FIELDS)
def test_whatever_is_accepted_works(scheme: str, name: str) -> None:
    make, flow, _ = SCHEMES[scheme]
    usual = asdict(make())[name]
    accepted: list[object] = []
    values: list[object] = [None, "1", -1, 0, NAN, float("inf"), 1 << 70, b"", [], usual]
    for value in values:
        try:
            made = make(**{name: value})
        except VerbsError:
            continue
        accepted.append(value)
        exercised(flow(made))
    assert usual in accepted
    assert accepted in ([usual], [0, usual])


def test_every_parameter_has_a_bound() -> None:
    for make, _, bounds in SCHEMES.values():
        assert list(asdict(make())) == list(bounds)


@pytest.mark.parametrize(("line", "least"), [(1e6, 1e6), (1e9, 1e7)])
def test_a_slow_line_has_a_lower_least_rate(line: float, least: float) -> None:
    known = DcqcnParameters.at(line)
    assert (known.line_rate, known.min_rate) == (line, least)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("wrong", [0, -1, "x", {}, object()])
def test_a_flow_takes_parameters_of_its_scheme(scheme: str, wrong: object) -> None:
    _, flow, _ = SCHEMES[scheme]
    with pytest.raises(VerbsError, match=r"parameters: .* is not of type .*Parameters"):
        flow(wrong)
