"""Waiting for other processes, and work that is measured without a clock."""

import gc
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

HANG = 900
"""Seconds after which a process that does not end is taken to hang. Only a hang takes so long:
on the busiest machine a call ends in a small part of it."""


def wait_until(condition: Callable[[], object]) -> None:
    """Return as soon as the condition holds; ``AssertionError`` if it never does."""
    for _ in range(HANG * 100):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("what was waited for never came")


def asleep(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process waits for something, such as more input (proc(5), ``/proc/PID/stat``)."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2].startswith("S")


def is_running(pid: int) -> bool:
    """Whether a process runs: it exists, and is no zombie (proc(5), ``/proc/PID/stat``)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def calls(work: Callable[[], object]) -> int:
    """How many functions, of Python and of C, are called in ``work``.

    It is the same number on every machine, however busy: bounds of it are not bounds of time.
    """
    count = 0

    def counted(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before, collects = sys.getprofile(), gc.isenabled()
    gc.disable()  # what it calls, and when, follows from all that ran before
    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
    return count
