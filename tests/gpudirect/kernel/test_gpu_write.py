"""WRITEs that GPUs start: right data with all fences, and each forgotten one found by a seed."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.capture import open_capture
from rdmawire.errors import KernelError
from rdmawire.fabric import CaptureTap, Rule
from rdmawire.gpudirect.kernel import FORGETTABLE, ForgottenStep, GpuWrite, GpuWriteSpec, Mode
from tests.effort import examples

specs = st.builds(
    GpuWriteSpec,
    st.sampled_from(Mode),
    st.integers(1, 9000),
    st.integers(1, 12),
    st.integers(1, 6),
    st.sampled_from(["A100", "H200"]),
    st.booleans(),
    st.booleans(),
    st.just(frozenset()),
    st.integers(0, 1000),
    st.sampled_from([0, 100, 5000]),
)


@settings(max_examples=examples(20))
@given(specs)
def test_with_all_fences_all_data_is_right(spec: GpuWriteSpec) -> None:
    report = GpuWrite(spec).run()
    assert report.is_right, (report.wrong, report.stuck)
    assert report.frames > 0


@settings(max_examples=examples(8))
@given(specs, st.integers(0, 100))
def test_losses_are_repaired(spec: GpuWriteSpec, seed: int) -> None:
    run = GpuWrite(spec._replace(seed=seed))
    for link in run.network.links:
        run.network.set_faults(link, Rule("drop", chance=0.05))
    assert run.run().is_right


@pytest.mark.parametrize(
    ("mode", "step"), [(mode, step) for mode in Mode for step in FORGETTABLE[mode]]
)
def test_a_forgotten_step_is_found_by_a_seed(mode: Mode, step: ForgottenStep) -> None:
    spec = GpuWriteSpec(
        mode,
        model="A100",
        by_completion=step is ForgottenStep.FLUSH,
        forgotten=frozenset({step}),
    )
    reports = (GpuWrite(spec._replace(seed=seed)).run() for seed in range(100))
    found = next((report for report in reports if not report.is_right), None)
    assert found is not None
    again = GpuWrite(found.spec).run()
    assert again == found
    assert step.meaning


def test_from_compute_capability_9_on_no_flush_is_needed() -> None:
    spec = GpuWriteSpec(by_completion=True, forgotten=frozenset({ForgottenStep.FLUSH}))
    for seed in range(20):
        assert GpuWrite(spec._replace(seed=seed)).run().is_right


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 0}, "messages of 0 bytes"),
        ({"messages": 5000}, "5000 messages"),
        ({"depth": 17}, "17 messages on their way"),
        ({"model": "GT 710"}, "GT 710 is no GPU that is known"),
        ({"forgotten": frozenset({ForgottenStep.DATA_FENCE})}, "a kernel has no data-fence"),
        ({"forgotten": frozenset({ForgottenStep.FLUSH})}, "there is no flush to forget"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(KernelError, match=message):
        GpuWrite(GpuWriteSpec()._replace(**change))  # type: ignore[arg-type]


def test_the_packets_are_written(tmp_path: Path) -> None:
    run = GpuWrite(GpuWriteSpec(messages=2))
    path = tmp_path / "doorbell.pcap"
    with CaptureTap(path) as tap:
        for host in run.hosts:
            run.network.tap(host.name, tap.point(host.name))
        report = run.run()
    with open_capture(path) as capture:
        assert sum(1 for _ in capture) == report.frames
