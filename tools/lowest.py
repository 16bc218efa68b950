"""The lowest library versions that `pyproject.toml` allows: as pip constraints, and checked.

python -m tools.lowest           prints ``name==version``, a line each
python -m tools.lowest --check   fails unless these are what is installed
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
EXTRAS = ("cluster", "columns", "construct", "hypothesis", "learn", "plot", "scapy", "test")
"""Extras whose libraries the package or its tests import; the others are for development."""

_LOWEST = re.compile(r"([\w.-]+)>=([\w.]+)")


def requirements(project: dict[str, Any]) -> Iterator[str]:
    """The declared requirements, without those on the project itself."""
    extras = project["optional-dependencies"]
    for needed in (project["dependencies"], *(extras[name] for name in EXTRAS)):
        yield from (each for each in needed if not each.startswith(project["name"]))


def lowest(requirement: str) -> tuple[str, str]:
    """Name and lowest version of a requirement; ``ValueError`` if it has no lowest version."""
    found = _LOWEST.match(requirement)
    if not found:
        raise ValueError(f"{requirement!r} has no lowest version: write name>=version")
    return found[1], found[2]


def constraints(pyproject: str) -> list[str]:
    """A line ``name==version`` for each library with its lowest version."""
    project = tomllib.loads(pyproject)["project"]
    return ["==".join(lowest(requirement)) for requirement in requirements(project)]


def _numbers(text: str) -> list[int]:
    """The numbers of a release, without zeros at the end: 8.2 is 8.2.0."""
    numbers = [int(part) for part in text.split(".") if part.isdigit()]
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers


def others(lines: list[str]) -> list[str]:
    """Names of the libraries whose installed version is not that of the constraint."""
    pairs = (line.split("==") for line in lines)
    return [name for name, wanted in pairs if _numbers(version(name)) != _numbers(wanted)]


def main() -> None:
    lines = constraints(PYPROJECT.read_text())
    if sys.argv[1:] != ["--check"]:
        print(*lines, sep="\n")
    elif found := others(lines):
        sys.exit(f"lowest: not the lowest declared version is installed of {', '.join(found)}")


if __name__ == "__main__":
    main()
