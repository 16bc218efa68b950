"""No module imports itself by way of others, not even for type checkers or inside functions."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def modules() -> dict[str, Path]:
    """All modules of the package by name; ``layers`` is linked into it."""
    found = {}
    for folder, prefix in ((ROOT / "rdmawire", "rdmawire"), (ROOT / "layers", "rdmawire.layers")):
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            if parts[0] == "layers" and prefix == "rdmawire":
                continue
            found[".".join((prefix, *parts)).removesuffix(".__init__")] = path
    return found


def imported(name: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Modules that a module imports anywhere in its text, and the packages that hold those.

    A package imports nothing for its own modules: it is there before them.
    """
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for one in names:
            parts = one.split(".")
            packages = (".".join(parts[:end]) for end in range(1, len(parts) + 1))
            yield from (
                at for at in packages if at in known and not f"{name}.".startswith(f"{at}.")
            )


def reached(graph: dict[str, set[str]], start: str) -> set[str]:
    """All modules that a module imports, directly or by way of others."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting.extend(new)
    return found


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """Groups of modules that import one another."""
    ways = {module: reached(graph, module) for module in graph}
    inside = {module for module, others in ways.items() if module in others}
    return {frozenset(two for two in ways[one] if one in ways[two]) for one in inside}


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, set()),
        ({"a": {"b"}, "b": {"a"}, "c": {"a"}}, {frozenset("ab")}),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"e"}, "e": {"d", "a"}},
         {frozenset("abc"), frozenset("de")}),
    ],
)  # fmt: skip
def test_circles_are_found(graph: dict[str, set[str]], expected: set[frozenset[str]]) -> None:
    assert circles(graph) == expected


def test_no_module_imports_itself_by_way_of_others() -> None:
    known = modules()
    graph = {name: set(imported(name, path, known)) for name, path in known.items()}
    assert len(graph) > 100
    assert circles(graph) == set()
