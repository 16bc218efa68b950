"""Campaigns on a Dask cluster: of threads, and of processes of which one is killed."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import LocalCluster

from rdmawire.cluster import cluster
from rdmawire.fuzz.campaign import Campaign, Progress
from tests.cli.command import rdmawire, refused

SPEC = {"kind": "engine", "profile": "rxe"}
"""A profile that the model does not describe: it has findings, as a planted bug has."""
SEED = 1
RUNS = 600


@pytest.fixture(scope="module")
def threads() -> Iterator[Any]:
    """A cluster of one worker in this process."""
    with LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tcp",
        dashboard_address=None,
        host="127.0.0.1",
    ) as made:
        yield made


def test_a_campaign_finds_the_same_on_a_cluster(threads: Any) -> None:
    campaign = Campaign(SPEC, SEED, runs=40)
    with cluster(threads.scheduler_address) as found:
        assert found.workers == 1
        campaign.run(found.workers, found.executor)
    assert campaign.done == 40
    names = {finding.name for finding in campaign.findings}
    assert names == {finding.name for finding in Campaign(SPEC, SEED, runs=40).run()} != set()


def test_a_campaign_of_the_command_line(threads: Any, tmp_path: Path) -> None:
    words = ("--runs", "20", "--seed", "1", "--scheduler", threads.scheduler_address)
    done = rdmawire("fuzz", "run", *words, "-o", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "20 cases" in done.stdout


@pytest.fixture
def local() -> Iterator[Any]:
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as made:
        yield made


@pytest.mark.slow
def test_the_batch_of_a_killed_worker_is_run_again(local: Any, tmp_path: Path) -> None:
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


@pytest.mark.slow
def test_a_campaign_of_the_command_line_over_processes(local: Any, tmp_path: Path) -> None:
    words = ("--runs", "400", "--seed", "1", "--scheduler", local.scheduler_address)
    done = rdmawire("fuzz", "run", *words, "-o", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "400 cases" in done.stdout


def test_an_address_without_a_scheduler_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = refused("fuzz", "run", "--runs", "1", "--scheduler", "nonsense://1", status=2)
    assert "no Dask scheduler at nonsense://1" in line
