"""What a wrong filter raises."""

from rdmawire.errors import RdmaError


class FilterError(RdmaError):
    """A filter that cannot be understood: what is wrong, and where in its text.

    ``offset`` counts characters from the start of the filter; people are told columns from one.
    """

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(f"column {offset + 1}: {reason}")
        self.reason = reason
        self.offset = offset
