"""Signals that a command gets while another process runs for it."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from subprocess import Popen
from types import FrameType

_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
_OF_TERMINAL = (signal.SIGINT, signal.SIGQUIT)


@contextmanager
def forwarded(child: "Popen[bytes]", on_signal: Callable[[], None]) -> Iterator[None]:
    """Send the signals that this process gets to ``child``, and call ``on_signal``.

    Those that a terminal sends to all processes of its foreground are not sent again. Signals that
    the parent process has ignored stay so.
    """

    def forward(number: int, _: FrameType | None) -> None:
        on_signal()
        if number not in _OF_TERMINAL or not _is_in_foreground():
            child.send_signal(number)

    before = {
        number: signal.signal(number, forward)
        for number in _FORWARDED
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_in_foreground() -> bool:
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError, AttributeError):  # no terminal, or no standard input
        return False
