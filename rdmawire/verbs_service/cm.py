"""The connection manager of all devices: connections, and their events for the processes.

Each device has the engine's manager (:mod:`rdmawire.ib.cm`), which exchanges REQ, REP, RTU, DREQ
and the other messages as packets of queue pair 1. Ports and addresses are those of the service: two
processes cannot listen on the same port of the same address.

As with Linux, the library moves the queue pairs of its ids through their states. The manager sends
messages, and has the attributes for it.

Addresses are those of the devices. ``0.0.0.0`` and ``::`` listen on all of them; as a destination
they are an address of the first device, and so are 127.0.0.0/8 and ``::1``. An id that is bound to
no device reaches another device's address from the first device that does not own it: the packets
cross the network then, while Linux sends them from the owner to itself.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from errno import EADDRNOTAVAIL, EINVAL, ENOMEM, ETIMEDOUT
from typing import Final, TypeVarTuple

from rdmawire.errors import VerbsError
from rdmawire.ib.cm import (
    STANDARD,
    CMEvent,
    CMEventType,
    CMSettings,
    ConnectionManager,
    ConnectRequest,
    ConnectResponse,
    DatagramRequest,
    Disconnected,
    Established,
    PortSpace,
    Rejected,
    Resolved,
    Unreachable,
    Unresolved,
)
from rdmawire.identifier import Randomness
from rdmawire.live import now
from rdmawire.verbs.ah import AddressHandle, is_ipv4, is_multicast
from rdmawire.verbs.enums import QPType
from rdmawire.verbs_service.attributes import path_words
from rdmawire.verbs_service.cm_id import (
    IPV4,
    IPV6,
    NO_CONN,
    CmDevice,
    CmId,
    Endpoint,
    EventChannel,
    EventRecord,
    IdState,
    PortTable,
    endpoint,
)
from rdmawire.verbs_service.device import EmulatedDevice, Resolve
from rdmawire.wire.cm import RejectReason

MAX_IDS: Final = 1 << 16
"""Maximum ids and channels of one process."""

MAX_GROUPS: Final = 1 << 12
"""Maximum groups that an id joins, or a queue pair."""

MULTICAST_QKEY: Final = 0x01234567
"""The Q_Key of groups: RDMA_UDP_QKEY of <rdma/rdma_cma.h>."""
_PACKET_LIFE: Final = 16
"""A packet's lifetime as Linux takes it for RoCE (CMA_IBOE_PACKET_LIFETIME): 0.27 s."""
_MULTICAST_QPN: Final = 0xFFFFFF
_REQUESTING: Final = frozenset({QPType.RC, QPType.UC, QPType.XRC_INI, QPType.UD})
_LINK_LOCAL: Final = b"\xfe\x80"
_SERVICE_PORT: Final = 0xFFFF
_Arguments = TypeVarTuple("_Arguments")


SESSION_KINDS: Final = (CmId, EventChannel)
"""Classes of objects that :meth:`CmSession.owns` knows."""


class CmSession:
    """The channels and ids of one process, by handle."""

    def __init__(self) -> None:
        self.channels: dict[int, EventChannel] = {}
        self.ids: dict[int, CmId] = {}

    def channel(self, handle: int) -> EventChannel:
        """A channel. ``VerbsError`` EINVAL if there is none."""
        if handle not in self.channels:
            raise VerbsError(f"handle {handle} is no event channel", EINVAL)
        return self.channels[handle]

    def find(self, handle: int) -> CmId:
        """An id. ``VerbsError`` EINVAL if there is none."""
        if handle not in self.ids:
            raise VerbsError(f"handle {handle} is no rdma_cm_id", EINVAL)
        return self.ids[handle]

    def owns(self, thing: object) -> bool:
        """Whether this session has an id or a channel."""
        if isinstance(thing, CmId):
            return self.ids.get(thing.handle) is thing
        return isinstance(thing, EventChannel) and thing in self.channels.values()

    def check_room(self) -> None:
        """``VerbsError`` ENOMEM if the process has as many ids and channels as it may."""
        if len(self.channels) + len(self.ids) >= MAX_IDS:
            raise VerbsError(f"a process has at most {MAX_IDS} ids and channels", ENOMEM)


