"""Programs that walk through folders or change files, with the preload library.

They run in a mount namespace whose ``/sys`` is a made one: see ``private_machine.py``.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from errno import EACCES, EEXIST, ENODATA, ENOENT, ENOTSUP, EPERM
from pathlib import Path
from typing import Final

import pytest

from tests.verbs_service import changing_calls
from tests.verbs_service.preloaded import preload, write_small_tree
from tests.verbs_service.private_machine import Done, Job
from tests.waiting import HANG

_HERE: Final = Path(__file__).parent
_CLASS: Final = "/sys/class/infiniband"
_TREE: Final = "d/v.sock.rdmawire"
"""The folder of the private tree, in that in which commands run."""


def _namespace() -> list[str]:
    """A command that runs another one in a mount namespace."""
    own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *own, "--mount", "--propagation", "private"]


def _why_no_namespace() -> str:
    """Why there are no such namespaces, or nothing."""
    command = [*_namespace(), "mount", "-t", "tmpfs", "none", "/sys"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG)
    except FileNotFoundError:
        return "unshare is not installed"
    return done.stderr.strip()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for jobs, with a tree of two devices."""
    if reason := _why_no_namespace():
        pytest.skip(f"no mount namespace with a private /sys: {reason}")
    found = tmp_path_factory.mktemp("machine")
    (found / "tree").mkdir()
    write_small_tree(found / "tree")
    (found / "tree/sys/class/infiniband/rw0/out").symlink_to("/sys/class/net/lo")
    for counters in (found / "tree").rglob("*counters"):
        shutil.rmtree(counters)  # many files
    return found


