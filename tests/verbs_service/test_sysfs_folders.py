"""Working directories and relative paths of programs that see a private ``/sys``."""

import os
import shutil
import subprocess
from errno import EINVAL, ERANGE
from pathlib import Path
from typing import Final

import pytest

from tests.verbs_service.preloaded import in_tree, printed, write_small_tree

_CLASS: Final = "/sys/class/infiniband"
_PORT: Final = f"{_CLASS}/rw0/ports/1"
_HOME: Final = "/sys/devices/pci00f0:00/00f0:00:00.0/00f0:01:00.0/infiniband"
_REAL_PORT: Final = f"{_HOME}/rw0/ports/1"
"""The same folder by the path that the kernel has for it."""
_STATE: Final = "4: ACTIVE\n"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of two devices."""
    return write_small_tree(tmp_path_factory.mktemp("tree"))


def in_folder(tree: Path, folder: str, *codes: str) -> list[object]:
    """The values of Python expressions, one after the other, in a working directory."""
    found = in_tree(tree, f"[{', '.join(codes)}]", f"os.chdir({folder!r})")
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("path", [_PORT, f"/{_PORT}", _REAL_PORT])
def test_programs_change_to_folders_of_the_tree(tree: Path, path: str) -> None:
    assert in_folder(
        tree, path,
        "os.getcwd()",
        "open('state').read()",
        "open('.//../1/./state').read()",
        "os.path.realpath('gids/0')",
        "glob.glob('pkeys/*')",
        f"os.path.samefile('.', '{_PORT}')",
        "os.path.exists('rate') and not os.path.exists('other')",
        "(os.chdir('../../..'), os.getcwd())[1]",
    ) == [
        _REAL_PORT, _STATE, _STATE, f"{_REAL_PORT}/gids/0", ["pkeys/0"], True, True, _HOME
    ]  # fmt: skip


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_shells_change_to_folders_of_the_tree(tree: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = f"cd {_PORT} && pwd && pwd -P && cat state && cd ../../.. && pwd && echo *"
    assert printed(tree, shell, "-c", script).splitlines() == [
        _PORT, _REAL_PORT, _STATE.rstrip(), _CLASS, "rw0 rw1",
    ]  # fmt: skip


@pytest.mark.parametrize("variables", ["None", "{**os.environ, 'PWD': '/tmp'}", "{'PATH': '/bin'}"])
def test_programs_start_others_in_folders_of_the_tree(tree: Path, variables: str) -> None:
    keep = "{name: os.environ[name] for name in ('LD_PRELOAD', 'RDMAWIRE_SYSFS')}"
    run = (
        f"environment = {variables}\n"
        f"environment = environment and {{**environment, **{keep}}}\n"
        "def run(folder, *words):\n"
        "    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True)\n"
        "    return done.stdout.decode().split()\n"
    )
    assert in_tree(
        tree,
        f"[run('{_PORT}', 'env', 'pwd', '-P'), run('{_CLASS}', 'ls', '../net'),"
        f" run('{_CLASS}', 'sh', '-c', 'pwd; cd rw0/ports/1; sh -c pwd; env pwd'),"
        " run('/usr', 'env', 'pwd')]",
        f"import subprocess\n{run}",
    ) == [
        [_REAL_PORT], sorted(os.listdir("/sys/class/net")), [_CLASS, _PORT, _REAL_PORT], ["/usr"]
    ]  # fmt: skip


def test_tools_find_files_from_a_folder_of_the_tree(tree: Path) -> None:
    script = f"cd {_PORT} && realpath state && readlink -f . && find . -name rate"
    lines = [f"{_REAL_PORT}/state", _REAL_PORT, "./rate"]
    assert printed(tree, "sh", "-c", script).splitlines() == lines


@pytest.mark.parametrize("folder", ["/", "/sys", "/sys/class", "/sys/class/net"])
def test_relative_paths_from_folders_of_the_machine_reach_the_tree(tree: Path, folder: str) -> None:
    path = os.path.relpath(f"{_PORT}/state", folder)
    opened = f"os.open('{folder}', os.O_DIRECTORY)"
    assert in_folder(
        tree, folder,
        "os.getcwd()",
        "sorted(os.listdir())",
        f"open('{path}').read()",
        f"os.stat('{path}', dir_fd={opened}).st_size",
        f"(os.chdir('/tmp'), os.fchdir({opened}), os.access('{path}', os.R_OK))[2]",
    ) == [folder, sorted(os.listdir(folder)), _STATE, len(_STATE), True]  # fmt: skip


def test_relative_paths_leave_the_tree(tree: Path) -> None:
    assert in_folder(
        tree, _CLASS,
        "sorted(os.listdir('..'))",
        "os.stat('..').st_ino",
        "open('../net/lo/ifindex').read()",
        "os.path.samefile('../../../usr', '/usr')",
        "(os.chdir('../..'), os.getcwd())[1]",
        f"(os.chdir('{_CLASS}'), os.chdir('../../../../..'), os.getcwd())[2]",
    ) == [
        sorted(os.listdir("/sys/class")), os.stat("/sys/class").st_ino, "1\n", True, "/sys", "/"
    ]  # fmt: skip


def test_other_relative_paths_are_as_ever(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "sys/class").mkdir(parents=True)
    (tmp_path / "sys/class/one").write_text("1")
    assert in_folder(
        tree, str(tmp_path),
        "os.getcwd()",
        "open('sys/class/one').read()",
        "os.listdir('./sys/class')",
        "os.path.exists('sys/class/infiniband')",
        "open('two', 'w').write('22')",
        "os.path.realpath('two')",
    ) == [str(tmp_path), "1", ["one"], False, 2, str(tmp_path / "two")]  # fmt: skip


def test_programs_make_no_files_in_the_tree(tree: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        in_folder(tree, _PORT, "open('new', 'w').close()")
    assert not list(tree.rglob("new"))


def test_programs_change_to_the_folder_of_devices(tree: Path) -> None:
    assert in_folder(
        tree, "/dev",
        "os.path.exists('infiniband/uverbs1')",
        "(os.chdir('infiniband'), os.getcwd(), sorted(os.listdir()))[1:]",
    ) == [True, ["/dev/infiniband", ["uverbs0", "uverbs1"]]]  # fmt: skip


def test_a_tree_behind_a_link_has_the_paths_of_sysfs(tree: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tree)
    assert in_folder(
        link, _PORT,
        "os.getcwd()",
        "open('../1/state').read()",
        f"os.path.realpath('{_PORT}')",
        "(os.chdir('/dev/infiniband'), os.getcwd())[1]",
    ) == [_REAL_PORT, _STATE, _REAL_PORT, "/dev/infiniband"]  # fmt: skip


# Functions of the C library that Python does not call as these tests need.

_C: Final = f"""
libc = ctypes.CDLL(None, use_errno=True)
libc.getcwd.restype = libc.get_current_dir_name.restype = ctypes.c_char_p
def text(found):
    return found.decode() if found else ctypes.get_errno()
