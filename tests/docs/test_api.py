"""The site's API reference, install page and picture agree with the code."""

import html
import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from tests.project.test_public_names import PACKAGES
from tools.docs import api
from tools.docs.roles import markdown
from tools.picture import PICTURE, printed

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_every_public_package_is_documented() -> None:
    documented = {module for page in api.PAGES for module in page.modules}
    assert set(PACKAGES) - documented == {"rdmawire"}


@pytest.mark.parametrize("page", api.PAGES, ids=lambda page: page.name)
def test_every_page_is_in_the_navigation_under_its_title(page: api.Page) -> None:
    assert f"- {page.title}: reference/api/{page.name}.md\n" in (ROOT / "mkdocs.yml").read_text()


def test_every_public_name_is_documented_under_a_path_that_leads_to_it() -> None:
    assert [
        path for path, home in api.homes().items() if value_at(path) is not value_at(home)
    ] == []


def value_at(path: str) -> object:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def test_roles_and_literal_blocks_become_markdown() -> None:
    text = markdown(
        "As :func:`~rdmawire.capture.open_capture` and :class:`Unknown` do::\n\n    x\n"
    )
    assert text == (
        "As [`open_capture`][rdmawire.capture.open_capture] and `Unknown` do:\n\n    x\n"
    )


def test_the_install_page_names_every_extra_with_its_libraries() -> None:
    text = (ROOT / "docs" / "install.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\w, ]*?) ?\|", text, re.MULTILINE))
    wanted = re.findall(r"[\w-]+", EXTRAS["all"][0])[1:]
    assert rows.pop("all") == ""
    assert rows == {
        name: ", ".join(re.split("[<>=]", each)[0] for each in EXTRAS[name]) for name in wanted
    }


def test_the_picture_shows_what_the_command_prints() -> None:
    shown = html.unescape(re.sub("<[^>]*>", "", PICTURE.read_text())).replace("\xa0", " ")
    for line in re.sub(r"\x1b\[[\d;]*m", "", printed()).splitlines():
        assert line.rstrip() in shown
