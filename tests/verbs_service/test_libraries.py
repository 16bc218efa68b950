"""Where the stand-in libraries are found."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from rdmawire.errors import LibraryError
from rdmawire.verbs_service.libraries import copy_libraries, libraries
from tests.verbs_service.c_programs import CSRC, ROOT

NAMES = ["libibverbs.so.1", "librdmacm.so.1", "librdmawire-sysfs.so", "librspreload.so"]


def names(paths: list[Path]) -> list[str]:
    return sorted(path.name for path in paths)


def test_a_checkout_builds_them() -> None:
    found = libraries()
    assert names(found.paths) == NAMES
    assert found.notes == ()


def test_an_installed_package_has_them(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    for name in NAMES:
        (tmp_path / "lib" / name).touch()
    assert names(libraries(tmp_path, tmp_path).paths) == NAMES


def test_a_package_without_them_names_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(LibraryError, match="install gcc, libibverbs-dev and"):
        libraries(tmp_path, tmp_path)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in which nothing was built."""
    shutil.copytree(CSRC, tmp_path / "csrc", ignore=shutil.ignore_patterns("__pycache__"))
    protocol = Path("rdmawire/verbs_service/protocol.py")
    (tmp_path / protocol).parent.mkdir(parents=True)
    shutil.copy(ROOT / protocol, tmp_path / protocol)
    return tmp_path


def test_without_a_compiler_those_built_before_are_used(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(LibraryError, match="no C compiler: no-such-compiler is not found"):
        libraries(checkout, checkout)
    folder = checkout / "build/verbs"
    (folder / "libibverbs.so.1").touch()
    (folder / "libibverbs.so").symlink_to("libibverbs.so.1")
    assert names(libraries(checkout, checkout).paths) == ["libibverbs.so.1"]


def test_a_terminal_shows_that_the_first_build_takes_time(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    line = "rdmawire verbs: compiling the libraries, once in a checkout: some seconds\n"
    for is_terminal, said in ((False, ""), (True, line)):
        monkeypatch.setattr(sys.stderr, "isatty", lambda shown=is_terminal: shown)
        with pytest.raises(LibraryError):
            libraries(checkout, checkout)
        assert capsys.readouterr().err == said
    (checkout / "build/verbs/libibverbs.so.1").touch()
    libraries(checkout, checkout)
    assert capsys.readouterr().err == ""


def test_in_a_checkout_of_another_user_those_built_before_are_used(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkout / "build/verbs"
    folder.mkdir(parents=True)
    (folder / "libibverbs.so.1").touch()
    monkeypatch.setattr(os, "access", lambda path, _mode: path != folder)
    assert names(libraries(checkout, checkout).paths) == ["libibverbs.so.1"]
    assert sorted(os.listdir(folder)) == ["libibverbs.so.1"]


def test_a_library_whose_header_is_missing_is_left_out(checkout: Path) -> None:
    built = libraries().paths[0].parent
    others = shutil.ignore_patterns("*rdmacm*", "*rspreload*", "lock")
    shutil.copytree(built, checkout / "build/verbs", symlinks=True, ignore=others)
    table = checkout / "csrc/rdmacm/functions.py"
    table.write_text(table.read_text().replace("rdma/rdma_cma.h", "rdma/no_such.h"))
    found = libraries(checkout, checkout)
    assert names(found.paths) == ["libibverbs.so.1", "librdmawire-sysfs.so"]
    own, preloaded = found.notes
    assert own.startswith("librdmacm.so.1 is not built: no <rdma/no_such.h>: install librdmacm-dev")
    assert preloaded == "librspreload.so is not built: no librdmacm.so, which it needs"


def test_copies_have_the_names_that_programs_open(tmp_path: Path) -> None:
    source = tmp_path / "libibverbs.so.1"
    source.write_text("code")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libm.so.6").touch()
    folder = os.open(tmp_path / "lib", os.O_RDONLY)
    copy_libraries(folder, [source])
    os.close(folder)
    assert (tmp_path / "lib/libibverbs.so").read_text() == "code"
    assert not (tmp_path / "lib/libibverbs.so.1").is_symlink()
    assert sorted(os.listdir(tmp_path / "lib")) == ["libibverbs.so", "libibverbs.so.1"]
