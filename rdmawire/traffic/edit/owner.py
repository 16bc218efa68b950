"""Whose the numbers are that rules ask for at one host alone: it may be the wrong one."""

from collections.abc import Callable, Iterable
from typing import Final

from rdmawire.traffic.edit.cut import Cut

MOST_TOLD: Final = 3
"""Hosts of which it is told that they have a number."""


class Owners:
    """The hosts that were met with any of these numbers, the first few of each."""

    def __init__(self, numbers: Iterable[int | None] = ()) -> None:
        self._hosts: dict[int, list[bytes]] = {each: [] for each in numbers if each is not None}

    def __bool__(self) -> bool:
        """Whether any number is of interest."""
        return bool(self._hosts)

    def note(self, number: int, host: bytes) -> None:
        """A host has this number; nothing stands for a host that no header names."""
        hosts = self._hosts.get(number)
        if hosts is not None and host and host not in hosts and len(hosts) <= MOST_TOLD:
            hosts.append(host)

    def noting(self, cut: Cut, host: bytes) -> Callable[[bytes, bytearray], None]:
        """What notes the number that stands in a frame, and changes nothing."""
        return lambda old, _: self.note(cut.read(old), host)

    def of(self, number: int | None) -> tuple[bytes, ...]:
        """The hosts that have it: one more than is told of stands for all others."""
        return () if number is None else tuple(self._hosts.get(number, ()))
