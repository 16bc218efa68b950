"""Sweeps: rows in the order of their jobs, whatever runs them, and however that ends."""

import pickle
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from rdmawire import gbps, us
from rdmawire.errors import ClusterError, SweepError
from rdmawire.fabric import Cable
from rdmawire.gpudirect import Collective, CollectiveRun, CollectiveSpec, flow_run
from rdmawire.gpudirect.sweep import (
    MAX_JOBS,
    CollectiveJob,
    Sweep,
    TransferJob,
    combinations,
)
from rdmawire.gpudirect.transfer import TransferPath, TransferSpec, transfer
from rdmawire.traffic.scenario.topology_file import open_host
from tests.gpudirect.numbered_job import Numbered, kill_own_process, want_memory

CABLE = Cable(latency=us(1), rate=gbps(400))


def collectives() -> list[CollectiveJob]:
    """Operations with losses, of which those of 8 bytes by 4 GPUs cannot be."""
    axes = {"hosts": [2, 4], "size": [8, 4096, 1 << 15], "seed": [1, 2]}
    return [CollectiveJob(CollectiveSpec(**each), CABLE, 0.01) for each in combinations(axes)]


def test_the_last_axis_changes_fastest() -> None:
    found = [tuple(each.values()) for each in combinations({"a": [1, 2], "b": "xyz"})]
    assert found == [(1, "x"), (1, "y"), (1, "z"), (2, "x"), (2, "y"), (2, "z")]


def test_too_many_combinations_are_refused_before_one_is_made() -> None:
    with pytest.raises(SweepError, match=r"1000000000000 combinations \(1000000 of a, 1000000"):
        combinations({"a": range(10**6), "b": range(10**6), "c": [1]})
    assert len(list(combinations({"a": range(MAX_JOBS)}))) == MAX_JOBS
    with pytest.raises(SweepError, match="10001 jobs"):
        Sweep([Numbered(0)] * (MAX_JOBS + 1))


def test_rows_do_not_depend_on_the_number_of_processes() -> None:
    jobs = collectives()
    here, others = Sweep(jobs), Sweep(jobs)
    here.run()
    others.run(processes=2)
    assert here.rows == others.rows
    assert [row.settings["bytes"] for row in here.rows] == [job.spec.size for job in jobs]
    failed = [row.number for row in here.rows if row.reason]
    assert failed == [
        number for number, job in enumerate(jobs) if job.spec.size < job.spec.ranks * 4
    ]
    lossy = {row.results["duration_ns"] for row in here.rows if row.settings["bytes"] == 1 << 15}
    assert len(lossy) == 4  # each seed loses other frames


def test_a_collective_takes_what_it_takes_alone() -> None:
    spec = CollectiveSpec(Collective.ALL_GATHER, hosts=3, gpus=2, size=6 * 4096)
    packets, flows = (CollectiveJob(spec, CABLE, flows=flag).run() for flag in (False, True))
    assert packets["duration_ns"] == CollectiveRun(spec, CABLE).run()
    assert flows["duration_ns"] == flow_run(spec, CABLE).duration
    assert packets["messages"] == flows["messages"]
    # The factor of NCCL's tests for allgather: (n - 1) / n.
    assert packets["bus_bytes_per_s"] == pytest.approx(packets["bytes_per_s"] * 5 / 6, abs=1)


def test_a_transfer_takes_what_it_takes_alone() -> None:
    machine = open_host("two-sockets").machine
    specs = [TransferSpec(machine, "GPU0", "GPU1", path, 4096) for path in TransferPath]
    sweep = Sweep([TransferJob(spec, "two-sockets") for spec in specs])
    sweep.run()
    reasons = {row.settings["path"]: row.reason for row in sweep.rows if row.reason}
    assert {*reasons} == {"direct", "nvlink", "ualink"}
    assert "may not access GPU1" in reasons["direct"]
    bounce = sweep.rows[[*TransferPath].index(TransferPath.BOUNCE)]
    assert bounce.results == transfer(specs[bounce.number]).totals()
    assert bounce.values() == {**bounce.settings, **bounce.results}


def test_a_job_that_ends_its_process_is_a_row_and_the_others_are_done() -> None:
    ends = {3: kill_own_process, 5: want_memory}
    sweep = Sweep([Numbered(number, ends.get(number, int)) for number in range(8)])
    sweep.run(processes=2)
    assert [row.number for row in sweep.rows] == [*range(8)]
    assert {row.number: row.results["number"] for row in sweep.rows if row.results} == {
        number: number for number in range(8) if number not in ends
    }
    assert "its process was killed" in sweep.rows[3].reason
    assert sweep.rows[5].reason == "there is not enough memory"


@pytest.mark.parametrize("processes", [1, 2])
def test_an_interrupted_sweep_keeps_what_is_done_and_goes_on(processes: int) -> None:
    def interrupt(done: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    sweep = Sweep([Numbered(number) for number in range(6)], interrupt)
    with pytest.raises(KeyboardInterrupt):
        sweep.run(processes)
    assert len(sweep.rows) == 3
    reported: list[int] = []
    sweep.report = reported.append
    sweep.run(processes)
    assert [row.results["number"] for row in sweep.rows] == [*range(6)]
    assert reported == [4, 5, 6]


class KilledError(Exception):
    """What a cluster says of work that ended its workers."""


class Scripted(Executor):
    """Does each job at once, but ends some in another way; it counts what runs at a time."""

    def __init__(self, ends: Mapping[int, Exception | None]) -> None:
        self.ends = ends
        self.submitted: list[Future[Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        work: Future[Any] = Future()
        job = pickle.loads(pickle.dumps(args[0]))
        if job.number not in self.ends:
            work.set_result(fn(job))
        elif (error := self.ends[job.number]) is not None:
            work.set_exception(error)
        else:
            work.cancel()
            work.set_running_or_notify_cancel()
        self.submitted.append(work)
        return work


def test_a_job_that_ends_its_workers_of_a_cluster_is_a_row() -> None:
    sweep = Sweep([Numbered(number) for number in range(9)])
    executor = Scripted({4: KilledError()})
    sweep.run_on(executor, 2, KilledError)
    assert [row.number for row in sweep.rows if row.reason] == [4]
    assert len(executor.submitted) == len(sweep.rows) == 9


def test_a_cluster_that_ends_leaves_what_is_done() -> None:
    sweep = Sweep([Numbered(number) for number in range(9)])
    with pytest.raises(ClusterError, match="the cluster has ended"):
        sweep.run_on(Scripted({6: None}), 1)
    assert {row.number for row in sweep.rows} >= {0, 1, 2, 3}
    assert len(sweep.rows) < 9
    sweep.run_on(Scripted({}), 1)
    assert [row.results["number"] for row in sweep.rows] == [*range(9)]
