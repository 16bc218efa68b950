"""The private ``/sys``: its tree, its counters, and the library that shows it to programs."""

import os
import subprocess
import sys
from errno import EACCES, EINVAL
from pathlib import Path
from signal import SIGABRT

import pytest

from rdmawire import Pair
from rdmawire.errors import TopologyError
from rdmawire.topology import (
    Device,
    DeviceKind,
    HostBridge,
    Machine,
    NumaNode,
    Switch,
    relation,
)
from rdmawire.topology.pci_tree import read_sysfs
from rdmawire.traffic.scenario import open_host, shipped_hosts
from rdmawire.verbs_service.pci_layout import functions_of, plain_host
from rdmawire.verbs_service.sysfs import (
    CounterFiles,
    _make_device,
    notes_of_machine,
    write_tree,
)
from tests.verbs_service.c_programs import SANITIZED, program
from tests.verbs_service.preloaded import devices, in_tree, preload, printed, write_small_tree
from tests.waiting import HANG

_LISTS = """
#include <dirent.h>
#include <stdio.h>

int main(void)
{
    DIR *folder = opendir("/sys/class/infiniband");
    struct dirent *entry;

    while ((entry = readdir(folder)))
        puts(entry->d_name);
    return closedir(folder);
}
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of two devices."""
    return write_small_tree(tmp_path_factory.mktemp("tree"))


@pytest.mark.parametrize("name", shipped_hosts())
def test_devices_of_a_host_are_as_near_as_in_its_description(name: str, tmp_path: Path) -> None:
    machine = open_host(name).machine
    adapters = [adapter.name for adapter in machine.adapters]
    write_tree(tmp_path, machine, devices(*adapters), [100] * len(adapters))
    found = read_sysfs(tmp_path / "sys").machine
    assert [adapter.name for adapter in found.adapters] == adapters
    for one in machine.adapters:
        assert found.device(one.name).link in (one.link, found.device(one.name).link)
        assert found.node_of(found.device(one.name)).cpus == machine.node_of(one).cpus
        for other in machine.adapters:
            expected = relation(machine, one, other)
            ends = found.device(one.name), found.device(other.name)
            assert str(relation(found, *ends)) == str(expected)


def test_a_port_has_what_programs_read(tree: Path) -> None:
    port = tree / "sys/class/infiniband/rw1/ports/1"
    assert {name: (port / name).read_text() for name in ("state", "rate", "link_layer")} == {
        "state": "4: ACTIVE\n",
        "rate": "25 Gb/sec\n",
        "link_layer": "Ethernet\n",
    }
    assert (port / "gids/0").read_text() == "0000:0000:0000:0000:0000:ffff:0a00:0002\n"
    assert (port / "gid_attrs/types/0").read_text() == "RoCE v2\n"
    assert (tree / "sys/class/infiniband_verbs/uverbs1/ibdev").read_text() == "rw1\n"
    assert (tree / "sys/class/infiniband/rw1/device/class").read_text() == "0x020000\n"


def test_attributes_of_a_free_slot_of_a_gid_table_open_and_cannot_be_read(tree: Path) -> None:
    before = """
def read(name, index):
    path = f"/sys/class/infiniband/rw0/ports/1/{name}/{index}"
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 100).decode()
    except OSError as error:
        return error.errno
"""
    names, indices = ("gids", "gid_attrs/types", "gid_attrs/ndevs"), range(8)
    code = f"[[read(name, index) for index in {[*indices]}] for name in {names}]"
    found = in_tree(tree, code, before)
    assert isinstance(found, list)
    gids, types, interfaces = found
    zero = ":".join(["0000"] * 8) + "\n"
    free = [index for index, gid in enumerate(gids) if gid == zero]
    assert free == [2, 4, 5, 6]
    for values, text in ((types, "RoCE v2\n"), (interfaces, "lo\n")):
        assert values == [EINVAL if index in free else text for index in indices]


def test_the_interface_of_a_device_is_one_that_the_machine_has(tree: Path) -> None:
    place = "/sys/class/infiniband/rw0/device/net"
    assert in_tree(tree, f"os.listdir('{place}')") == ["lo"]
    assert in_tree(tree, f"open('{place}/lo/ifindex').read()") == "1\n"
    assert (tree / "sys/class/infiniband/rw0/ports/1/gid_attrs/ndevs/0").read_text() == "lo\n"
    for name in ("address", "mtu"):
        machine = Path("/sys/class/net/lo", name).read_text()
        assert (tree / "sys/class/infiniband/rw0/device/net/lo" / name).read_text() == machine


