"""Packets of workloads, field by field, against tshark."""

import shutil
from pathlib import Path

import pytest

from rdmawire.gpudirect.workload import WorkloadRun, WorkloadSpec, read_trace
from tests.interop.comparison import compared

pytestmark = pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")

FOLDER = Path(__file__).parents[2] / "examples" / "workloads"


@pytest.mark.parametrize(
    "name", ["exchange.goal", pytest.param("allreduce.xml", marks=pytest.mark.slow)]
)
def test_every_field_of_a_workload_is_what_tshark_finds(tmp_path: Path, name: str) -> None:
    path = tmp_path / "workload.pcapng"
    run = WorkloadRun(read_trace([FOLDER / name]), WorkloadSpec(loss=0.01, seed=1))
    assert run.network is not None
    with run.network.captured(path):
        run.run()
    _, unexplained = compared(path)
    assert not unexplained, "\n".join(unexplained[:20])
