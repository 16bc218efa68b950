"""Worker processes: what they must do before they end."""

import os
import signal
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from rdmawire.worker_process import (
    _cleanups,
    add_cleanup,
    begin_worker,
    cleaned_up,
    discard_output,
    remove_cleanup,
)


def work(ready: Connection, path: Path, *, cleans_up: bool) -> None:
    """Wait for a signal, with two things to do before the end."""
    begin_worker(cleans_up=cleans_up)
    with cleaned_up(path.touch), cleaned_up(partial(path.with_suffix(".2").touch)):
        ready.send(None)
        while True:
            signal.pause()


@pytest.mark.parametrize("cleans_up", [True, False])
def test_a_worker_cleans_up_when_it_is_ended(tmp_path: Path, cleans_up: bool) -> None:
    path = tmp_path / "done"
    context = get_context("spawn")
    ready, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, path), kwargs={"cleans_up": cleans_up})
    process.start()
    theirs.close()
    ready.recv()
    process.terminate()
    process.join()
    assert process.exitcode == (1 if cleans_up else -signal.SIGTERM)
    assert len(list(tmp_path.iterdir())) == 2 * cleans_up


def test_what_is_cleaned_up_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "done"
    with cleaned_up(path.touch):
        assert path.touch in _cleanups
        assert not path.exists()
    assert path.exists()
    assert path.touch not in _cleanups
    add_cleanup(path.unlink)
    remove_cleanup(path.unlink)
    remove_cleanup(path.unlink)
    assert path.unlink not in _cleanups


def test_output_is_discarded_for_programs_too(capfd: pytest.CaptureFixture[str]) -> None:
    kept = os.dup(1)
    discard_output()
    os.write(1, b"discarded")
    os.dup2(kept, 1)
    os.close(kept)
    os.write(1, b"shown")
    assert capfd.readouterr().out == "shown"