def test_no_link_of_sysfs_leads_out_of_a_tree(tree: Path) -> None:
    links = [path for path in (tree / "sys").rglob("*") if path.is_symlink()]
    assert links
    assert [path for path in links if not path.resolve(strict=True).is_relative_to(tree)] == []


def test_the_file_of_a_device_is_a_character_device(tree: Path) -> None:
    assert (tree / "dev/infiniband/uverbs1").is_char_device()  # UCX leaves others out
    assert notes_of_machine() == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the machine's devices")
def test_modes_of_the_machines_devices_stay(tree: Path) -> None:
    """As by `find DIR -exec chmod`, and the cleanup of a temporary folder."""
    before = os.stat("/dev/null")
    try:
        (tree / "dev/infiniband/uverbs0").chmod(0o700)
        assert os.stat("/dev/null").st_mode == before.st_mode
    finally:
        os.chmod("/dev/null", before.st_mode & 0o777)


@pytest.mark.parametrize("refused", ["mknod", "open"])
def test_without_a_device_of_its_own_a_tree_has_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(EACCES, refused)

    with monkeypatch.context() as patched:
        patched.setattr(f"rdmawire.verbs_service.sysfs.os.{refused}", refuse)
        _make_device(tmp_path / "uverbs0")
    assert (tmp_path / "uverbs0").readlink() == Path("/dev/null")


def test_a_machine_without_usable_devices_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "null").write_text("")
    places = (str(tmp_path / "missing"), str(tmp_path / "null"), str(tmp_path))
    monkeypatch.setattr("rdmawire.verbs_service.sysfs._DEVICES", places)
    (note,) = notes_of_machine()
    assert "/dev/null is no character device" in note
    write_small_tree(tmp_path)
    assert (tmp_path / "dev/infiniband/uverbs0").is_file()


def test_counters_are_those_of_the_adapter(tree: Path) -> None:
    pair = Pair()
    pair.client.write(bytes(3000), to=pair.server.region)
    pair.drive()
    (device,) = devices("rw0")
    device.nic = pair.client.nic
    port = tree / "sys/class/infiniband/rw0/ports/1"
    assert (port / "counters/port_xmit_packets").read_text() == "0\n"
    CounterFiles(tree, [device]).write()
    assert (port / "counters/port_xmit_packets").read_text() == "3\n"
    assert (port / "hw_counters/out_of_sequence").read_text() == "0\n"


def test_counters_are_written_a_few_at_a_time(tree: Path) -> None:
    port = tree / "sys/class/infiniband/rw0/ports/1"
    files = [path for name in ("counters", "hw_counters") for path in (port / name).iterdir()]
    for path in files:
        path.write_text("")
    counters = CounterFiles(tree, devices("rw0"))
    counters.find_changed()
    left = []
    while counters.write_changed(5):
        left.append(sum(not path.read_text() for path in files))
    assert left == list(range(len(files) - 5, 0, -5))
    assert all(path.read_text() == "0\n" for path in files)
    counters.find_changed()
    assert not counters.write_changed(0)


def test_counters_that_programs_replaced_are_not_written_and_hold_up_no_other(tree: Path) -> None:
    (tree / "own").write_text("own")
    port = tree / "sys/class/infiniband/rw0/ports/1"
    link, fifo, folder, *files = sorted((port / "counters").iterdir())
    for path in (link, fifo, folder, *files):
        path.unlink()
    link.symlink_to(tree / "own")
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    folder.mkdir()
    counters = CounterFiles(tree, devices("rw0"))
    with pytest.raises(OSError, match="counters/"):
        counters.write()
    assert all(path.read_text() == "0\n" for path in files)
    assert (tree / "own").read_text() == "own"
    assert os.read(reader, 9) == b""
    os.close(reader)


def test_many_devices_are_functions_of_slots() -> None:
    places = [str(one.path) for one in functions_of(plain_host(list("abcdefghi"))) if one.device]
    assert places[0] == "pci00f0:00/00f0:00:00.0/00f0:01:00.0"
    assert places[8] == "pci00f0:00/00f0:00:01.0/00f0:09:00.0"


