"""XRC domains: in which the queues are that requests of XRC may name. IBA A14; ibv_open_xrcd(3)."""

from errno import EBUSY, EINVAL

from rdmawire.errors import VerbsError
from rdmawire.memory.argument import check_number


class XRCDomains:
    """The open domains of an adapter, by number, each with how many queues are in it."""

    def __init__(self) -> None:
        self._users: dict[int, int] = {}

    def open(self, domain: int) -> int:
        """A new domain, with nothing in it."""
        self._users[domain] = 0
        return domain

    def close(self, domain: int) -> None:
        """``VerbsError`` EBUSY while shared receive queues or targets are in it."""
        self.check(domain)
        if users := self._users[domain]:
            raise VerbsError(f"XRC domain {domain} is used by {users} queues", EBUSY)
        del self._users[domain]

    def check(self, domain: int) -> None:
        """``VerbsError`` EINVAL for what is no domain that was opened and not closed."""
        check_number("xrc_domain", domain)
        if domain not in self._users:
            raise VerbsError(f"{domain} is no XRC domain of this adapter, or was closed", EINVAL)

    def enter(self, domain: int) -> None:
        """One queue more is in it."""
        self._users[domain] += 1

    def leave(self, domain: int) -> None:
        """One queue less is in it."""
        self._users[domain] -= 1
