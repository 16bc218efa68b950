"""Turns the reStructuredText of docstrings into Markdown, for the API reference."""

import re
import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).parents[2]))

from tools.docs.api import homes

_ROLE = re.compile(r":(?:class|func|meth|attr|data|mod|exc):`[~!]?([^`]+)`")
_LITERAL = re.compile(r"^[ \t]*::[ \t]*\n|(?<=\w:):$", re.MULTILINE)
"""What announces indented code: a line of its own, or the second colon of a sentence."""
_PUBLIC = {name.rpartition(".")[2]: home for name, home in homes().items()}


def markdown(text: str) -> str:
    """Return a docstring with links to documented names in place of roles."""
    return _ROLE.sub(_link, _LITERAL.sub("", text))


def _link(role: "re.Match[str]") -> str:
    name = role[1].rpartition(".")[2]
    return f"[`{name}`][{_PUBLIC[name]}]" if name in _PUBLIC else f"`{name}`"


class Roles(griffe.Extension):
    """Rewrites all docstrings."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Rewrite the docstrings of a package once it is loaded."""
        _rewrite(pkg)


def _rewrite(obj: griffe.Object) -> None:
    if obj.docstring:
        obj.docstring.value = markdown(obj.docstring.value)
    for member in obj.members.values():
        if isinstance(member, griffe.Object):
            _rewrite(member)
