"""Display filters in Wireshark's language.

>>> from rdmawire.filter import Filter
>>> wanted = Filter("infiniband.bth.opcode == RC_ACKNOWLEDGE and ip.src == 10.77.0.0/16")
>>> wanted.names
('infiniband.bth.opcode', 'ip.src')

``wanted(frame)`` says whether a dissected frame passes, ``wanted.tree`` is the syntax tree.
"""

from rdmawire.dissect.dissection import Dissection
from rdmawire.filter.ast import field_names
from rdmawire.filter.lexer import FilterError
from rdmawire.filter.match_columns import FieldArray, evaluate_columns, is_simple
from rdmawire.filter.match_frame import compile_test
from rdmawire.filter.parser import parse

__all__ = [
    "FieldArray",
    "Filter",
    "FilterError",
    "evaluate_columns",
    "field_names",
    "is_simple",
    "parse",
]


class Filter:
    """A compiled display filter; raises :class:`FilterError` if ``text`` is invalid."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = parse(text)
        self._question = compile_test(self.tree)
        self.simple = is_simple(self.tree)
        """Whether :func:`evaluate_columns` can evaluate it."""

    def __call__(self, frame: Dissection) -> bool:
        """Whether the frame passes."""
        return self._question(frame)

    def __repr__(self) -> str:
        return f"<Filter {self.tree}>"

    @property
    def names(self) -> tuple[str, ...]:
        """Return the fields that the filter names, each once, in order of appearance."""
        return field_names(self.tree)
