"""The package as others get it: a wheel that holds everything, installs and runs."""

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.waiting import HANG

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without network: hatchling comes with the development extra."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_the_layers_the_scenarios_and_both_licences(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for path in (ROOT / "layers").rglob("*.py"):
        assert f"rdmawire/{path.relative_to(ROOT)}" in names
    assert "rdmawire/wire/ib.py" in names
    for path in (ROOT / "rdmawire" / "traffic" / "scenarios").glob("*.yaml"):
        assert str(path.relative_to(ROOT)) in names
    assert len([name for name in names if name.endswith("LICENSE")]) >= 2


@pytest.fixture(scope="module")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh environment into which pip put the wheel.

    The libraries that the wheel depends on are those of this environment: nothing is fetched.
    """
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    install = ["install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([*pip, *install], check=True, capture_output=True)
    return folder / "bin"


def test_the_installed_wheel_imports(fresh: Path) -> None:
    code = "import rdmawire, rdmawire.layers as l; print(rdmawire.__file__, l.__file__, sep='\\n')"
    command = [str(fresh / "python"), "-I", "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        assert Path(line).is_relative_to(fresh.parent), line


def test_the_installed_command_knows_the_scenarios_that_come_with_it(
    fresh: Path, tmp_path: Path
) -> None:
    command = [str(fresh / "rdmawire"), "run", "--quiet", "lost-first"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=HANG)


def test_the_installed_command_dissects(fresh: Path, tmp_path: Path) -> None:
    capture = ROOT / "captures" / "linux" / "rxe61_rnr.pcap"
    words = ["dissect", "-T", "fields", "-e", "infiniband.bth.psn", "--from", "17", "-c", "2"]
    command = [str(fresh / "rdmawire"), *words, str(capture)]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout == "256\n256\n"
