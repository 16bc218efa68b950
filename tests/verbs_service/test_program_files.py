"""The files beside a socket: when they are there, and which service has them."""

import os
from pathlib import Path
from threading import Thread

import pytest

from rdmawire.errors import VerbsError
from rdmawire.verbs_service import (
    DirectNetwork,
    ProgramFiles,
    Server,
    Session,
    SessionSettings,
    is_served,
    numbered,
)
from rdmawire.verbs_service.pci_layout import plain_host


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
    session = Session(tmp_path / "verbs.sock", SessionSettings())
    assert sorted(os.listdir(session.files.folder)) == ["dev", "lib", "sys"]
    before = sorted(os.listdir(session.files.folder / "lib"))
    session.close()
    assert os.listdir(tmp_path) == ["verbs.sock.rdmawire"]
    assert os.listdir(session.files.folder) == ["lib"]
    assert sorted(os.listdir(session.files.folder / "lib")) == before


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
