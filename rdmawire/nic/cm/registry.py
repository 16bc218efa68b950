"""All connections of one manager: by this side's ids, by the peer's, and by the peer's queue pair.

A peer is known by its GID here; the standard has its GUID and LID, and RoCE no LIDs.
"""

from collections.abc import Iterator

from rdmawire.nic.cm.connection import Connection


class Registry:
    """At most ``room`` connections."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._by_id: dict[int, Connection] = {}
        self._by_request: dict[tuple[bytes, int, bool], Connection] = {}
        self._by_peer: dict[tuple[bytes, int], Connection] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._by_id.values())

    def __contains__(self, number: int) -> bool:
        return number in self._by_id

    @property
    def full(self) -> bool:
        """Whether there is room for none more."""
        return len(self._by_id) >= self._room

    def get(self, number: int) -> Connection | None:
        """By this side's communication id."""
        return self._by_id.get(number)

    def requested(self, source: bytes, peer_id: int, *, datagrams: bool) -> Connection | None:
        """That which a peer asked for under its own id."""
        return self._by_request.get((source, peer_id, datagrams))

    def with_peer(self, source: bytes, qpn: int) -> Connection | None:
        """That whose other end is this queue pair."""
        return self._by_peer.get((source, qpn))

    def add(self, conn: Connection) -> None:
        """Keep one; a passive one can be found by what asked for it."""
        self._by_id[conn.id] = conn
        if not conn.active:
            self._by_request[conn.remote, conn.peer_id, conn.datagrams] = conn

    def claim_peer(self, conn: Connection) -> None:
        """The peer's queue pair is known: no other connection may have it. IBA 12.9.8.3."""
        self._by_peer[conn.remote, conn.terms.remote_qpn] = conn

    def remove(self, conn: Connection) -> None:
        """Forget one."""
        del self._by_id[conn.id]
        if not conn.active:
            del self._by_request[conn.remote, conn.peer_id, conn.datagrams]
        if self.with_peer(conn.remote, conn.terms.remote_qpn) is conn:
            del self._by_peer[conn.remote, conn.terms.remote_qpn]