def matches(pattern):
    found = (ctypes.c_size_t * 9)()
    names = ctypes.cast(ctypes.pointer(found), ctypes.POINTER(ctypes.POINTER(ctypes.c_char_p)))
    status = libc.glob(pattern, 0, None, found)
    return [names[1][index].decode() for index in range(found[0])] if status == 0 else status
os.chdir("{_PORT}")
"""


@pytest.mark.parametrize("buffer", ["None", "ctypes.create_string_buffer(4096)"])
def test_getcwd_has_the_errors_of_the_c_library(tree: Path, buffer: str) -> None:
    needed = len(_REAL_PORT) + 1
    calls = (f"text(libc.getcwd({buffer}, {size}))" for size in (1, needed - 1, needed, 4096, 0))
    assert in_tree(tree, f"[{', '.join(calls)}]", _C) == [
        ERANGE, ERANGE, _REAL_PORT, _REAL_PORT, _REAL_PORT if buffer == "None" else EINVAL
    ]  # fmt: skip


def test_the_variable_pwd_names_the_current_folder_if_it_is_that(tree: Path) -> None:
    named = "text(libc.get_current_dir_name())"
    changes = (f"(os.environ.update(PWD='{path}'), {named})[1]" for path in (_PORT, _CLASS, "/no"))
    assert in_tree(tree, f"[{', '.join(changes)}]", _C) == [_PORT, _REAL_PORT, _REAL_PORT]


def test_glob_finds_files_of_the_tree_and_of_the_machine(tree: Path) -> None:
    patterns = [f"{_CLASS}/*/ports/1/stat[e]", "pkeys/*", "../../../*/node_type", "/sys/class/ne?"]
    no_match = 3  # GLOB_NOMATCH
    assert in_tree(tree, f"[matches(one.encode()) for one in {[*patterns, '/sys/no*']!r}]", _C) == [
        [f"{_CLASS}/{name}/ports/1/state" for name in ("rw0", "rw1")],
        ["pkeys/0"],
        ["../../../rw0/node_type"],
        ["/sys/class/net"],
        no_match,
    ]


def test_programs_are_spawned_in_a_folder_of_the_tree(tree: Path) -> None:
    spawn = f"""
actions, pid = (ctypes.c_char * 256)(), ctypes.c_int()
command = (ctypes.c_char_p * 4)(b"/bin/sh", b"-c", b"test -e rate", None)
libc.posix_spawn_file_actions_init(actions)
libc.posix_spawn_file_actions_addchdir_np(actions, b"{_CLASS}/rw1/ports/1")
os.chdir("/")
libc.posix_spawn(ctypes.byref(pid), command[0], actions, None, command,
                 ctypes.c_void_p.in_dll(libc, "environ"))
"""
    assert in_tree(tree, "os.waitpid(pid.value, 0)[1]", _C + spawn) == 0
