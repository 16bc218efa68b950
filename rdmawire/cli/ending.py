"""Signals that end a run from outside: what is half written goes first."""

import signal
from types import FrameType
from typing import NoReturn

_ENDING = (signal.SIGTERM, signal.SIGHUP)


class Ended(BaseException):
    """A signal has come that ends the run."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def heed() -> None:
    """Have these signals come as :class:`Ended`, unless whoever started us has them ignored."""
    for number in _ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    raise Ended(number)


def by_signal(ended: Ended) -> int:
    """End as the signal would have had it, so that whoever waits for us knows."""
    signal.signal(ended.number, signal.SIG_DFL)
    signal.raise_signal(ended.number)
    return 128 + ended.number