class ConnectionService:
    """The connection managers of the devices. ``settings`` are the times and retries of each.

    ``failed`` is called with exceptions of a manager's work; its other work is done.
    """

    def __init__(
        self,
        devices: Sequence[EmulatedDevice],
        resolve: Resolve,
        random: Randomness,
        settings: CMSettings | None = None,
        *,
        failed: Callable[[Exception], None],
    ) -> None:
        self._resolve = resolve
        self._failed = failed
        rules = STANDARD._replace(moves_qps=False)
        self.devices = []
        for index, device in enumerate(devices):
            times = settings or CMSettings(path_mtu=device.mtu, packet_life=_PACKET_LIFE)
            manager = ConnectionManager(device.nic, self._neighbour, random, times, rules=rules)
            manager.failed = failed
            self.devices.append(CmDevice(index, device, manager))
        self._received = [cm_device.manager.gsi.received for cm_device in self.devices]
        self._due: int | None = None
        self._changed = False
        self.table = PortTable()
        self._owners: dict[tuple[int, int], tuple[CmSession, CmId]] = {}
        """The ids of connections, by the number of the device and the communication id."""
        self._sessions: dict[int, CmSession] = {}
        """The sessions of listening ids, by handle."""
        self._next = 1

    def new_handle(self) -> int:
        """Return a handle that was never used."""
        self._next += 1
        return self._next

    def _neighbour(self, gid: bytes) -> bytes | None:
        try:
            return self._resolve(gid)
        except VerbsError:
            return None

    @property
    def connection_count(self) -> int:
        """How many connections have an id."""
        return len(self._owners)

    # The loop.

    def step(self, time: int) -> bool:
        """Handle received messages, timers that are due, and events. Return if there were any."""
        is_due = self._due is not None and self._due <= time
        if not (self._changed or is_due or any(self._received)):
            return False  # nearly always
        self._changed = False
        for cm_device in self.devices:
            self._do(cm_device.manager.handle_timer, time)
            self._do(cm_device.manager.poll, time)
            while (event := cm_device.manager.next_event()) is not None:
                self._do(self._report, cm_device, event)
        times = (cm_device.manager.next_timer() for cm_device in self.devices)
        self._due = min((time for time in times if time is not None), default=None)
        return True

    def _do(self, work: Callable[[*_Arguments], object], *arguments: *_Arguments) -> None:
        """Do work, and report an exception that it raises."""
        try:
            work(*arguments)
        except Exception as error:
            self._failed(error)

    def next_timer(self) -> int | None:
        """When a timer is due (ns), or ``None``."""
        return self._due

    def note_call(self) -> None:
        """Note that a call may have started timers, or caused events."""
        self._changed = True

    # Addresses.

    def device_of(self, gid: bytes) -> CmDevice:
        """The device that has an address, a GID. ``VerbsError`` EADDRNOTAVAIL if there is none."""
        for cm_device in self.devices:
            if gid in cm_device.device.gids:
                return cm_device
        raise VerbsError(f"no device here has the address {gid.hex()}", EADDRNOTAVAIL)

    def local_endpoint(self, wanted: Endpoint) -> Endpoint:
        """``wanted``, with an address of the first device for one that means this host.

        ``VerbsError`` EADDRNOTAVAIL if no device has an address of the family.
        """
        if not (wanted.is_any or wanted.is_loopback):
            return wanted
        found = next((_address(cm_device.device, wanted) for cm_device in self.devices), None)
        if found is None:
            raise VerbsError("no device has an address of the family", EADDRNOTAVAIL)
        return wanted._replace(gid=found)

    def route(self, destination: Endpoint) -> tuple[CmDevice, bytes]:
        """The device and the address from which an unbound id reaches a destination.

        ``VerbsError`` EADDRNOTAVAIL if no device has an address of the family.
        """
        options = [
            (destination.gid in cm_device.device.gids, cm_device, found)
            for cm_device in self.devices
            if (found := _address(cm_device.device, destination)) is not None
        ]
        if not options:
            raise VerbsError("no device has an address of the family", EADDRNOTAVAIL)
        _, cm_device, found = min(options, key=lambda option: option[0])
        return cm_device, found

    def path(self, cm_id: CmId) -> AddressHandle:
        """The path of an id. ``VerbsError`` EHOSTUNREACH if no device has the destination."""
        return self._path_to(cm_id, cm_id.destination.gid)

    def _path_to(self, cm_id: CmId, gid: bytes) -> AddressHandle:
        return AddressHandle(
            self._resolve(gid),
            gid,
            cm_id.source.gid,
            hop_limit=1 if is_multicast(gid) else 64,
            traffic_class=cm_id.traffic_class,
        )

    # Listening.

    def listen(self, session: CmSession, cm_id: CmId, backlog: int) -> None:
        """Report the requests for its port to an id. ``VerbsError`` if another id listens there."""
        self.table.check_listener(cm_id)
        service, datagrams = cm_id.service_id, cm_id.datagrams
        for cm_device in self._served(cm_id):
            if cm_device.manager.listener(service, datagrams=datagrams) is None:
                cm_device.manager.listen(service, datagrams=datagrams, backlog=backlog)
        cm_id.state = IdState.LISTENING
        self._sessions[cm_id.handle] = session

    def _served(self, cm_id: CmId) -> list[CmDevice]:
        return self.devices if cm_id.cm_device is None else [cm_id.cm_device]

    def _stop_listening(self, cm_id: CmId) -> None:
        cm_id.state = IdState.BOUND
        del self._sessions[cm_id.handle]
        others = [
            other
            for other in self.table.listeners(cm_id.space, cm_id.source.port)
            if other.datagrams == cm_id.datagrams
        ]
        for cm_device in self._served(cm_id):
            if not any(other.cm_device in {None, cm_device} for other in others):
                cm_device.manager.stop_listening(cm_id.service_id, datagrams=cm_id.datagrams)

    # Connections.

    def assign_connection(self, session: CmSession, cm_id: CmId, connection: int) -> None:
        """Give a connection of its device to an id, whose channel gets its events."""
        cm_id.connection = connection
        cm_id.state = IdState.CONNECTING
        self._owners[cm_id.need_device().number, connection] = session, cm_id

    def destroy(self, session: CmSession, cm_id: CmId) -> None:
        """Destroy an id; the peer of its connection is notified."""
        handle = cm_id.handle
        if cm_id.state is IdState.LISTENING:
            self._stop_listening(cm_id)
        events = cm_id.channel.of(handle)
        cm_id.channel.remove(events)
        for event in events.values():
            if event.listener:  # a request that the program has not seen
                self.destroy(session, session.find(event.id))
        self.table.release(cm_id)
        if cm_id.connection is not None:
            cm_device = cm_id.need_device()
            del self._owners[cm_device.number, cm_id.connection]
            with suppress(VerbsError):  # the connection is over
                cm_device.manager.destroy(cm_id.connection, now())
        del session.ids[handle]

    def closing(self, session: CmSession) -> Iterator[None]:
        """Destroy all that a process had, one id before each step.

        If that raises exceptions, all other ids are destroyed before the first one is raised.
        """
        failed: list[Exception] = []
        for channel in session.channels.values():
            channel.forget_all()
        while session.ids:  # requests of peers make more ids between two steps
            for cm_id in tuple(session.ids.values()):
                self._destroy_last(session, cm_id, failed)
                yield
        for channel in session.channels.values():
            channel.close()
        if failed:
            raise failed[0]

    def _destroy_last(self, session: CmSession, cm_id: CmId, failed: list[Exception]) -> None:
        """Destroy an id of a process that is gone, unless it was destroyed with its listener."""
        self.note_call()
        if cm_id.handle in session.ids:
            try:
                self.destroy(session, cm_id)
            except Exception as error:
                failed.append(error)
                session.ids.pop(cm_id.handle, None)

    # Events.

    def _report(self, cm_device: CmDevice, event: CMEvent) -> None:
        if isinstance(event, ConnectRequest | DatagramRequest):
            self._request(cm_device, event)
            return
        found = self._owners.get((cm_device.number, event.id))
        if found is None:
            return
        _, cm_id = found
        if isinstance(event, Established) and cm_id.by_hand:
            return  # the program has established it itself: rdma_establish(3)
        cm_id.channel.put(_record(cm_device.device, cm_id, event))

    def _request(self, cm_device: CmDevice, event: ConnectRequest | DatagramRequest) -> None:
        """Make an id for a request, or refuse it if none listens for its address."""
        source, destination = _endpoints(event)
        listener = self._listener(event, source)
        reason = _refusal(listener, event)
        if listener is None or reason is not None:
            cm_device.manager.reject(
                event.id, now(), reason=reason or RejectReason.INVALID_SERVICE_ID
            )
            return
        session = self._sessions[listener.handle]
        cm_id = CmId(self.new_handle(), listener.channel, listener.space, listener.qp_type)
        cm_id.cm_device, cm_id.source, cm_id.destination = cm_device, source, destination
        session.ids[cm_id.handle] = cm_id
        self.assign_connection(session, cm_id, event.id)
        record = _record(cm_device.device, cm_id, event)
        listener.channel.put(record._replace(listener=listener.handle))

    def _listener(self, event: ConnectRequest | DatagramRequest, wanted: Endpoint) -> CmId | None:
        space = PortSpace(event.service_id >> 16)
        datagrams = isinstance(event, DatagramRequest)
        options = [
            cm_id
            for cm_id in self.table.listeners(space, wanted.port)
            if cm_id.datagrams == datagrams and cm_id.serves(wanted)
        ]
        return max(options, key=lambda cm_id: cm_id.serves(wanted), default=None)

    def join(self, cm_id: CmId, group: Endpoint) -> int:
        """Join a multicast group, and report the event.

        No message is sent, not even IGMP, which adapters send for RoCE: the switches of a scenario
        flood groups. ``VerbsError`` ENOMEM for too many groups, EINVAL for another address.
        """
        cm_device = cm_id.need_device()
        if len(cm_id.groups) >= MAX_GROUPS:
            raise VerbsError(f"an id joins at most {MAX_GROUPS} groups", ENOMEM)
        if not is_multicast(group.gid) or group.family != cm_id.source.family:
            raise VerbsError(f"{group.gid.hex()} is no multicast address of the family", EINVAL)
        handle = self.new_handle()
        cm_id.groups[handle] = group.gid
        record = EventRecord(
            CMEventType.MULTICAST_JOIN,
            0,
            cm_id.handle,
            group=handle,
            conn=(*NO_CONN[:-1], _MULTICAST_QPN),
            qkey=MULTICAST_QKEY,
            path=path_words(cm_device.device, self._path_to(cm_id, group.gid)),
        )
        cm_id.channel.put(record)
        return handle

    def check_transport(self, cm_id: CmId) -> None:
        """``VerbsError`` EINVAL for a type of queue pairs that does not request connections."""
        if cm_id.qp_type not in _REQUESTING:
            raise VerbsError(f"{cm_id.qp_type.name} queue pairs request no connections", EINVAL)


