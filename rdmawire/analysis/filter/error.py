"""What a wrong filter raises."""

from rdmawire.errors import RdmaError
from rdmawire.screen import safe

_SHOWN = 60


def shown(text: str) -> str:
    """A word of a filter as an error quotes it: on one line, and not all of a very long one."""
    return safe(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


class FilterError(RdmaError):
    """A filter that cannot be understood: what is wrong, and where in its text.

    ``offset`` counts characters from the start of the filter; people are told columns from one.
    """

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(f"column {offset + 1}: {reason}")
        self.reason = reason
        self.offset = offset
