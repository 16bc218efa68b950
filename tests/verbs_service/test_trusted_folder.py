"""Folders and services of other users: nothing of theirs is used or changed."""

import os
import re
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import pytest
from click.testing import CliRunner

from rdmawire.cli.program import cli
from rdmawire.errors import VerbsError
from rdmawire.verbs_service import ProgramFiles, is_served, read_counters
from rdmawire.verbs_service.pci_layout import plain_host
from rdmawire.verbs_service.trusted_folder import trusted_users
from tests.verbs_service.c_programs import environment, program
from tests.verbs_service.fake_service import FakeService
from tests.waiting import HANG

OTHER = 54321
"""A user that has nothing to do with the tests."""
NAMES = ["bin", "dev", "lib", "share", "sys"]
of_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.fixture
def files(tmp_path: Path) -> Iterator[ProgramFiles]:
    found = ProgramFiles(tmp_path / "verbs.sock")
    yield found
    found.remove()


def write(files: ProgramFiles) -> None:
    files.write(plain_host([]), [], [])


def fill(folder: Path) -> Path:
    """Make folders with the names that a service has, and a file in each."""
    for name in NAMES:
        (folder / name).mkdir(parents=True)
        (folder / name / "kept").write_text("kept")
    return folder


def is_kept(folder: Path) -> bool:
    """Whether nothing was written to the folder or removed from it."""
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    return files == sorted([*NAMES, *(f"{name}/kept" for name in NAMES)])


def as_link(path: Path) -> None:
    path.symlink_to(fill(path.with_name("target")))


def as_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(VerbsError) as caught:
        call()
    assert "\n" not in caught.value.reason
    return caught.value.reason


# The folder beside the socket.


@pytest.mark.parametrize("make", [as_link, Path.touch, os.mkfifo, as_socket])
def test_what_is_in_place_of_the_folder_is_left_alone(
    files: ProgramFiles, make: Callable[[Path], object]
) -> None:
    make(files.folder)
    before = files.folder.lstat()
    for call in (lambda: write(files), files.check, files.is_claimed):
        assert f"{files.folder}: is a link or no folder: remove it" in refusal(call)
    files.remove()
    assert files.folder.lstat() == before
    assert make is not as_link or is_kept(files.folder.with_name("target"))


def test_a_folder_to_which_others_write_is_refused(files: ProgramFiles) -> None:
    fill(files.folder)
    files.folder.chmod(0o1777)
    for call in (lambda: write(files), files.check):
        assert "other users can write to it" in refusal(call)
    assert is_kept(files.folder)


@of_root
def test_a_folder_of_another_user_is_refused(files: ProgramFiles) -> None:
    os.chmod(files.folder.parent, 0o1777)
    os.chown(fill(files.folder), OTHER, OTHER)
    for call in (lambda: write(files), files.check):
        assert f"{files.folder}: belongs to user {OTHER}: name a socket" in refusal(call)
    assert is_kept(files.folder)


def test_a_folder_with_other_files_is_left_alone(files: ProgramFiles) -> None:
    fill(files.folder)
    (files.folder / "notes").touch()
    assert "has 'notes', which no service made: name another socket" in refusal(files.claim)
    (files.folder / "notes").unlink()
    assert is_kept(files.folder)


def test_links_among_old_files_are_not_followed(files: ProgramFiles) -> None:
    target = fill(files.folder.with_name("target"))
    files.folder.mkdir()
    for name in ("sys", "dev", "bin", "share"):
        (files.folder / name).symlink_to(target / name)
    (files.folder / "lib").mkdir()
    for name in ("libibverbs.so.1", "libibverbs.so.1.new", "libibverbs.so"):
        (files.folder / "lib" / name).symlink_to(target / "lib/kept")
    write(files)
    assert is_kept(target)
    assert (target / "lib/kept").read_text() == "kept"
    assert not (files.folder / "lib/libibverbs.so.1").is_symlink()
    files.remove()
    assert is_kept(target)
    assert os.listdir(files.folder) == ["lib"]


def test_a_link_in_place_of_the_libraries_is_refused(files: ProgramFiles) -> None:
    target = fill(files.folder.with_name("target"))
    files.folder.mkdir()
    (files.folder / "lib").symlink_to(target / "lib")
    assert "lib: is a link or no folder" in refusal(lambda: write(files))
    assert is_kept(target)


