"""What a fabric refuses."""

from collections.abc import Mapping
from typing import Final

from rdmawire.bound import Bound, Kind, misfit, misfit_of
from rdmawire.errors import RdmaError

MOMENT: Final = Kind(int)
"""A time on the clock, in ns: also one that is over."""


class FabricError(RdmaError):
    """A fabric is asked for what makes no sense: a name, a setting, a fault or a field.

    It says what was found, and what is allowed.
    """


def check_settings(made: object, bounds: Mapping[str, Bound]) -> None:
    """:class:`FabricError` for an attribute of an object that is not within its bound."""
    if reason := misfit_of(made, bounds):
        raise FabricError(reason)


def check_values(whose: str, values: Mapping[str, object], bounds: Mapping[str, Bound]) -> None:
    """As :func:`check_settings`, for values by name before anything is made of them."""
    if reason := misfit(whose, values, bounds):
        raise FabricError(reason)
