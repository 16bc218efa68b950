"""The README for package indexes, where relative links do not work.

A metadata hook of hatchling. ``base`` in its table of ``pyproject.toml`` is the URL of the
repository's files, which is put before relative links; without ``base`` they become plain text.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE = re.compile(r"\[([^\]]+)\]\((?![a-z]+:)([^)\s]+)\)")


def shown_elsewhere(text: str, base: str | None) -> str:
    """The text with its relative links made absolute, or plain text if there is no ``base``."""
    return _RELATIVE.sub(rf"[\1]({base}/\2)" if base else r"\1", text)


class Readme(MetadataHookInterface):
    """Sets the project's ``readme``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Put the README into the metadata."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": shown_elsewhere(text, self.config.get("base")),
        }
