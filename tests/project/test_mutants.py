"""The tool that mutates code: what it changes, what it leaves, and that the tree stays."""

import shutil
from pathlib import Path

import pytest

from tools.mutants.__main__ import file_mutants, sample
from tools.mutants.fuzzed import Outcome
from tools.mutants.mutation import ROOT, mutants
from tools.mutants.sandbox import COPIED, MutantRun, Sandbox, Status
from tools.mutants.score import Key, Result, Results
from tools.mutants.targets import EQUIVALENT, TARGETS, Equivalent

SAMPLE = '''"""A docstring with 1 number."""
__slots__ = ("a", "b")


def within(é: int, *, least: int = 3) -> bool:
    """Whether é is within."""
    if é < 0 or é is None:
        raise ValueError(f"{é} is less than 0")
    for _ in ():
        break
    found.add(é)
    return least <= é
'''


def changes(source: str) -> set[tuple[int, str, str]]:
    return {(each.line, each.was, each.becomes) for each in mutants(source)}


def test_each_kind_of_change_is_made_where_it_is() -> None:
    assert changes(SAMPLE) == {
        (5, "3", "4"),
        (7, "é < 0 or é is None", "(é < 0 and é is None)"),
        (7, "é < 0", "(é <= 0)"),
        (7, "é is None", "(é is not None)"),
        (7, "0", "1"),
        (10, "break", "continue"),
        (11, "found.add(é)", "pass"),
        (12, "return least <= é", "return None"),
        (12, "least <= é", "(least < é)"),
    }


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("a.b = 1", {("1", "2"), ("a.b = 1", "pass")}),
        ("a += b", {("a += b", "a -= b"), ("a += b", "pass")}),
        ("a = b if c else d", {("c", "(not c)")}),
        ("a = not b", {("not b", "(b)")}),
        ("a = b % 8", {("b % 8", "(b // 8)"), ("8", "9")}),
        ("a = True", {("True", "False")}),
        ("a: Literal[1] = b", set()),
        ("assert a == 1", set()),
        ('a = "text"', set()),
    ],
)
def test_each_kind_of_line_has_its_changes(line: str, changed: set[tuple[str, str]]) -> None:
    assert {(was, becomes) for _, was, becomes in changes(line)} == changed


_FAST = {"rdmawire/ib/checks.py", "rdmawire/ib/responder.py", "rdmawire/ib/service.py"}
"""Targets whose mutants take little time to list: each of them is compiled."""


def slow_unless_short(file: str) -> "tuple[pytest.MarkDecorator, ...]":
    return () if file in _FAST else (pytest.mark.slow,)


@pytest.mark.parametrize(
    "file", [pytest.param(file, marks=slow_unless_short(file)) for file in TARGETS]
)
def test_every_mutant_of_a_target_is_another_program(file: str) -> None:
    source = (ROOT / file).read_text(encoding="utf-8")
    found = mutants(source)
    assert len(found) > 50
    assert len({mutant.applied(source) for mutant in found} | {source}) == len(found) + 1


def test_a_sample_is_the_same_by_the_same_seed() -> None:
    files = ("rdmawire/ib/checks.py", "rdmawire/ib/responder.py")
    assert sample(files, 1) == sample(files, 1) != sample(files, 2)
    assert sorted(sample(files, 1)) == sorted(sample(files, 2))


def test_all_tests_of_a_target_are_there() -> None:
    for stages in TARGETS.values():
        for path in (path for tests in stages for path in tests):
            assert (ROOT / path).exists(), path
            assert path.split("/")[0] in COPIED


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(known, id=known.line[:30], marks=slow_unless_short(known.file))
        for known in EQUIVALENT
    ],
)
def test_what_is_known_to_be_equivalent_is_still_a_mutant(known: Equivalent) -> None:
    source = (ROOT / known.file).read_text(encoding="utf-8")
    assert any(known.matches(known.file, source, mutant) for mutant in mutants(source))
    assert len(file_mutants(known.file, source)) < len(mutants(source))


def test_lines_that_are_known_to_be_equivalent_are_there() -> None:
    lines = {file: (ROOT / file).read_text(encoding="utf-8").splitlines() for file in TARGETS}
    found = {file: {line.strip() for line in lines[file]} for file in TARGETS}
    missing = [known for known in EQUIVALENT if known.line not in found[known.file]]
    assert missing == []
    assert all(known.was in known.line for known in EQUIVALENT)


def test_mutants_are_found_or_not_and_the_tree_stays(tmp_path: Path) -> None:
    root, folder = tmp_path / "tree", tmp_path / "copy"
    for name in COPIED:
        (root / name).mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        (root / name).touch()
    code = "def double(number):\n    spare = 1\n    return number * 2\n"
    test = "from tools.code import double\n\ndef test_it():\n    assert double(3) == 6\n"
    (root / "tools" / "code.py").write_text(code)
    (root / "tests" / "test_code.py").write_text(test)
    shutil.copy(ROOT / "tests" / "conftest.py", root / "tests" / "conftest.py")
    folder.mkdir()
    sandbox, tests = Sandbox(root, folder), ("tests/test_code.py",)
    sandbox.run_baseline(tests)
    runs = {
        (each.line, each.becomes): sandbox.run("tools/code.py", each, [tests])
        for each in mutants(code)
    }
    assert runs == {
        (2, "2"): MutantRun(Status.SURVIVED),
        (3, "return None"): MutantRun(Status.KILLED, "tests/test_code.py::test_it"),
        (3, "(number + 2)"): MutantRun(Status.KILLED, "tests/test_code.py::test_it"),
        (3, "3"): MutantRun(Status.KILLED, "tests/test_code.py::test_it"),
    }
    assert (root / "tools" / "code.py").read_text() == code == sandbox.source("tools/code.py")


def test_results_are_kept_once_for_each_mutant_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    keys = [Key("file.py", "a = 1", "1", "2", nth) for nth in range(3)]
    results = Results(path)
    for key in (*keys, keys[0]):
        results.add(key, Result(Outcome.SURVIVED))
    results.add(keys[1], Result(Outcome.FOUND, "by"))
    results.tidy((keys[1], keys[0], keys[1]._replace(nth=9)))
    assert len(path.read_text().splitlines()) == 2
    assert Results(path).known == {
        keys[0]: Result(Outcome.SURVIVED),
        keys[1]: Result(Outcome.FOUND, "by"),
    }


def test_tests_that_fail_without_any_mutant_are_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    folder.mkdir()
    sandbox = Sandbox(ROOT, folder)
    with pytest.raises(ValueError, match=r"tests fail without any mutant:(\n|.)*no tests ran"):
        sandbox.run_baseline(("tests/nowhere",))
