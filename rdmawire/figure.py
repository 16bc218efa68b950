"""Figures of Matplotlib: their style, their colours, and how they are written to a file.

What draws takes Matplotlib from here: without it, the error says how to install it.
"""

import warnings
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from rdmawire.capture.io import output_file

try:
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator
except ImportError as error:
    raise ImportError("pictures need Matplotlib: pip install 'rdmawire[plot]'") from error

__all__ = [
    "COLOURS",
    "GREY",
    "STYLE",
    "Axes",
    "Figure",
    "MaxNLocator",
    "mpl",
    "plain",
    "save",
]

COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#882255")
"""Colours that colour-blind people can distinguish: Okabe and Ito's, and a wine red."""
GREY: Final = "#9A9A9A"
STYLE: Final[dict[Any, Any]] = {
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 10,
    "grid.color": "#E3E3E3",
    "svg.hashsalt": "rdmawire",
}
"""Settings for :func:`matplotlib.rc_context`, under which figures are made and saved."""


def save(figure: Figure, path: Path) -> None:
    """Write a figure to a file whose name ends in ``.svg`` or ``.png``.

    Raises :class:`~rdmawire.errors.CaptureError` if the file cannot be written.
    """
    with mpl.rc_context(STYLE):
        picture = _encoded(figure, path.suffix.lower().lstrip("."))
    with output_file(path) as output:
        output.write(picture)


def _encoded(figure: Figure, form: str) -> bytes:
    file = BytesIO()
    metadata = {"Date": None} if form == "svg" else {}
    with warnings.catch_warnings():
        # Names may contain letters that the font lacks, which appear as boxes.
        warnings.filterwarnings("ignore", "Glyph")
        figure.savefig(file, format=form, dpi=130, metadata=metadata)
    return file.getvalue()


def plain(text: str) -> str:
    """Return text for a figure: a dollar sign would begin a formula."""
    return text.replace("$", r"\$")
