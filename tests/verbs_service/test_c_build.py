"""The build of the C libraries, and the table of functions that they export."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rdmawire.memory.key import next_variant
from rdmawire.verbs_service.protocol import WINDOW_KEY_STEP, c_header
from tests.verbs_service.c_programs import CSRC, build, exported, library, load
from tests.waiting import HANG
from tools.docs import libibverbs

functions = load(CSRC / "ibverbs" / "functions.py")
EXPORTS = list(functions.exports())


def test_every_function_of_the_table_is_exported_with_its_version() -> None:
    handle = ctypes.CDLL(str(library() / "libibverbs.so.1"))
    find = ctypes.CDLL(None).dlvsym
    find.restype = ctypes.c_void_p
    find.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
    missing = [
        export
        for export in EXPORTS
        if not find(handle._handle, export.name.encode(), export.version.encode())
    ]
    assert not missing


def test_a_symbol_has_one_default_version_at_most() -> None:
    default = [export.name for export in EXPORTS if export.default]
    assert len(default) == len(set(default))
    pairs = [(export.name, export.version) for export in EXPORTS]
    assert len(pairs) == len(set(pairs))


def test_nothing_but_the_table_is_exported() -> None:
    wanted = {f"{export.name}@{export.version}" for export in EXPORTS}
    assert exported(library() / "libibverbs.so.1") == wanted


def test_everything_that_the_installed_libibverbs_exports_is_there() -> None:
    done = subprocess.run(
        ["cc", "-print-file-name=libibverbs.so.1"], capture_output=True, text=True, check=True
    )
    path = Path(done.stdout.strip())
    assert path.is_absolute(), "libibverbs.so.1 is not found: install libibverbs-dev"
    assert exported(path) - exported(library() / "libibverbs.so.1") == set()


def test_functions_by_pointers_are_those_of_the_header() -> None:
    read = ["cc", "-E", "-P", "-x", "c", "-"]
    source = "#include <infiniband/verbs.h>\n"
    done = subprocess.run(read, input=source, capture_output=True, text=True, check=True)
    names = f"{functions.INLINE} {functions.INLINE_REFUSED}".split()
    assert len(names) == len(set(names))
    assert [name for name in names if f"{name}(" not in done.stdout] == []


def test_the_page_of_functions_names_each_once() -> None:
    text = "\n".join(libibverbs.page())
    public = [export.name for export in EXPORTS if export.default]
    assert [name for name in public if text.count(f"`{name}`") != 1] == []


@pytest.mark.parametrize(
    ("name", "result"),
    [("verbs_open_device", 0), ("ibv_cmd_alloc_pd", 95), ("ibv_get_fw_ver", -1)],
)
def test_refused_functions_say_so(name: str, result: int) -> None:
    code = (
        "import ctypes, os, sys\n"
        "find = ctypes.CDLL(None).dlvsym\n"
        "find.restype, find.argtypes = ctypes.c_void_p, [ctypes.c_void_p] + [ctypes.c_char_p] * 2\n"
        f"verbs = ctypes.CDLL({str(library() / 'libibverbs.so.1')!r})\n"
        f"address = find(verbs._handle, b'{name}', b'IBVERBS_PRIVATE_34')\n"
        "function = ctypes.CFUNCTYPE(ctypes.c_int, use_errno=True)(address)\n"
        "print(function(), os.strerror(ctypes.get_errno()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "RDMAWIRE_TRACE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == f"{result} Operation not supported"
    assert f"{name}: this function is not implemented" in done.stderr


def test_a_second_build_does_nothing(tmp_path: Path) -> None:
    folder = library()
    before = (folder / "libibverbs.so.1").stat().st_mtime_ns
    assert build.build(folder, libraries=["ibverbs"]) == [folder / "libibverbs.so.1"]
    assert (folder / "libibverbs.so.1").stat().st_mtime_ns == before
    assert (folder / "libibverbs.so").readlink() == Path("libibverbs.so.1")


def test_without_a_compiler_the_error_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(build.BuildError, match="no-such-compiler is not found; install gcc"):
        build.build(tmp_path)


def test_without_the_header_the_error_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "cc -nostdinc")
    with pytest.raises(build.BuildError, match="install libibverbs-dev"):
        build.build(tmp_path)
    monkeypatch.setattr(sys, "argv", ["build.py", str(tmp_path)])
    assert build.main() == 1


def test_the_generated_header_is_that_of_the_protocol() -> None:
    header = library() / "ibverbs-generated" / "protocol.h"
    assert header.read_text() == c_header()


@pytest.mark.parametrize("key", [0x1000, 0x10FF, 0x10CB, 0xFFFF_FFFF])
def test_keys_of_windows_step_as_those_of_the_adapter(key: int) -> None:
    assert (key & ~0xFF) | (key + WINDOW_KEY_STEP) & 0xFF == next_variant(key)


@pytest.mark.parametrize("name", ["endurance", "mortal", "stream"])
def test_programs_that_only_slow_tests_run_compile(name: str) -> None:
    command = [os.environ.get("CC", "cc"), "-std=gnu11", "-D_GNU_SOURCE", "-fsyntax-only"]
    source = str(CSRC / "tests" / f"{name}.c")
    subprocess.run([*command, "-Wall", "-Wextra", "-Werror", source], check=True, timeout=HANG)
