"""Programs in a mount namespace whose ``/sys`` is a small made one, and what they do to files.

``python private_machine.py TREE FOLDER < JOBS`` mounts it and does jobs, each with a new copy of
the private tree. It runs in a namespace of its own: the ``/sys`` of the machine is not touched.
"""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import NotRequired, TypedDict

_SYS = Path("/sys")
_FILES = {
    "devices/virtual/net/lo/mtu": "65536\n",
    "devices/virtual/net/lo/ifindex": "1\n",
    "devices/pci0000:00/0000:00:01.0/class": "0x030200\n",
    "devices/pci0000:00/0000:00:02.0/infiniband/mlx5_0/node_desc": "real\n",
    "module/other/version": "1\n",
    "fs/pstore/dmesg": "oops\n",
    "kernel/size": "1\n",
}
_LINKS = {
    "class/net/lo": "../../devices/virtual/net/lo",
    "class/infiniband/mlx5_0": "../../devices/pci0000:00/0000:00:02.0/infiniband/mlx5_0",
    "bus/pci/devices/0000:00:01.0": "../../../devices/pci0000:00/0000:00:01.0",
}


def _make_machine() -> None:
    """Mount a file system at /sys, and fill it. Raises if /sys is still that of the machine."""
    before = _SYS.stat().st_dev
    subprocess.run(["mount", "-t", "tmpfs", "none", _SYS], check=True)
    if _SYS.stat().st_dev == before or os.listdir(_SYS):
        raise RuntimeError("/sys is not private")
    for name, text in _FILES.items():
        (_SYS / name).parent.mkdir(parents=True, exist_ok=True)
        (_SYS / name).write_text(text)
    for name, target in _LINKS.items():
        (_SYS / name).parent.mkdir(parents=True, exist_ok=True)
        (_SYS / name).symlink_to(target)


class Job(TypedDict):
    """A shell command. The preload library is left out if it is empty."""

    command: str
    library: str
    before: NotRequired[str]
    """A shell command that runs first, without the library."""


class Done(TypedDict):
    """What a command did: its exit status and output, its files, and changed ones of /sys."""

    status: int
    output: str
    errors: str
    files: dict[str, list[object]]
    machine: list[str]


def _state(folder: Path, *, times: bool = False) -> dict[str, list[object]]:
    """Everything in a folder, with times of change on demand."""
    state: dict[str, list[object]] = {}
    for root, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            path = os.path.join(root, name)
            found = os.lstat(path)
            text = os.readlink(path) if stat.S_ISLNK(found.st_mode) else ""
            if stat.S_ISREG(found.st_mode):
                text = Path(path).read_text()
            time = found.st_ctime_ns if times else 0
            state[os.path.relpath(path, folder)] = [found.st_mode, found.st_uid, text, time]
    return state


def _do(job: Job, tree: Path, home: Path) -> Done:
    for path in home.iterdir():
        subprocess.run(["rm", "-rf", path], check=True)
    shutil.copytree(tree, home / "d/v.sock.rdmawire", symlinks=True)
    (home / "d/other").mkdir()
    (home / "d/other/file").write_text("1")
    (home / "d/link").symlink_to("other")
    env = {**os.environ, "HOME": str(home), "RDMAWIRE_SYSFS": str(home / "d/v.sock.rdmawire/sys")}
    subprocess.run(["sh", "-c", job.get("before", ":")], cwd=home, env=env, check=True)
    if job["library"]:
        env["LD_PRELOAD"] = job["library"]
    machine = _state(_SYS, times=True)
    done = subprocess.run(
        ["bash", "-c", job["command"]],
        cwd=home, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    after = _state(_SYS, times=True)
    changed = sorted(name for name in {*machine, *after} if machine.get(name) != after.get(name))
    return {
        "status": done.returncode,
        "output": done.stdout,
        "errors": done.stderr,
        "files": _state(home),
        "machine": changed,
    }


def main() -> None:
    """Do what the standard input says, and print it."""
    tree, folder = map(Path, sys.argv[1:])
    _make_machine()
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)  # faster than a disk
    jobs: list[Job] = json.load(sys.stdin)
    json.dump([_do(job, tree, folder) for job in jobs], sys.stdout)


if __name__ == "__main__":
    main()
