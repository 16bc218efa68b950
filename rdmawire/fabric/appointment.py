"""Appointments: what is done at a time, unless it is called off."""

from collections.abc import Callable

Action = Callable[[], None]


class Appointment:
    """Something that will be done, unless it is called off before."""

    __slots__ = ("action",)

    def __init__(self, action: Action) -> None:
        self.action: Action | None = action

    def cancel(self) -> None:
        """Call it off; that may be too late."""
        self.action = None
