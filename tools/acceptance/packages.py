"""What programs need: packages, checkouts, rdma-core's tests, the driver of NCCL's transport."""

import gzip
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tools.acceptance.case import Case, Package

_TESTS = Path("/usr/share/doc/rdma-core/tests")
_DRIVER = Path(__file__).with_name("nccl_net.c")
_TRANSPORT = "ncclNetIb"
_ASK_PYPI = "import sys; from importlib import metadata; print(metadata.version(sys.argv[1]))"


@cache
def version(package: Package, python: str = sys.executable) -> str:
    """Return the version of an installed package without Debian's revision, or nothing.

    ``python`` is the Python that has packages of PyPI.
    """
    if package.pypi:
        return _printed(python, "-c", _ASK_PYPI, package.pypi).strip()
    if package.checkout or not package.needed:
        return ""
    return _debian_version(package.needed[0])


@cache
def _debian_version(name: str) -> str:
    shown = _printed("dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", name)
    status, _, found = shown.partition(" ")
    return found.rpartition("-")[0].rpartition(":")[2] if status == "installed" else ""


def _printed(*words: str) -> str:
    """Return what a command prints; nothing if it fails or is not installed."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return "" if done.returncode else done.stdout


def checkout_version(checkout: Path) -> str:
    """Return the version of a checkout: of its first crate, or that of CMake; or nothing."""
    files = [checkout / "Cargo.toml", *sorted(checkout.glob("*/Cargo.toml"))]
    found = (tomllib.loads(file.read_text()) for file in files if file.exists())
    crates = (str(one["package"]["version"]) for one in found if "package" in one)
    return next(crates, "") or _cmake_version(checkout / "CMakeLists.txt")


def _cmake_version(file: Path) -> str:
    """Return the version that a CMakeLists.txt sets, whole or in three numbers; or nothing."""
    text = file.read_text() if file.exists() else ""
    if whole := re.search(r'set\(PACKAGE_VERSION "([\d.]+)"\)', text):
        return whole[1]
    return ".".join(re.findall(r"set\(\w+_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)\)", text))


def missing(cases: Iterable[Case]) -> list[str]:
    """Return the Debian packages of cases that are not installed."""
    names = dict.fromkeys(name for case in cases for name in case.package.needed)
    return [name for name in names if not _debian_version(name)]


def missing_pypi(cases: Iterable[Case], python: str) -> list[str]:
    """Return the packages of PyPI that cases need and that ``python`` does not have."""
    packages = dict.fromkeys(case.package for case in cases)
    return [one.pypi for one in packages if one.pypi and not version(one, python)]


def unpacked_tests(folder: Path) -> str:
    """Copy rdma-core's tests as python3-pyverbs has them, gunzipped; nothing if it is missing."""
    if not _TESTS.is_dir():
        return ""
    target = folder / "tests"
    target.mkdir()
    for path in _TESTS.iterdir():
        if path.suffix == ".gz":
            (target / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        elif path.suffix == ".py":
            shutil.copy(path, target)
    return str(target)


def nccl_driver(folder: Path, library: Path | None) -> str:
    """Return the command that drives the IB transport of a libnccl.so.2; nothing without one."""
    if library is None:
        return ""
    program = folder / "nccl_net"
    words = ["cc", "-O2", str(_DRIVER), "-o", str(program), "-ldl"]
    subprocess.run(words, check=True)
    symbols = subprocess.run(["nm", str(library)], capture_output=True, text=True, check=True)
    offset = next(
        line.split()[0] for line in symbols.stdout.splitlines() if line.endswith(f" {_TRANSPORT}")
    )
    return f"{program} {library} {offset}"


@cache
def nccl_version(library: Path) -> str:
    """Return the version that a libnccl.so.2 names itself, or nothing."""
    found = re.search(rb"NCCL version (\d+\.\d+\.\d+)", library.read_bytes())
    return found[1].decode() if found else ""