def test_a_hierarchy_has_so_many_buses_only() -> None:
    nodes, bridges = (NumaNode(0),), (HostBridge("root", 0),)
    switches = [Switch(f"sw{number}", "root") for number in range(130)]
    below = [Device(f"n{number}", DeviceKind.ADAPTER, f"sw{number}") for number in range(130)]
    machine = Machine("large", nodes, bridges, tuple(switches), tuple(below))
    with pytest.raises(TopologyError, match="more than 256 PCI buses"):
        list(functions_of(machine))


# The preload library.


def test_rdma_devices_are_those_of_the_tree(tree: Path) -> None:
    assert in_tree(tree, "sorted(os.listdir('/sys/class/infiniband'))") == ["rw0", "rw1"]
    assert in_tree(tree, "open('/sys/class/infiniband/rw0/node_type').read()") == "1: CA\n"
    assert in_tree(tree, "os.path.exists('/sys/module/nvidia_peermem/version')") is True
    assert in_tree(tree, "os.access('/dev/infiniband/uverbs1', os.R_OK | os.W_OK)") is True
    assert in_tree(tree, "os.write(os.open('/dev/infiniband/uverbs1', os.O_RDWR), b'1')") == 1


def test_real_paths_begin_with_sys(tree: Path) -> None:
    place = "/sys/devices/pci00f0:00/00f0:00:00.1/00f0:02:00.0"
    assert in_tree(tree, "os.path.realpath('/sys/class/infiniband/rw1/device')") == place
    assert in_tree(tree, f"os.stat('{place}').st_mode & 0o170000") == 0o40000
    link = in_tree(tree, "os.readlink('/sys/class/infiniband/rw1/device')")
    assert link == "../../../00f0:02:00.0"


def test_paths_below_an_open_root_are_those_of_the_tree(tree: Path) -> None:
    root = "os.open('/', os.O_RDONLY)"
    names = f"os.listdir(os.open('sys/class/infiniband', os.O_DIRECTORY, dir_fd={root}))"
    assert in_tree(tree, f"sorted({names})") == ["rw0", "rw1"]
    path = "'sys/class/infiniband/rw0/device', "
    assert in_tree(tree, f"os.readlink({path} dir_fd={root})") == "../../../00f0:01:00.0"
    assert in_tree(tree, f"os.access({path} os.F_OK, dir_fd=os.open('/tmp', 0))") is False


def test_other_folders_are_those_of_the_machine(tree: Path) -> None:
    for folder in ("/sys", "/sys/class", "/sys/devices"):
        assert in_tree(tree, f"sorted(os.listdir('{folder}'))") == sorted(os.listdir(folder))
    place = "/sys/devices/pci00f0:00/00f0:00:00.0"
    assert in_tree(tree, f"open('{place}/class').read()") == "0x060400\n"
    assert in_tree(tree, "os.path.exists('/sys/class/infiniband/rw9')") is False


@pytest.mark.parametrize("seed", range(3))
def test_paths_and_roots_of_any_length_and_kind_are_taken(tree: Path, seed: int) -> None:
    path = program("paths", "address", "undefined")
    done = subprocess.run(
        [path, str(seed), tree / "sys"],
        env={**os.environ, **SANITIZED},
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("call", ["__realpath_chk(b'/sys', room, 9)", "__getcwd_chk(room, 10, 9)"])
def test_small_buffer_of_a_checked_program_ends_it_as_without_the_library(call: str) -> None:
    code = f"import ctypes; room = ctypes.create_string_buffer(9); ctypes.CDLL(None).{call}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "LD_PRELOAD": str(preload())},
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert done.returncode == -SIGABRT
    assert "buffer overflow detected" in done.stderr


def test_programs_with_a_sanitizer_see_the_tree(tree: Path, tmp_path: Path) -> None:
    source = tmp_path / "lists.c"
    source.write_text(_LISTS)
    path = str(tmp_path / "lists")
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-fsanitize=address", str(source), "-o", path], check=True)
    listed = printed(tree, path)
    assert sorted(listed.split()) == [".", "..", "rw0", "rw1"]
