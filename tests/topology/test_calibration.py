"""The calibration finds the constants that made the times, and comes nearer to measured ones."""

from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.errors import TopologyError
from rdmawire.topology import MEASURED, Costs, Measurement, calibrate, parse_measurements
from rdmawire.traffic.scenario import (
    ScenarioError,
    format_costs,
    open_costs,
    open_host,
    read_costs,
)
from tests.topology.h200 import KINDS_1, RUN_1

DGX = open_host("dgx-h200").machine
TWO = open_host("two-sockets").machine
USUAL = Costs()
COPIES = Path(__file__).with_name("h200-copies.csv").read_text()
SIZES = (8, 4096, 1 << 16, 1 << 20, 1 << 26)


def made(costs: Costs, *paths: str) -> list[Measurement]:
    """Times of the model itself."""
    rows = [Measurement(path, size, 1.0) for path in paths for size in SIZES]
    return [one._replace(time=MEASURED[one.path](DGX, one, costs)) for one in rows]


FACTORS = st.lists(st.floats(0.4, 2.5), min_size=4, max_size=4)
FITTED = ("copy_launch", "copy_sync", "peer_launch", "device_rate")


@settings(max_examples=15)
@given(FACTORS)
def test_the_constants_that_made_the_times_are_found(factors: list[float]) -> None:
    true = {
        name: getattr(USUAL, name) * factor for name, factor in zip(FITTED, factors, strict=True)
    }
    rows = made(replace(USUAL, **true), "pinned", "pinned-sync", "peer", "device")
    found = calibrate(DGX, rows)
    for name, value in true.items():
        assert getattr(found.costs, name) == pytest.approx(value, rel=0.01)
    assert found.worst[1] < 1.001


def test_each_path_has_constants_that_it_decides() -> None:
    for path in MEASURED:
        found = calibrate(DGX, made(USUAL, path))
        assert found.fitted, path
        assert found.spread == pytest.approx((1, 1))
        assert all(one.after == pytest.approx(one.before) for one in found.fitted)


def test_measured_copies_are_nearer_afterwards() -> None:
    found = calibrate(DGX, parse_measurements(COPIES))
    assert found.spread[0] == pytest.approx(1.15, abs=0.01)
    assert found.spread[1] < 1.10
    assert found.worst[1] < 1.25 < found.worst[0]
    assert found.costs.link_efficiency <= 1


def test_the_table_is_the_one_of_the_model() -> None:
    words = {kind: word for word, kind in zip(
        ("pinned", "pinned", "pageable", "device", "peer", "bounce", "pinned-sync"), KINDS_1,
        strict=True,
    )}  # fmt: skip
    wanted = [
        Measurement(words[kind], size, time * 1000)
        for size, times in RUN_1.items()
        for kind, time in zip(KINDS_1, times, strict=True)
    ]
    assert parse_measurements(COPIES) == wanted


def test_no_step_makes_it_worse() -> None:
    """The sum of squares after the fit is not above that of any neighbour."""
    rows = parse_measurements(COPIES)[:8]
    best = calibrate(DGX, rows)
    assert len(best.fitted) > 3
    for one in best.fitted:
        for factor in (0.98, 1.02):
            moved = getattr(best.costs, one.name) * factor
            if one.name == "link_efficiency" and moved > 1:
                continue
            other = calibrate(DGX, rows, replace(best.costs, **{one.name: moved}), [])
            assert other.spread[0] >= best.spread[1] - 1e-6


def test_some_constants_may_be_fitted_alone() -> None:
    found = calibrate(DGX, parse_measurements(COPIES), names=["copy_launch"])
    assert [one.name for one in found.fitted] == ["copy_launch"]
    same = replace(found.costs, copy_launch=USUAL.copy_launch)
    assert same == USUAL


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["copy_lunch"], "no constant is called 'copy_lunch'; did you mean 'copy_launch'"),
        (["tcp_rate"], "the measurements do not depend on tcp_rate"),
    ],
)
def test_constants_that_cannot_be_fitted(names: list[str], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        calibrate(DGX, parse_measurements(COPIES), names=names)


def test_accesses_have_ends() -> None:
    rows = parse_measurements(
        '[{"path": "write", "size": 64, "time_ns": 900, "from": "mlx5_0", "to": "memory1"},'
        ' {"path": "read", "size": 64, "time_us": 1, "from": "mlx5_0", "to": "GPU0"}]'
    )
    assert rows[0] == Measurement("write", 64, 900, "mlx5_0", "memory1")
    found = calibrate(TWO, rows)
    assert {"root_latency", "socket_latency"} <= {one.name for one in found.fitted}
    assert found.worst[1] < 1.01
    with pytest.raises(TopologyError, match="memory7: NUMA nodes are 0, 1"):
        calibrate(TWO, [rows[0]._replace(target="memory7")])
    with pytest.raises(TopologyError, match="no device is called 'GPU9'"):
        calibrate(TWO, [rows[1]._replace(target="GPU9")])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no measurement; expected the keys path, size"),
        ("path,size,time_us\npinnd,8,1", "measurement 1: path 'pinnd'.*did you mean 'pinned'"),
        ("path,size,time_us\npinned,8,1\npinned,x,1", "measurement 2: size 'x' is no number"),
        ("path,size,time_us\npinned,8,-1", "expected a time above 0"),
        ("path,size,time_us\npinned,1.5,1", "whole number of bytes"),
        ("path,size\npinned,8", "expected one of time_ns, time_us, time_ms"),
        ("path,size,time_us,time_ns\npinned,8,1,1", "expected one of"),
        ("path,size,time_us\npinned,8,1,2", "'[?]': keys are"),
        ("path,size,time_us\npinned,8,nan", "time_us 'nan' is no number"),
        ("[1]", "expected an object with the keys"),
        ("[{]", "no JSON"),
        ('path,size,time_us\n"' + "a" * 200_000, "no CSV: field larger than"),
        ("path,size,time_us\n" + "pinned,8,1\n" * 10_001, "more than 10000 measurements"),
    ],
)
def test_mistakes_in_measurements(text: str, message: str) -> None:
    with pytest.raises(TopologyError, match=f"^measurements: .*{message}"):
        parse_measurements(text)


# Constants as YAML.


@given(st.lists(st.floats(1e-3, 1e15), min_size=len(fields(Costs)), max_size=len(fields(Costs))))
def test_constants_are_read_as_they_are_written(values: list[float]) -> None:
    names = [field.name for field in fields(Costs)]
    costs = Costs(**dict(zip(names, values, strict=True)))
    again = read_costs(format_costs(costs, 'my "host"', "a: test"))
    for name, value in zip(names, values, strict=True):
        assert getattr(again, name) == pytest.approx(value, rel=1e-5)


def test_constants_that_are_left_out_are_as_usual() -> None:
    assert read_costs("costs: mine\nroot_latency: 400\n") == replace(USUAL, root_latency=400)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("costs: mine\nroot_latncy: 4\n", "2:1: found key 'root_latncy'.*mean 'root_latency'"),
        ("costs: mine\nroot_latency: -4\n", "2:15: found '-4'; expected a number from 0 on"),
        ("costs: mine\nroot_latency: inf\n", "expected a number from 0 on"),
        ("costs: mine\ntcp_rate: 0\n", "2:11: found '0'; expected a number above 0"),
        ("costs: mine\nlink_efficiency: 0.0\n", "expected a number above 0"),
        ("root_latency: 4\n", "constants of costs without 'costs'"),
    ],
)
def test_mistakes_in_constants(text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        read_costs(text)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="no such file or directory; expected a file with"):
        open_costs(str(tmp_path / "none.yaml"))
