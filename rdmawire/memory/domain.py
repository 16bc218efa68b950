"""Protection domains, IBA 10.2.3."""


class ProtectionDomain:
    """What keeps one consumer's queues away from another's memory; compared by identity.

    ``users`` counts the regions, windows and queues in it: while it is not zero, a domain may not
    be deallocated (ibv_dealloc_pd(3): EBUSY). ``adapter`` is the registrar that it belongs to;
    ``None`` leaves that open.
    """

    __slots__ = ("adapter", "handle", "users")

    def __init__(self, handle: int, adapter: object = None) -> None:
        self.handle = handle
        self.adapter = adapter
        self.users = 0

    def acquire(self) -> None:
        """One user more."""
        self.users += 1

    def release(self) -> None:
        """One user less."""
        self.users -= 1
