"""`rdmawire verbs`: programs on emulated devices, the variables, and what is refused."""

import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from errno import EINVAL, EMFILE, ENOSPC, EOPNOTSUPP, EROFS
from pathlib import Path
from socket import AF_UNIX, SOCK_SEQPACKET, SOCK_STREAM, SocketKind, socket
from threading import Thread

import pytest

from rdmawire.capture import open_capture
from rdmawire.cli.verbs.signals import forwarded
from tests.cli.command import RDMAWIRE
from tests.cli.verbs import LIST, PYTHON, invoke, run, serving, status_of
from tests.verbs_service.c_programs import compile_shared, program
from tests.waiting import HANG, wait_until

CREATE_TOO_LONG_CQ = f"""{LIST}
verbs.ibv_open_device.restype = ctypes.c_void_p
context = ctypes.c_void_p(verbs.ibv_open_device(ctypes.c_void_p(devices[0])))
verbs.ibv_create_cq.restype = ctypes.c_void_p
print(verbs.ibv_create_cq(context, 1 << 30, None, None, 0))
"""
CREATE_QPS = f"""{LIST}
class Attributes(ctypes.Structure):
    _fields_ = [("context", ctypes.c_void_p), ("send_cq", ctypes.c_void_p),
        ("recv_cq", ctypes.c_void_p), ("srq", ctypes.c_void_p), ("cap", ctypes.c_uint32 * 5),
        ("qp_type", ctypes.c_int), ("sq_sig_all", ctypes.c_int)]
for name in ("open_device", "alloc_pd", "create_cq", "create_qp"):
    getattr(verbs, "ibv_" + name).restype = ctypes.c_void_p
context = ctypes.c_void_p(verbs.ibv_open_device(ctypes.c_void_p(devices[0])))
pd = ctypes.c_void_p(verbs.ibv_alloc_pd(context))
cq = verbs.ibv_create_cq(context, 1, None, None, 0)
for qp_type in (2, 1, 0xff, 0xff, 77):
    attributes = Attributes(send_cq=cq, recv_cq=cq, cap=(1, 1, 1, 1, 0), qp_type=qp_type)
    print(bool(verbs.ibv_create_qp(pd, ctypes.byref(attributes))))
"""
"""A program that then creates queue pairs: of RC, of no type, and of types of vendors."""
CREATE_VENDOR_QP = """
import ctypes
import sys
library = ctypes.CDLL(None, use_errno=True)
create = getattr(library, sys.argv[1])
create.restype = ctypes.c_void_p
for _ in range(2):
    print(create(None, None, None, 7), ctypes.get_errno())
"""
SYSFS = "import os; print(os.path.realpath('/sys/class/infiniband/mlx5_1/device'))"


# Programs.


def test_a_program_has_the_devices_and_its_exit_status_is_passed_on() -> None:
    done = run("--devices", "3", "--", *PYTHON, f"{LIST}raise SystemExit(7)")
    assert done.stdout == "rw0 rw1 rw2\n"
    assert done.returncode == 7
    assert done.stderr == "rdmawire: 3 devices, 0 frames, 0 bytes, 0 retransmissions\n"


def test_messages_of_a_program_are_captured(tmp_path: Path) -> None:
    capture = tmp_path / "messages.pcap"
    client = str(program("messages"))
    done = run("-w", str(capture), "--json", "--", client, "post_send")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stderr)
    frames = sum(device["xmit_packets"] for device in summary["devices"].values())
    with open_capture(capture) as packets:
        assert sum(1 for _ in packets) == frames > 10
    assert summary["capture"] == str(capture)


def test_losses_of_the_network_are_repaired_by_retransmissions() -> None:
    network = "loss=0.1,latency=1us,seed=1"
    done = run("--network", network, "--json", "--", str(program("messages")), "post_send")
    assert done.returncode == 0, done.stderr
    devices = json.loads(done.stderr)["devices"].values()
    assert sum(device["retransmits"] for device in devices) > 0


def test_hosts_of_a_scenario_are_devices() -> None:
    done = run("-q", "--network", "cnp-reaction", "--", *PYTHON, LIST)
    assert (done.stdout, done.stderr) == ("one two sink\n", "")


