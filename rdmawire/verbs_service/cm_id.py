"""Objects of the connection manager that a process has: event channels, ids, ports of ids.

An id is an ``rdma_cm_id``. Its events wait in its channel here until the library asks for them; the
channel's pipe has one byte for each, so that programs can wait for them by poll(2).
"""

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import Enum, auto
from errno import EADDRINUSE, EADDRNOTAVAIL, EINVAL, ENOMEM
from struct import Struct
from typing import Final, NamedTuple

from rdmawire.errors import VerbsError
from rdmawire.ib.cm import ConnectionManager, PortSpace
from rdmawire.verbs.ah import MAPPED_IPV4, is_ipv4
from rdmawire.verbs.enums import QPType
from rdmawire.verbs_service.device import EmulatedDevice
from rdmawire.verbs_service.events import EventPipe
from rdmawire.verbs_service.protocol import AH_ATTR, CONN_PARAM, MAX_PRIVATE_DATA

_PRIVATE: Final = Struct(f"={MAX_PRIVATE_DATA // 8}Q")
_WORD_BITS: Final = 64
NO_CONN: Final = (0,) * len(CONN_PARAM)
NO_PATH: Final = (0,) * len(AH_ATTR)
MAX_EVENTS: Final = 1 << 14
"""Maximum events that wait in a channel. Requests and calls that report more are refused."""

IPV4, IPV6 = 4, 6
_ANY: Final = {IPV4: MAPPED_IPV4 + bytes(4), IPV6: bytes(16)}
_IPV6_LOOPBACK: Final = bytes(15) + b"\x01"
_IPV4_LOOPBACK: Final = MAPPED_IPV4 + b"\x7f"


class Endpoint(NamedTuple):
    """An address and a port. ``family`` is 4 or 6, 0 for no address; IPv4 addresses are mapped."""

    family: int = 0
    gid: bytes = bytes(16)
    port: int = 0

    @property
    def is_any(self) -> bool:
        """Whether it is the unspecified address, 0.0.0.0 or ``::``."""
        return self.gid == _ANY.get(self.family)

    @property
    def is_loopback(self) -> bool:
        """Whether it is in 127.0.0.0/8, or ``::1``."""
        return self.gid == _IPV6_LOOPBACK or self.gid.startswith(_IPV4_LOOPBACK)


NOWHERE: Final = Endpoint()


def any_address(family: int, port: int = 0) -> Endpoint:
    """The unspecified address of a family."""
    return Endpoint(family, _ANY[family], port)


def endpoint(family: int, gid: bytes, port: int) -> Endpoint:
    """An address as a call has it. ``VerbsError`` EINVAL for one of no family."""
    if family not in _ANY or is_ipv4(gid) != (family == IPV4) or port > 0xFFFF:
        raise VerbsError(f"family {family}, address {gid.hex()}, port {port}: no address", EINVAL)
    return Endpoint(family, gid, port)


class EventRecord(NamedTuple):
    """An event as the library gets it; ``listener`` and ``group`` are handles, or 0."""

    event: int
    status: int
    id: int
    listener: int = 0
    group: int = 0
    conn: tuple[int, ...] = NO_CONN
    qkey: int = 0
    path: tuple[int, ...] = NO_PATH
    private_data: bytes = b""

    def handles(self) -> set[int]:
        """The handles of its id, its listener and its group."""
        return {self.id, self.listener, self.group} - {0}

    def words(self) -> tuple[int, ...]:
        """The values of CM_GET_EVENT."""
        data = self.private_data[:MAX_PRIVATE_DATA]
        status = self.status % (1 << _WORD_BITS)
        private = _PRIVATE.unpack(data.ljust(MAX_PRIVATE_DATA, b"\0"))
        head = (self.event, status, self.id, self.listener, self.group)
        return (*head, *self.conn, self.qkey, *self.path, len(data), *private)


