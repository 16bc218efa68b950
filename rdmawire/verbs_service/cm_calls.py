"""The calls of the connection manager: what each request of librdmacm does."""

from collections.abc import Callable
from contextlib import suppress
from errno import EINVAL, EISCONN, EMFILE, ENODATA, ENOSYS
from struct import Struct
from sys import byteorder
from typing import Final

from rdmawire.errors import VerbsError
from rdmawire.ib import QueuePair
from rdmawire.ib.cm import CMEventType, ConnParam, OwnersQP, PortSpace
from rdmawire.live import now
from rdmawire.verbs import QPAttributes, QPAttrMask, QPState, QPType
from rdmawire.verbs.qp_attr import QP_TRANSITIONS
from rdmawire.verbs_service.attributes import gid_of, gid_words, qp_words
from rdmawire.verbs_service.cm import MULTICAST_QKEY, CmSession, ConnectionService
from rdmawire.verbs_service.cm_id import (
    IPV4,
    CmId,
    Endpoint,
    EventChannel,
    EventRecord,
    IdState,
    any_address,
    endpoint,
)
from rdmawire.verbs_service.connection import NO_VALUES, Reply
from rdmawire.verbs_service.protocol import CALLS, CONN_PARAM, MAX_PRIVATE_DATA
from rdmawire.wire.cm import RejectReason

PREFIX: Final = "cm_"
"""How the names of these calls begin."""

_WORDS: Final = Struct(f"={MAX_PRIVATE_DATA // 8}Q")
_DEFAULT_BACKLOG, _MAX_BACKLOG = 1024, 1024
_ID_LEVEL: Final = 0
_TOS, _REUSEADDR, _AFONLY, _ACK_TIMEOUT = range(4)
_MAX_TOS, _MAX_EXPONENT = 0xFF, 31
_COMM_EST: Final = 4
"""IBV_EVENT_COMM_EST."""
_HOPS: Final = 64
_WRITTEN: Final = range(16, 19)
"""Events that programs and the library write: ADDRINFO_RESOLVED, ADDRINFO_ERROR, USER."""


def _private_data(length: int, words: tuple[int, ...]) -> bytes:
    """The first ``length`` bytes of the words. ``VerbsError`` EINVAL if that is too long."""
    if length > MAX_PRIVATE_DATA:
        raise VerbsError(f"private data of {length} bytes: at most {MAX_PRIVATE_DATA}", EINVAL)
    return _WORDS.pack(*words)[:length]


