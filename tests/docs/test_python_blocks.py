"""Pages are tests: their Python runs and prints what they show.

In a ``python`` block what follows ``>>>`` is run as in the interpreter; other blocks are run as
they are, all of a page in one name space.
"""

import doctest
from pathlib import Path

import pytest

from tests.docs.blocks import PAGES, ROOT, blocks

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


def test_there_are_pages_with_python() -> None:
    assert WITH_PYTHON
