"""The package as others get it: a wheel that holds everything and imports."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without network: hatchling comes with the development extra."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_the_layers_and_both_licences(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "rdmawire/layers/__init__.py" in names
    assert "rdmawire/wire/ib.py" in names
    assert len([name for name in names if name.endswith("LICENSE")]) >= 2


def test_the_wheel_imports_in_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "fresh", with_pip=False)
    target = next((tmp_path / "fresh").glob("lib/python*/site-packages"))
    zipfile.ZipFile(wheel).extractall(target)
    python = tmp_path / "fresh" / "bin" / "python"
    code = "import rdmawire.layers, rdmawire.errors; print(rdmawire.layers.__file__)"
    done = subprocess.run(
        [str(python), "-I", "-c", code], check=True, capture_output=True, text=True
    )
    assert str(tmp_path) in done.stdout


def test_modules_that_import_scapy_say_their_licence() -> None:
    for path in (ROOT / "layers").rglob("*.py"):
        text = path.read_text()
        if "import scapy" in text or "from scapy" in text:
            assert "SPDX-License-Identifier: GPL-2.0-only" in text
