"""No test depends on how fast or how busy the machine is."""

import ast
from pathlib import Path

from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parents[1]
CLOCKS = {"time.monotonic", "time.perf_counter", "time.process_time", "time.time", "time.sleep"}
WAITING = TESTS / "waiting.py"  # the one that polls, for as long as it takes


def clocks_read(source: str) -> set[str]:
    """The clocks that a source reads or sleeps by, as ``module.function``."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)) if "time" in source else ():
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found.add(f"{node.value.id}.{node.attr.removesuffix('_ns')}")
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name.removesuffix('_ns')}" for alias in node.names}
    return found & CLOCKS


def guards(source: str) -> list[str]:
    """The ``timeout`` of each call of ``subprocess`` that has one."""
    nodes = ast.walk(ast.parse(source)) if "timeout" in source else ()
    calls = (node for node in nodes if isinstance(node, ast.Call))
    return [
        ast.unparse(keyword.value)
        for call in calls
        if ast.unparse(call.func).endswith((".run", ".wait", ".communicate", ".Popen"))
        for keyword in call.keywords
        if keyword.arg == "timeout"
    ]


def test_an_example_may_take_as_long_as_it_takes() -> None:
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check


def test_clocks_are_found_however_they_are_read() -> None:
    assert clocks_read("import time\ntime.monotonic_ns()") == {"time.monotonic"}
    assert clocks_read("from time import sleep") == {"time.sleep"}
    assert clocks_read("import time\ntime.tzset()") == set()
    assert guards("subprocess.run([], timeout=60)") == ["60"]


def test_no_test_reads_a_clock_or_sleeps() -> None:
    sources = {path: path.read_text() for path in TESTS.rglob("*.py") if path != WAITING}
    assert {path: found for path, text in sources.items() if (found := clocks_read(text))} == {}


def test_processes_are_given_up_only_when_they_hang() -> None:
    for path in TESTS.rglob("*.py"):
        assert set(guards(path.read_text())) <= {"HANG"}, path
