"""Free ranges of addresses, first fit."""

from bisect import bisect_left


class FreeRanges:
    """Ranges that do not touch one another, in order."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, start: int, length: int) -> None:
        self._starts = [start]
        self._ends = [start + length]

    def take(self, length: int) -> int | None:
        """The first place for ``length`` octets, which is then in use."""
        for index, (start, end) in enumerate(zip(self._starts, self._ends, strict=True)):
            if end - start >= length:
                self._shorten(index, start + length)
                return start
        return None

    def _shorten(self, index: int, start: int) -> None:
        if start == self._ends[index]:
            del self._starts[index], self._ends[index]
        else:
            self._starts[index] = start

    def give(self, start: int, length: int) -> None:
        """Free a range, which joins its neighbours."""
        index = bisect_left(self._starts, start)
        end = start + length
        if index < len(self._starts) and self._starts[index] == end:
            end = self._ends[index]
            del self._starts[index], self._ends[index]
        if index and self._ends[index - 1] == start:
            self._ends[index - 1] = end
        else:
            self._starts.insert(index, start)
            self._ends.insert(index, end)

    @property
    def octets(self) -> int:
        return sum(self._ends) - sum(self._starts)
