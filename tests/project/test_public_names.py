"""The public names: what packages export, and that pages, tools and examples use no others."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import rdmawire
from rdmawire import (
    ALL_ACCESS,
    H200,
    GpuDriver,
    Pair,
    Peermem,
    Registered,
)

ROOT = Path(__file__).parents[2]
PACKAGES = (
    *("rdmawire", "rdmawire.capture", "rdmawire.columns", "rdmawire.decode", "rdmawire.dissect"),
    "rdmawire.fabric",
    *(
        "rdmawire.filter",
        "rdmawire.fuzz",
        "rdmawire.fuzz.learn",
        "rdmawire.ib",
        "rdmawire.ib.cm",
        "rdmawire.ib.congestion",
    ),
    *(
        "rdmawire.memory",
        "rdmawire.memory.gpu",
        "rdmawire.memory.gpu.cuda",
        "rdmawire.stats",
        "rdmawire.traffic.edit",
    ),
    *(
        "rdmawire.gpudirect",
        "rdmawire.doctor",
        "rdmawire.gpudirect.kernel",
        "rdmawire.gpudirect.deepep",
        "rdmawire.gpudirect.nixl",
        "rdmawire.gpudirect.storage",
        "rdmawire.gpudirect.sweep",
        "rdmawire.gpudirect.transfer",
        "rdmawire.gpudirect.ucx",
        "rdmawire.gpudirect.workload",
        "rdmawire.topology",
        "rdmawire.traffic.generate",
    ),
    *("rdmawire.live", "rdmawire.vectors", "rdmawire.verbs", "rdmawire.verbs_service"),
)
MODULES = ("rdmawire.errors", "rdmawire.units", "rdmawire.testing.strategies")
"""Modules that are public as they are, besides those of `rdmawire.wire` and `rdmawire.layers`."""

PAGES = sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md"])
SCRIPTS = sorted([*ROOT.glob("tools/**/*.py"), *ROOT.glob("examples/*.py")])
INTERNAL = {
    # The reference pages are drawn from the tables that the public names work by.
    "tools/docs": (
        "rdmawire.cli.command",
        "rdmawire.cli.gen",
        "rdmawire.cli.program",
        "rdmawire.fuzz.cm_model",
        "rdmawire.fuzz.learn.systems",
        "rdmawire.fuzz.tshark_",
        "rdmawire.ib",
        "rdmawire.traffic.scenario",
        "rdmawire.vectors.index",
        "rdmawire.verbs.qp_attr",
    ),
    # Fuzzing feeds the parsers below the public functions, with every link type.
    "tools/fuzz": (
        "rdmawire.cli.edit",
        "rdmawire.fuzz",
        "rdmawire.traffic",
    ),
    # The ceiling of what a generator can write: the same sink, and nothing else.
    "tools/bench/gen.py": ("rdmawire.capture.io",),
    # Answers of a scripted peer need the headers that a device would send.
    "tools/make_captures/golden/stage.py": ("rdmawire.ib.encapsulation",),
    # The index that `rdmawire vectors` reads is written here.
    "tools/make_captures/index.py": ("rdmawire.vectors.index",),
    # Bugs are planted as the fuzzers plant them: as other rules of the engine.
    "tools/mutants/planted.py": ("rdmawire.fuzz.planted_bugs", "rdmawire.ib"),
}
"""Tools that use modules which are not public, and why."""
_IMPORT = re.compile(
    r"^(?:>>> |\.\.\. )?\s*from (rdmawire[\w.]*) import (\([^)]*\)|[^#\n]*)", re.MULTILINE
)


def names_of(text: str) -> list[str]:
    """The names in the rest of an import line, without what they are imported as."""
    parts = re.sub(r"[()]|^\.\.\. ", " ", text, flags=re.MULTILINE).split(",")
    return [part.split(" as ")[0].strip() for part in parts if part.strip()]


def imports_of(page: Path) -> Iterator[tuple[str, str]]:
    for module, names in _IMPORT.findall(page.read_text(encoding="utf-8")):
        for name in names_of(names):
            yield module, name


def is_public(module: str, name: str) -> bool:
    if module in PACKAGES and name in import_module(module).__all__:
        return True
    return module in MODULES or module.startswith(("rdmawire.wire", "rdmawire.layers"))


@pytest.mark.parametrize("package", PACKAGES)
def test_what_a_package_exports_is_there(package: str) -> None:
    module = import_module(package)
    assert module.__all__
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert len(set(module.__all__)) == len(module.__all__)


def test_type_checkers_and_programs_find_the_same_public_names() -> None:
    tree = ast.parse(Path(rdmawire.__file__).read_text(encoding="utf-8"))
    (block,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    checked = {
        (node.module, alias.name, alias.asname)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    packages: dict[str, str] = vars(rdmawire)["_PACKAGES"]
    exported: list[str] = getattr(rdmawire, "__all__")  # noqa: B009 - type checkers see no list
    assert {(package, name) for package, name, _ in checked} == {
        (package, name) for name, package in packages.items()
    }
    assert sorted(packages) == exported
    assert set(exported) <= set(dir(rdmawire))
    for _, name, alias in checked:
        assert alias == name, "a type checker takes `import x as x` for public, and `import x` not"
        assert hasattr(import_module(packages[name]), name)


def test_the_api_reference_finds_the_public_names() -> None:
    griffe = pytest.importorskip("griffe")
    door = griffe.load("rdmawire", search_paths=[ROOT], submodules=False)
    assert door["Pair"].target_path == "rdmawire.fabric.Pair"


def test_importing_the_package_loads_nothing() -> None:
    script = "import sys, rdmawire; print([m for m in sys.modules if m.startswith('rdmawire.')])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, text=True
    )
    assert done.stdout == "[]\n"


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'rdmawire' has no attribute 'pear'"):
        _ = rdmawire.pear  # type: ignore[attr-defined]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_use_public_names_only(page: Path) -> None:
    assert [found for found in imports_of(page) if not is_public(*found)] == []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: str(script.relative_to(ROOT)))
def test_tools_and_examples_use_public_names_only(script: Path) -> None:
    rows = [modules for prefix, modules in INTERNAL.items() if script.is_relative_to(ROOT / prefix)]
    internal = tuple(module for modules in rows for module in modules)
    used = [found for found in imports_of(script) if not is_public(*found)]
    assert [found for found in used if not found[0].startswith(internal)] == []


def test_exceptions_for_tools_are_needed() -> None:
    for prefix, modules in INTERNAL.items():
        scripts = [script for script in SCRIPTS if script.is_relative_to(ROOT / prefix)]
        used = {module for script in scripts for module, name in imports_of(script)
                if not is_public(module, name)}  # fmt: skip
        assert [each for each in modules if not any(m.startswith(each) for m in used)] == []


def test_pages_do_import_something() -> None:
    found = {module for page in PAGES for module, _ in imports_of(page)}
    assert {"rdmawire", "rdmawire.capture", "rdmawire.wire.ib"} <= found


def test_one_import_is_enough_from_registration_to_a_write_into_gpu_memory() -> None:
    pair = Pair()
    server = pair.server
    driver = GpuDriver(server.space)
    server.nic.memory.clients.append(Peermem(driver))
    gpu = driver.add(H200)
    tensor = gpu.allocate(1 << 16)
    region = server.nic.memory.reg_mr(server.pd, tensor.address, 1 << 16, ALL_ACCESS)
    pair.client.write(b"weights", to=Registered(gpu, region))
    pair.drive()
    assert gpu.read(tensor.address, 7) == b"weights"
