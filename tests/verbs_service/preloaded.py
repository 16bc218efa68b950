"""Small private trees, and programs that see them by the preload library."""

import json
import os
import subprocess
import sys
from pathlib import Path

from rdmawire.fabric import Place
from rdmawire.verbs_service import DeviceSpec, numbered
from rdmawire.verbs_service.device import EmulatedDevice
from rdmawire.verbs_service.libraries import PRELOAD, libraries
from rdmawire.verbs_service.pci_layout import plain_host
from rdmawire.verbs_service.sysfs import write_tree
from tests.waiting import HANG


def devices(*names: str) -> list[EmulatedDevice]:
    """Devices with these names, that reach no other."""

    def resolve(gid: bytes) -> bytes:
        raise AssertionError("no device is reached")

    return [
        EmulatedDevice(DeviceSpec(name, Place.numbered(number)), resolve, None)
        for number, name in enumerate(names, 1)
    ]


def write_small_tree(folder: Path) -> Path:
    """Write a tree of two devices to a folder, and return the folder."""
    names = [spec.name for spec in numbered(2)]
    write_tree(folder, plain_host(names), devices(*names), [100, 25])
    return folder


def preload() -> Path:
    """The preload library."""
    (found,) = (path for path in libraries().paths if path.name == PRELOAD)
    return found


def printed(tree: Path, *command: str) -> str:
    """What a command prints that sees the tree."""
    env = {**os.environ, "LD_PRELOAD": str(preload()), "RDMAWIRE_SYSFS": str(tree / "sys")}
    return subprocess.run(
        command, env=env, capture_output=True, text=True, check=True, timeout=HANG
    ).stdout


def in_tree(tree: Path, code: str, before: str = "") -> object:
    """The value of a Python expression in a program that sees the tree, as JSON has it.

    The program runs the lines ``before`` first.
    """
    lines = f"import ctypes, glob, json, os\n{before}\nprint(json.dumps({code}))"
    return json.loads(printed(tree, sys.executable, "-c", lines))
