"""The uncompressed file as a buffer that moves along it."""

from collections.abc import Iterator

from rdmawire.errors import CaptureError


class Octets:
    """A stretch of the file, ``buffer``, and the place in it that is read next, ``at``.

    Buffers are never changed, only replaced: whoever holds one may keep it. Of the file no
    more is held than was asked for, and one chunk.
    """

    def __init__(self, chunks: Iterator[bytes], name: str) -> None:
        self._chunks = chunks
        self._base = 0
        self.name = name
        self.buffer = b""
        self.at = 0

    @property
    def offset(self) -> int:
        """Octets of the file before the place."""
        return self._base + self.at

    def need(self, count: int) -> int:
        """Have ``count`` octets stand at the place; how many do, fewer only where the file ends."""
        left = len(self.buffer) - self.at
        return left if left >= count else self._gather(left, count)

    def _gather(self, left: int, count: int) -> int:
        parts = [self.buffer[self.at :]]
        while left < count and (chunk := next(self._chunks, b"")):
            parts.append(chunk)
            left += len(chunk)
        self._base += self.at
        self.buffer, self.at = b"".join(parts), 0
        return left

    def skip(self, count: int) -> int:
        """Move the place on without keeping what is passed; by how much, as with :meth:`need`."""
        passed = 0
        while passed < count and (left := self.need(1)):
            step = min(left, count - passed)
            self.at += step
            passed += step
        return passed

    def damage(self, reason: str, at: int | None = None) -> CaptureError:
        """The error for damage at this place of the buffer."""
        return CaptureError(f"{self.name}: {reason}", self._base + (self.at if at is None else at))