def _refusal(listener: CmId | None, event: ConnectRequest | DatagramRequest) -> RejectReason | None:
    """Return why a request is refused, if it is."""
    wanted = event.qp_type if isinstance(event, ConnectRequest) else QPType.UD
    if listener is None:
        return RejectReason.INVALID_SERVICE_ID
    if listener.qp_type is not wanted:
        return RejectReason.INVALID_TRANSPORT_SERVICE_TYPE
    return RejectReason.NO_RESOURCES if listener.channel.is_full else None


def _address(device: EmulatedDevice, like: Endpoint) -> bytes | None:
    """The GID from which the device reaches ``like``: of its family, link-local as it is."""
    own = [gid for gid in device.gids if is_ipv4(gid) == (like.family == IPV4)]
    is_local = like.gid.startswith(_LINK_LOCAL)
    fitting = [gid for gid in own if gid.startswith(_LINK_LOCAL) == is_local]
    return next(iter((*fitting, *own)), None)


def _endpoints(event: ConnectRequest | DatagramRequest) -> tuple[Endpoint, Endpoint]:
    """The address of this side and the peer's. Without an IP header they are those of the path."""
    path, port = event.path, event.service_id & _SERVICE_PORT
    source, destination, its_port = path.sgid, path.dgid, 0
    if event.endpoints is not None:
        source, destination = event.endpoints.destination, event.endpoints.source
        its_port = event.endpoints.source_port
    return _endpoint(source, port), _endpoint(destination, its_port)


