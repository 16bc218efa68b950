"""Campaigns over processes, which may be slow to start, be killed, or not end in time."""

import os
import signal
import subprocess
import sys
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest

from rdmawire import process_pool, worker_process
from rdmawire.errors import FuzzError
from rdmawire.fuzz import batch_pool
from rdmawire.fuzz import campaign as module
from rdmawire.fuzz.batch_pool import BatchPool, BatchQueue, run_batch
from rdmawire.fuzz.campaign import Campaign, Progress
from rdmawire.fuzz.command_target import CommandParser
from rdmawire.fuzz.frame_mutation import SeedFrame
from rdmawire.fuzz.fuzzer import FUZZERS, Batch, FuzzerKind, make_fuzzer
from tests.fuzz.planted import ShortWrites
from tests.waiting import is_running, wait_until

ENGINE = {"kind": "engine"}
SPEC = {"kind": "short-writes"}
SEED = 7
RUNS = 60
BATCH = 20


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RUNS_OF_BATCH", BATCH)
    monkeypatch.setitem(FUZZERS, "short-writes", FuzzerKind(ShortWrites, ""))
    batch_pool._fuzzer.cache_clear()


def test_a_batch_ends_when_its_time_is_over() -> None:
    whole = run_batch(SPEC, SEED, 0, 3, 60.0)
    short = run_batch(SPEC, SEED, 0, 3, 0.0)
    assert (whole.runs, short.runs) == (3, 1)


def test_what_is_left_of_a_short_batch_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Broken(set())
    monkeypatch.setattr(module, "BATCH_S", 0.0)
    monkeypatch.setattr(process_pool, "ProcessPoolExecutor", lambda *_, **__: pool)
    campaign = Campaign(SPEC, SEED, runs=RUNS)
    campaign.run(jobs=2)
    assert campaign.done == RUNS
    names = {finding.name for finding in Campaign(SPEC, SEED, runs=RUNS).run()}
    assert {finding.name for finding in campaign.findings} == names


class Broken:
    """Runs a batch at once, but reports some as lost with their process."""

    def __init__(self, lost: set[int]) -> None:
        self.lost = lost

    def submit(self, function: Any, *args: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        first = args[2] if function is run_batch else -1
        if first in self.lost:
            self.lost.discard(first)
            future.set_exception(BrokenProcessPool("killed"))
        else:
            future.set_result(function(*args))
        return future

    def shutdown(self, **_: bool) -> None:
        """Nothing runs any more."""


def test_lost_batches_are_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Broken({BATCH})
    monkeypatch.setattr(process_pool, "ProcessPoolExecutor", lambda *_, **__: pool)
    campaign = Campaign(SPEC, SEED, runs=RUNS)
    campaign.run(jobs=2)
    assert not pool.lost
    assert campaign.done == RUNS
    names = {finding.name for finding in Campaign(SPEC, SEED, runs=RUNS).run()}
    assert {finding.name for finding in campaign.findings} == names


def test_processes_that_always_die_end_the_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_pool, "ProcessPoolExecutor", lambda *_, **__: Broken({0, BATCH}))
    with pytest.raises(FuzzError, match="its processes were killed 5 times"):
        Campaign(ENGINE, SEED, runs=RUNS).run(jobs=2)


