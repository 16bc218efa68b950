"""The C library and the test programs of ``csrc/tests``, built once; and how they are run."""

import fcntl
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Final

from tests.waiting import HANG

ROOT: Final = Path(__file__).resolve().parents[2]
CSRC: Final = ROOT / "csrc"
# Only the tests' own findings count: programs end without freeing what a service kept from them.
_LIBRARIES: Final = ("-Wl,--as-needed", "-lrdmacm", "-libverbs", "-ldl")
SANITIZED: Final = {
    "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}


def load(path: Path) -> ModuleType:
    """Load a Python file that is in no package."""
    name = f"_csrc_{path.parent.name}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


build = load(CSRC / "build.py")
"""``csrc/build.py``."""


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time build: tests run in several."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@cache
def library(*sanitizers: str) -> Path:
    """The folder with the libraries, which are built if a source changed."""
    folder = ROOT / "build" / "-".join(("verbs-tests", *sanitizers))
    names = ["ibverbs", "rdmacm", *(() if sanitizers else ("rspreload",))]
    with _locked(folder):
        build.build(folder, libraries=names, sanitizers=sanitizers)
    return folder


@cache
def program(name: str, *sanitizers: str) -> Path:
    """A program of ``csrc/tests``, which is built if a source changed."""
    folder = library(*sanitizers)
    source = CSRC / "tests" / f"{name}.c"
    sources = [source, *sorted(CSRC.glob("*/*.h")), *sorted((CSRC / "sysfs").glob("*.c"))]
    digest = sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    path = folder / f"{name}-{digest[:16]}"
    with _locked(folder):
        if not path.exists():
            compile_program(source, path, folder, sanitizers)
    return path


def compile_shared(source: Path, path: Path) -> None:
    """Compile a C file to a shared library."""
    command = [os.environ.get("CC", "cc"), "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fPIC"]
    subprocess.run([*command, "-shared", str(source), "-o", str(path)], check=True)


def compile_program(source: Path, path: Path, folder: Path, sanitizers: tuple[str, ...]) -> None:
    """Compile a C program and link it to the library in ``folder``."""
    partial = path.with_suffix(f".{os.getpid()}")
    flags = [f"-fsanitize={name}" for name in sanitizers]
    command = [os.environ.get("CC", "cc"), "-std=gnu11", "-D_GNU_SOURCE", "-g", "-pthread"]
    command += ["-Wall", "-Wextra", "-Werror", *flags, str(source), "-o", str(partial)]
    subprocess.run([*command, f"-L{folder}", *_LIBRARIES], check=True)
    partial.replace(path)


def exported(path: Path) -> set[str]:
    """Symbols with their versions: ``name@version``."""
    done = subprocess.run(
        ["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True
    )
    rows = (line.split() for line in done.stdout.splitlines())
    return {row[-1].replace("@@", "@") for row in rows if row[-2] != "A"}


def environment(folder: Path, service: Path) -> dict[str, str]:
    """The environment of a program that uses the library and a service."""
    own = {"LD_LIBRARY_PATH": str(folder), "RDMAWIRE_VERBS": str(service), "RDMAWIRE_TRACE": "1"}
    return {**os.environ, **SANITIZED, **own}


def run(
    path: Path, service: Path, *arguments: str, folder: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end, with the library in ``folder``, else that beside the program."""
    return subprocess.run(
        [path, *arguments],
        env=environment(folder or path.parent, service),
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
