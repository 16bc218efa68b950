"""What a fabric refuses."""

from rdmawire.errors import RdmaError


class FabricError(RdmaError):
    """A fabric is asked for what makes no sense: a name, a setting, a fault or a field.

    It says what was found, and what is allowed.
    """