def test_a_folder_that_is_replaced_while_it_is_written_is_left_alone(
    files: ProgramFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved, target = files.folder.with_name("moved"), fill(files.folder.with_name("target"))

    def replace(*_: object) -> None:
        files.folder.rename(moved)
        files.folder.symlink_to(target)

    monkeypatch.setattr("rdmawire.verbs_service.program.copy_libraries", replace)
    write(files)
    assert sorted(os.listdir(moved)) == NAMES
    files.remove()
    assert is_kept(target)
    assert os.listdir(moved) == ["lib"]


def test_others_can_read_the_files_and_write_none_whatever_the_mask(files: ProgramFiles) -> None:
    mask = os.umask(0)
    try:
        write(files)
        assert os.umask(0) == 0
    finally:
        os.umask(mask)
    found = [files.folder, *files.folder.rglob("*")]
    modes = {path.lstat().st_mode for path in found if not path.is_symlink()}
    assert not any(mode & (stat.S_IWGRP | stat.S_IWOTH) for mode in modes)
    assert all(mode & stat.S_IROTH for mode in modes)


# The folders above.


def test_the_folder_of_a_socket_is_made_for_this_user_alone(tmp_path: Path) -> None:
    files = ProgramFiles(tmp_path / "new/rdmawire/verbs.sock")
    write(files)
    assert stat.S_IMODE(files.folder.parent.stat().st_mode) == 0o700
    files.remove()


def test_in_a_shared_folder_only_a_sticky_bit_will_do(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / "below").mkdir(parents=True)
    for socket_path in (shared / "verbs.sock", shared / "below/verbs.sock"):
        files = ProgramFiles(socket_path)
        shared.chmod(0o777)
        for call in (lambda: write(files), files.check):  # noqa: B023  called at once
            assert f"{shared}: other users can write to it: remove their perm" in refusal(call)
        assert not files.folder.exists()
        shared.chmod(0o1777)
        write(files)
        files.check()
        files.remove()


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "rdmawire").symlink_to("target")
    files = ProgramFiles(tmp_path / "rdmawire/verbs.sock")
    for call in (lambda: write(files), files.check):
        assert (
            f"rdmawire: is a link: remove it, or name {tmp_path}/target/verbs.sock it"
            in refusal(call)
        )
    assert os.listdir(tmp_path / "target") == []


def test_links_further_above_are_resolved_once(tmp_path: Path) -> None:
    (tmp_path / "target/rdmawire").mkdir(parents=True, mode=0o700)
    (tmp_path / "link").symlink_to("target")
    files = ProgramFiles(tmp_path / "link/rdmawire/verbs.sock")
    write(files)
    assert files.variables({})["RDMAWIRE_VERBS"] == f"{tmp_path}/target/rdmawire/verbs.sock"
    files.remove()


@of_root
@pytest.mark.parametrize("above", ["", "between"])
def test_folders_of_other_users_are_refused(tmp_path: Path, above: str) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, OTHER, OTHER)
    files = ProgramFiles(theirs / above / "verbs.sock")
    for call in (lambda: write(files), files.check):
        assert f"{theirs}: belongs to user {OTHER}: name a socket in a folder" in refusal(call)
    assert os.listdir(theirs) == []


@of_root
def test_the_user_who_called_sudo_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, OTHER, OTHER)
    monkeypatch.setenv("SUDO_UID", str(OTHER))
    files = ProgramFiles(theirs / "verbs.sock")
    write(files)
    files.check()
    files.remove()
    os.chown(files.folder, OTHER, OTHER)
    files.check()
    assert files.variables({})["RDMAWIRE_USER"] == str(OTHER)
    assert "belongs to user" in refusal(files.claim)


def test_variables_name_trusted_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", str(OTHER))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("RDMAWIRE_USER", "1001")
    assert trusted_users() == {0, 1000, 1001}
    monkeypatch.delenv("RDMAWIRE_USER")
    assert trusted_users() == {0, 1000}
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert trusted_users() == {0, OTHER}
    monkeypatch.setenv("SUDO_UID", "-1")
    assert trusted_users() == {0}


@pytest.mark.parametrize(
    ("users", "is_refused"), [("0 0 4294967295", True), ("0 1000 1\n1 100000 65536", False)]
)
def test_in_a_container_users_outside_may_have_the_folders_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, users: str, is_refused: bool
) -> None:
    """Outside of its user namespace all are one user; the folder itself must belong to this one."""
    texts = {"/proc/self/uid_map": users, "/proc/sys/kernel/overflowuid": "54321\n"}
    read, check = Path.read_text, os.fstat
    monkeypatch.setattr(Path, "read_text", lambda path: texts.get(str(path)) or read(path))

    def of_outside(fd: int) -> os.stat_result:
        fields = list(check(fd))
        above = os.readlink(f"/proc/self/fd/{fd}") in map(str, tmp_path.parents)
        fields[4] = OTHER if above else fields[4]
        return os.stat_result(fields)

    files = ProgramFiles(tmp_path / "verbs.sock")
    monkeypatch.setattr("rdmawire.verbs_service.trusted_folder.os.fstat", of_outside)
    if is_refused:
        assert f"/: belongs to user {OTHER}" in refusal(files.claim)
    else:
        files.claim()
        files.remove()
    above = ProgramFiles(tmp_path.parent / "verbs.sock")
    assert f"belongs to user {OTHER}" in refusal(above.claim)


# Commands and programs.


