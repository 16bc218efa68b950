"""Signals to a command that has started another process: they are forwarded to it."""

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
def forwarded(on_signal: Callable[[], None]) -> Iterator[Callable[["Popen[bytes]"], None]]:
    """Call ``on_signal`` at each signal, and forward the signal to a child process.

    The child is the argument of the yielded function; signals before that call are forwarded by it.
    Signals that a terminal sends to all processes of its foreground are not forwarded. Signals that
    the parent process ignores stay ignored.
    """
    children: list[Popen[bytes]] = []
    pending: list[int] = []

    def forward(number: int, _: FrameType | None) -> None:
        on_signal()
        if not children:
            pending.append(number)
        elif number not in _OF_TERMINAL or not _is_in_foreground():
            children[0].send_signal(number)

    def forward_to(child: "Popen[bytes]") -> None:
        children.append(child)
        while pending:
            child.send_signal(pending.pop(0))

    before = {
        number: signal.signal(number, forward)
        for number in _FORWARDED
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield forward_to
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_in_foreground() -> bool:
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError, AttributeError):  # no terminal, or no standard input
        return False
