"""Build the C libraries: ``python csrc/build.py FOLDER``.

Needed are a C compiler (``cc``, or the variable ``CC``) and the header ``infiniband/verbs.h`` of
rdma-core 39 or later, which is used at build time alone. This file imports the standard library
alone: the package's build hook, the command line and the tests load it by its path.

A library is a folder here with C files and a ``functions.py``, which says how it is built and has
the table of its exports; without one, all functions but ``rw_*`` are exported. The build writes
what is generated (the protocol as a header, stubs of refused functions, the version script) to a
folder beside the result and compiles it with the C files. A library is built again only when a file
or an option changed: the hash of all of them is kept beside it.
"""

import argparse
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
PROTOCOL = HERE.parent / "rdmawire" / "verbs_service" / "protocol.py"
EXPORT = HERE / "ibverbs" / "functions.py"
"""The file with the class ``Export``, a row of each table."""
LIBRARIES = tuple(sorted(file.parent.name for file in HERE.glob("*/functions.py")))
"""Names of the libraries, those of their folders."""

SANITIZERS = ("address", "undefined", "thread")

_FLAGS = (
    *("-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-fPIC", "-pthread"),
    *("-Wall", "-Wextra", "-Werror", "-Wstrict-prototypes", "-Wmissing-prototypes"),
    *("-Wno-unused-parameter", "-fno-semantic-interposition", "-fno-lto"),
)
_LINK = ("-shared", "-Wl,-Bsymbolic-functions", "-Wl,-z,relro", "-Wl,-z,now", "-Wl,--as-needed")


class BuildError(Exception):
    """What is missing or wrong, in one line, or the output of the compiler."""


class MissingError(BuildError):
    """The compiler or a header is missing: what to install, in one line."""


def build(
    folder: Path,
    *,
    libraries: Iterable[str] = LIBRARIES,
    sanitizers: Sequence[str] = (),
    includes: Sequence[str] = (),
) -> list[Path]:
    """Build ``libraries`` into ``folder``, and return their paths there.

    ``sanitizers`` are some of :data:`SANITIZERS`. ``includes`` are folders with
    ``infiniband/verbs.h`` and other headers. Each library gets a link without the number of its
    version (``libibverbs.so``), since some programs open that name first. Raises
    :class:`MissingError` without a compiler or header, :class:`BuildError` for code that does not
    compile.
    """
    options = [*(f"-I{path}" for path in includes), *(f"-fsanitize={name}" for name in sanitizers)]
    compiler = _compiler()
    command = [*compiler, *_FLAGS, *options]
    header = _header(compiler, options)
    return [_build_library(name, folder, command, header) for name in libraries]


def soname(name: str) -> str:
    """The file name of a library."""
    return str(_module(HERE / name / "functions.py").SONAME)


def _compiler() -> list[str]:
    words = shlex.split(os.environ.get("CC", "cc"))
    if not words or shutil.which(words[0]) is None:
        name = words[0] if words else "cc"
        raise MissingError(f"no C compiler: {name} is not found; install gcc, or set CC")
    return words


def _header(compiler: list[str], options: list[str]) -> str:
    """The text of the header as the compiler finds it: another one means another build."""
    text = _preprocessed([*compiler, *options], "infiniband/verbs.h")
    if "IBV_RATE_1200_GBPS" not in text:
        raise MissingError(
            "no <infiniband/verbs.h> of rdma-core 39 or later: install libibverbs-dev"
            " (Debian, Ubuntu) or rdma-core-devel (Fedora, RHEL), or name its folder with --include"
        )
    return text


def _header_of(table: Any, command: list[str]) -> str:
    """The text of the further header that a library needs; none if it needs no other."""
    name = getattr(table, "HEADER", "")
    text = _preprocessed(command, name) if name else ""
    if name and not text:
        raise MissingError(
            f"no <{name}>: install {table.PACKAGES}, or name its folder with --include"
        )
    return text


def _preprocessed(command: list[str], header: str) -> str:
    """The text of a header with all that it includes; empty if it is not found."""
    read = [*command, "-E", "-P", "-x", "c", "-"]
    source = f"#include <{header}>\n"
    done = subprocess.run(read, input=source, text=True, capture_output=True, check=False)
    return "" if done.returncode else done.stdout


def _build_library(name: str, folder: Path, command: list[str], header: str) -> Path:
    source = HERE / name
    table = _module(source / "functions.py")
    library = folder / str(table.SONAME)
    shared = [source / path for path in getattr(table, "SOURCES", ())]
    digest = _digest(source, shared, command, header + _header_of(table, command))
    stamp = folder / f".{name}.sha256"
    if library.exists() and stamp.exists() and stamp.read_text() == digest:
        return library
    generated = folder / f"{name}-generated"
    generated.mkdir(parents=True, exist_ok=True)
    _generate(table, generated)
    linked = _linked(table, folder)
    _compile(command, [source, generated], shared, library, linked)
    _link_name(library)
    stamp.write_text(digest)
    return library


def _linked(table: Any, folder: Path) -> list[str]:
    """The options for the libraries that are linked, which are built before."""
    names = list(getattr(table, "LINK", ()))
    missing = [f"lib{one}.so" for one in names if not (folder / f"lib{one}.so").exists()]
    if missing:
        raise MissingError(f"no {missing[0]}, which it needs")
    return [f"-l{one}" for one in names]


