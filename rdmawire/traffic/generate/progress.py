"""How much of an order is done, by what was counted."""

from collections.abc import Callable
from typing import Final, Protocol

from rdmawire.traffic.generate import blend
from rdmawire.traffic.generate.order import Order, Verb

Told = Callable[[int, int], object]
"""Who is told how much is done, and how much that is of: frames, octets, whatever there is."""

DATAGRAMS: Final = 5
"""Of one connection: REQ, REP, RTU, DREQ and DREP."""


class Counted(Protocol):
    """What was counted so far."""

    @property
    def frames(self) -> int: ...

    @property
    def messages(self) -> int: ...

    @property
    def octets(self) -> int: ...

    @property
    def frame_octets(self) -> int: ...

    @property
    def cnps(self) -> int: ...


class Progress:
    """Tells what is done of an order."""

    def __init__(self, order: Order, told: Told) -> None:
        self._told = told
        self._count, self._total = _measure(order)

    def tell(self, counted: Counted) -> None:
        """So much was counted by now."""
        self._told(min(self._count(counted), self._total), self._total)

    def end(self) -> None:
        """All is done."""
        self._told(self._total, self._total)


def _measure(order: Order) -> tuple[Callable[[Counted], int], int]:
    """What is counted, and how much of that there will be."""
    if order.messages is None:
        return lambda counted: counted.frames, order.frames or 0
    if order.verb is Verb.CNP:
        return lambda counted: counted.cnps, order.messages
    if order.verb is Verb.CM:
        return lambda counted: counted.mads, DATAGRAMS * order.messages
    octets = _octets(order, order.messages)
    if order.verb is Verb.READ:  # its octets count when they are asked for, long before they come
        return lambda counted: counted.frame_octets, octets
    return lambda counted: counted.messages + counted.octets, octets


def _octets(order: Order, count: int) -> int:
    """Octets of so many messages, and one for each."""
    lengths = [message.length for message in blend.messages(order)]
    rounds, part = divmod(count, len(lengths))
    return count + rounds * sum(lengths) + sum(lengths[:part])