@pytest.mark.parametrize("words", [("env",), ("serve",), ("status",)])
def test_commands_say_in_one_line_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """The default socket is in such a folder, too; its service answers."""
    folder = tmp_path / "rdmawire"
    folder.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("RDMAWIRE_VERBS", raising=False)
    monkeypatch.setattr("rdmawire.verbs_service.trusted_folder.trusted_users", lambda: {OTHER})
    service = FakeService(folder / "verbs.sock")
    try:
        done = CliRunner().invoke(cli, ["verbs", *words])
        assert os.listdir(folder) == ["verbs.sock"]
    finally:
        service.close()
    assert done.exit_code == 1
    assert done.stdout == ""
    assert re.search(r"belongs to user \d+: name a socket", f"{done.stderr} {done.exception}")


def test_a_link_to_a_socket_is_no_socket(files: ProgramFiles) -> None:
    as_socket(files.socket.with_name("target"))
    files.socket.symlink_to("target")
    assert "exists, and is no socket: name another path" in refusal(files.claim)


def test_services_of_other_users_are_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = FakeService(tmp_path / "verbs.sock")
    monkeypatch.setattr("rdmawire.verbs_service.trusted_folder.trusted_users", lambda: {OTHER})
    monkeypatch.setattr("rdmawire.verbs_service.service_socket.trusted_users", lambda: {OTHER})
    assert "name another path" in refusal(ProgramFiles(service.path).claim)
    for call in (lambda: is_served(service.path), lambda: read_counters(service.path)):
        assert "the service there belongs to user" in refusal(call)
    service.close()


LIST = """
import ctypes
verbs = ctypes.CDLL("libibverbs.so.1")
for _ in range(2):
    count = ctypes.c_int()
    verbs.ibv_get_device_list(ctypes.byref(count))
    print(count.value)
"""


@pytest.fixture
def service_of_other(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The socket of a service that another user runs, in a folder of that user."""
    folder = Path(mkdtemp())  # that of pytest is closed to other users
    path = folder / "verbs.sock"
    os.chown(folder, OTHER, OTHER)
    monkeypatch.chdir(folder)
    os.seteuid(OTHER)  # whom SO_PEERCRED names as the one who listens: unix(7)
    try:
        service = FakeService(Path(path.name))
    finally:
        os.seteuid(0)
    path.chmod(0o777)
    folder.chmod(0o755)
    yield path
    service.close()
    folder.rmdir()


def listed(path: Path, *before: str, **variables: str) -> tuple[list[str], list[str]]:
    """What a program finds twice, and what the library prints about the service's user."""
    environ = environment(program("walk").parent, path)
    done = subprocess.run(
        [*before, sys.executable, "-c", LIST], env={**environ, **variables},
        capture_output=True, text=True, check=True, timeout=HANG,
    )  # fmt: skip
    return done.stdout.split(), [line for line in done.stderr.splitlines() if "belongs" in line]


@of_root
def test_programs_use_services_of_the_user_they_name(service_of_other: Path) -> None:
    for variables in ({}, {"RDMAWIRE_USER": "1"}, {"RDMAWIRE_USER": ""}):
        found, (line,) = listed(service_of_other, **variables)
        assert found == ["0", "0"]
        assert f"{service_of_other}: the service there belongs to user {OTHER}, so it" in line
    assert listed(service_of_other, RDMAWIRE_USER=str(OTHER)) == (["1", "1"], [])


@of_root
def test_in_a_container_the_folder_shows_whose_service_it_is(service_of_other: Path) -> None:
    """The user of the service has no number there but the one that all users outside share."""
    command = ["unshare", "--user", "--map-root-user"]
    try:
        subprocess.run([*command, "true"], check=True, capture_output=True)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no namespaces here: {error}")
    assert listed(service_of_other, *command) == (["1", "1"], [])
    service_of_other.parent.chmod(0o777)
    assert listed(service_of_other, *command)[0] == ["0", "0"]
    service_of_other.parent.chmod(0o755)
    os.chown(service_of_other.parent, 0, 0)
    assert listed(service_of_other, *command)[0] == ["0", "0"]


def test_a_program_reports_that_it_may_not_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may: so it runs the program as another user, who cannot enter the folders of tests."""
    is_root = os.geteuid() == 0
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        built = program("walk")
        for path in (built, built.parent / "libibverbs.so.1", built.parent / "librdmacm.so.1"):
            shutil.copy(path, folder)
        monkeypatch.chdir(folder)
        service = FakeService(folder / "verbs.sock")
        service.path.chmod(0o755 if is_root else 0)
        if not is_root and os.access(service.path, os.W_OK):
            service.close()
            pytest.skip("this user may use every file")
        done = subprocess.run(
            [folder / built.name, "poll_notices"], env=environment(folder, service.path),
            capture_output=True, text=True, check=False, timeout=HANG,
            user=OTHER if is_root else None,
        )  # fmt: skip
        service.close()
    told = [line for line in done.stderr.splitlines() if "have its owner share it" in line]
    assert len(told) == 1
    assert f"{service.path}: Permission denied: name a socket of this user, or" in told[0]