def _do(folder: Path, jobs: list[Job]) -> list[Done]:
    done = subprocess.run(
        [
            *_namespace(),
            *(sys.executable, _HERE / "private_machine.py", folder / "tree", folder / "home"),
        ],
        input=json.dumps(jobs), capture_output=True, text=True, check=False, timeout=HANG,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: list[Done] = json.loads(done.stdout)
    return found


def _in_python(lines: str) -> str:
    return shlex.join([sys.executable, "-c", lines])


_PRIVATE_CLASS: Final = f"{_TREE}/sys/class"
_RELATIVE: Final = """
import os

def text(call, *arguments):
    try:
        found = call(*arguments)
    except OSError as error:
        return error.errno
    return (found.st_size, found.st_mode) if isinstance(found, os.stat_result) else found

def describe(path, folder):
    print(path, text(lambda: os.stat(path, dir_fd=folder)))
    print(text(lambda: os.readlink(path, dir_fd=folder)))
    print(text(lambda: os.access(path, os.W_OK, dir_fd=folder)))
    print(text(lambda: sorted(os.listdir(os.open(path, os.O_RDONLY, dir_fd=folder)))))

home = os.getcwd()
for folder in [os.path.join(home, name) for name in folders]:
    for number in (os.open(folder, os.O_RDONLY), os.open(folder, os.O_PATH), None):
        for path in paths:
            os.chdir(folder if number is None else home)
            describe(path, number)
        os.chdir(home)
    os.chdir(folder)
    print(os.getcwd(), os.path.realpath("."), os.path.realpath("../net"), sorted(os.listdir("..")))
    os.chdir("..")
    print(os.getcwd(), sorted(os.listdir()))
    os.chdir(home)
"""
"""Relative paths from folders, by working directory and descriptors."""

_OF_C: Final = """
import ctypes
libc = ctypes.CDLL(None)
libc.fts_open.restype = libc.fts_read.restype = ctypes.POINTER(ctypes.c_char_p)
seen = []

@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, *[ctypes.c_void_p] * 3)
def note(path, *others):
    seen.append(path)
    return 0

libc.nftw(b"d", note, 9, 1)
names = (ctypes.c_char_p * 2)(b"d", None)
for options in (0x10, 0x10 | 4, 2):  # FTS_PHYSICAL, FTS_NOCHDIR, FTS_LOGICAL
    walk = libc.fts_open(names, options, None)
    while entry := libc.fts_read(walk):
        seen.append(entry[6])
    seen.append(libc.fts_close(walk))
print(len(seen), sorted(map(str, seen)))
"""
"""Walks by functions of the C library."""

_FOLDERS: Final = [
    "d",
    _TREE,
    f"{_TREE}/sys",
    _PRIVATE_CLASS,
    f"{_PRIVATE_CLASS}/infiniband",
    "e/sys/class",
]
_PATHS: Final = [
    ".", "..", "../..", "./", "..//",
    "class", "class/..", "class/infiniband/../net", "infiniband", "infiniband/..",
    "../net", "net/lo", "infiniband/mlx5_0", "../../dev", "v.sock.rdmawire/sys/class/net",
    "../class/other", "rw0/..", "rw0/device/../..", "sys/fs", "../../dev/infiniband/..",
    "/usr/../dev",
]  # fmt: skip

_BY_OWN_PATH: Final = (
    "rm -rf d",
    "find d -delete",
    "find d | sort",
    "find d -type f -exec chmod 600 {} +",
    "chmod -R a-w d",
    "chown -R 0:0 d; chgrp -R 0 d",
    "cp -r d e",
    "cp -a d e && rm -rf e/v.sock.rdmawire/sys",
    "tar c d | tar x --one-top-level=e && find e | sort",
    "du -ab d | sort -k2",
    "ls -lR --time-style=+ d",
    "cd d && git init -q . && git clean -xdffq && ls -A",
    "mkdir e; mv d/v.sock.rdmawire/* e; find e | sort",
    "if which rsync; then rsync -a d/ e; rsync -a --delete d/other/ d/v.sock.rdmawire/; fi",
    _in_python(_OF_C),
    "if which perl; then perl -MFile::Path=rmtree -e 'rmtree(\"d\")'; fi",
    f"cd {_PRIVATE_CLASS}/infiniband && ls .. ../net; pwd; pwd -P; rm -rf ../../devices",
    f"cd {_PRIVATE_CLASS} && find .. | sort; rm -rf ../class/infiniband_verbs; touch ../class/new",
    f"cd {_PRIVATE_CLASS} && chmod -R 700 ../class",
    f"mkdir -p {_PRIVATE_CLASS}/net/x {_PRIVATE_CLASS}/other && rm -r {_PRIVATE_CLASS}/[no]*",
    f"rm -r {_PRIVATE_CLASS}/infiniband/rw0/../../../..",
    _in_python('import shutil; shutil.rmtree("d")'),
    _in_python(
        'import shutil; shutil.copytree("d", "e", True); shutil.rmtree("e/v.sock.rdmawire")'
    ),
    _in_python(
        'import os; print(sorted((root, *sorted(names)) for root, names, _, _ in os.fwalk("d")))'
    ),
    f"cp -a {_TREE} e; " + _in_python(f"folders, paths = {_FOLDERS}, {_PATHS}{_RELATIVE}"),
)
"""Commands that use the tree by its own path, or a copy of it, or ordinary folders."""

_REACHED: Final = (
    f"cd {_CLASS} && rm -rf ../net",
    f"cd {_CLASS} && rm -rf ../../fs ../../class",
    f"cd {_CLASS} && find .. -delete",
    f"cd {_CLASS} && find .. -exec touch {{}} +",
    f"cd {_CLASS} && chmod -R 0 ../net ../../devices",
    f"cd {_CLASS} && chown -R 0:0 ..",
    f"cd {_CLASS}/rw0/device && mv ../../../virtual taken",
    f"cd {_CLASS} && cp $HOME/d/other/file ../net/lo/mtu; ln -sf new ../net/lo",
    f"cd {_CLASS} && echo 1 > ../net/lo/mtu",
    f"rm -rf {_CLASS}/../net {_CLASS}/rw0/ports/../../../../../../virtual",
    f"rm -rf {_CLASS}/* {_CLASS}/rw0/ {_CLASS}/rw0/out/",
    f"chmod -R 0 {_CLASS}/rw0/out/; chmod 0 {_CLASS}/rw0/out/mtu",
    _in_python(f'import shutil; shutil.rmtree("{_CLASS}/../net", ignore_errors=True)'),
    f"cd {_CLASS}; " + _in_python('import shutil; shutil.rmtree("..", ignore_errors=True)'),
)
"""Commands that go to folders of the machine by way of the private tree."""


@pytest.mark.parametrize(
    "commands",
    [_BY_OWN_PATH[::3], pytest.param(_BY_OWN_PATH, marks=pytest.mark.slow)],
    ids=["a third", "all"],
)
def test_walkers_of_folders_do_what_they_do_without_the_library(
    folder: Path, commands: tuple[str, ...]
) -> None:
    jobs: list[Job] = [
        {"command": command, "library": library}
        for command in commands
        for library in (str(preload()), "")
    ]
    done = iter(_do(folder, jobs))
    for command, with_library, without in zip(commands, done, done, strict=True):
        assert with_library == without, command
        assert with_library["machine"] == [], command


def test_walkers_change_nothing_of_the_machine_by_way_of_the_tree(folder: Path) -> None:
    library = str(preload())
    jobs: list[Job] = [{"command": command, "library": library} for command in _REACHED]
    for command, done in zip(_REACHED, _do(folder, jobs), strict=True):
        assert done["machine"] == [], command


_SEEN: Final = """
import os, stat, sys

def kind(found):
    mode = stat.S_IFMT(found.st_mode)
    return mode, found.st_size if stat.S_ISREG(mode) else None

def content(path, folder):
    with open(os.open(path, os.O_RDONLY, dir_fd=folder)) as file:
        return file.read()

def entries(path, folder):
    found = sorted(os.listdir(os.open(path, os.O_RDONLY, dir_fd=folder)))
    return found if "rw0" in found or "state" in found else None  # others are the machine's

CALLS = (
    lambda path, folder: kind(os.stat(path, dir_fd=folder)),
    lambda path, folder: kind(os.stat(path, dir_fd=folder, follow_symlinks=False)),
    lambda path, folder: os.readlink(path, dir_fd=folder),
    lambda path, folder: os.access(path, os.R_OK, dir_fd=folder),
    content,
    entries,
    lambda path, folder: folder is None and os.path.realpath(path),
    lambda path, folder: folder is None and os.chdir(path) or os.getcwd(),
)

for name in folders:
    os.chdir("/")
    kinds = [os.open(name, os.O_RDONLY), os.open(name, os.O_PATH), None]
    for folder in [*kinds, os.dup(kinds[0])]:
        for path in paths:
            for number, call in enumerate(CALLS):
                os.chdir(name if folder is None else "/")
                try:
                    found = call(path, folder)
                except OSError as error:
                    found = error.errno
                print(name, path, folder is None, number, found)
"""
"""What a program sees in folders, by relative paths."""

_SEEN_FOLDERS: Final = [
    *("/", "/sys", "/sys/class", "/sys/class/net", "/sys/devices", "/sys/bus/pci/devices"),
    *(_CLASS, f"{_CLASS}/rw0", f"{_CLASS}/rw0/device", f"{_CLASS}/rw0/ports/1", f"{_CLASS}/.."),
    *(f"{_CLASS}/../net", "//sys/./class//infiniband/rw0/..//rw0/ports", f"{_CLASS}/rw0/out"),
]
_SEEN_PATHS: Final = [
    *(".", "..", "../..", "./", "..//", "infiniband", "infiniband/", "infiniband/../net/lo/mtu"),
    *("rw0", "rw0/", "rw0/.", "rw0/..", "rw0/ports/1/state", "./rw0/..//rw1/node_desc", "state"),
    *("sys/class/infiniband/rw0/ports", "class/infiniband/../net/lo/", "../net/lo/mtu", "mtu"),
    *("net/lo/mtu", "net/../infiniband/rw1", "../infiniband/rw0/device/class", "rw0/out/mtu"),
    *("device/..", "../../../../class/net/lo/ifindex", "none", "none/..", "../none", "rw0/none/.."),
    *("rw0/node_desc/..", "node_desc/", "00f0:01:00.0/class", "0000:00:01.0/class", "pci00f0:00"),
    *(f"{_CLASS}/../net/lo/mtu", f"{_CLASS}/rw0/device/../../../../class/net", f"{_CLASS}/../.."),
    *("/sys/../sys/class/infiniband/rw0", "/sys/class/../../usr", "../../../usr", "out/../mtu"),
    *(f"{_CLASS}/rw0/out/../../lo/mtu", "/sys/class/net/../infiniband/rw0/ports/1/state"),
]


def test_programs_see_what_they_would_see_in_one_tree(folder: Path) -> None:
    command = _in_python(f"folders, paths = {_SEEN_FOLDERS}, {_SEEN_PATHS}{_SEEN}")
    merge = "rm -rf /sys/class/infiniband; cp -a $RDMAWIRE_SYSFS/. /sys"
    jobs: list[Job] = [
        {"command": command, "library": str(preload())},
        {"command": command, "library": "", "before": merge},
    ]
    seen, merged = _do(folder, jobs)
    assert (seen["errors"], seen["machine"]) == (merged["errors"], merged["machine"]) == ("", [])
    assert len(seen["output"].splitlines()) > 10_000
    assert seen["output"].splitlines() == merged["output"].splitlines()


def test_ordinary_files_are_changed_by_paths_that_leave_sysfs(folder: Path) -> None:
    lines = """
import os
os.chdir("../../.." + os.environ["HOME"])
open("new", "w").close()
os.rename("d/other", "d/new")
"""
    commands = (
        f"cd {_CLASS} && rm -r ../../..$HOME/d/other && mkdir ../../..$HOME/new",
        f"cd {_CLASS} && {_in_python(lines)}",
    )
    jobs: list[Job] = [{"command": one, "library": str(preload())} for one in commands]
    first, second = _do(folder, jobs)
    assert (first["errors"], "new" in first["files"], "d/other" in first["files"]) == ("", 1, 0)
    assert (second["errors"], {"new", "d/new/file"} <= second["files"].keys()) == ("", True)


_ERRORS: Final = {
    "make": {EEXIST, EPERM},
    "make new": {EPERM},
    "take": {EPERM},
    "take missing": {ENOENT},
    "open": {EPERM},
    "open private": {0},
    "open missing": {EACCES, ENOENT},
    "alter": {EPERM},
    "alter private": {0},
    "alter missing": {ENOENT},
    "descriptor": {EPERM},
    "descriptor private": {0, ENODATA, ENOTSUP},
}
"""The errors of calls by :mod:`tests.verbs_service.changing_calls`: those of sysfs."""


def _calls(folder: Path, kind: str) -> tuple[Done, dict[str, list[tuple[str, str, str, int]]]]:
    command = shlex.join([sys.executable, changing_calls.__file__, kind])
    (done,) = _do(folder, [{"command": command, "library": str(preload())}])
    assert done["status"] == 0, done["errors"]
    return done, json.loads(done["output"])


def test_every_call_that_changes_a_file_keeps_those_of_the_machine(folder: Path) -> None:
    done, found = _calls(folder, "reached")
    assert done["machine"] == []
    assert "d/v.sock.rdmawire/sys/class/infiniband/rw0" in done["files"]
    assert not [name for name in done["files"] if name.endswith(("new", "taken"))]
    assert found.keys() == _ERRORS.keys()
    for group, calls in found.items():
        assert [call for call in calls if call[3] not in _ERRORS[group]] == [], group


def test_files_that_a_program_names_by_the_path_of_the_machine_are_the_machines(
    folder: Path,
) -> None:
    done, found = _calls(folder, "plain")
    assert [call for call in found["plain"] if call[3]] == []
    assert done["machine"] == ["devices/virtual/net/lo/mtu"]
