"""Counters of Linux as programs read them: the preload library has them written at that moment."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from rdmawire.errors import VerbsError
from rdmawire.verbs_service import protocol
from rdmawire.verbs_service.libraries import PRELOAD, libraries
from rdmawire.verbs_service.pci_layout import plain_host
from rdmawire.verbs_service.sysfs import CounterFiles, write_tree
from tests.verbs_service.client import WRITE, Connection
from tests.verbs_service.running import End, Service, connected, descriptors, running
from tests.waiting import HANG, wait_until

_PACKETS: Final = "/sys/class/infiniband/rw0/ports/1/counters/port_xmit_packets"

_READER: Final = f"""
import os, sys
path = "{_PACKETS}"
folder, name = os.path.split(path)
read = {{
    "open": lambda: open(path).read(),
    "descriptor": lambda fd=os.open(path, os.O_RDONLY): os.pread(fd, 99, 0).decode(),
    "rewound": lambda fd=os.open(path, os.O_RDONLY): (
        os.lseek(fd, 0, os.SEEK_SET), os.read(fd, 21), os.read(fd, 21)
    )[1].decode(),
    "folder": lambda folder=os.open(folder, os.O_DIRECTORY): os.read(
        os.open(name, os.O_RDONLY, dir_fd=folder), 99
    ).decode(),
    "dot": lambda folder=os.open(folder, os.O_DIRECTORY): os.read(
        os.open("./" + name, os.O_RDONLY, dir_fd=folder), 99
    ).decode(),
    "below a folder": lambda folder=os.open(folder + "/..", os.O_DIRECTORY): os.read(
        os.open("counters/" + name, os.O_RDONLY, dir_fd=folder), 99
    ).decode(),
    "working directory": lambda: (os.chdir(folder), open(name).read())[1],
    "beside": lambda: (os.chdir(folder + "/../hw_counters"), open("../counters/" + name).read())[1],
    "machine's folder": lambda: (os.chdir("/"), open(path.lstrip("/")).read())[1],
    "shell": lambda: os.popen(f"cd {{folder}} && cat {{name}}").read(),
    "inherited": lambda: os.popen(f"cat < {{path}}").read(),
    "private": lambda: open(os.environ["RDMAWIRE_SYSFS"] + path.removeprefix("/sys")).read(),
}}[sys.argv[1]]
for _ in sys.stdin:
    print(read().strip(), len(os.listdir("/proc/self/fd")), flush=True)
"""
"""Prints the counter, and how many descriptors the process has, whenever it reads a line."""


class Tree(NamedTuple):
    """A service whose counters are written when a program asks alone, and its two ends."""

    service: Service
    folder: Path
    one: End
    other: End

    def write(self) -> None:
        """Write 8 bytes: a packet of each device."""
        source, sink = self.one.client.buffer(8), self.other.client.buffer(8)
        place = {"remote_address": sink.memory.address, "rkey": sink.rkey}
        self.one.client.send(self.one.qp, source.sge(), opcode=WRITE, **place)
        assert self.one.cq.wait()[0].status == 0

    def sent(self) -> int:
        """Packets that the first device has sent."""
        return self.service.server.devices[0].nic.counters.port_xmit_packets


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    folder = tmp_path_factory.mktemp("tree")
    with running(folder) as service:
        devices = service.server.devices
        write_tree(folder, plain_host([device.name for device in devices]), devices, [100, 100])
        service.server.write_counters = CounterFiles(folder, devices).write
        yield Tree(service, folder, *connected(service))


def variables(folder: Path, service: Path) -> dict[str, str]:
    """The environment of a program that sees the tree."""
    (preload,) = (path for path in libraries().paths if path.name == PRELOAD)
    own = {"LD_PRELOAD": str(preload), "RDMAWIRE_SYSFS": str(folder / "sys")}
    return {**os.environ, **own, "RDMAWIRE_VERBS": str(service)}


@contextmanager
def reader(way: str, folder: Path, service: Path) -> "Iterator[subprocess.Popen[str]]":
    """A process that reads the counter of packets, in one of the ways, for each line it gets."""
    with subprocess.Popen(
        [sys.executable, "-c", _READER, way],
        env=variables(folder, service),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ask(process: "subprocess.Popen[str]") -> tuple[int, int]:
    """The counter, and the descriptors of the process."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    value, fds = process.stdout.readline().split()
    return int(value), int(fds)


