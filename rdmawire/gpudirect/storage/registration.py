"""Registration of the memory of each command: fast registration, until the response.

Linux's hosts do so: the key of a command is of one region (REG_MR), and the target's response
invalidates it by SEND with Invalidate, so that no later access of the target is possible.
"""

from collections.abc import Sequence

from rdmawire.errors import TransferError
from rdmawire.gpudirect.storage.capsule import IOCommand, IOOpcode, SglSubtype, SglType
from rdmawire.gpudirect.storage.host import StorageHost
from rdmawire.memory import Access, FastRegistration
from rdmawire.memory.key import next_variant
from rdmawire.verbs import RegMR, SendOpcode, SendWR


class CommandRegions:
    """A region for each slot, for commands of ``size`` bytes in memory at ``address``.

    ``pages`` are the bus addresses of the pages of ``page_size`` bytes from ``address`` on, which
    is the first byte of one.
    """

    def __init__(  # noqa: PLR0917
        self,
        host: StorageHost,
        address: int,
        pages: Sequence[int],
        page_size: int,
        slots: int,
        size: int,
    ) -> None:
        self._address = address
        self._pages = pages
        self._page_size = page_size
        table, most = host.host.nic.memory, size // page_size + 2
        self._regions = [table.alloc_mr(host.host.pd, most) for _ in range(slots)]
        self._keys = [region.rkey for region in self._regions]

    def register(self, slot: int, command: IOCommand, offset: int) -> tuple[SendWR, IOCommand]:
        """Return the work that registers the memory of a command, and the command with its key.

        The data is at an offset from the address.
        """
        key = self._keys[slot] = next_variant(self._keys[slot])
        first = offset // self._page_size
        last = (offset + command.length - 1) // self._page_size
        registration = FastRegistration(
            key,
            self._address + offset,
            command.length,
            _ACCESS[IOOpcode(command.opcode)],
            self._pages[first : last + 1],
            self._page_size,
        )
        work = SendWR(SendOpcode.REG_MR, flags=0, reg=RegMR(self._regions[slot], registration))
        return work, command.replace(
            address=registration.iova,
            key=key,
            sgl_type=SglType.KEYED_DATA_BLOCK,
            sgl_subtype=SglSubtype.INVALIDATE_KEY,
        )

    def check(self, slot: int) -> None:
        """Raise :class:`TransferError` unless the response has invalidated the key of a slot."""
        if self._regions[slot].valid:
            raise TransferError(f"the response has not invalidated key {self._keys[slot]:#x}")


_ACCESS = {
    IOOpcode.READ: Access.LOCAL_WRITE | Access.REMOTE_WRITE,
    IOOpcode.WRITE: Access.REMOTE_READ,
}
"""Access rights of the target, by what the command does."""
