"""Public names of the fabric: all are there, and pages and tools use no others."""

import re
from pathlib import Path

import pytest

from rdmawire import fabric

ROOT = Path(__file__).parents[2]
USERS = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *(ROOT / "tools").rglob("*.py")]


@pytest.mark.parametrize("name", fabric.__all__)
def test_a_public_name_is_there(name: str) -> None:
    assert hasattr(fabric, name)


def test_pages_and_tools_import_from_the_package_alone() -> None:
    deep = {
        f"{page.relative_to(ROOT)}: {found}"
        for page in USERS
        for found in re.findall(r"from rdmawire\.fabric\.\w+ import.*", page.read_text())
    }
    assert deep == set()
