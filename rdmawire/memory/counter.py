"""What DMA costs, path by path, so that "zero copy" is a figure."""

from enum import Enum, auto


class Path(Enum):
    """The way that octets take between an adapter and the memory they belong in."""

    HOST = auto()
    GPU_DIRECT = auto()
    BOUNCE = auto()


class Tally:
    """DMA on one path: octets, transactions, and copies that a processor or GPU made for them."""

    __slots__ = ("copies", "octets", "transactions")

    def __init__(self) -> None:
        self.octets = 0
        self.transactions = 0
        self.copies = 0


class DmaCounter:
    """The tallies of one adapter. A DMA is one access to a region, whatever pages it touches."""

    __slots__ = ("_tallies",)

    def __init__(self) -> None:
        self._tallies = {path: Tally() for path in Path}

    def __getitem__(self, path: Path) -> Tally:
        return self._tallies[path]
