"""A call in the process of the tests has the results of one in a process of its own."""

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import RDMAWIRE, RNR
from tests.cli.in_process import run_in_process
from tests.waiting import HANG


@pytest.mark.parametrize(
    ("words", "stdin"),
    [
        (("dissect", "-V", "-"), Path(RNR).read_bytes()),
        (("dissect", "-c", "1", "nowhere", RNR), b""),
        (("stats", "--nope"), Path(RNR).read_bytes()),
    ],
    ids=["long input and output", "output and errors", "input that is not read"],
)
@pytest.mark.parametrize("is_merged", [False, True])
def test_a_call_is_as_in_a_process_of_its_own(
    words: tuple[str, ...], stdin: bytes, is_merged: bool
) -> None:
    errors = subprocess.STDOUT if is_merged else subprocess.PIPE
    done = subprocess.run(
        [*RDMAWIRE, *words], input=stdin, stdout=subprocess.PIPE, stderr=errors, check=False,
        timeout=HANG,
    )  # fmt: skip
    found = run_in_process(words, stdin, {**os.environ}, is_merged=is_merged)
    assert found == (done.returncode, done.stdout, done.stderr or b"")


def test_the_process_is_after_a_call_as_before() -> None:
    def state() -> list[object]:
        signals = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        standard = [os.fstat(number).st_ino for number in range(3)]
        streams = [sys.stdin, sys.stdout, sys.stderr]
        return [*signals, *standard, *streams, dict(os.environ), sys.argv, gc.isenabled()]

    before, fds = state(), os.listdir("/proc/self/fd")
    assert run_in_process(("dissect", "-q", RNR), b"", {"TZ": "Asia/Tokyo"})[0] == 0
    assert state() == before
    assert os.listdir("/proc/self/fd") == fds
