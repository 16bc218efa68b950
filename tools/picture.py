"""Draw the picture of the landing page: ``python -m tools.picture``.

It shows what a command prints in a terminal, with its colours; a test compares the text.
"""

import re
import shlex
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "assets" / "dissect.svg"
COMMAND: Final = "rdmawire run -q lost-middle -w - | rdmawire dissect --from 2 --color always -"
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def printed() -> str:
    """What the command prints, with ANSI colours."""
    python = shlex.quote(sys.executable)
    command = COMMAND.replace("rdmawire ", f"{python} -m rdmawire ")
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=ROOT, capture_output=True, check=True, text=True,
    )  # fmt: skip
    return done.stdout


def svg(output: str) -> str:
    """The output in a drawn terminal, without the fonts that Rich would load from the network."""
    prompt = (f"$ {COMMAND.replace(' --color always', '')}\n", "bold")
    text = Text.assemble(prompt, Text.from_ansi(output))
    width = max(line.cell_len for line in text.split())
    console = Console(record=True, width=width, file=StringIO())
    console.print(text, soft_wrap=True)
    return _FONTS.sub("", console.export_svg(title="A lost packet", unique_id="dissect"))


if __name__ == "__main__":
    PICTURE.write_text(svg(printed()), encoding="utf-8")
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size} bytes")