def test_adapters_of_a_host_have_their_places() -> None:
    done = run("-q", "--host", "dgx-h100", "--devices", "2", "--", *PYTHON, LIST + SYSFS)
    names, place = done.stdout.splitlines()
    assert names == "mlx5_0 mlx5_1"
    assert place.startswith("/sys/devices/pci00f1:00/00f1:00:00.0/")


def test_a_trace_has_the_reason_of_a_refused_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RDMAWIRE_TRACE", "1")
    done = run("-q", "--", *PYTHON, CREATE_TOO_LONG_CQ)
    assert done.stdout == "rw0 rw1\nNone\n"
    (line,) = done.stderr.splitlines()
    assert re.fullmatch(
        r"rdmawire\[\d+\]: create_cq: cqe: 1073741824 is .* from 1 to 4194303: Invalid argument",
        line,
    )


def test_queue_pairs_of_vendors_are_refused_with_a_reason() -> None:
    done = run("-q", "--", *PYTHON, CREATE_QPS)
    assert done.stdout.split() == ["rw0", "rw1", "True", "False", "False", "False", "False"]
    (line,) = done.stderr.splitlines()
    assert "ibv_create_qp: there are no queue pairs of a vendor, such as DC and SRD; the" in line
    guide = (Path(__file__).parents[2] / "docs/howto/verbs.md").read_text()
    assert "'DC and SRD' of 'Run verbs programs'" in line
    assert "# Run verbs programs" in guide
    assert "# DC and SRD" in guide


@pytest.mark.parametrize(
    ("name", "parameters", "error"),
    [
        ("mlx5dv_create_qp", "void *a, void *b, void *c", EOPNOTSUPP),
        pytest.param(
            "efadv_create_qp_ex",
            "void *a, void *b, void *c, unsigned d",
            EINVAL,
            marks=pytest.mark.slow,
        ),
        ("efadv_create_driver_qp", "", EOPNOTSUPP),
    ],
)
def test_refusals_of_vendors_libraries_have_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, parameters: str, error: int
) -> None:
    """The vendor's library is called if it is there, and explained only if it refuses devices."""
    source, library = tmp_path / "vendor.c", tmp_path / "vendor.so"
    arguments = "a || b || c" + (" || d != 7" if " d" in parameters else "")
    source.write_text(
        "#include <errno.h>\n"
        f"void *{name}({parameters})\n"
        f"{{\n\terrno = {error};\n\treturn {arguments} ? &errno : 0;\n}}\n"
    )
    if parameters:
        compile_shared(source, library)
        monkeypatch.setenv("LD_PRELOAD", str(library))
    done = run("-q", "--", *PYTHON, CREATE_VENDOR_QP, name)
    assert done.stdout == f"None {error}\n" * 2
    told = done.stderr.count(f"{name}: there are no queue pairs of a vendor")
    assert told == (error == EOPNOTSUPP)


def test_programs_of_infiniband_subnets_are_refused_with_a_reason() -> None:
    opened = (
        "import ctypes\n"
        "for _ in range(2):\n"
        "    print(ctypes.CDLL(None).umad_open_port(b'rw0', 1))\n"
    )
    done = run("-q", "--", *PYTHON, opened)
    assert done.stdout == f"{-EOPNOTSUPP}\n" * 2
    (line,) = done.stderr.splitlines()
    assert "umad_open_port: emulated devices are RoCE ports" in line
    assert "'InfiniBand diagnostics' of 'Run verbs programs'" in line
    guide = (Path(__file__).parents[2] / "docs/howto/verbs.md").read_text()
    assert "\n## InfiniBand diagnostics\n" in guide


def test_without_the_preload_a_program_sees_its_own_sys() -> None:
    look = (
        "import os; print(os.path.exists('/sys/class/infiniband/rw0'), 'LD_PRELOAD' in os.environ)"
    )
    assert run("-q", "--no-preload", "--", *PYTHON, look).stdout == "False False\n"
    assert run("-q", "--", *PYTHON, look).stdout == "True True\n"


def test_a_command_sees_the_devices_by_rdma() -> None:
    done = run("-q", "--devices", "1", "--", "rdma", "link")
    assert done.stdout == "link rw0/1 state ACTIVE physical_state LINK_UP netdev lo\n"


