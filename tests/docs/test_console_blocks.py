"""Pages are tests: their commands print what they show.

In a ``console`` block a line that begins with ``$`` is run in a shell at the project's root, and
what follows is its output; a line ``...`` stands for any lines.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import starts_processes
from tests.cli.fork_server import fork_server
from tests.cli.in_process import run_in_process
from tests.docs.blocks import PAGES, ROOT, Block, blocks
from tests.waiting import HANG

_QUOTED = re.compile(r"""'[^']*'|"(?:\$TMPDIR|[^"$`\\])*"|\$TMPDIR""")
_FOR_SHELLS = re.compile(r"""[][|&;<>()$`\\*?#~{}\n'"]""")
_CALL = re.compile(
    r"(?P<call>rdmawire .*?)(?P<quiet> +2> ?/dev/null)?"
    r"(?:(?P<status>; echo \$\?)| +\| (?P<filter>(?!.*rdmawire).*))?"
)
"""A call whose errors may be discarded, whose status may be printed or its output filtered."""


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


def test_there_are_pages_with_commands() -> None:
    assert len(CONSOLE) > 5
