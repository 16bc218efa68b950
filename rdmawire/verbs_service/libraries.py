"""Where the stand-in C libraries are: in the installed package, or built from a checkout.

A wheel that was made where a C compiler and the header of libibverbs are has them in
``rdmawire/verbs_service/lib``. In a checkout they are built into ``build/verbs`` when they are
first needed, and again when a source changed.
"""

import fcntl
import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from rdmawire.errors import LibraryError

PRELOAD: Final = "librdmawire-sysfs.so"
"""The library that shows a private ``/sys``, for LD_PRELOAD."""
_VERBS: Final = "libibverbs.so.1"
_PACKAGE: Final = Path(__file__).resolve().parent
_CHECKOUT: Final = _PACKAGE.parents[1]
_MISSING: Final = (
    "libibverbs.so.1 is not in this installation of rdmawire: install gcc, libibverbs-dev and"
    " librdmacm-dev (gcc and rdma-core-devel on Fedora and RHEL), then install rdmawire again"
)


def libraries(package: Path = _PACKAGE, checkout: Path = _CHECKOUT) -> list[Path]:
    """Return the libraries. ``LibraryError`` if they cannot be built or found.

    In a checkout they are built if a source is newer; without a compiler those are used that were
    built before.
    """
    script = checkout / "csrc" / "build.py"
    if not script.exists():
        return _installed(package / "lib")
    folder = checkout / "build" / "verbs"
    try:
        return _built(script, folder)
    except LibraryError:
        found = sorted(folder.glob("*.so*"))
        if not (folder / _VERBS).exists() or _has_compiler():
            raise
        return [path for path in found if not path.is_symlink()]


def _has_compiler() -> bool:
    return shutil.which(os.environ.get("CC", "cc").split()[0]) is not None


def _installed(folder: Path) -> list[Path]:
    if not (folder / _VERBS).exists():
        raise LibraryError(_MISSING)
    return sorted(folder.glob("*.so*"))


def _built(script: Path, folder: Path) -> list[Path]:
    module = _module(script)
    build: Callable[[Path], list[Path]] = module.build
    error: Any = module.BuildError
    try:
        with _locked(folder):
            return build(folder)
    except error as reason:
        raise LibraryError(str(reason)) from None
    except OSError as reason:
        raise LibraryError(f"{folder}: {reason.strerror or reason}") from None


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


def copy_libraries(folder: Path, found: list[Path]) -> None:
    """Copy libraries to a folder, with the names that programs open.

    Copies, so that a container with the folder has them. ``libibverbs.so`` is a link.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for library in found:
        shutil.copy2(library, folder / library.name)
        if library.suffix != ".so":
            (folder / library.stem).symlink_to(library.name)