_WAYS: Final = (
    *(
        "open",
        "descriptor",
        "rewound",
        "folder",
        "below a folder",
        "dot",
        "working directory",
        "beside",
    ),
    *("machine's folder", "shell", "inherited", "private"),
)


@pytest.mark.parametrize("way", _WAYS)
def test_a_counter_is_that_of_the_moment_of_reading(way: str, tree: Tree) -> None:
    with reader(way, tree.folder, tree.service.path) as process:
        for _ in range(3):
            tree.write()
            assert ask(process)[0] == tree.sent()


def test_a_counter_is_that_of_the_moment_of_reading_in_a_tree_behind_a_link(
    tree: Tree, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(tree.folder)
    with reader("working directory", tmp_path / "link", tree.service.path) as process:
        for _ in range(2):
            tree.write()
            assert ask(process)[0] == tree.sent()


def test_no_descriptor_stays_of_a_refresh(tree: Tree) -> None:
    with reader("descriptor", tree.folder, tree.service.path) as process:
        _, first = ask(process)
        before = descriptors()
        assert {ask(process)[1] for _ in range(20)} == {first}
        wait_until(lambda: descriptors() <= before)  # the service closes its ends a little later


def test_without_a_service_a_counter_is_the_last_that_was_written(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        devices = service.server.devices
        write_tree(tmp_path, plain_host(["rw0", "rw1"]), devices, [100, 100])
    with reader("descriptor", tmp_path, service.path) as process:
        assert ask(process)[0] == 0


def test_a_service_that_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    """It is stopped: after a second the file is read as it is."""
    path = tmp_path / "verbs.sock"
    folder = tmp_path / "sys/class/infiniband/rw0/ports/1/counters"
    folder.mkdir(parents=True)
    (folder / "port_xmit_packets").write_text("7\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        with reader("open", tmp_path, path) as process:
            assert ask(process)[0] == 7


def test_programs_read_other_files_as_ever(tree: Tree) -> None:
    code = (
        "import os\n"
        "one, other = os.pipe(); os.write(other, b'pipe'); print(os.read(one, 9).decode())\n"
        f"fd = os.open('{_PACKETS}', os.O_RDONLY); os.close(fd)\n"
        "one, other = os.pipe(); os.write(other, b'reused'); print(os.read(one, 9).decode())\n"
        "print(open('/sys/class/infiniband/rw0/node_type').read())\n"
        "try: os.read(9999, 1)\n"
        "except OSError as error: print(error.errno)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=variables(tree.folder, tree.service.path),
        capture_output=True, text=True, check=True, timeout=HANG,
    )  # fmt: skip
    assert done.stdout.split("\n") == ["pipe", "reused", "1: CA", "", "9", ""]


# The call of the service.


def test_the_call_needs_no_hello_and_the_same_version(tree: Tree) -> None:
    stranger = Connection(tree.service.path, greet=False)
    with pytest.raises(VerbsError):
        stranger.call("write_counters", protocol.version() ^ 1)
    tree.write()
    assert stranger.call("write_counters", protocol.version()) == []
    port = tree.folder / "sys/class/infiniband/rw0/ports/1"
    assert (port / "counters/port_xmit_packets").read_text() == f"{tree.sent()}\n"
    stranger.close()


def test_files_that_cannot_be_written_are_an_error_of_the_call(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        counters = CounterFiles(tmp_path / "gone", service.server.devices)
        service.server.write_counters = counters.write
        client = Connection(service.path)
        with pytest.raises(VerbsError):
            client.call("write_counters", protocol.version())
        client.close()
