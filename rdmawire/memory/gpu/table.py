"""Pinned GPU pages: the page table of nvidia_p2p_get_pages, and mappings of it for peers."""

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rdmawire.memory.gpu.device import Gpu


class TableState(Enum):
    """The life of a page table."""

    LIVE = auto()
    REVOKING = auto()  # its free callback runs
    GONE = auto()


class PageTable:
    """Pinned pages of ``length`` bytes at a GPU address, with their bus addresses in BAR1.

    Without ``revoked``, the callback for when the owner frees the memory, it is persistent: the
    pages live until they are put.
    """

    __slots__ = ("_revoked", "address", "addresses", "gpu", "length", "mappings", "state")

    def __init__(
        self,
        gpu: "Gpu",
        address: int,
        addresses: tuple[int, ...],
        revoked: Callable[[], None] | None,
    ) -> None:
        self.gpu = gpu
        self.address = address
        self.addresses = addresses
        self.length = len(addresses) * gpu.page_size
        self.mappings = 0
        self.state = TableState.LIVE
        self._revoked = revoked

    @property
    def persistent(self) -> bool:
        return self._revoked is None

    @property
    def end(self) -> int:
        return self.address + self.length

    @property
    def pages(self) -> range:
        """GPU addresses of the pages."""
        return range(self.address, self.end, self.gpu.page_size)

    def revoke(self) -> None:
        """The owner freed the memory: tell the one who pinned it, then take the pages."""
        if self._revoked is not None:
            self.state = TableState.REVOKING
            self._revoked()
        self.state = TableState.GONE


class DmaMapping:
    """A page table as one peer device may use it; no other may."""

    __slots__ = ("peer", "table")

    def __init__(self, table: PageTable, peer: object) -> None:
        self.table = table
        self.peer = peer
        table.mappings += 1
