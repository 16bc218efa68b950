"""The package as others get it: a wheel that holds everything, installs and runs."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import rdmawire
from tests.waiting import HANG
from tools.libraries import platform_tag
from tools.readme import shown_elsewhere

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without network: hatchling comes with the development extra."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_the_layers_the_scenarios_and_the_vectors(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for path in (ROOT / "layers").rglob("*.py"):
        assert f"rdmawire/{path.relative_to(ROOT)}" in names
    assert "rdmawire/wire/ib.py" in names
    for path in (ROOT / "rdmawire" / "traffic" / "scenarios").glob("*.yaml"):
        assert str(path.relative_to(ROOT)) in names
    for folder in ("golden", "generated"):
        for path in (ROOT / "captures" / folder).iterdir():
            assert f"rdmawire/vectors/{folder}/{path.name}" in names
    assert "rdmawire/vectors/index.toml" in names
    assert wheel.stat().st_size < 3_000_000


def test_the_wheel_holds_the_c_libraries_for_this_platform(wheel: Path) -> None:
    home = "rdmawire/verbs_service/lib/"
    names = {name.removeprefix(home) for name in zipfile.ZipFile(wheel).namelist() if home in name}
    preloaded = {"librdmawire-sysfs.so", "librspreload.so"}
    assert names == {"libibverbs.so.1", "librdmacm.so.1", *preloaded}
    assert wheel.name.endswith(f"-py3-none-{platform_tag()}.whl")


def test_without_a_compiler_the_wheel_is_for_any_platform(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir"]
    env = {**os.environ, "CC": "no-such-compiler"}
    done = subprocess.run(
        [*command, str(tmp_path), str(ROOT)],
        check=True, capture_output=True, text=True, env=env,
    )  # fmt: skip
    assert "without libibverbs.so.1: no C compiler: no-such-compiler is not found" in (
        f"{done.stdout}{done.stderr}"
    )
    (wheel,) = tmp_path.glob("*-py3-none-any.whl")
    assert not any(name.endswith(".so.1") for name in zipfile.ZipFile(wheel).namelist())


def test_the_licence_of_scapy_stands_beside_its_layers_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as content:
        licences = {name for name in content.namelist() if name.endswith("LICENSE")}
        (metadata,) = (name for name in content.namelist() if name.endswith("/METADATA"))
        about = content.read(metadata).decode()
    within = {name for name in licences if name.startswith("rdmawire/")}
    assert within == {"rdmawire/layers/scapy/LICENSE"}
    assert {name.partition(".dist-info/")[2] for name in licences - within} == {
        "licenses/LICENSE",
        "licenses/layers/scapy/LICENSE",
    }
    assert "License-Expression: MIT AND GPL-2.0-only\n" in about


def test_the_readme_of_the_package_has_no_relative_link(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as content:
        (metadata,) = (name for name in content.namelist() if name.endswith("/METADATA"))
        readme = content.read(metadata).decode().partition("\n\n")[2]
    assert readme.startswith("# rdmawire")
    assert re.findall(r"\]\((?!https?:)[^)]*\)", readme) == []


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
    code = (
        "import rdmawire, rdmawire.layers as l, rdmawire.layers.construct, rdmawire.layers.scapy; "
        "print(rdmawire.__file__, l.__file__, sep='\\n')"
    )
    command = [str(fresh / "python"), "-I", "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        assert Path(line).is_relative_to(fresh.parent), line


def test_the_installed_command_knows_the_scenarios_that_come_with_it(
    fresh: Path, tmp_path: Path
) -> None:
    command = [str(fresh / "rdmawire"), "run", "--quiet", "lost-first"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=HANG)


def test_the_installed_command_runs_programs_on_its_libraries(fresh: Path, tmp_path: Path) -> None:
    look = "ctypes.CDLL('libibverbs.so.1'); print('/rdmawire-' in open('/proc/self/maps').read())"
    words = ["verbs", "-q", "--no-preload", "--", "python3", "-c", f"import ctypes; {look}"]
    done = subprocess.run(
        [str(fresh / "rdmawire"), *words], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert done.stdout == "True\n"


def test_the_installed_command_has_the_test_vectors(fresh: Path, tmp_path: Path) -> None:
    words = ["-I", "-m", "rdmawire", "vectors", "RNR_NAK", "0.64"]
    command = [str(fresh / "python"), *words]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.startswith("rnr-timer-12 ")


def test_the_installed_package_runs_as_a_module(fresh: Path, tmp_path: Path) -> None:
    command = [str(fresh / "python"), "-I", "-m", "rdmawire", "--version"]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout == f"rdmawire, version {rdmawire.__version__}\n"


def test_the_installed_command_dissects(fresh: Path, tmp_path: Path) -> None:
    capture = ROOT / "captures" / "linux" / "rxe61_rnr.pcap"
    words = ["dissect", "-T", "fields", "-e", "infiniband.bth.psn", "--from", "17", "-c", "2"]
    command = [str(fresh / "rdmawire"), *words, str(capture)]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout == "256\n256\n"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True, capture_output=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def within(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What becomes of Python with these words in a folder, whose packages come first."""
    env = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, *words]
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=HANG
    )


IMPORT_TESTS = """
import importlib, pathlib
for path in sorted(pathlib.Path("tests").rglob("test_*.py")):
    importlib.import_module(".".join(path.with_suffix("").parts))
"""


def test_all_tests_of_the_source_distribution_can_be_imported(unpacked: Path) -> None:
    done = within(unpacked, "-c", IMPORT_TESTS)
    assert done.returncode == 0, done.stderr[-3000:]


def test_tests_of_the_source_distribution_pass(unpacked: Path) -> None:
    some = ["tests/testing/test_strategies.py", "tests/wire/test_icrc.py", "tests/test_units.py"]
    done = within(unpacked, "-m", "pytest", "-q", "-p", "no:cacheprovider", *some)
    assert done.returncode == 0, done.stdout[-3000:]


def test_the_source_distribution_makes_the_same_wheel(unpacked: Path, wheel: Path) -> None:
    folder = unpacked.parent / "again"
    words = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(unpacked)]
    assert within(unpacked, *words).returncode == 0
    again = next(folder.glob("*.whl"))
    assert set(zipfile.ZipFile(again).namelist()) == set(zipfile.ZipFile(wheel).namelist())


def test_a_checkout_without_symbolic_links_has_the_layers(tmp_path: Path) -> None:
    def no_cache(_folder: str, names: list[str]) -> set[str]:
        return {name for name in names if name in ("layers", "__pycache__")}

    shutil.copytree(ROOT / "rdmawire", tmp_path / "rdmawire", ignore=no_cache)
    shutil.copytree(ROOT / "layers", tmp_path / "layers")
    (tmp_path / "rdmawire" / "layers").write_text("../layers")  # as git leaves it
    code = "import rdmawire.layers.scapy, rdmawire.layers.construct as c; print(c.__file__)"
    done = within(tmp_path, "-c", code)
    assert done.stdout == f"{tmp_path}/layers/construct/__init__.py\n", done.stderr


def test_relative_links_become_text_or_absolute() -> None:
    readme = "[how](docs/a.md#b), [site](https://scapy.net), [two\nlines](docs/c.md)"
    assert shown_elsewhere(readme, None) == "how, [site](https://scapy.net), two\nlines"
    absolute = shown_elsewhere(readme, "https://example.org/x")
    assert "[how](https://example.org/x/docs/a.md#b), [site](https://scapy.net), " in absolute
    assert "[two\nlines](https://example.org/x/docs/c.md)" in absolute
