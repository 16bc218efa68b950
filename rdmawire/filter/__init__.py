"""Display filters: which frames to show, by Wireshark's grammar.

>>> from rdmawire.filter import Filter
>>> wanted = Filter("infiniband.bth.opcode == RC_ACKNOWLEDGE and ip.src == 10.77.0.0/16")
>>> wanted.names
('infiniband.bth.opcode', 'ip.src')

``wanted(frame)`` then says whether a dissection passes; ``wanted.tree`` is what was understood.
"""

from rdmawire.dissect.node import Dissection
from rdmawire.filter.ast import field_names
from rdmawire.filter.lexer import FilterError
from rdmawire.filter.match_columns import is_simple
from rdmawire.filter.match_frame import question
from rdmawire.filter.parser import parse

__all__ = ["Filter", "FilterError", "field_names", "is_simple", "parse"]


class Filter:
    """A question about frames; :class:`FilterError` says what is wrong with its text, and where."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = parse(text)
        self._question = question(self.tree)

    def __call__(self, frame: Dissection) -> bool:
        """Whether the frame passes."""
        return self._question(frame)

    def __repr__(self) -> str:
        return f"<Filter {self.tree}>"

    @property
    def names(self) -> tuple[str, ...]:
        """The fields that it names, each once, in their order."""
        return field_names(self.tree)

    @property
    def simple(self) -> bool:
        """Whether it can be evaluated over columns."""
        return is_simple(self.tree)
