"""Parsers with planted mistakes."""

import os
import signal
import struct
import sys
from collections.abc import Sequence

from rdmawire.wire import roce


def fails_on_length(data: bytes) -> None:
    """A parser that reads a byte after the payload of a packet with one byte of padding."""
    frame = roce.parse(data)
    if frame.packet.bth.padcnt == 1:
        raise IndexError("index out of range")


def trusts_udp_length(data: bytes) -> None:
    """A parser that takes as many bytes as UDP.length, without a check of how many there are."""
    if data[12:14] == b"\x08\x00" and len(data) > 42 and data[14] == 0x45 and data[23] == 17:
        length = int.from_bytes(data[38:40], "big")
        struct.unpack_from(f"{max(length - 8, 0)}x", data, 42)


def never_ends(data: bytes) -> None:
    """A parser that reads options of length 0 without end."""
    while data[:2] == b"\xff\xff":
        pass


def ends_its_process(data: bytes) -> None:
    """A parser that ends its process when a packet has a byte of padding."""
    if roce.parse(data).packet.bth.padcnt == 1:
        os.kill(os.getpid(), signal.SIGSEGV)


def exits(data: bytes) -> None:
    """A parser that ends its process with the status 3 when a packet has a byte of padding."""
    if roce.parse(data).packet.bth.padcnt == 1:
        os._exit(3)


def never_returns(_: bytes) -> None:
    """A parser that waits where no time limit reaches it, as one in C does."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    while True:
        signal.pause()


def healthy(data: bytes) -> None:
    """Parse a frame."""
    roce.parse(data)


CALLS = "RDMAWIRE_TEST_CALLS"
"""The environment variable with the path of a file to which functions write process ids."""


def _note(process: int) -> None:
    with open(os.environ[CALLS], "a") as file:
        file.write(f"{process}\n")


def forks(_: bytes) -> None:
    """A parser of which two processes return."""
    _note(os.getpid())
    os.fork()


def leaves_a_process(_: bytes) -> None:
    """A parser that leaves a process running."""
    _leave_a_process()


def ends_but_leaves_a_process(_: bytes) -> None:
    """A parser that ends its process and leaves another one, which has the same connections."""
    _leave_a_process()
    os._exit(3)


def _leave_a_process() -> None:
    process = os.fork()
    if not process:
        signal.pause()
    _note(process)


def prints(_: bytes) -> None:
    """A parser that writes to standard output, also as a module in C does."""
    print("printed", flush=True)
    os.write(1, b"written")


def interrupts(_: bytes) -> None:
    """A parser that raises what Ctrl-C raises."""
    raise KeyboardInterrupt


def raises_a_long_name(_: bytes) -> None:
    """A parser that raises an exception with a long name in a function with a long name."""
    name = "f" * 100_000
    code = f"def {name}():\n    raise type('E' * 100_000, (Exception,), {{}})('m')\n{name}()"
    exec(code, {})


class WritesJunk:
    """A parser that writes to the connection on which its results are sent."""

    name = "junk"

    def __init__(self, junk: bytes) -> None:
        self._junk = junk

    def judge(self, _: object) -> None:
        """Find nothing."""

    def judge_all(self, cases: Sequence[object]) -> list[None]:
        """Write junk before the results."""
        lines = sys._getframe(1).f_locals["lines"]
        lines.write(self._junk)
        lines.flush()
        return [None] * len(cases)
