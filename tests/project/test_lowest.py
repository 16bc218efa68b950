"""The lowest versions that are declared: each library has one, and `make lowest` uses them."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from tools.lowest import PYPROJECT, constraints, lowest, others

ROOT = Path(__file__).parents[2]
SAMPLE = """
[project]
name = "rdmawire"
dependencies = ["click>=8.2"]
[project.optional-dependencies]
cluster = []
columns = ["numpy>=1.26", "pyarrow>=15,<99"]
construct = []
hypothesis = []
learn = []
plot = []
scapy = []
test = ["rdmawire[columns]", "pytest>=8"]
check = ["ruff>=0.17"]
"""


def test_each_library_is_constrained_to_its_lowest_version() -> None:
    lines = ["click==8.2", "numpy==1.26", "pyarrow==15", "pytest==8"]
    assert constraints(SAMPLE) == lines


@pytest.mark.parametrize("requirement", ["click", "click<9", "click==8.2"])
def test_a_library_without_a_lowest_version_is_refused(requirement: str) -> None:
    with pytest.raises(ValueError, match="has no lowest version"):
        lowest(requirement)


def test_other_versions_are_noticed() -> None:
    installed = version("click")
    assert others([f"click=={installed}"]) == []
    assert others([f"click=={installed}.0"]) == []
    assert others(["click==0.1"]) == ["click"]


def test_every_library_of_the_project_has_a_lowest_version() -> None:
    found = dict(line.split("==") for line in constraints(PYPROJECT.read_text()))
    assert found["click"] == "8.2"  # its words for wrong usage and missing values
    assert {"isal", "numpy", "pyarrow", "scapy", "hypothesis", "pytest"} <= found.keys()


def test_all_extras_of_the_package_are_in_all() -> None:
    """All but one: CUDA's bindings are of use only where a GPU is."""
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    named = set(re.split(r"[\[\],]", extras["all"][0])) - {"rdmawire", ""}
    assert named == extras.keys() - {"all", "cuda", "test", "check", "fuzz", "docs", "dev"}


def test_the_next_machine_runs_the_smoke_test() -> None:
    assert re.search(r"^slow:.*,lowest\)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert "make test lowest\n" in (ROOT / ".ci" / "run").read_text()


def test_the_next_machine_runs_slow_tests_that_there_are() -> None:
    names = [
        line for line in (ROOT / ".ci" / "slow").read_text().split("\n") if line and line[0] != "#"
    ]
    assert names == sorted(names)
    assert all((ROOT / name.partition("::")[0]).is_file() for name in names)
