"""What an edit refuses."""

from rdmawire.errors import RdmaError


class EditError(RdmaError):
    """An edit is asked for what makes no sense: a field, a value, a map.

    It says what was found, and what is allowed.
    """
