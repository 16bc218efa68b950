"""Reassembly of subnet administration transfers. IBA 13.6.

A transfer is open from the first of its segments that arrives, in any order, until it is
complete, stopped or dropped; then it is closed, and later segments are late. A closed
key is opened again by a first segment that differs from the one the key had. Memory is bounded:
there is a maximum of open transfers, of bytes in each, and of closed ones.
"""

from collections.abc import Hashable

from rdmawire.errors import WireError
from rdmawire.wire import mad
from rdmawire.wire.management import ManagementClass
from rdmawire.wire.rmpp import PAYLOAD, RMPP, RMPPType
from rdmawire.wire.sa import SAHeader

_RMPP = mad.MAD.SIZE
_DATA = _RMPP + RMPP.SIZE + SAHeader.SIZE


class Transfer:
    """The received segments of one transfer, by number."""

    __slots__ = ("data", "first", "last", "segments")

    def __init__(self) -> None:
        self.segments: dict[int, bytes] = {}
        self.data = 0
        self.last: int | None = None
        self.first = b""

    @property
    def complete(self) -> bool:
        """Whether all segments were received."""
        return self.last is not None and len(self.segments) == self.last

    def joined(self) -> bytes:
        """The data of all segments, in order."""
        return b"".join(self.segments[number] for number in sorted(self.segments))

    def takes(self, rmpp: RMPP) -> bool:
        """Whether the segment is new and agrees with the earlier ones."""
        number = rmpp.data1
        after_last = self.last is not None and (rmpp.last or number > self.last)
        before_others = bool(rmpp.last) and any(number < other for other in self.segments)
        return number not in self.segments and not after_last and not before_others

    def add(self, rmpp: RMPP, datagram: bytes) -> None:
        """Keep a segment."""
        data = datagram[_DATA : _RMPP + RMPP.SIZE + rmpp.transferred]
        self.segments[rmpp.data1] = data
        self.data += len(data)
        self.last = rmpp.data1 if rmpp.last else self.last
        self.first = datagram if rmpp.first else self.first


class RMPPReassembly:
    """Open transfers, at most ``transactions`` of at most ``bytes`` of data each.

    Failures are counted: ``dropped`` transfers (too many, too long, stopped or
    aborted), ``refused`` segments (contradict themselves or the transfer, or are
    repeated), ``late`` segments (of a closed transfer).
    """

    def __init__(self, transactions: int = 64, size: int = 1 << 20) -> None:
        self.transactions = transactions
        self.data = size
        self.dropped = self.refused = self.late = 0
        self._open: dict[Hashable, Transfer] = {}
        self._closed: dict[Hashable, bytes] = {}

    def __len__(self) -> int:
        """Number of open transfers."""
        return len(self._open)

    def feed(self, key: Hashable, datagram: bytes) -> bytes | None:
        """Process one datagram; return the data of a completed transfer without SA headers.

        ``key`` identifies the transfer: addresses and transaction id. Return ``None`` if it is not
        complete; :class:`WireError` if the datagram is shorter than 256 bytes.
        """
        if len(datagram) < mad.SIZE:
            raise WireError(f"a MAD has {mad.SIZE} bytes (IBA 13.4.1), found {len(datagram)}", 0)
        if mad.header(datagram).mgmt_class != ManagementClass.SUBN_ADM:
            return None
        rmpp = RMPP.parse(datagram, _RMPP)
        if rmpp.kind in (RMPPType.STOP, RMPPType.ABORT) and key in self._open:
            self._drop(key)
        return self._segment(key, rmpp, datagram) if rmpp.kind == RMPPType.DATA else None

    def _segment(self, key: Hashable, rmpp: RMPP, datagram: bytes) -> bytes | None:
        if not is_consistent(rmpp):
            self.refused += 1
            return None
        if self._is_late(key, rmpp, datagram):
            self.late += 1
            return None
        transfer = self._open.get(key) or self._opened(key)
        if not transfer.takes(rmpp):
            self.refused += 1
            return None
        transfer.add(rmpp, datagram)
        return self._outcome(key, transfer)

    def _outcome(self, key: Hashable, transfer: Transfer) -> bytes | None:
        """Close or continue a transfer that has a new segment."""
        if transfer.data > self.data:
            self._drop(key)
            return None
        if not transfer.complete:
            return None
        self._close(key)
        return transfer.joined()

    def _is_late(self, key: Hashable, rmpp: RMPP, datagram: bytes) -> bool:
        first = self._closed.get(key)
        return first is not None and (not rmpp.first or datagram == first)

    def _opened(self, key: Hashable) -> Transfer:
        """Open a transfer; drop the oldest one if there are too many."""
        self._closed.pop(key, None)
        if len(self._open) >= self.transactions:
            self._drop(next(iter(self._open)))
        return self._open.setdefault(key, Transfer())

    def _drop(self, key: Hashable) -> None:
        self.dropped += 1
        self._close(key)

    def _close(self, key: Hashable) -> None:
        self._closed[key] = self._open.pop(key).first
        if len(self._closed) > self.transactions:
            del self._closed[next(iter(self._closed))]


def is_consistent(rmpp: RMPP) -> bool:
    """Whether a segment's number, flags and payload length agree. IBA 13.6.2.1, 13.6.2.2."""
    first = bool(rmpp.first) == (rmpp.data1 == 1)
    length = not rmpp.last or SAHeader.SIZE <= rmpp.data2 <= PAYLOAD
    return rmpp.data1 > 0 and first and length
