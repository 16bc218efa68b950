"""Faults of the network in the output of a real program: perftest reports counters."""

import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from tools.acceptance.case import Case, Verdict
from tools.acceptance.perftest import COUNTERS, run_with_counter
from tools.acceptance.runner import ProgramPaths, run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def on_free_port(case: Case) -> Case:
    """The case with a TCP port that no other program uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    old, new = f"-p {case.port}", f"-p {port}"
    client, server = case.client.replace(old, new), case.server.replace(old, new)
    return replace(case, client=client, server=server, port=port)


@pytest.mark.skipif(shutil.which("ib_write_bw") is None, reason="perftest is not installed")
@pytest.mark.parametrize("row", COUNTERS[::2], ids=str)
def test_perftest_reports_what_the_network_did(
    row: tuple[str, str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)  # rows name scenarios by their path from here
    result = run(on_free_port(run_with_counter(*row)), ProgramPaths())
    assert result.verdict is Verdict.PASSED, result.reason
