"""Two processes that transfer host memory: one offers a pattern, the other reads it and writes."""

from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

WRITTEN = 7
"""Value of each byte that is written."""
_READ = 251
_SECONDS = 30

Peer = Callable[[Connection, str], bool]
"""A function that one process runs, with a pipe to the other process and the name of its device.

It returns whether the bytes are right.
"""


def pattern(size: int) -> Any:
    """Return the ``size`` bytes that are offered and read, as an array of NumPy."""
    return (np.arange(size) % _READ).astype(np.uint8)


def main(serve: Peer, use: Peer, target: str, initiator: str) -> int:
    """Run ``serve`` in a process of its own, and ``use`` in this one. Return the exit status."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, target))
    process.start()
    try:
        right = use(ours, initiator)
        process.join(_SECONDS)
    finally:
        process.kill()
    return 0 if right else 1
