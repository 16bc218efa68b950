"""Where the stand-in C libraries are: in the installed package, or built from a checkout.

A wheel that was made where a C compiler and the header of libibverbs are has them in
``rdmawire/verbs_service/lib``. In a checkout they are built into ``build/verbs`` when they are
first needed, and again when a source changed.
"""

import fcntl
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from rdmawire.errors import LibraryError
from rdmawire.verbs_service.diagnostics import warn
from rdmawire.verbs_service.trusted_folder import remove_entry

PRELOAD: Final = "librdmawire-sysfs.so"
"""The library that shows a private ``/sys``, for LD_PRELOAD."""
_VERBS: Final = "libibverbs.so.1"
_PACKAGE: Final = Path(__file__).resolve().parent
_CHECKOUT: Final = _PACKAGE.parents[1]
_MISSING: Final = (
    "libibverbs.so.1 is not in this installation of rdmawire: install gcc, libibverbs-dev and"
    " librdmacm-dev (gcc and rdma-core-devel on Fedora and RHEL), then install rdmawire again"
)


class Libraries(NamedTuple):
    """The libraries, and a sentence for each that is missing or old."""

    paths: list[Path]
    notes: tuple[str, ...] = ()


def libraries(package: Path = _PACKAGE, checkout: Path = _CHECKOUT) -> Libraries:
    """Find or build the libraries. ``LibraryError`` if ``libibverbs.so.1`` is not among them.

    In a checkout each is built if a source is newer. Where the compiler or a header is missing,
    the one that was built before is used, and one that never was is left out.
    """
    script = checkout / "csrc" / "build.py"
    if not script.exists():
        return _installed(package / "lib")
    found = _built(script, checkout / "build" / "verbs")
    if not any(path.name == _VERBS for path in found.paths):
        raise LibraryError(found.notes[0])
    return found


def _installed(folder: Path) -> Libraries:
    if not (folder / _VERBS).exists():
        raise LibraryError(_MISSING)
    return Libraries(sorted(folder.glob("*.so*")))


def _built(script: Path, folder: Path) -> Libraries:
    module = _module(script)
    built = sorted(path for path in folder.glob("*.so*") if not path.is_symlink())
    if built and not os.access(folder, os.W_OK):
        return Libraries(built)  # a checkout of another user
    if not built and sys.stderr.isatty():
        warn("compiling the libraries, once in a checkout: some seconds")
    try:
        with _locked(folder):
            return _build_each(module, folder)
    except module.BuildError as reason:
        raise LibraryError(str(reason)) from None
    except OSError as reason:
        raise LibraryError(f"{folder}: {reason.strerror or reason}") from None


def _build_each(module: Any, folder: Path) -> Libraries:
    paths: list[Path] = []
    notes: list[str] = []
    for name in module.LIBRARIES:
        try:
            paths += module.build(folder, libraries=[name])
        except module.MissingError as reason:
            before = [folder / module.soname(name)]
            paths += [path for path in before if path.exists()]
            notes += [f"{path.name} is not built: {reason}" for path in before if path not in paths]
    return Libraries(paths, tuple(notes))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time build."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("_rdmawire_csrc_build", path)
    if spec is None or spec.loader is None:
        raise LibraryError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def copy_libraries(folder: int, found: list[Path]) -> None:
    """Copy libraries to an open folder, with the names that programs open, in place of older ones.

    They are copies, so that a container with the folder has them; ``libibverbs.so`` is a link. A
    name always has a complete library, and programs that have loaded an older one keep it. Other
    files are removed: programs would load them, too.
    """
    kept = {name for path in found for name in (path.name, path.stem)}
    for name in {*os.listdir(folder)} - kept:
        remove_entry(name, folder)
    for library in found:
        _copy(library, folder)
        if library.suffix != ".so":
            part = _part(library.stem, folder)
            os.symlink(library.name, part, dir_fd=folder)
            os.replace(part, library.stem, src_dir_fd=folder, dst_dir_fd=folder)


def _copy(library: Path, folder: int) -> None:
    part = _part(library.name, folder)
    copy = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755, dir_fd=folder)
    with library.open("rb") as source, os.fdopen(copy, "wb") as target:
        shutil.copyfileobj(source, target)
    os.replace(part, library.name, src_dir_fd=folder, dst_dir_fd=folder)


def _part(name: str, folder: int) -> str:
    """Return the name that a file has until it is complete. Remove a file that has it already."""
    part = f"{name}.new"
    remove_entry(part, folder)
    return part
