"""Calls of `rdmawire verbs`, services in processes of their own, and a program on devices."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from click.testing import CliRunner, Result

from rdmawire.cli.program import cli
from rdmawire.verbs_service import is_served
from tests.cli.command import RDMAWIRE, rdmawire
from tests.waiting import HANG, wait_until

PYTHON = [sys.executable, "-c"]
LIST = (
    "import ctypes\n"
    "verbs = ctypes.CDLL('libibverbs.so.1')\n"
    "count = ctypes.c_int()\n"
    "verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)\n"
    "devices = verbs.ibv_get_device_list(ctypes.byref(count))\n"
    "verbs.ibv_get_device_name.restype = ctypes.c_char_p\n"
    "verbs.ibv_get_device_name.argtypes = [ctypes.c_void_p]\n"
    "print(*(verbs.ibv_get_device_name(devices[i]).decode() for i in range(count.value)))\n"
)
"""A program that prints the names of the devices it has."""


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    """What becomes of a call of `rdmawire verbs`, in a process of its own."""
    return rdmawire("verbs", *words)


def invoke(*words: str) -> Result:
    """What becomes of a call that starts no program."""
    return CliRunner().invoke(cli, ["verbs", *words])


def status_of(*words: str) -> tuple[int, str]:
    """The exit status of a call that raises nothing, and what it prints."""
    done = CliRunner().invoke(cli, ["verbs", *words], standalone_mode=False)
    return done.return_value, done.output


@contextmanager
def serving(path: Path, *words: str) -> "Iterator[subprocess.Popen[str]]":
    """A service in a process of its own. It ends by SIGTERM, with status 0."""
    command = [*RDMAWIRE, "verbs", "serve", "--socket", str(path), *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: process.poll() is not None or is_served(path))
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=HANG) == 0
