"""What imports Scapy has the GPL in its first line, and nothing else imports it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LICENCE = "# SPDX-License-Identifier: GPL-2.0-only\n"


def sources() -> list[Path]:
    folders = ("rdmawire", "layers", "tests", "tools")
    found = (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))
    return [path for path in found if not path.is_relative_to(ROOT / "rdmawire" / "layers")]


def imported(source: str) -> Iterator[str]:
    """The modules, and the names in them, that a source imports anywhere in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def needs_scapy(source: str) -> bool:
    if "scapy" not in source:  # only a source that has a module's name can import it
        return False
    roots = ("scapy.", "rdmawire.layers.scapy.")
    return any(f"{name}.".startswith(roots) for name in imported(source))


@pytest.mark.parametrize(
    ("source", "needs"),
    [
        ("import scapy", True),
        ("def f():\n    from scapy.all import Ether", True),
        (LICENCE + "import os, scapy.fields", True),
        ("from rdmawire.wire import ib  # scapy", False),
        ("import scapylike", False),
        ("from rdmawire.layers.scapy.layer import layer", True),
        ("from rdmawire.layers import construct", False),
    ],
)
def test_an_import_of_scapy_is_found_wherever_it_stands(source: str, needs: bool) -> None:
    assert needs_scapy(source) is needs


WITH_SCAPY = [path for path in sources() if needs_scapy(path.read_text())]


def test_files_that_import_scapy_begin_with_their_licence() -> None:
    assert ROOT / "tools" / "bench" / "peer_scapy.py" in WITH_SCAPY
    assert [path for path in WITH_SCAPY if not path.read_text().startswith(LICENCE)] == []


def test_no_other_file_has_that_licence_or_imports_one_that_has() -> None:
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in WITH_SCAPY}
    words = {"scapy" if "scapy" in name else name.rpartition(".")[2] for name in names}
    for path in set(sources()) - set(WITH_SCAPY):
        source = path.read_text()
        assert not source.startswith(LICENCE), path
        if any(word in source for word in words):  # only then can it import one
            assert not names & set(imported(source)), path
