"""Campaigns on a Dask cluster of separate processes, of which one is killed."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import LocalCluster

from rdmawire import cluster as module
from rdmawire.cluster import cluster
from rdmawire.errors import ClusterError
from rdmawire.fuzz.campaign import Campaign, Progress
from tests.cli.command import rdmawire, refused

SPEC = {"kind": "engine", "profile": "rxe"}
"""A profile that the model does not describe: it has findings, as a planted bug has."""
SEED = 1
RUNS = 2000


@pytest.fixture
def local() -> Iterator[Any]:
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as made:
        yield made


def test_a_killed_worker_loses_nothing(local: Any, tmp_path: Path) -> None:
    killed: list[int] = []
    campaign = Campaign(SPEC, SEED, tmp_path, runs=RUNS)

    def kill(_: Progress) -> None:
        if not killed:
            killed.append(next(iter(local.workers.values())).pid)
            os.kill(killed[0], signal.SIGKILL)

    with cluster(local.scheduler_address) as found:
        assert found.workers == 2
        campaign.run(found.workers, found.executor, kill)
    assert killed
    assert campaign.done == RUNS
    names = {finding.name for finding in Campaign(SPEC, SEED, runs=RUNS).run()}
    assert {path.parent.name for path in tmp_path.glob("*/finding.json")} == names


def test_a_campaign_of_the_command_line(local: Any, tmp_path: Path) -> None:
    words = ("--runs", "400", "--seed", "1", "--scheduler", local.scheduler_address)
    done = rdmawire("fuzz", "run", *words, "-o", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "400 cases" in done.stdout


def test_workers_of_another_version_are_refused(
    local: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "__version__", "0.0.1")
    with (
        pytest.raises(ClusterError, match=r"not 0\.0\.1: install it there"),
        cluster(local.scheduler_address),
    ):
        pass


def test_an_address_without_a_scheduler_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = refused("fuzz", "run", "--runs", "1", "--scheduler", "nonsense://1", status=2)
    assert "no Dask scheduler at nonsense://1" in line


def test_a_server_that_is_no_scheduler_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TIMEOUT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ClusterError, match="no Dask scheduler at"), cluster(address):
            pass
