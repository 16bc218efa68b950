"""Pages name what there is: files, links, each other, and the settings of the comparison."""

import re
from pathlib import Path

import pytest

from rdmawire.fuzz.tshark_process import PREFERENCES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
_PATH = re.compile(r"`([\w.-]+/[\w./*-]*|\w+\.(?:py|md|toml))`")
_PLACES = (ROOT, ROOT / "rdmawire", ROOT / "captures", ROOT / "tests")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def links(page: Path) -> list[str]:
    return [link for link in _LINK.findall(page.read_text()) if "://" not in link]


def paths(page: Path) -> list[str]:
    """The paths that a page names in backquotes."""
    return _PATH.findall(page.read_text())


def exists(path: str) -> bool:
    return any(list(place.glob(path.rstrip("/"))) for place in _PLACES)


def is_made(page: Path, link: str) -> bool:
    """Whether a link leads to a page of the reference, which the site's build makes."""
    target = (page.parent / link).resolve()
    if DOCS not in page.parents or DOCS / "reference" not in target.parents:
        return False
    return f": {target.relative_to(DOCS)}\n" in (ROOT / "mkdocs.yml").read_text()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_files_of_the_repository(page: Path) -> None:
    assert [
        link
        for link in links(page)
        if not (page.parent / link).exists() and not is_made(page, link)
    ] == []


@pytest.mark.parametrize("page", [DOCS / "design.md", DOCS / "conformance.md"], ids=name)
def test_paths_that_are_named_exist(page: Path) -> None:
    named = paths(page)
    assert len(named) > 10
    assert [path for path in named if not exists(path)] == []


def test_every_page_is_in_the_contents() -> None:
    contents = (ROOT / "mkdocs.yml").read_text()
    assert [
        page for page in DOCS.rglob("*.md") if str(page.relative_to(DOCS)) not in contents
    ] == []


def test_the_settings_of_the_comparison_are_shown_where_it_is_promised() -> None:
    page = (DOCS / "howto" / "move-from-tshark.md").read_text()
    assert [preference for preference in PREFERENCES if f"-o {preference}" not in page] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_shows_how_to_make_the_folder_before_it_writes_there(page: Path) -> None:
    before, found, behind = page.read_text().partition("$TMPDIR")
    assert not found or "`export TMPDIR=$(mktemp -d)`" in behind.splitlines()[0], before[-80:]
