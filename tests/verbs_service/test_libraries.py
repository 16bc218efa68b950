"""Where the stand-in libraries are found."""

import shutil
from pathlib import Path

import pytest

from rdmawire.errors import LibraryError
from rdmawire.verbs_service.libraries import copy_libraries, libraries
from tests.verbs_service.c_programs import CSRC, ROOT

NAMES = ["libibverbs.so.1", "librdmawire-sysfs.so"]


def names(paths: list[Path]) -> list[str]:
    return sorted(path.name for path in paths)


def test_a_checkout_builds_them() -> None:
    assert set(NAMES) <= set(names(libraries()))


def test_an_installed_package_has_them(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    for name in NAMES:
        (tmp_path / "lib" / name).touch()
    assert names(libraries(tmp_path, tmp_path)) == NAMES


def test_a_package_without_them_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(LibraryError, match="install gcc, libibverbs-dev and"):
        libraries(tmp_path, tmp_path)


def test_without_a_compiler_those_built_before_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(CSRC, tmp_path / "csrc", ignore=shutil.ignore_patterns("__pycache__"))
    protocol = Path("rdmawire/verbs_service/protocol.py")
    (tmp_path / protocol).parent.mkdir(parents=True)
    shutil.copy(ROOT / protocol, tmp_path / protocol)
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(LibraryError, match="no C compiler: no-such-compiler is not found"):
        libraries(tmp_path, tmp_path)
    folder = tmp_path / "build/verbs"
    (folder / "libibverbs.so.1").touch()
    (folder / "libibverbs.so").symlink_to("libibverbs.so.1")
    assert names(libraries(tmp_path, tmp_path)) == ["libibverbs.so.1"]


def test_copies_have_the_names_that_programs_open(tmp_path: Path) -> None:
    source = tmp_path / "libibverbs.so.1"
    source.write_text("code")
    copy_libraries(tmp_path / "lib", [source])
    assert (tmp_path / "lib/libibverbs.so").read_text() == "code"
    assert not (tmp_path / "lib/libibverbs.so.1").is_symlink()
