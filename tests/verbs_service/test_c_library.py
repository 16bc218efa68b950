"""The C library against the service: programs of ``csrc/tests``, plain and with sanitizers."""

import ctypes
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pytest

from rdmawire.verbs_service.device import numbered
from rdmawire.verbs_service.network import DirectNetwork
from rdmawire.verbs_service.server import Server
from tests.verbs_service.c_programs import compile_shared, environment, library, program, run
from tests.waiting import HANG, wait_until

SCENARIOS = {
    "events": "unpolled interrupted",
    "objects": "queries objects cq_resize refused_posts full_queues flushed forked",
    "memory": (
        "buffers dma_handles on_demand on_demand_rights device_memory null_region imports unimports"
        " forked_memory"
    ),
    "messages": (
        "post_send inline_data extended_post extended_poll shared_receive datagrams multicast"
        " dmabuf memory_window completion_events xrc threads"
    ),
    "registration": "permissions again",
    "threads": "traffic children close_while_copying",
    "raw_packets": "rss overrun",
    "idle": "yielding",
}
SANITIZERS = ("address", "undefined")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("service") / "verbs.sock"
    server = Server(path, numbered(2), DirectNetwork(None))
    thread = threading.Thread(target=server.run)
    thread.start()
    yield path
    server.stop()
    thread.join()
    server.close()


@pytest.mark.parametrize(
    ("name", "scenario"),
    [(name, scenario) for name, scenarios in SCENARIOS.items() for scenario in scenarios.split()],
)
def test_scenarios_in_c(service: Path, name: str, scenario: str) -> None:
    done = run(program(name, *SANITIZERS), service, scenario)
    assert done.returncode == 0, done.stderr


def test_memory_is_checked_on_old_kernels_too(service: Path, tmp_path: Path) -> None:
    source, old_kernel = tmp_path / "madvise.c", tmp_path / "madvise.so"
    source.write_text(
        "#include <errno.h>\n#include <stddef.h>\n"
        "int madvise(void *address, size_t length, int advice)\n"
        "{ (void)address, (void)length, (void)advice; errno = EINVAL; return -1; }\n"
    )
    compile_shared(source, old_kernel)
    path = program("registration")
    preload = {**environment(path.parent, service), "LD_PRELOAD": str(old_kernel)}
    for scenario in SCENARIOS["registration"].split():
        done = subprocess.run(
            [path, scenario], env=preload, capture_output=True, text=True, timeout=HANG, check=False
        )
        assert done.returncode == 0, done.stderr


def test_without_a_service_the_list_is_empty(tmp_path: Path) -> None:
    done = run(program("walk"), tmp_path / "none.sock", "invalid_replies")
    assert done.returncode == 0
    assert "no verbs service at" in done.stderr
    assert "none.sock" in done.stderr


def test_private_functions_are_found_without_their_version() -> None:
    loaded = ctypes.CDLL(str(library() / "libibverbs.so.1"))
    loaded.ibv_wr_opcode_str.restype = ctypes.c_char_p
    assert loaded.ibv_wr_opcode_str(0) == b"IBV_WR_RDMA_WRITE"
    assert loaded.ibv_query_gid_type


def test_devices_of_rdma_core(service: Path) -> None:
    done = run_installed("ibv_devinfo", service, "-v")
    assert done.stdout.count("hca_id:") == 2
    assert "link_layer:\t\tEthernet" in done.stdout
    assert "RoCE v2" in done.stdout or "GID[  0]" in done.stdout


@pytest.mark.parametrize(
    "kind",
    ["rc", "ud", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("uc", "srq", "xsrq"))],
)
def test_pingpong_of_rdma_core(service: Path, kind: str) -> None:
    port = free_port()
    name, options = f"ibv_{kind}_pingpong", ("-g", "0", "-p", str(port), "-n", "50")
    server = subprocess.Popen(
        [name, "-d", "rw0", *options],
        env=environment(library(), service),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_until(lambda: is_listening(port) or server.poll() is not None)
    client = run_installed(name, service, "-d", "rw1", *options, "localhost")
    said = server.communicate(timeout=HANG)[0]
    assert (client.returncode, server.returncode) == (0, 0), client.stderr + said


def run_installed(name: str, service: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a program of the package ibverbs-utils, which these tests need."""
    assert which(name), f"{name} is not found: install ibverbs-utils"
    return run(Path(name), service, *arguments, folder=library())


def free_port() -> int:
    """A TCP port that is free."""
    with socket.socket() as unused:
        unused.bind(("", 0))
        port: int = unused.getsockname()[1]
        return port


def is_listening(port: int) -> bool:
    """Whether a process of this machine listens on a TCP port: its state is 0A."""
    rows = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    return bool(re.search(rf":{port:04X} [0-9A-F:]+ 0A ", rows))
