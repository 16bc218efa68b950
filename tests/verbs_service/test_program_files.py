"""The files beside a socket: when they are there, and which service has them."""

import json
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from rdmawire.errors import VerbsError
from rdmawire.verbs_service import (
    DirectNetwork,
    ProgramFiles,
    Server,
    SessionSettings,
    VerbsSession,
    is_served,
    numbered,
)
from rdmawire.verbs_service.pci_layout import plain_host
from rdmawire.verbs_service.rdma_tool import write_rdma
from tests.waiting import HANG


def write(files: ProgramFiles) -> None:
    """Write files for a host without adapters."""
    files.write(plain_host([]), [], [])


def test_programs_connect_only_when_their_files_are_there(tmp_path: Path) -> None:
    path = tmp_path / "verbs.sock"
    seen: list[tuple[bool, list[str]]] = []
    server = Server(
        path,
        numbered(2),
        DirectNetwork(),
        prepare=lambda devices: seen.append((is_served(path), [one.name for one in devices])),
    )
    assert seen == [(False, ["rw0", "rw1"])]
    thread = Thread(target=server.run)
    thread.start()
    assert is_served(path)
    server.stop()
    thread.join()
    server.close()


def test_a_session_leaves_the_libraries(tmp_path: Path) -> None:
    session = VerbsSession(ProgramFiles(tmp_path / "verbs.sock"), SessionSettings())
    assert sorted(os.listdir(session.files.folder)) == ["bin", "dev", "lib", "share", "sys"]
    before = sorted(os.listdir(session.files.folder / "lib"))
    session.close()
    assert os.listdir(tmp_path) == ["verbs.sock.rdmawire"]
    assert os.listdir(session.files.folder) == ["lib"]
    assert sorted(os.listdir(session.files.folder / "lib")) == before


def test_one_counter_that_cannot_be_written_holds_up_no_other(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    session = VerbsSession(ProgramFiles(tmp_path / "verbs.sock"), SessionSettings())
    ports = [session.files.sysfs / f"class/infiniband/rw{index}/ports/1" for index in range(2)]
    first = ports[0] / "counters/port_xmit_data"
    first.unlink()
    first.mkdir()
    last = ports[1] / "counters/port_rcv_data"
    last.unlink()
    session._counters.find_changed()
    while session._update_counters():
        pass
    assert last.read_text() == "0\n"
    assert capfd.readouterr().err.count("are not updated: Is a directory") == 1
    session.close()


@pytest.fixture
def rdma(tmp_path: Path) -> Callable[..., str]:
    """Return what the stand-in for rdma(8) prints."""
    server = Server(tmp_path / "verbs.sock", numbered(2), DirectNetwork())
    write_rdma(tmp_path, server.devices)
    server.close()

    def call(*words: str) -> str:
        command = [str(tmp_path / "bin/rdma"), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG)
        return done.stdout

    return call


@pytest.mark.parametrize("words", [("link", "show", "-j"), ("-j", "link"), ("-jp", "link", "list")])
def test_rdma_lists_links_as_json(rdma: Callable[..., str], words: tuple[str, ...]) -> None:
    first, second = json.loads(rdma(*words))
    assert (first["ifname"], second["ifname"]) == ("rw0", "rw1")
    assert (first["port"], first["state"], first["netdev"]) == (1, "ACTIVE", "lo")
    assert second["netdev_index"] == socket.if_nametoindex("lo")


def test_rdma_lists_devices(rdma: Callable[..., str]) -> None:
    assert rdma("dev", "show").splitlines()[1].startswith("1: rw1: node_type ca fw 1.0.0 node_guid")
    assert json.loads(rdma("dev", "-j"))[0]["node_guid"] == "0000:00ff:fe00:0001"


@pytest.mark.parametrize("words", [(), ("resource", "show"), ("link", "add", "x"), ("link", "rw0")])
def test_rdma_refuses_the_rest(rdma: Callable[..., str], words: tuple[str, ...]) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        rdma(*words)
    assert "emulated devices have `rdma dev show` and `rdma link show`" in caught.value.stderr


def test_a_service_does_not_write_the_files_of_another(tmp_path: Path) -> None:
    first, second = (ProgramFiles(tmp_path / "verbs.sock") for _ in range(2))
    write(first)
    marker = first.sysfs / "marker"
    marker.touch()
    with pytest.raises(VerbsError, match="a service is starting there"):
        write(second)
    second.remove()
    assert marker.exists()
    first.remove()
    write(second)
    assert second.sysfs.exists()
    assert not marker.exists()
    second.remove()


def test_files_of_a_service_that_was_killed_are_replaced(tmp_path: Path) -> None:
    files = ProgramFiles(tmp_path / "verbs.sock")
    (files.sysfs / "old").mkdir(parents=True)
    (files.folder / "lib").mkdir()
    (files.folder / "lib/libibverbs.so.1").write_text("old")
    loaded = (files.folder / "lib/libibverbs.so.1").open()
    write(files)
    assert not (files.sysfs / "old").exists()
    assert (files.folder / "lib/libibverbs.so.1").read_bytes().startswith(b"\x7fELF")
    with loaded:
        assert loaded.read() == "old"
    files.remove()
