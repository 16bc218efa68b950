"""Where frames go: a table of addresses, given or learnt, and a choice among equal paths."""

from collections.abc import Iterable
from typing import Final, TypeAlias
from zlib import crc32

Ports: TypeAlias = tuple[int, ...]
GROUP_BIT: Final = 1
"""Of the first octet of an Ethernet address: for several stations. IEEE 802, 8.2."""

_SPREAD: Final = 0x9E3779B1  # odd, near 2**32 by the golden ratio: spreads what differs little
_WORD: Final = 0xFFFFFFFF


def chosen(ports: Ports, flow: bytes, seed: int) -> int:
    """One of several ports, the same for all frames of a flow.

    CRCs alone are linear: switches that differ by the seed only would all split flows alike.
    """
    if len(ports) == 1:
        return ports[0]
    mixed = (crc32(flow) ^ seed & _WORD) * _SPREAD & _WORD
    mixed = (mixed ^ mixed >> 15) * _SPREAD & _WORD
    return ports[(mixed >> 16) % len(ports)]


class AddressTable:
    """MAC address to the ports behind which it is. Given entries stay; others are learnt.

    ``most`` addresses are learnt, and no more: nobody knows where the others are.
    """

    __slots__ = ("_given", "_learnt", "_most")

    def __init__(self, most: int) -> None:
        self._given: dict[bytes, Ports] = {}
        self._learnt: dict[bytes, int] = {}
        self._most = most

    def give(self, mac: bytes, ports: Iterable[int]) -> None:
        """Say where an address is; behind several ports if there are equal paths."""
        self._given[mac] = tuple(ports)

    def learn(self, mac: bytes, port: int) -> bool:
        """An address was heard at a port. Whether that is news."""
        if mac in self._given or mac[0] & GROUP_BIT or self._learnt.get(mac) == port:
            return False
        if mac not in self._learnt and len(self._learnt) >= self._most:
            return False
        self._learnt[mac] = port
        return True

    def given(self, mac: bytes) -> Ports:
        """Behind which ports an address is, as somebody said; none if nobody did."""
        return self._given.get(mac, ())

    def learnt(self, mac: bytes) -> int | None:
        """At which port an address was heard, if it was."""
        return self._learnt.get(mac)
