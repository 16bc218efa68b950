"""The calls of the connection manager: what each request of librdmacm does."""

from collections.abc import Callable
from contextlib import suppress
from errno import EINVAL, EISCONN, EMFILE, ENODATA, ENOSYS
from struct import Struct
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


def _private_data(length: int, words: tuple[int, ...]) -> bytes:
    """Private data as a call has it. ``VerbsError`` EINVAL for a length that cannot be."""
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
        handle = self._service.handle()
        self._session.channels[handle] = channel
        return Reply((handle,), (channel.take_read_end(),))

    def cm_destroy_channel(self, channel: int) -> Reply:
        found = self._session.channel(channel)
        if any(one.channel is found for one in self._session.ids.values()):
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
        one = CmId(self._service.handle(), found, PortSpace(port_space), QPType(qp_type))
        self._session.ids[one.handle] = one
        return Reply((one.handle,))

    def cm_destroy_id(self, number: int) -> Reply:
        self._service.destroy(self._session, self._session.find(number))
        return NO_VALUES

    def cm_migrate_id(self, number: int, channel: int) -> Reply:
        """Move an id and its events to another channel."""
        one, to = self._session.find(number), self._session.channel(channel)
        before, one.channel = one.channel, to
        for event in before.remove(lambda event: number == (event.listener or event.id)):
            to.put(event)
        return NO_VALUES

    def cm_get_event(self, channel: int) -> Reply:
        event = self._session.channel(channel).take()
        if event is None:
            raise VerbsError(f"channel {channel} has no event", ENODATA)
        return Reply(event.words())

    def cm_set_option(self, number: int, level: int, option: int, value: int) -> Reply:
        one = self._session.find(number)
        if level != _ID_LEVEL:
            raise VerbsError(f"options of level {level} are not supported", ENOSYS)
        if option == _TOS:
            one.traffic_class = _checked("tos", value, _MAX_TOS)
        elif option == _REUSEADDR:
            one.need(IdState.IDLE)
            one.reuse = bool(value)
        elif option == _AFONLY:
            one.need(IdState.IDLE, IdState.BOUND)
            one.afonly = bool(value)
        elif option == _ACK_TIMEOUT:
            one.ack_timeout = _checked("ACK timeout", value, _MAX_EXPONENT)
        else:
            raise VerbsError(f"option {option} is unknown", ENOSYS)
        return NO_VALUES

    # Addresses.

    def cm_bind(self, number: int, family: int, gid0: int, gid1: int, port: int) -> Reply:
        one = self._session.find(number)
        one.need(IdState.IDLE)
        self._bind(one, endpoint(family, gid_of(gid0, gid1), port))
        one.state = IdState.BOUND
        return NO_VALUES

    def _bind(self, one: CmId, source: Endpoint) -> None:
        """Bind to an address of a device, or to that of none."""
        port = None
        if not source.is_any:
            source = self._service.own(source)
            port = self._service.port_of(source.gid)
        self._service.table.bind(one, source)
        one.port = port

    def cm_query(self, number: int) -> Reply:
        one = self._session.find(number)
        device, pkey, mtu = 0, 0, 0
        if one.port is not None:
            nic = one.port.device.nic
            device, pkey, mtu = one.port.number + 1, nic.query_pkey(1, 0), int(one.port.device.mtu)
        source, destination = one.source, one.destination
        addresses = (
            word
            for end in (source, destination)
            for word in (end.family, *gid_words(end.gid), end.port)
        )
        return Reply((device, *addresses, pkey, mtu, one.traffic_class, _HOPS))

    def cm_resolve_addr(  # noqa: PLR0917  as the protocol has them
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
        one = self._session.find(number)
        one.need(IdState.IDLE, IdState.BOUND, IdState.ADDR_RESOLVED)
        one.check_room()
        destination = endpoint(dst_family, gid_of(dst0, dst1), dst_port)
        if src_family and one.state is IdState.IDLE:
            self._bind(one, endpoint(src_family, gid_of(src0, src1), src_port))
            one.state = IdState.BOUND
        if one.source.family not in {0, dst_family}:
            raise VerbsError("source and destination are of different families", EINVAL)
        try:
            self._resolve(one, destination)
        except VerbsError as error:
            one.report(CMEventType.ADDR_ERROR, -error.errno)
        else:
            one.state = IdState.ADDR_RESOLVED
            one.report(CMEventType.ADDR_RESOLVED)
        return NO_VALUES

    def _resolve(self, one: CmId, wanted: Endpoint) -> None:
        """Find the device, source address and neighbour for a destination."""
        service = self._service
        destination = service.own(wanted)
        port, gid = one.port, one.source.gid
        if port is None:
            here = destination.gid != wanted.gid
            port, gid = service.route(destination)
            if here:
                port, gid = service.port_of(destination.gid), destination.gid
        port.device.resolve(destination.gid)
        if one.state is IdState.IDLE:
            service.table.bind(one, Endpoint(destination.family, gid, 0))
        else:
            one.source = one.source._replace(gid=gid)
        one.port, one.destination = port, destination

    def cm_resolve_route(self, number: int) -> Reply:
        one = self._session.find(number)
        one.need(IdState.ADDR_RESOLVED)
        one.state = IdState.ROUTE_RESOLVED
        one.report(CMEventType.ROUTE_RESOLVED)
        return NO_VALUES

    # Connections.

    def cm_connect(self, number: int, *words: int) -> Reply:
        one = self._session.find(number)
        one.need(IdState.ROUTE_RESOLVED)
        self._service.check_transport(one)
        port = one.need_port()
        param, qp = self._param(one, words)
        connection = port.manager.connect(
            qp,
            self._service.path(one),
            one.space << 16 | one.destination.port,
            now(),
            param._replace(path_mtu=port.device.mtu),
            source_port=one.source.port,
            by_hand=True,
        )
        one.by_hand = True
        self._service.own_connection(self._session, one, connection)
        return NO_VALUES

    def _param(self, one: CmId, words: tuple[int, ...]) -> tuple[ConnParam, QueuePair | OwnersQP]:
        """The parameters of a side, and its queue pair, which need not be one of the device."""
        conn = dict(zip(CONN_PARAM, words, strict=False))
        length, *private = words[len(CONN_PARAM) :]
        qp_num = conn.pop("qp_num")
        qps = one.need_port().device.nic.device.qps
        qp = qps.get(qp_num) or OwnersQP(qp_num, one.qp_type)
        data = _private_data(length, tuple(private))
        flags = {name: bool(conn.pop(name)) for name in ("flow_control", "srq")}
        return ConnParam(data, timeout=one.ack_timeout, **conn, **flags), qp  # type: ignore[arg-type]

    def cm_listen(self, number: int, backlog: int) -> Reply:
        one = self._session.find(number)
        one.need(IdState.IDLE, IdState.BOUND)
        if one.state is IdState.IDLE:
            self._service.table.bind(one, any_address(IPV4))
            one.state = IdState.BOUND
        most = min(backlog or _DEFAULT_BACKLOG, _MAX_BACKLOG)
        self._service.listen(self._session, one, most)
        return NO_VALUES

    def _connection(self, number: int) -> tuple[CmId, int]:
        """An id with a connection. ``VerbsError`` EINVAL without one."""
        one = self._session.find(number)
        if one.connection is None:
            raise VerbsError(f"id {number} has no connection", EINVAL)
        return one, one.connection

    def cm_accept(self, number: int, *words: int) -> Reply:
        one, connection = self._connection(number)
        param, qp = self._param(one, words)
        one.need_port().manager.accept(connection, qp, now(), param)
        return NO_VALUES

    def cm_reject(self, number: int, reason: int, length: int, *words: int) -> Reply:
        one, connection = self._connection(number)
        code = RejectReason(reason) if reason in {*RejectReason} else RejectReason.CONSUMER_REJECT
        data = _private_data(length, words)
        one.need_port().manager.reject(connection, now(), data, code)
        return NO_VALUES

    def cm_establish(self, number: int) -> Reply:
        one, connection = self._connection(number)
        one.need_port().manager.establish(connection, now())
        return NO_VALUES

    def cm_disconnect(self, number: int) -> Reply:
        """End a connection. As with Linux, one that is over already is no error."""
        one, connection = self._connection(number)
        with suppress(VerbsError):
            one.need_port().manager.disconnect(connection, now())
        return NO_VALUES

    def cm_notify(self, number: int, event: int) -> Reply:
        one, connection = self._connection(number)
        if event != _COMM_EST:
            raise VerbsError(f"event {event} says nothing to a connection", EINVAL)
        manager = one.need_port().manager
        if manager.is_established(connection):
            raise VerbsError(f"id {number} is established", EISCONN)
        manager.notify(connection, now())
        return NO_VALUES

    def cm_init_qp_attr(self, number: int, qp_state: int) -> Reply:
        """The attributes of a queue pair for a state: rdma_init_qp_attr(3)."""
        one = self._session.find(number)
        state = QPState(qp_state) if qp_state in QPState._value2member_map_ else QPState.ERR
        if state not in _BEFORE:
            raise VerbsError(f"there are no attributes for state {qp_state}", EINVAL)
        needs = QP_TRANSITIONS[one.qp_type, _BEFORE[state], state].required
        attributes = self._attributes(one, state)._replace(qp_state=state)
        mask = int(needs | QPAttrMask.STATE)
        return Reply((mask, *qp_words(one.need_port().device, attributes)))

    def _attributes(self, one: CmId, state: QPState) -> QPAttributes:
        """Those of its connection; before that, those of INIT alone are known."""
        port = one.need_port()
        if one.datagrams:
            return QPAttributes(qkey=MULTICAST_QKEY)
        try:
            if one.connection is None:
                raise VerbsError(f"id {one.handle} has no connection yet", EINVAL)
            found = port.manager.qp_attributes(one.connection)
        except VerbsError:
            if state is QPState.INIT:
                return QPAttributes()
            raise
        return found if one.ack_timeout is None else found._replace(timeout=one.ack_timeout)

    # Multicast.

    def cm_join(self, number: int, family: int, gid0: int, gid1: int) -> Reply:
        one = self._session.find(number)
        one.check_room()
        group = endpoint(family, gid_of(gid0, gid1), 0)
        return Reply((self._service.join(one, group),))

    def cm_leave(self, number: int, group: int) -> Reply:
        one = self._session.find(number)
        if one.groups.pop(group, None) is None:
            raise VerbsError(f"id {number} is in no group {group}", EINVAL)
        one.channel.remove(lambda event: event.group == group)
        return NO_VALUES


def _checked(name: str, value: int, most: int) -> int:
    if value > most:
        raise VerbsError(f"{name} {value}: at most {most}", EINVAL)
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
