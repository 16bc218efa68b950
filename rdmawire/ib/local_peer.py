"""Peers within one process: the queue pairs that a :class:`LocalConnection` connects."""

from collections.abc import Mapping
from typing import Final

from rdmawire.ib.engine import Nic
from rdmawire.ib.local_connection import KINDS, LocalConnection
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.rx_parser import Flow
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.wire.opcode import Operation


def find_local(qp: QueuePair, nics: Mapping[bytes, Nic]) -> LocalConnection | None:
    """The connection of ``qp`` if its peer belongs to one of ``nics``, adapters by MAC address.

    ``None`` also while one of them has no path, while the peer is not connected to ``qp``, and for
    queue pairs or adapters with other rules than the standard's, which only packets follow.
    """
    if qp.type not in KINDS or not _has_path(qp) or not _is_standard(qp):
        return None
    request = qp.request_template.frame(qp.service.base | Operation.SEND_ONLY, 0, b"", b"")
    to_peer = _flow_at(nics, request)
    if to_peer is None:
        return None
    peer: QueuePair = to_peer.ways[0][0]
    if not _has_path(peer):
        return None
    back = _flow_at(nics, peer.request_template.frame(to_peer.opcode, 0, b"", b""))
    if back is None or back.ways[0][0] is not qp or peer is qp or not _is_standard(peer):
        return None
    return LocalConnection(qp, peer, to_peer, back)


class LocalConnections:
    """The connections of queue pairs whose peers belong to one of ``nics``, by MAC address."""

    def __init__(self, nics: Mapping[bytes, Nic]) -> None:
        self._nics = nics
        self._searches: dict[int, int] = {}

    def of(self, qp: QueuePair) -> LocalConnection | None:
        """The connection of a queue pair, if it has one now. It is stored in ``qp.local``.

        Where none was found, only one call in :data:`_SEARCH_EVERY` searches again.
        """
        local = qp.local
        # As `holds`, without the call: each post comes here.
        if local.__class__ is LocalConnection and local.to_peer.ways and local.back.ways:
            return local
        number = qp.qp_num
        calls = self._searches[number] = self._searches.get(number, -1) + 1
        qp.local = None if calls % _SEARCH_EVERY else find_local(qp, self._nics)
        if qp.local is not None:
            del self._searches[number]
        return qp.local

    def forget(self, number: int) -> None:
        """Forget a queue pair, which is destroyed."""
        self._searches.pop(number, None)


_SEARCH_EVERY: Final = 64
"""Calls of :meth:`LocalConnections.of` for one search, where none has found a connection."""


def _flow_at(nics: Mapping[bytes, Nic], frame: bytes) -> Flow | None:
    nic = nics.get(frame[:6])
    return None if nic is None else nic.flow_of(frame)


def _has_path(qp: QueuePair) -> bool:
    """Whether the queue pair has the address of its peer: not before RTR, nor in ERR after INIT."""
    return qp.attributes.ah is not None


def _is_standard(qp: QueuePair) -> bool:
    """Whether packets of the queue pair have no effects but those of the standard.

    Another effect is that counters of completions count them.
    """
    device = qp.device
    profile = device.profile
    plain = device.rules is STANDARD and not profile.bugs and not profile.unsupported
    plain = plain and qp.completed is None
    return plain and not (profile.frees_slots_at_poll or qp.grants_credits)