def _endpoint(gid: bytes, port: int) -> Endpoint:
    return endpoint(IPV4 if is_ipv4(gid) else IPV6, gid, port)


def _conn(event: ConnectRequest | ConnectResponse) -> tuple[int, ...]:
    """``rdma_conn_param`` of an event."""
    depths = event.responder_resources, event.initiator_depth
    if isinstance(event, ConnectResponse):
        return (*depths, 0, 0, 0, 0, event.remote_qpn)
    retries = event.retry_count, event.rnr_retry_count
    return (*depths, int(event.flow_control), *retries, int(event.srq), event.remote_qpn)


def _of_unreachable(event: Unreachable | Unresolved) -> int:
    return -ETIMEDOUT if isinstance(event, Unreachable) else int(event.status)


_STATUS: Final[dict[type, Callable[..., int]]] = {
    Unreachable: _of_unreachable,
    Unresolved: _of_unreachable,
    Rejected: lambda event: int(event.reason),
    Disconnected: lambda event: -ETIMEDOUT if event.timed_out else 0,
}
"""The status of events, if it is not 0: an errno below zero, or the reason in a message."""


def _record(device: EmulatedDevice, cm_id: CmId, event: CMEvent) -> EventRecord:
    """An event as the library gets it."""
    status = _STATUS[type(event)](event) if type(event) in _STATUS else 0
    record = EventRecord(
        int(event.TYPE), status, cm_id.handle, private_data=getattr(event, "private_data", b"")
    )
    if isinstance(event, ConnectRequest | ConnectResponse):
        return record._replace(conn=_conn(event))
    if isinstance(event, Resolved):
        conn = (*NO_CONN[:-1], event.remote_qpn)
        words = path_words(device, event.path)
        return record._replace(conn=conn, qkey=event.remote_qkey, path=words)
    return record
