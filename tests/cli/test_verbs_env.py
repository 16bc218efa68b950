"""`rdmawire verbs env`: programs of other shells and namespaces, and their variables."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from rdmawire.verbs_service import ProgramFiles, is_served, read_counters
from rdmawire.verbs_service.pci_layout import plain_host
from tests.cli.command import RDMAWIRE
from tests.cli.verbs import LIST, PYTHON, invoke, run, serving
from tests.verbs_service.c_programs import program
from tests.verbs_service.running import running
from tests.waiting import HANG, wait_until

THREADS = (
    f"{LIST}"
    "import os\n"
    "verbs.ibv_open_device.restype = ctypes.c_void_p\n"
    "verbs.ibv_open_device.argtypes = [ctypes.c_void_p]\n"
    "assert verbs.ibv_open_device(devices[0])\n"
    "print(len(os.listdir('/proc/self/task')))\n"
)
"""A program that then opens one, and prints the number of its threads."""
NAMESPACES = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child=SIGTERM"]
"""A command in user and process namespaces of its own; it gets SIGTERM when this one is killed."""


def test_programs_of_other_shells_use_a_service(tmp_path: Path) -> None:
    path = tmp_path / "verbs.sock"
    with serving(path) as service:
        lines = run("env", "--socket", str(path)).stdout
        done = subprocess.run(
            ["sh", "-c", f"{lines}\nexec \"$@\"", "sh", *PYTHON, LIST],
            capture_output=True, text=True, check=True, timeout=HANG,
        )  # fmt: skip
        assert done.stdout == "rw0 rw1\n"
        done = run("env", "--socket", str(path), str(program("messages")), "post_send")
        assert done.returncode == 0, done.stderr
        counters = read_counters(path)
        status = invoke("status", "--json", "--socket", str(path))
        assert json.loads(status.output) == counters
        assert (
            f"  xmit_packets {counters['rw0']['xmit_packets']}\n"
            in invoke("status", "--socket", str(path)).output
        )
        service.send_signal(signal.SIGINT)
        assert service.stderr is not None
        printed = service.stderr.read().splitlines()
    assert printed[:2] == ["rw0  10.0.0.1", "rw1  10.0.0.2"]
    command = f'  eval "$(rdmawire verbs env --socket {path}'
    assert printed[3:5] == [
        f'{command})"  # use the devices',
        f'{command} --unset)"  # after the end of the service',
    ]
    sent = [device["xmit_packets"] for device in counters.values()]
    assert printed[-1].startswith(f"rdmawire: 2 devices, {sum(sent)} frames, ")
    assert os.listdir(tmp_path) == ["verbs.sock.rdmawire"]


def test_a_shell_outlives_its_service_and_uses_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "verbs.sock"
    with serving(path):
        lines = run("env", "--socket", str(path)).stdout

    def list_devices() -> "subprocess.CompletedProcess[str]":
        command = ["sh", "-c", f'{lines}\nexec "$@"', "sh", *PYTHON, LIST]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG)

    done = list_devices()
    assert (done.stdout, done.stderr) == ("\n", "")
    with serving(path, "--devices", "1"):
        assert list_devices().stdout == "rw0\n"


def test_a_service_in_a_namespace_has_programs_copy_their_memory(tmp_path: Path) -> None:
    try:
        subprocess.run([*NAMESPACES, "true"], check=True, capture_output=True)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no namespaces here: {error}")
    path = tmp_path / "verbs.sock"
    command = [*NAMESPACES, *RDMAWIRE, "verbs", "serve", "-q", "--socket", str(path)]
    with subprocess.Popen(command) as service:
        wait_until(lambda: service.poll() is not None or is_served(path))
        try:
            assert run("env", "--socket", str(path), *PYTHON, THREADS).stdout == "rw0 rw1\n2\n"
            done = run("env", "--socket", str(path), str(program("messages")), "post_send")
            assert done.returncode == 0, done.stderr
        finally:
            service.kill()
        wait_until(lambda: not path.exists())


def test_a_service_that_this_user_may_not_use_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("program", "service_socket"):  # root may use every socket
        monkeypatch.setattr(f"rdmawire.verbs_service.{module}.may_use", lambda _: False)
    path = tmp_path / "verbs.sock"
    files = ProgramFiles(path)
    files.claim()
    done = invoke("env", "--socket", str(path))
    files.remove()
    assert f"{path}: Permission denied: name a socket of this user" in str(done.exception)
    assert "waiting" not in done.output


@pytest.mark.parametrize("starts", [True, False])
def test_the_variables_wait_for_a_service_that_is_starting(tmp_path: Path, starts: bool) -> None:
    """The service has its folder, and no socket yet: it may be compiling the libraries."""
    path = tmp_path / "verbs.sock"
    files = ProgramFiles(path)
    files.claim()
    command = [*RDMAWIRE, "verbs", "env", "--socket", str(path)]
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True) as waiting:
        assert waiting.stderr is not None
        line = waiting.stderr.readline()
        assert line == f"rdmawire: waiting for the service that is starting at {path}\n"
        assert waiting.poll() is None
        if not starts:
            files.remove()
            printed = waiting.communicate(timeout=HANG)
            assert f"no verbs service answers at {path}" in printed[1]
            assert waiting.returncode == 1
            return
        files.write(plain_host([]), [], [])
        with running(tmp_path):
            printed = waiting.communicate(timeout=HANG)
        assert printed[0].startswith(f"export RDMAWIRE_VERBS={path}\n")
        assert (waiting.returncode, printed[1]) == (0, "")
    files.remove()


def test_a_shell_is_as_before_after_unset(tmp_path: Path) -> None:
    path = tmp_path / "verbs.sock"
    script = (
        "variables() { env | grep -v '^_=' | sort; }\n"
        'before=$(variables); eval "$("$@")"; during=$(variables); eval "$("$@" --unset)"\n'
        'test "$before" = "$(variables)"; same=$?; test "$before" = "$during"; echo $same $?\n'
    )
    words = [*RDMAWIRE, "verbs", "env", "--socket", str(path)]
    with serving(path, "-q"):
        done = subprocess.run(
            ["bash", "-c", script, "bash", *words],
            env={**os.environ, "LD_LIBRARY_PATH": "/first:/second"},
            capture_output=True, text=True, check=False, timeout=HANG,
        )  # fmt: skip
    assert done.stdout == "0 1\n", done.stderr


def test_unset_needs_no_service(tmp_path: Path) -> None:
    done = invoke("env", "--unset", "--socket", str(tmp_path / "verbs.sock"))
    assert done.exit_code == 0
    assert "unset RDMAWIRE_VERBS\n" in done.output