def _compile(
    command: list[str],
    folders: Sequence[Path],
    shared: Sequence[Path],
    library: Path,
    linked: Sequence[str],
) -> None:
    """Compile and link all C files, and move the result to its place at once.

    The files are those of ``folders``, and ``shared`` ones of other libraries.
    """
    files = [*(file for folder in folders for file in sorted(folder.glob("*.c"))), *shared]
    includes = [f"-I{folder}" for folder in (*folders, *sorted({one.parent for one in shared}))]
    script = f"-Wl,--version-script={folders[-1] / 'exports.map'}"
    partial = library.with_name(f".{library.name}.{os.getpid()}")
    line = [*command, *includes, *map(str, files), *_LINK, script]
    line += [f"-Wl,-soname,{library.name}", "-o", str(partial)]
    line += [f"-L{library.parent}", *linked, "-ldl"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{library.name} does not compile:\n{done.stderr.rstrip()}")
    partial.replace(library)


def _link_name(library: Path) -> None:
    if library.suffix == ".so":
        return
    link = library.with_suffix("")
    partial = link.with_name(f".{link.name}.{os.getpid()}")
    partial.unlink(missing_ok=True)
    partial.symlink_to(library.name)
    partial.replace(link)


def _digest(source: Path, shared: Sequence[Path], command: list[str], header: str) -> str:
    digest = hashlib.sha256(repr((command, header)).encode())
    files = {*source.glob("*.c"), *HERE.glob("*/*.h"), *shared, source / "functions.py"}
    for file in sorted([Path(__file__), PROTOCOL, EXPORT, *files]):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _module(path: Path) -> ModuleType:
    """Load a Python file that belongs to no installed package."""
    name = f"_rdmawire_build_{path.parent.name}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BuildError(f"no Python file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _generate(table: Any, folder: Path) -> None:
    """Write the header of the protocol, the stubs and the version script."""
    row = _module(EXPORT).Export
    exports = [row(*export) for export in table.exports()] if hasattr(table, "exports") else []
    (folder / "protocol.h").write_text(_module(PROTOCOL).c_header())
    (folder / "stubs.c").write_text("\n".join(_stubs(exports)) + "\n")
    (folder / "aliases.h").write_text("\n".join(_aliases(exports, refused=False)) + "\n")
    (folder / "exports.map").write_text("\n".join(_version_script(exports)) + "\n")


def _stubs(exports: list[Any]) -> Iterator[str]:
    """C code of the refused functions."""
    yield "/* Generated from functions.py. Changes here are lost. */"
    if not any(export.refusal for export in exports):
        return
    yield '#include "alias.h"'
    yield '#include "refused.h"'
    for name, refusal in sorted({(e.name, e.refusal.name) for e in exports if e.refusal}):
        yield f"REFUSE_{refusal}({name})"
    yield from _aliases(exports, refused=True)


def _aliases(exports: list[Any], *, refused: bool) -> Iterator[str]:
    """Assembler lines that give functions their further names, each with a version.

    Each is an alias of its own, since an old assembler takes one version for a symbol. The version
    script names functions with a single version, which need no alias.
    """
    for index, export in enumerate(exports):
        plain = export.default and not export.private
        if refused != bool(export.refusal) or (plain and not refused):
            continue
        target = f"rw_refused_{export.refusal.name}_{export.name}" if refused else export.name
        target = f"rw_{export.name}" if export.private else target
        kind = "object" if refused and export.refusal.name == "DATA" else "function"
        at = "@@" if export.default else "@"
        yield f'ALIAS("rw_{index}", "{target}", "{kind}", "{export.name}{at}{export.version}")'


def _version_script(exports: list[Any]) -> Iterator[str]:
    """Nodes of the version script, each of which inherits from the one before.

    Without a table of exports, one node without a name hides the internal functions. Else the node
    that hides everything else has a name of its own: it would also hide the functions that have the
    version of its node by the assembler.
    """
    if not exports:
        yield "{ local: rw_*; };"
        return
    yield "RDMAWIRE { local: *; };"
    versions = dict.fromkeys(export.version for export in exports)
    inherited = ""
    for version in sorted(versions, key=_version_key):
        mine = (e for e in exports if e.version == version and e.default)
        listed = " ".join(f"{name};" for name in sorted(export.name for export in mine))
        yield f"{version} {{ {f'global: {listed}' if listed else ''} }}{inherited};"
        inherited = f" {version}"


def _version_key(version: str) -> tuple[bool, list[int]]:
    numbers = [int(word) for word in version.replace("_", ".").split(".") if word.isdigit()]
    return "PRIVATE" in version, numbers


def main() -> int:
    """Build what the command line says."""
    parser = argparse.ArgumentParser(description="Build the stand-in verbs libraries.")
    parser.add_argument("folder", type=Path, help="folder that the libraries are written to")
    parser.add_argument("--sanitize", action="append", default=[], choices=SANITIZERS)
    parser.add_argument("--include", action="append", default=[], help="folder with headers")
    options = parser.parse_args()
    try:
        for path in build(options.folder, sanitizers=options.sanitize, includes=options.include):
            print(path)
    except BuildError as error:
        print(f"build.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