def test_a_program_that_a_signal_ends_has_the_status_of_shells() -> None:
    done = run("-q", "--", "sh", "-c", "kill -TERM $$")
    assert done.returncode == 128 + signal.SIGTERM


def test_programs_that_open_libraries_by_name_get_those_of_the_service() -> None:
    """A vendor's library, where one is installed, finds its private functions there, too."""
    opened = (
        "import ctypes\n"
        "for name in ('libibverbs.so', 'librdmacm.so', 'libibverbs.so.1'):\n"
        "    ctypes.CDLL(name)\n"
        "try:\n"
        "    ctypes.CDLL('libmlx5.so.1')\n"
        "except OSError as error:\n"
        "    assert 'cannot open shared object file' in str(error), error\n"
        "lines = [line.split()[-1] for line in open('/proc/self/maps')]\n"
        "print(*{line for line in lines if 'libibverbs.so' in line or 'librdmacm.so' in line})\n"
    )
    done = run("-q", "--", *PYTHON, opened)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 2
    assert all("/verbs.sock.rdmawire/lib/" in path for path in done.stdout.split())


def test_signals_are_forwarded_to_the_program(tmp_path: Path) -> None:
    began, ended = tmp_path / "began", tmp_path / "ended"
    script = f"trap 'touch {ended}; exit 3' TERM; touch {began}; while :; do sleep 0.01; done"
    with subprocess.Popen([*RDMAWIRE, "verbs", "-q", "--", "sh", "-c", script]) as process:
        wait_until(began.exists)
        process.terminate()
        assert process.wait(timeout=HANG) == 3
    assert ended.exists()


def test_signals_that_come_before_the_program_are_kept_for_it() -> None:
    calls: list[None] = []
    with forwarded(lambda: calls.append(None)) as forward_to:
        signal.raise_signal(signal.SIGTERM)
        with subprocess.Popen(["sleep", "1000"]) as process:
            forward_to(process)
            assert process.wait(timeout=HANG) == -signal.SIGTERM
    assert len(calls) == 1
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_command_that_cannot_be_run_has_the_status_of_shells() -> None:
    assert run("--", "no-such-command").returncode == 127
    assert status_of("--", "") == (127, "rdmawire: an empty name: there is no such command\n")
    done = run("--", str(Path(__file__)))
    assert done.returncode == 126
    assert done.stderr == f"rdmawire: {__file__}: not an executable file\n"


