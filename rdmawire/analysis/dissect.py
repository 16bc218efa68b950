"""Frames to dissections, one after the other, remembering what connects them."""

from collections.abc import Iterable

from rdmawire.analysis.node import Dissection
from rdmawire.analysis.session import Session
from rdmawire.analysis.steps import NEXT
from rdmawire.analysis.walk import By, Walk
from rdmawire.wire.inet import ROCE_PORT


class Dissector:
    """Dissects the frames of one capture, in order.

    ``roce_ports`` are the UDP destination ports that carry RoCEv2. Dissecting never raises:
    what does not parse is the last node of its dissection.
    """

    def __init__(self, roce_ports: Iterable[int] = (ROCE_PORT,)) -> None:
        self._session = Session(roce_ports)
        self._number = 0
        self._first_ns: int | None = None
        self._previous_ns = 0

    def dissect(
        self, data: bytes, *, link_type: int = 1, time_ns: int = 0, length: int | None = None
    ) -> Dissection:
        """Dissect one frame.

        ``data`` are the captured octets, ``length`` counts those on the wire, ``time_ns`` is
        nanoseconds since the epoch, ``link_type`` is the capture's (tcpdump's registry).
        """
        self._number += 1
        found = Dissection(self._number, data, len(data) if length is None else length, time_ns)
        Walk(found, self._session).run((By.LINK, link_type), NEXT)
        if self._first_ns is None:
            self._first_ns = self._previous_ns = found.time_ns
        found.first_ns, found.previous_ns = self._first_ns, self._previous_ns
        self._previous_ns = found.time_ns
        return found
