"""The drawing of floors on the design page is the contract that import-linter checks."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def contract() -> list[set[str]]:
    """The packages of each floor, from the top; packages that are still to come are left out."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    floors = tools["importlinter"]["contracts"][0]["layers"]
    return [set(re.findall(r"(?<!\()rdmawire\.(\w+)", floor)) for floor in floors]


def drawing() -> list[set[str]]:
    """The packages of each box of the drawing, from the top."""
    (figure,) = re.findall(
        r"```text\n(\+-.*?)```", (ROOT / "docs/design.md").read_text(), re.DOTALL
    )
    return [set(re.findall(r"\w+", line)) for line in figure.splitlines() if "+" not in line]


def test_the_drawing_of_floors_is_the_contract() -> None:
    assert drawing() == contract()


def test_every_package_and_module_has_a_floor() -> None:
    paths = (*(ROOT / "rdmawire").glob("[a-z]*.py"), *(ROOT / "rdmawire").glob("[a-z]*/"))
    assert {path.stem for path in paths} == set().union(*contract())