@pytest.mark.parametrize(("given", "wanted"), [(None, "EAGER"), ("LAZY", "LAZY")])
def test_cuda_loads_kernels_at_the_start_unless_it_is_set(
    given: str | None, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_MODULE_LOADING", raising=False)
    if given is not None:
        monkeypatch.setenv("CUDA_MODULE_LOADING", given)
    done = run("-q", "--", *PYTHON, "import os; print(os.environ['CUDA_MODULE_LOADING'])")
    assert done.stdout == f"{wanted}\n"


# Services.


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of a service that tests use and leave as it is."""
    path = tmp_path_factory.mktemp("service") / "verbs.sock"
    with serving(path):
        yield path


def test_a_service_warns_if_it_may_open_few_files() -> None:
    """Each program that opens a device takes some of them."""
    opens = (
        f"{LIST}"
        "verbs.ibv_open_device.restype = ctypes.c_void_p\n"
        "print(*{bool(verbs.ibv_open_device(ctypes.c_void_p(devices[0]))) for _ in range(20)})\n"
    )
    command = [*RDMAWIRE, "verbs", "-q", "--", *PYTHON, opens]
    done = subprocess.run(
        ["prlimit", "--nofile=64:64", *command],
        capture_output=True, text=True, check=False, timeout=HANG,
    )  # fmt: skip
    assert sorted(done.stdout.split()) == ["False", "True", "rw0", "rw1"]
    (line,) = [line for line in done.stderr.splitlines() if "open files" in line]
    assert line.startswith("rdmawire: note: 64 open files at most (ulimit -Hn)")
    assert "Traceback" not in done.stderr
    assert done.returncode == 0


def test_a_service_prints_its_summary_as_json(tmp_path: Path) -> None:
    path, capture = tmp_path / "verbs.sock", tmp_path / "all.pcapng"
    with serving(path, "--json", "-w", str(capture)) as service:
        done = run("env", "--socket", str(path), str(program("messages")), "post_send")
        assert done.returncode == 0, done.stderr
        service.send_signal(signal.SIGINT)
        assert service.stderr is not None
        summary = json.loads(service.stderr.read())
    assert summary["capture"] == str(capture)
    with open_capture(capture) as packets:
        frames = sum(1 for _ in packets)
    assert sum(device["xmit_packets"] for device in summary["devices"].values()) == frames > 10


def test_a_capture_can_be_piped(tmp_path: Path) -> None:
    path = tmp_path / "verbs.sock"
    command = [*RDMAWIRE, "verbs", "serve", "-q", "--socket", str(path), "-w", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as service:
        wait_until(path.exists)
        done = run("env", "--socket", str(path), str(program("messages")), "datagrams")
        assert done.returncode == 0, done.stderr
        service.send_signal(signal.SIGINT)
        data, _ = service.communicate(timeout=HANG)
    captured = tmp_path / "piped.pcap"
    captured.write_bytes(data)
    with open_capture(captured) as packets:
        assert sum(1 for _ in packets) > 0


def test_a_terminal_shows_counters(tmp_path: Path) -> None:
    path = tmp_path / "verbs.sock"
    ours, theirs = pty.openpty()
    command = [*RDMAWIRE, "verbs", "serve", "--socket", str(path)]
    with subprocess.Popen(command, stderr=theirs) as service:
        os.close(theirs)
        shown = b""
        while b"2 devices, 0 frames, 0 bytes" not in shown:
            shown += os.read(ours, 4096)
        service.terminate()
        assert service.wait(timeout=HANG) == 0
    os.close(ours)


def test_a_socket_has_one_service(service: Path) -> None:
    done = run("serve", "--socket", str(service))
    assert done.returncode == 1
    text = "a service is running there: use it by `rdmawire verbs env`, or name another path"
    assert done.stderr == f"rdmawire: {service}: {text} [EADDRINUSE]\n"
    assert run("env", "--socket", str(service)).returncode == 0


# What is refused.

LONG_PATH = f"/tmp/{'x' * 103}"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Exec format error"),
        (b"\x7fELF nonsense", "Exec format error"),
        (b"#!/no/such/interpreter\n", "the interpreter that it names is not found"),
    ],
)
def test_a_file_that_the_system_does_not_execute_has_the_status_of_shells(
    tmp_path: Path, service: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "command"
    path.write_bytes(content)
    path.chmod(0o755)
    refused = 126, f"rdmawire: {path}: cannot be executed: {reason}\n"
    assert status_of("--", str(path)) == refused
    assert status_of("env", "--socket", str(service), str(path)) == refused


@pytest.mark.parametrize("kind", [SOCK_SEQPACKET, SOCK_STREAM])
def test_the_socket_of_another_program_is_left_alone(tmp_path: Path, kind: SocketKind) -> None:
    path = tmp_path / "other.sock"
    with socket(AF_UNIX, kind) as listener:
        listener.bind(str(path))
        listener.listen()
        done = invoke("serve", "--socket", str(path))
        assert done.exit_code == 1
        assert f"{path}: a" in str(done.exception)
        assert path.is_socket()
        if kind is SOCK_STREAM:
            done = invoke("env", "--socket", str(path), "true")
            assert "no verbs service answers at" in str(done.exception)


@pytest.mark.parametrize("reply", [b"", b"abc", bytes(8), bytes(64)])
def test_replies_of_another_protocol_are_refused(tmp_path: Path, reply: bytes) -> None:
    path = tmp_path / "other.sock"

    def answer() -> None:
        with suppress(OSError):
            served = listener.accept()[0]
            served.recv(100)
            served.send(reply)
            served.close()

    with socket(AF_UNIX, SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = Thread(target=answer)
        thread.start()
        done = invoke("status", "--socket", str(path))
        thread.join()
    assert done.exit_code == 1
    said = f"{done.output} {done.exception}"
    assert "no reply of a verbs service" in said or "no verbs service answers" in said


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("-w", "x.txt", "--", "true"), 2, "the name of a capture ends in .pcap or .pcapng"),
        (("-w", "-", "--", "true"), 2, "name a file with -w FILE"),
        (("-w", "/no-such/x.pcap", "--", "true"), 1, "/no-such/x.pcap: No such file or directory"),
        (("--network", "loss=x", "--", "true"), 1, "network 'loss=x': loss is a share"),
        (("--network", "loss=2", "--", "true"), 1, "network 'loss=2': loss is a share"),
        (("--network", "rate=0G", "--", "true"), 1, "network 'rate=0G': rate is bits per second"),
        (("--network", "nowhere", "--", "true"), 1, "network 'nowhere': neither a setting"),
        (("--network", "cnp-reaction", "--devices", "3", "--", "true"), 1, "give neither"),
        (("--network", "cnp-reaction", "--first-address", "3", "--", "true"), 1, "give neither"),
        (("--network", "udp=0,loss=0.1", "--", "true"), 1, "no setting of joined services"),
        (("--host", "nowhere", "--", "true"), 1, "shipped hosts are"),
        (("--host", "two-sockets", "--devices", "9", "--", "true"), 1, "1 adapters, and 9"),
        (("--devices", "0", "--", "true"), 2, "0 is not in the range"),
        (("--first-address", "254", "--", "true"), 1, "2 devices from 10.0.0.254 on do not fit"),
        (("--json", "-q", "--", "true"), 2, "give one of them"),
        (("env", "--socket", "/no-such/verbs.sock"), 1, "no verbs service answers at"),
        (("env", "--unset", "true"), 2, "give nothing else with it"),
        (("serve", "-q", "--json"), 2, "give one of them"),
        (
            ("status", "--socket", "/no-such/a b"),
            1,
            "`rdmawire verbs serve --socket '/no-such/a b'`",
        ),
        (("status", "--socket", "/etc/passwd"), 1, "no verbs service answers at"),
        (("status", "--socket", LONG_PATH), 1, "the path of a socket has 107 at most"),
        (("env", "--socket", LONG_PATH), 1, "the path of a socket has 107 at most"),
        (("serve", "--socket", LONG_PATH), 1, "the path of a socket has 107 at most"),
        (("serve", "--socket", "/etc/passwd"), 1, "is no socket: name another path"),
        (("serve", "--socket", "/"), 1, "a folder, and no socket: name a path in it"),
        (("env", "--socket", "//"), 1, "a folder, and no socket: name a path in it"),
        (("--network", "udp=0,peer=a..b:5", "--", "true"), 1, "network 'peer=a..b:5': "),
        (("--devices", "2"), 2, "Missing argument 'COMMAND'"),
    ],
)
def test_what_cannot_be_done_is_one_line(words: tuple[str, ...], status: int, message: str) -> None:
    done = invoke(*words)
    assert done.exit_code == status
    assert message in f"{done.output} {done.exception}"


@pytest.mark.parametrize(("name", "mode"), [("long" * 25, 0o700), ("shared", 0o777)])
def test_a_temporary_folder_may_have_a_long_path_or_be_writable_by_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, mode: int
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    folder.chmod(mode)
    monkeypatch.setenv("TMPDIR", str(folder))
    done = run("-q", "--", "sh", "-c", "echo $RDMAWIRE_VERBS")
    assert done.stdout.startswith("/tmp/rdmawire-verbs-")
    assert os.listdir(folder) == []


def test_the_socket_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "verbs.sock"
    with socket(AF_UNIX, SOCK_STREAM) as listener:
        listener.bind(str(path))
        monkeypatch.setattr("rdmawire.verbs_service.service_socket.may_use", lambda _: False)
        for name in ("env", "status"):
            done = invoke(name, "--socket", str(path))
            assert f"{path}: Permission denied: name a socket of this user" in str(done.exception)


@pytest.mark.parametrize("error", [ENOSPC, EMFILE, EROFS])
def test_files_that_cannot_be_written_are_named_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(error, os.strerror(error), "somewhere")

    monkeypatch.setattr("rdmawire.verbs_service.program.copy_libraries", refuse)
    path = tmp_path / "verbs.sock"
    done = invoke("serve", "--socket", str(path))
    assert f"{path}.rdmawire: {os.strerror(error)}" in f"{done.output}"
    assert [*tmp_path.iterdir()] == []
