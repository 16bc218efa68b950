"""Parsers with planted mistakes."""

import os
import signal
import struct

from rdmawire.wire import roce


def fails_on_length(data: bytes) -> None:
    """A parser that reads a byte after the payload of a packet with one byte of padding."""
    frame = roce.parse(data)
    if frame.packet.bth.padcnt == 1:
        raise IndexError("index out of range")


def trusts_udp_length(data: bytes) -> None:
    """A parser that takes as many bytes as UDP says, without a look at how many there are."""
    if data[12:14] == b"\x08\x00" and len(data) > 42 and data[14] == 0x45 and data[23] == 17:
        length = int.from_bytes(data[38:40], "big")
        struct.unpack_from(f"{max(length - 8, 0)}x", data, 42)


def never_ends(data: bytes) -> None:
    """A parser that reads options of length 0 for ever."""
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


def never_comes_back(_: bytes) -> None:
    """A parser that waits where no time limit reaches it, as one in C does."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    while True:
        signal.pause()


def healthy(data: bytes) -> None:
    """Parse a frame."""
    roce.parse(data)