def test_processes_end_with_a_campaign_that_is_interrupted() -> None:
    def interrupt(_: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Campaign(ENGINE, SEED).run(2, report=interrupt)
    wait_until(lambda: not active_children())


CAMPAIGN = """
import sys
from rdmawire.fuzz.campaign import Campaign

def main():
    from multiprocessing import active_children
    def report(_):
        print(*(child.pid for child in active_children()), flush=True)
    Campaign({"kind": "engine"}, 1).run(2, report=report)

if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
def test_processes_end_with_a_main_process_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text(CAMPAIGN)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as main:
        assert main.stdout is not None
        workers = [int(pid) for pid in main.stdout.readline().split()]
        main.kill()
    assert workers
    wait_until(lambda: not any(is_running(pid) for pid in workers))


def killed_once(spec: dict[str, Any], seed: int, first: int, runs: int, seconds: float) -> Batch:
    """As run_batch; the first process that gets here is killed."""
    try:
        Path(spec["flag"]).unlink()
    except FileNotFoundError:
        return run_batch({"kind": "engine"}, seed, first, runs, seconds)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("not killed")


def ready(_: dict[str, Any]) -> None:
    """As prepare."""


def test_the_batch_of_a_killed_process_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    flagged = FuzzerKind(lambda _: make_fuzzer(ENGINE), "")
    monkeypatch.setitem(FUZZERS, "flagged", flagged)
    monkeypatch.setattr(module, "run_batch", killed_once)
    monkeypatch.setattr(batch_pool, "prepare", ready)
    campaign = Campaign({"kind": "flagged", "flag": str(flag)}, SEED, runs=RUNS)
    campaign.run(jobs=2)
    assert campaign.done == RUNS
    assert not flag.exists()


def test_many_processes_may_be_killed_in_a_long_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = 10 * BATCH
    pool = Broken(set(range(0, runs, BATCH)))
    monkeypatch.setattr(process_pool, "ProcessPoolExecutor", lambda *_, **__: pool)
    campaign = Campaign(SPEC, SEED, runs=runs)
    campaign.run(jobs=2)
    assert campaign.done == runs
    assert not pool.lost


def test_processes_that_are_always_killed_at_their_start_end_the_campaign() -> None:
    queue = BatchQueue(iter([(0, 200)]))
    for _ in range(4):
        queue.lost()
    with pytest.raises(FuzzError, match="were killed 5 times while they started"):
        queue.lost()


def test_starts_of_processes_count_from_the_last_batch_on() -> None:
    queue = BatchQueue(iter([(0, 200)]))
    for _ in range(3):
        for _ in range(4):
            queue.lost()
        work: Future[Batch] = Future()
        queue.running[work] = (0, 200)
        queue.finish(work, 200)


@pytest.mark.parametrize("seconds", [0.0, pytest.param(0.001, marks=pytest.mark.slow)])
def test_at_least_one_case_is_played_however_long_processes_take_to_start(seconds: float) -> None:
    campaign = Campaign(ENGINE, SEED, seconds=seconds)
    campaign.run(jobs=2)
    assert campaign.done > 0
    before = campaign.done
    campaign.run(jobs=2)
    assert campaign.done > before


def test_first_batches_are_short() -> None:
    now = [0.0]
    campaign = Campaign(ENGINE, SEED, seconds=10, clock=lambda: now[0])
    lengths = []
    for time in (0.0, 0.1, 0.5, 1.0, 4.0, 9.0, 11.0):
        now[0] = time
        lengths.append(campaign._batch_seconds)
    assert lengths == [0.2, 0.2, 0.5, 1.0, 2.0, 1.0, 0.0]


def test_a_command_and_its_folder_are_cleaned_up_if_the_process_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noted: list[int] = []
    wait = subprocess.Popen.wait

    def waits(process: subprocess.Popen[bytes], seconds: float | None = None) -> int:
        noted.append(len(worker_process._cleanups))
        return wait(process, seconds)

    monkeypatch.setattr(subprocess.Popen, "wait", waits)
    before = len(worker_process._cleanups)
    assert CommandParser(["true", "{pcap}"]).judge([SeedFrame(b"")]) is None
    assert noted[0] == before + 2
    assert len(worker_process._cleanups) == before


def ignores_the_end(path: str) -> None:
    """Go on after SIGTERM, as code in C does."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(path).touch()
    while True:
        signal.pause()


def test_processes_that_do_not_end_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_pool, "_END_S", 0.0)
    path = tmp_path / "begun"
    pool = BatchPool(1)
    pool.submit(ignores_the_end, str(path))
    wait_until(path.exists)
    pool.end()
    wait_until(lambda: not active_children())
