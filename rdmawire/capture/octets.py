"""The uncompressed file as a buffer that moves along it."""

from collections.abc import Iterator

from rdmawire.errors import CaptureError


class Octets:
    """A stretch of the file, ``buffer``, and the place in it that is read next, ``at``.

    Buffers are never changed, only replaced: whoever holds one may keep it. Of the file no
    more is held than was asked for, and one chunk. What is asked for is put together only where
    it lies in several chunks; elsewhere the buffer is the chunk itself.
    """

    def __init__(self, chunks: Iterator[bytes], name: str) -> None:
        self._chunks = chunks
        self._base = 0
        self._chunk = b""
        self._taken = 0
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
        if left >= count:
            return left
        return self._gather(left, count) if left else self._go_on(count)

    def _go_on(self, count: int) -> int:
        """The buffer is used up: go on in the chunk behind it."""
        if not self._refill():
            return 0
        self._base += self.at - self._taken
        self.buffer, self.at = self._chunk, self._taken
        self._taken = len(self._chunk)
        left = len(self.buffer) - self.at
        return left if left >= count else self._gather(left, count)

    def _gather(self, left: int, count: int) -> int:
        """Put together what lies in several chunks."""
        parts = [self.buffer[self.at :]]
        while left < count and self._refill():
            part = self._chunk[self._taken : self._taken + count - left]
            parts.append(part)
            self._taken += len(part)
            left += len(part)
        self._base += self.at
        self.buffer, self.at = b"".join(parts), 0
        return left

    def _refill(self) -> bool:
        """Have a chunk with octets that nobody has taken; false where the file ends."""
        if self._taken == len(self._chunk):
            self._chunk, self._taken = next(self._chunks, b""), 0
        return bool(self._chunk)

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