class ConnectionCalls:
    """The calls of one process, with the names and arguments that the protocol has."""

    def __init__(self, service: ConnectionService, session: CmSession) -> None:
        self._service = service
        self._session = session

    def perform(self, number: int, arguments: tuple[int, ...]) -> Reply:
        """Do a call. ``VerbsError`` if it is refused."""
        self._service.note_call()
        try:
            return _HANDLERS[number](self, *arguments)
        except OSError as error:
            raise VerbsError(f"no descriptors left: {error}", EMFILE) from error

    # Channels and ids.

    def cm_create_channel(self) -> Reply:
        self._session.check_room()
        channel = EventChannel()
        handle = self._service.new_handle()
        self._session.channels[handle] = channel
        return Reply((handle,), (channel.take_read_end(),))

    def cm_destroy_channel(self, channel: int) -> Reply:
        found = self._session.channel(channel)
        if any(cm_id.channel is found for cm_id in self._session.ids.values()):
            raise VerbsError(f"channel {channel} has ids", EINVAL)
        del self._session.channels[channel]
        found.close()
        return NO_VALUES

    def cm_create_id(self, channel: int, port_space: int, qp_type: int) -> Reply:
        self._session.check_room()
        found = self._session.channel(channel)
        if (
            port_space not in PortSpace._value2member_map_
            or qp_type not in QPType._value2member_map_
        ):
            raise VerbsError(f"port space {port_space:#x}, qp_type {qp_type}: unknown", EINVAL)
        cm_id = CmId(self._service.new_handle(), found, PortSpace(port_space), QPType(qp_type))
        self._session.ids[cm_id.handle] = cm_id
        return Reply((cm_id.handle,))

    def cm_destroy_id(self, number: int) -> Reply:
        self._service.destroy(self._session, self._session.find(number))
        return NO_VALUES

    def cm_migrate_id(self, number: int, channel: int) -> Reply:
        """Move an id and its events to another channel."""
        cm_id, to = self._session.find(number), self._session.channel(channel)
        before = cm_id.channel
        if to is not before:
            events = before.of(number)
            moved = {
                one: event
                for one, event in events.items()
                if (event.listener or event.id) == number
            }
            to.check_room(len(moved))
            cm_id.channel = to
            before.remove(moved)
            for event in moved.values():
                to.put(event)
        return NO_VALUES

    def cm_get_event(self, channel: int) -> Reply:
        event = self._session.channel(channel).take()
        if event is None:
            raise VerbsError(f"channel {channel} has no event", ENODATA)
        return Reply(event.words())

    def cm_set_option(self, number: int, level: int, option: int, value: int) -> Reply:
        cm_id = self._session.find(number)
        if level != _ID_LEVEL:
            raise VerbsError(f"options of level {level} are not supported", ENOSYS)
        if option == _TOS:
            cm_id.traffic_class = _checked("tos", value, _MAX_TOS)
        elif option == _REUSEADDR:
            cm_id.need(IdState.IDLE)
            cm_id.reuse = bool(value)
        elif option == _AFONLY:
            cm_id.need(IdState.IDLE, IdState.BOUND)
            cm_id.afonly = bool(value)
        elif option == _ACK_TIMEOUT:
            cm_id.ack_timeout = _checked("ACK timeout", value, _MAX_EXPONENT)
        else:
            raise VerbsError(f"option {option} is unknown", ENOSYS)
        return NO_VALUES

    # Addresses.

    def cm_bind(self, number: int, family: int, gid0: int, gid1: int, port: int) -> Reply:
        cm_id = self._session.find(number)
        cm_id.need(IdState.IDLE)
        self._bind(cm_id, endpoint(family, gid_of(gid0, gid1), port))
        cm_id.state = IdState.BOUND
        return NO_VALUES

    def _bind(self, cm_id: CmId, source: Endpoint) -> None:
        """Bind to an address of a device, or to the unspecified address, of no device."""
        cm_device = None
        if not source.is_any:
            source = self._service.local_endpoint(source)
            cm_device = self._service.device_of(source.gid)
        self._service.table.bind(cm_id, source)
        cm_id.cm_device = cm_device

    def cm_query(self, number: int) -> Reply:
        cm_id = self._session.find(number)
        device, pkey, mtu = 0, 0, 0
        if cm_id.cm_device is not None:
            found = cm_id.cm_device.device
            pkey, mtu = found.nic.query_pkey(1, 0), int(found.mtu)
            device = cm_id.cm_device.number + 1
        source, destination = cm_id.source, cm_id.destination
        addresses = (
            word
            for end in (source, destination)
            for word in (end.family, *gid_words(end.gid), end.port)
        )
        return Reply((device, *addresses, pkey, mtu, cm_id.traffic_class, _HOPS))

    def cm_resolve_addr(  # noqa: PLR0917  the arguments of the protocol
        self,
        number: int,
        src_family: int,
        src0: int,
        src1: int,
        src_port: int,
        dst_family: int,
        dst0: int,
        dst1: int,
        dst_port: int,
    ) -> Reply:
        cm_id = self._session.find(number)
        cm_id.need(IdState.IDLE, IdState.BOUND, IdState.ADDR_RESOLVED)
        cm_id.check_room()
        destination = endpoint(dst_family, gid_of(dst0, dst1), dst_port)
        if src_family and cm_id.state is IdState.IDLE:
            self._bind(cm_id, endpoint(src_family, gid_of(src0, src1), src_port))
            cm_id.state = IdState.BOUND
        if cm_id.source.family not in {0, dst_family}:
            raise VerbsError("source and destination are of different families", EINVAL)
        try:
            self._resolve(cm_id, destination)
        except VerbsError as error:
            cm_id.report_failure(CMEventType.ADDR_ERROR, error)
        else:
            cm_id.state = IdState.ADDR_RESOLVED
            cm_id.report(CMEventType.ADDR_RESOLVED)
        return NO_VALUES

    def _resolve(self, cm_id: CmId, wanted: Endpoint) -> None:
        """Find the device, source address and neighbour for a destination."""
        service = self._service
        destination = service.local_endpoint(wanted)
        cm_device, gid = cm_id.cm_device, cm_id.source.gid
        if cm_device is None:
            if destination.gid != wanted.gid:  # an address of this host
                cm_device, gid = service.device_of(destination.gid), destination.gid
            else:
                cm_device, gid = service.route(destination)
        cm_device.device.resolve(destination.gid)
        if cm_id.state is IdState.IDLE:
            service.table.bind(cm_id, Endpoint(destination.family, gid, 0))
        else:
            cm_id.source = cm_id.source._replace(gid=gid)
        cm_id.cm_device, cm_id.destination = cm_device, destination

    def cm_resolve_route(self, number: int) -> Reply:
        cm_id = self._session.find(number)
        cm_id.need(IdState.ADDR_RESOLVED)
        cm_id.check_room()
        cm_id.state = IdState.ROUTE_RESOLVED
        cm_id.report(CMEventType.ROUTE_RESOLVED)
        return NO_VALUES

    # Connections.

    def cm_connect(self, number: int, *words: int) -> Reply:
        cm_id = self._session.find(number)
        cm_id.need(IdState.ROUTE_RESOLVED)
        self._service.check_transport(cm_id)
        cm_device = cm_id.need_device()
        param, qp = self._param(cm_id, words)
        connection = cm_device.manager.connect(
            qp,
            self._service.path(cm_id),
            cm_id.space << 16 | cm_id.destination.port,
            now(),
            param._replace(path_mtu=cm_device.device.mtu),
            source_port=cm_id.source.port,
            by_hand=True,
        )
        cm_id.by_hand = True
        self._service.assign_connection(self._session, cm_id, connection)
        return NO_VALUES

    def _param(self, cm_id: CmId, words: tuple[int, ...]) -> tuple[ConnParam, QueuePair | OwnersQP]:
        """The parameters of one side, and its queue pair, which may be of another device."""
        conn = dict(zip(CONN_PARAM, words, strict=False))
        length, *private = words[len(CONN_PARAM) :]
        qp_num = conn.pop("qp_num")
        qps = cm_id.need_device().device.nic.device.qps
        qp = qps.get(qp_num) or OwnersQP(qp_num, cm_id.qp_type)
        data = _private_data(length, tuple(private))
        flags = {name: bool(conn.pop(name)) for name in ("flow_control", "srq")}
        return ConnParam(data, timeout=cm_id.ack_timeout, **conn, **flags), qp  # type: ignore[arg-type]

    def cm_listen(self, number: int, backlog: int) -> Reply:
        cm_id = self._session.find(number)
        cm_id.need(IdState.IDLE, IdState.BOUND)
        if cm_id.state is IdState.IDLE:
            self._service.table.bind(cm_id, any_address(IPV4))
            cm_id.state = IdState.BOUND
        limit = min(backlog or _DEFAULT_BACKLOG, _MAX_BACKLOG)
        self._service.listen(self._session, cm_id, limit)
        return NO_VALUES

    def _connection(self, number: int) -> tuple[CmId, int]:
        """An id with a connection. ``VerbsError`` EINVAL if it has none."""
        cm_id = self._session.find(number)
        if cm_id.connection is None:
            raise VerbsError(f"id {number} has no connection", EINVAL)
        return cm_id, cm_id.connection

    def cm_accept(self, number: int, *words: int) -> Reply:
        cm_id, connection = self._connection(number)
        param, qp = self._param(cm_id, words)
        cm_id.need_device().manager.accept(connection, qp, now(), param)
        return NO_VALUES

    def cm_reject(self, number: int, reason: int, length: int, *words: int) -> Reply:
        cm_id, connection = self._connection(number)
        code = RejectReason(reason) if reason in {*RejectReason} else RejectReason.CONSUMER_REJECT
        data = _private_data(length, words)
        cm_id.need_device().manager.reject(connection, now(), data, code)
        return NO_VALUES

    def cm_establish(self, number: int) -> Reply:
        cm_id, connection = self._connection(number)
        cm_id.need_device().manager.establish(connection, now())
        return NO_VALUES

    def cm_disconnect(self, number: int) -> Reply:
        """End a connection. As with Linux, one that is over already is no error."""
        cm_id, connection = self._connection(number)
        with suppress(VerbsError):
            cm_id.need_device().manager.disconnect(connection, now())
        return NO_VALUES

    def cm_notify(self, number: int, event: int) -> Reply:
        cm_id, connection = self._connection(number)
        if event != _COMM_EST:
            raise VerbsError(f"event {event}: only COMM_EST concerns a connection", EINVAL)
        manager = cm_id.need_device().manager
        if manager.is_established(connection):
            raise VerbsError(f"id {number} is established", EISCONN)
        manager.notify(connection, now())
        return NO_VALUES

    def cm_init_qp_attr(self, number: int, qp_state: int) -> Reply:
        """The attributes of a queue pair for a state: rdma_init_qp_attr(3)."""
        cm_id = self._session.find(number)
        state = QPState(qp_state) if qp_state in QPState._value2member_map_ else QPState.ERR
        if state not in _BEFORE:
            raise VerbsError(f"there are no attributes for state {qp_state}", EINVAL)
        needs = QP_TRANSITIONS[cm_id.qp_type, _BEFORE[state], state].required
        attributes = self._attributes(cm_id, state)._replace(qp_state=state)
        mask = int(needs | QPAttrMask.STATE)
        return Reply((mask, *qp_words(cm_id.need_device().device, attributes)))

    def _attributes(self, cm_id: CmId, state: QPState) -> QPAttributes:
        """The attributes of its connection; without one only those of INIT are known."""
        cm_device = cm_id.need_device()
        if cm_id.datagrams:
            return QPAttributes(qkey=MULTICAST_QKEY)
        try:
            if cm_id.connection is None:
                raise VerbsError(f"id {cm_id.handle} has no connection yet", EINVAL)
            found = cm_device.manager.qp_attributes(cm_id.connection)
        except VerbsError:
            if state is QPState.INIT:
                return QPAttributes()
            raise
        return found if cm_id.ack_timeout is None else found._replace(timeout=cm_id.ack_timeout)

    def cm_write_event(self, number: int, event: int, status: int, argument: int) -> Reply:
        """Report an event of the program itself: rdma_write_cm_event(3)."""
        cm_id = self._session.find(number)
        cm_id.check_room()
        if event not in _WRITTEN:
            raise VerbsError(f"event {event}: programs write RDMA_CM_EVENT_USER", EINVAL)
        data = argument.to_bytes(8, byteorder)
        cm_id.channel.put(EventRecord(event, status, number, private_data=data))
        return NO_VALUES

    # Multicast.

    def cm_join(self, number: int, family: int, gid0: int, gid1: int) -> Reply:
        cm_id = self._session.find(number)
        cm_id.check_room()
        group = endpoint(family, gid_of(gid0, gid1), 0)
        return Reply((self._service.join(cm_id, group),))

    def cm_leave(self, number: int, group: int) -> Reply:
        cm_id = self._session.find(number)
        if cm_id.groups.pop(group, None) is None:
            raise VerbsError(f"id {number} is in no group {group}", EINVAL)
        cm_id.channel.remove(cm_id.channel.of(group))
        return NO_VALUES


def _checked(name: str, value: int, maximum: int) -> int:
    if value > maximum:
        raise VerbsError(f"{name} {value}: at most {maximum}", EINVAL)
    return value


_BEFORE: Final = {
    QPState.INIT: QPState.RESET,
    QPState.RTR: QPState.INIT,
    QPState.RTS: QPState.RTR,
}
"""The states for which there are attributes, and those before them."""

_HANDLERS: Final[dict[int, Callable[..., Reply]]] = {
    call.number: getattr(ConnectionCalls, call.name)
    for call in CALLS
    if call.name.startswith(PREFIX)
}
"""Methods to call with the arguments of a request, by the call's number."""
