"""Pages are tests: their commands print what they show, their Python runs and prints it.

In a ``console`` block a line that begins with ``$`` is run in a shell at the project's root, and
what follows is its output; a line ``...`` stands for any lines. In a ``python`` block what
follows ``>>>`` is run as in the interpreter; other Python blocks are run as they are, all of a
page in one name space.
"""

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.command import starts_processes
from tests.cli.fork_server import fork_server
from tests.cli.in_process import run_in_process
from tests.waiting import HANG

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"""'[^']*'|"(?:\$TMPDIR|[^"$`\\])*"|\$TMPDIR""")
_FOR_SHELLS = re.compile(r"""[][|&;<>()$`\\*?#~{}\n'"]""")
_CALL = re.compile(
    r"(?P<call>rdmawire .*?)(?P<quiet> +2> ?/dev/null)?"
    r"(?:(?P<status>; echo \$\?)| +\| (?P<filter>(?!.*rdmawire).*))?"
)
"""A call whose errors may be discarded, whose status may be printed or its output filtered."""


class Block(NamedTuple):
    """A block of a page, and the line that it begins at."""

    page: Path
    line: int
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(page, text.count("\n", 0, found.start()) + 2, found[1], found[2])
        for found in _BLOCK.finditer(text)
    ]


def commands(block: Block) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output it must give."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
    found = []
    for part in parts:
        lines = part.splitlines(keepends=True)
        count = 1
        while lines[count - 1].endswith("\\\n"):
            count += 1
        found.append(("".join(lines[:count]), "".join(lines[count:])))
    return found


def matches(expected: str, found: str) -> bool:
    pieces = [re.escape(piece) for piece in re.split(r"^\.\.\.\n", expected, flags=re.MULTILINE)]
    return re.fullmatch("(?:.*\n)*?".join(pieces), found) is not None


CONSOLE = [block for page in PAGES for block in blocks(page) if block.language == "console"]


def plain_words(call: str, folder: str) -> list[str]:
    """The words of a call of rdmawire that needs no shell and no other process; else none.

    ``folder`` is the value of ``$TMPDIR``, the one variable that such a call may have.
    """
    if _FOR_SHELLS.search(_QUOTED.sub("", call)):
        return []
    _, *words = shlex.split(call.replace("$TMPDIR", folder))
    return [] if starts_processes(words) else words


def printed(command: str, env: dict[str, str]) -> str:
    """What a command prints, run in the present folder: a shell does what is not plain."""
    plain = _CALL.fullmatch(command.replace("\\\n", "").strip())
    words = plain_words(plain["call"], env["TMPDIR"]) if plain else []
    if plain is None or not words:
        return shell(command, {**env, "PATH": f"{fork_server(os.getpid()).bin}:{env['PATH']}"})
    is_merged = not (plain["quiet"] or plain["filter"])
    status, output, errors = run_in_process(words, b"", env, is_merged=is_merged)
    text = shell(plain["filter"], env, output.decode()) if plain["filter"] else output.decode()
    if plain["status"]:
        text += f"{status}\n"
    return text if plain["quiet"] else errors.decode() + text


def shell(command: str, env: dict[str, str], stdin: str | None = None) -> str:
    """What a command of a shell prints."""
    return subprocess.run(
        ["bash", "-c", command],
        env=env, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False, timeout=HANG,
    ).stdout  # fmt: skip


@pytest.mark.parametrize("block", CONSOLE, ids=lambda b: f"{b.page.relative_to(ROOT)}:{b.line}")
def test_commands_print_what_the_page_shows(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    settings = {"PATH": path, "TZ": "UTC", "COLUMNS": "100", "TMPDIR": str(tmp_path)}
    env = {**os.environ, **settings}
    for command, expected in commands(block):
        found = printed(command, env)
        assert matches(expected, found), f"$ {command}{found}"


WITH_PYTHON = [page for page in PAGES if any(b.language == "python" for b in blocks(page))]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_runs_and_prints_what_the_page_shows(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {}
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for block in blocks(page):
        if block.language != "python":
            continue
        if ">>>" in block.text:
            test = parser.get_doctest(block.text, names, page.name, str(page), block.line)
            result = runner.run(test, clear_globs=False)
            names.update(test.globs)
            assert not result.failed, f"{page}:{block.line}"
        else:
            exec(compile(block.text, f"{page}:{block.line}", "exec"), names)


def test_there_are_pages_with_examples() -> None:
    assert len(CONSOLE) > 5
    assert WITH_PYTHON
