"""Streams that stand in for standard input and output, and are not ours to close."""

from typing import BinaryIO


class Borrowed:
    """A stream of somebody else's, to be read or written but left open."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def read(self, size: int, /) -> bytes | None:
        """What the stream gives."""
        return self._stream.read(size)

    def readinto(self, buffer: memoryview, /) -> int:
        """How many bytes the stream put into the buffer."""
        octets = self._stream.read(len(buffer))
        buffer[: len(octets)] = octets
        return len(octets)

    def write(self, octets: memoryview, /) -> int | None:
        """How many octets the stream took."""
        return self._stream.write(octets)

    def close(self) -> None:
        """Leave it open."""