class EventChannel:
    """An event channel: events, the oldest first, and a pipe with a byte for each."""

    def __init__(self) -> None:
        self._pipe = EventPipe()
        self._events: OrderedDict[int, EventRecord] = OrderedDict()
        self._of: dict[int, dict[int, None]] = {}
        """The numbers of the events of each id, listener and group, by its handle."""
        self._next = 0
        read_end = self._pipe.take_read_end()
        # A description of its own, which can be non-blocking while the library's blocks.
        try:
            self._drain = os.open(f"/proc/self/fd/{read_end}", os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            os.close(read_end)
            self._pipe.close()
            raise
        self._read_end = read_end

    def take_read_end(self) -> int:
        """Return the descriptor that the library reads, which the caller closes."""
        fd, self._read_end = self._read_end, -1
        return fd

    @property
    def is_full(self) -> bool:
        """Whether the channel has :data:`MAX_EVENTS`: requests of peers are rejected."""
        return len(self._events) >= MAX_EVENTS

    def check_room(self, count: int = 1) -> None:
        """``VerbsError`` ENOMEM if it has room for less than ``count`` more events."""
        if len(self._events) + count > MAX_EVENTS:
            raise VerbsError(f"a channel has at most {MAX_EVENTS} events: get some", ENOMEM)

    def put(self, event: EventRecord) -> None:
        """Add an event."""
        self._next += 1
        self._events[self._next] = event
        for handle in event.handles():
            self._of.setdefault(handle, {})[self._next] = None
        self._pipe.put(b"\0")

    def take(self) -> EventRecord | None:
        """Remove the oldest event, whose byte the library has read."""
        self._pipe.flush()
        return self._forget(next(iter(self._events))) if self._events else None

    def _forget(self, number: int) -> EventRecord:
        event = self._events.pop(number)
        for handle in event.handles():
            numbers = self._of[handle]
            del numbers[number]
            if not numbers:
                del self._of[handle]
        return event

    def of(self, handle: int) -> dict[int, EventRecord]:
        """The events of an id, a listener or a group, by the numbers that :meth:`remove` takes."""
        return {number: self._events[number] for number in self._of.get(handle, ())}

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove events, and their bytes."""
        for number in numbers:
            self._forget(number)
            with suppress(BlockingIOError):  # read by the library already: it gets ENODATA
                os.read(self._drain, 1)
        self._pipe.flush()

    def forget_all(self) -> None:
        """Forget all events: there is no reader any more."""
        self._events.clear()
        self._of.clear()

    def close(self) -> None:
        """Close the descriptors."""
        self._pipe.close()
        os.close(self._drain)
        if self._read_end >= 0:
            os.close(self._read_end)


class CmDevice(NamedTuple):
    """A device with its connection manager; ``number`` is its place in the list of devices."""

    number: int
    device: EmulatedDevice
    manager: ConnectionManager


class IdState(Enum):
    """State of an id: the last call that succeeded, or the request that it was made for."""

    IDLE = auto()
    BOUND = auto()
    ADDR_RESOLVED = auto()
    ROUTE_RESOLVED = auto()
    LISTENING = auto()
    CONNECTING = auto()
    """It has requested a connection, or was made for a request."""


class CmId:
    """An ``rdma_cm_id``: its channel, its addresses, its options and its connection.

    ``connection`` is the communication id of the engine, ``cm_device`` the device it is
    bound to.
    ``groups`` are the multicast groups that it has joined, by handle.
    """

    __slots__ = (
        "ack_timeout",
        "afonly",
        "by_hand",
        "channel",
        "cm_device",
        "connection",
        "destination",
        "groups",
        "handle",
        "qp_type",
        "reuse",
        "source",
        "space",
        "state",
        "traffic_class",
    )

    def __init__(
        self, handle: int, channel: EventChannel, space: PortSpace, qp_type: QPType
    ) -> None:
        self.handle = handle
        self.channel = channel
        self.space = space
        self.qp_type = qp_type
        self.state = IdState.IDLE
        self.cm_device: CmDevice | None = None
        self.source = NOWHERE
        self.destination = NOWHERE
        self.connection: int | None = None
        self.by_hand = False
        self.groups: dict[int, bytes] = {}
        self.traffic_class = 0
        self.ack_timeout: int | None = None
        self.reuse = self.afonly = False

    @property
    def service_id(self) -> int:
        """The service id of its own port."""
        return self.space << 16 | self.source.port

    @property
    def datagrams(self) -> bool:
        """Whether it resolves services for datagrams instead of connecting."""
        return self.qp_type is QPType.UD

    def need(self, *states: IdState) -> None:
        """``VerbsError`` EINVAL in another state."""
        if self.state not in states:
            raise VerbsError(f"id {self.handle} is in {self.state.name}", EINVAL)

    def need_device(self) -> CmDevice:
        """The device it is bound to. ``VerbsError`` EINVAL if there is none."""
        if self.cm_device is None:
            raise VerbsError(f"id {self.handle} is bound to no device", EINVAL)
        return self.cm_device

    def check_room(self) -> None:
        """``VerbsError`` ENOMEM if its channel has as many events as it may."""
        self.channel.check_room()

    def report(self, event: int) -> None:
        """Report an event without parameters."""
        self.channel.put(EventRecord(event, 0, self.handle))

    def report_failure(self, event: int, error: VerbsError) -> None:
        """Report that an operation failed; the reason, for RDMAWIRE_TRACE, is the private data."""
        failed = EventRecord(event, -error.errno, self.handle, private_data=error.reason.encode())
        self.channel.put(failed)

    def overlaps(self, other: "CmId") -> bool:
        """Whether there is an address that both ids are bound to."""
        mine, its = self.source, other.source
        if mine.family != its.family:
            return any(
                cm_id.source.family == IPV6 and cm_id.source.is_any and not cm_id.afonly
                for cm_id in (self, other)
            )
        return mine.gid == its.gid or mine.is_any or its.is_any

    def serves(self, wanted: Endpoint) -> int:
        """How closely a listening id matches an address: 3 for its own, 0 for not at all."""
        if self.source.gid == wanted.gid:
            return 3
        if not self.source.is_any:
            return 0
        if self.source.family == wanted.family:
            return 2
        return int(self.source.family == IPV6 and not self.afonly)


_EPHEMERAL: Final = range(0xC000, 0x10000)
"""Ports of ids that name none: RFC 6335, section 6."""


class PortTable:
    """The ports in use, in each port space, of all processes."""

    def __init__(self) -> None:
        self._users: dict[tuple[PortSpace, int], list[CmId]] = {}
        self._next = 0

    def bind(self, cm_id: CmId, source: Endpoint) -> None:
        """Bind an id to an address. ``VerbsError`` if another id has the port.

        As with Linux, EADDRNOTAVAIL if one of them is bound to all addresses, else EADDRINUSE.
        """
        before, cm_id.source = cm_id.source, source
        try:
            if not source.port:
                cm_id.source = source._replace(port=self._unused(cm_id.space))
            else:
                _check_rivals(
                    cm_id, (user for user in self._rivals(cm_id) if not _share(cm_id, user))
                )
        except VerbsError:
            cm_id.source = before
            raise
        self._users.setdefault((cm_id.space, cm_id.source.port), []).append(cm_id)

    def check_listener(self, cm_id: CmId) -> None:
        """``VerbsError`` as of :meth:`bind` if an id that shares the port listens already."""
        _check_rivals(
            cm_id, (user for user in self._rivals(cm_id) if user.state is IdState.LISTENING)
        )

    def listeners(self, space: PortSpace, port: int) -> Iterator[CmId]:
        """The ids that listen on a port."""
        users = self._users.get((space, port), ())
        return (user for user in users if user.state is IdState.LISTENING)

    def release(self, cm_id: CmId) -> None:
        """Free the port of an id that has one of its own."""
        key = cm_id.space, cm_id.source.port
        users = self._users.get(key, [])
        if cm_id in users:
            users.remove(cm_id)
            if not users:
                del self._users[key]

    def _rivals(self, cm_id: CmId) -> Iterator[CmId]:
        users = self._users.get((cm_id.space, cm_id.source.port), ())
        return (user for user in users if user is not cm_id and user.overlaps(cm_id))

    def _unused(self, space: PortSpace) -> int:
        for _ in _EPHEMERAL:
            port = _EPHEMERAL[self._next % len(_EPHEMERAL)]
            self._next += 1
            if (space, port) not in self._users:
                return port
        raise VerbsError("all ephemeral ports are in use", EADDRNOTAVAIL)


def _share(cm_id: CmId, other: CmId) -> bool:
    return cm_id.reuse and other.reuse


def _check_rivals(cm_id: CmId, rivals: Iterator[CmId]) -> None:
    """Raise ``VerbsError`` if there is a rival: cma_check_port of Linux."""
    rival = next(rivals, None)
    if rival is not None:
        everywhere = cm_id.source.is_any or rival.source.is_any
        reason = f"port {cm_id.source.port} is in use"
        raise VerbsError(reason, EADDRNOTAVAIL if everywhere else EADDRINUSE)
