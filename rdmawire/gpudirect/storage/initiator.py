"""The host of NVMe over RDMA: it connects the queues, enables the controller, and sends commands.

The steps are those of Linux: Connect of the Admin queue, CAP, CC, CSTS, Identify, the number of
queues, Connect of an I/O queue. Before it disconnects, the host shuts the controller down.
"""

from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final

from rdmawire.errors import TransferError
from rdmawire.fabric import Registered
from rdmawire.gpudirect.storage.capsule import (
    COMMAND_SIZE,
    COMPLETION_SIZE,
    IDENTIFY_SIZE,
    AdminCommand,
    AdminOpcode,
    ConnectCommand,
    ConnectData,
    FabricsType,
    FeatureId,
    IdentifyController,
    IdentifyNamespace,
    IOCommand,
    IOOpcode,
    NvmeCompletion,
    Property,
    PropertyCommand,
    RdmaConnectReject,
    RdmaConnectRequest,
    RejectStatus,
    SglSubtype,
    SglType,
    Status,
    status_name,
)
from rdmawire.gpudirect.storage.controller import ANY_CONTROLLER, SUBSYSTEM
from rdmawire.gpudirect.storage.drive import BLOCK
from rdmawire.gpudirect.storage.host import StorageHost, polled
from rdmawire.gpudirect.storage.registration import CommandRegions
from rdmawire.gpudirect.storage.target import SERVICE
from rdmawire.gpudirect.storage.workload import ABORTED, Finished
from rdmawire.ib.cm import (
    ConnectError,
    ConnParam,
    Disconnected,
    Established,
    Rejected,
    Unreachable,
)
from rdmawire.verbs import RecvWR, SendOpcode, SendWR, Sge, WCOpcode, WCStatus, WorkCompletion
from rdmawire.verbs.ah import AddressHandle
from rdmawire.wire.management import MTU

_ADMIN_DEPTH: Final = 32
"""Entries of the Admin queue: Linux's (NVME_AQ_DEPTH)."""
_ENABLED: Final = 4 << 20 | 6 << 16 | 1
"""CC: entries of 16 and 64 bytes, enabled. Base 3.1.3.5."""
_NORMAL_SHUTDOWN: Final = 1 << 14
_KEEP_ALIVE: Final = 120_000
"""Keep alive timeout (ms) of the Admin queue; no run of virtual time is that long."""
_HOST: Final = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-000000000001"
_MAX_POLLS: Final = 100
"""Most reads of CSTS until the controller is ready."""

Answered = Callable[[Any], None]
"""Function called with what a step waited for."""
SetupStep = Callable[[Answered], None]
"""A step of the setup: it begins something, and has its argument called at the end."""
Steps = Generator[SetupStep, Any, Any]
Capsule = IOCommand | AdminCommand | ConnectCommand | PropertyCommand
Responded = Callable[[NvmeCompletion | None], None]
"""Function called with the response of a command, or with nothing if the connection ended."""


class HostQueue:
    """A queue as the host uses it: a queue pair, and a slot for each command in progress."""

    def __init__(self, host: StorageHost, depth: int) -> None:
        self.depth = depth
        self.qp = host.queue_pair(depth)
        self.connection = 0
        self.is_failed = False
        self._host = host
        self._commands = host.host.buffer(depth * COMMAND_SIZE)
        self._responses = host.host.buffer(depth * COMPLETION_SIZE)
        self._free = deque(range(depth))
        self._waiting: dict[int, Responded] = {}

    def connected(self) -> None:
        """Post the receives: the queue pair is connected."""
        for slot in range(self.depth):
            self._receive(slot)

    def _receive(self, slot: int) -> None:
        sge = self._responses.sge(COMPLETION_SIZE, slot * COMPLETION_SIZE)
        self.qp.post_recv((RecvWR((sge,), wr_id=slot),))

    def submit(
        self,
        command: Capsule,
        responded: Responded,
        data: Sge | None = None,
        before: tuple[SendWR, ...] = (),
    ) -> None:
        """Send a command, with data in the capsule, after other work; a slot is free."""
        if self.is_failed:
            responded(None)
            return
        slot = self._free.popleft()
        self._waiting[slot] = responded
        at = slot * COMMAND_SIZE
        self._commands.write(command.replace(cid=slot).build(), at)
        sges = (self._commands.sge(COMMAND_SIZE, at),) + ((data,) if data else ())
        self._host.post(self.qp, *before, SendWR(SendOpcode.SEND, sges, slot))

    def poll(self) -> bool:
        """Take completions; return whether one failed."""
        for completion in polled(self.qp):
            is_response = completion.opcode is WCOpcode.RECV
            if completion.status is not WCStatus.SUCCESS or (
                is_response and completion.byte_len != COMPLETION_SIZE
            ):
                return True
            if is_response:
                self._host.later(partial(self._response, completion))
        return False

    def _response(self, completion: WorkCompletion) -> None:
        slot = completion.wr_id
        response = NvmeCompletion.parse(
            self._responses.read(COMPLETION_SIZE, slot * COMPLETION_SIZE)
        )
        if self.is_failed or response.cid not in self._waiting:
            return
        self._receive(slot)
        self._free.append(response.cid)
        self._waiting.pop(response.cid)(response)

    def fail(self) -> None:
        """End all commands in progress: the connection has ended."""
        self.is_failed = True
        waiting, self._waiting = self._waiting, {}
        for responded in waiting.values():
            responded(None)


class StorageInitiator:
    """The host: :meth:`start` connects it to a target, and calls ``on_ready`` then.

    ``depth`` is that of the I/O queue. The data of commands is in ``memory``, whose key they have
    without ``regions``; with them, the key of each is its own. ``capsule_data`` is the most data of
    a capsule that the controller takes.
    """

    def __init__(self, host: StorageHost, path: AddressHandle, depth: int, mtu: int) -> None:
        self.host = host
        self.on_ready: Callable[[], None] = _nothing
        self.memory: Registered | None = None
        self.regions: CommandRegions | None = None
        self.capsule_data = 0
        self.is_closed = False
        self._controller = ANY_CONTROLLER
        self._path = path
        self._depth = depth
        self._mtu = MTU.of(mtu)
        self._queues: list[HostQueue] = []
        self._page = host.host.buffer(IDENTIFY_SIZE)
        self._connecting: dict[int, Answered] = {}
        self._steps: Steps = self._setup()
        host.application.on_event = self._handle
        host.application.on_taken.append(self._poll)

    @property
    def io(self) -> HostQueue:
        """The I/O queue."""
        return self._queues[1]

    # Steps.

    def start(self) -> None:
        """Begin the setup."""
        self._go_on(None)

    def close(self) -> None:
        """Shut the controller down, and disconnect."""
        self._steps = self._end()
        self._go_on(None)

    def _go_on(self, value: Any) -> None:
        try:
            step = self._steps.send(value)
        except StopIteration:
            return
        step(self._go_on)

    def _setup(self) -> Steps:
        yield from self._open(0, _ADMIN_DEPTH)
        yield from self._get(Property.CAP)
        yield from self._set(Property.CC, _ENABLED)
        for _ in range(_MAX_POLLS):
            if (yield from self._get(Property.CSTS)) & 1:
                break
        else:
            raise TransferError("the controller does not become ready")
        controller = IdentifyController.parse((yield from self._identify(1, 0)))
        self.capsule_data = controller.ioccsz * 16 - COMMAND_SIZE
        namespace = IdentifyNamespace.parse((yield from self._identify(0, 1)))
        if 1 << namespace.lbads != BLOCK:
            raise TransferError(f"the namespace has blocks of {1 << namespace.lbads} bytes")
        yield from self._admin(
            AdminCommand(
                AdminOpcode.SET_FEATURES, cdw10=FeatureId.NUMBER_OF_QUEUES, sgl_type=_KEYED
            )
        )
        yield from self._open(1, self._depth)
        self.on_ready()

    def _end(self) -> Steps:
        if not self._queues[0].is_failed:
            yield from self._set(Property.CC, _ENABLED | _NORMAL_SHUTDOWN)
        self.is_closed = True
        for queue in reversed(self._queues):
            if queue.connection:
                self.host.manager.disconnect(queue.connection, self.host.simulator.now)
        self.host.wake()

    def _open(self, qid: int, depth: int) -> Steps:
        """Connect a queue: a connection, then the Connect command."""
        queue = HostQueue(self.host, depth)
        private = RdmaConnectRequest(qid=qid, hrqsize=depth, hsqsize=depth - 1)
        queue.connection = yield partial(self._connect, queue, private.build())
        self._queues.append(queue)
        queue.connected()
        self._page.write(_connect_data(self._controller).build())
        command = ConnectCommand(
            **_sgl(self._page, 0, ConnectData.SIZE, in_capsule=bool(qid)),
            qid=qid,
            sqsize=depth - 1,
            kato=0 if qid else _KEEP_ALIVE,
        )
        sent = self._page.sge(ConnectData.SIZE) if qid else None
        response = yield from self._send(queue, command, sent)
        self._controller = response.result & 0xFFFF

    def _connect(self, queue: HostQueue, private: bytes, answered: Answered) -> None:
        manager, now = self.host.manager, self.host.simulator.now
        param = ConnParam(private, path_mtu=self._mtu)
        number = manager.connect(queue.qp, self._path, SERVICE, now, param)
        self._connecting[number] = answered
        self.host.wake()

    def _get(self, which: Property) -> Steps:
        command = PropertyCommand(
            fctype=FabricsType.PROPERTY_GET, size=int(which is Property.CAP), offset=which
        )
        return (yield from self._admin(command)).result

    def _set(self, which: Property, value: int) -> Steps:
        command = PropertyCommand(fctype=FabricsType.PROPERTY_SET, offset=which, value=value)
        yield from self._admin(command)

    def _identify(self, kind: int, nsid: int) -> Steps:
        sgl = _sgl(self._page, 0, IDENTIFY_SIZE)
        yield from self._admin(AdminCommand(AdminOpcode.IDENTIFY, nsid=nsid, cdw10=kind, **sgl))
        return self._page.read(IDENTIFY_SIZE)

    def _admin(self, command: AdminCommand | PropertyCommand) -> Steps:
        return (yield from self._send(self._queues[0], command))

    def _send(self, queue: HostQueue, command: Capsule, data: Sge | None = None) -> Steps:
        """Send a command and wait for its response; :class:`TransferError` if it fails."""
        response = yield lambda answered: queue.submit(command, answered, data)
        name = type(command).__name__
        if response is None:
            raise TransferError(f"{name}: the connection ended before its response")
        if response.status != Status.SUCCESS:
            raise TransferError(f"{name}: {status_name(response.status)}")
        return response

    # Commands of the workload.

    def submit(self, slot: int, command: IOCommand, offset: int, finished: Finished) -> None:
        """Send a READ or WRITE of a slot, whose data is at an offset of the memory."""
        assert self.memory is not None
        is_write = command.opcode == IOOpcode.WRITE
        in_capsule = is_write and command.length <= self.capsule_data
        if self.regions is not None and not in_capsule:
            work, command = self.regions.register(slot, command, offset)
            self.io.submit(command, partial(self._invalidated, slot, finished), before=(work,))
            return
        sgl = _sgl(self.memory, offset, command.length, in_capsule=in_capsule)
        data = self.memory.sge(command.length, offset) if in_capsule else None
        self.io.submit(command.replace(**sgl), partial(_responded, finished), data)

    def _invalidated(self, slot: int, finished: Finished, response: NvmeCompletion | None) -> None:
        if response is not None and self.regions is not None:
            self.regions.check(slot)
        _responded(finished, response)

    # Events.

    def _handle(self, event: object) -> None:
        if isinstance(event, Established):
            answered = self._connecting.pop(event.id)
            self.host.later(partial(answered, event.id))
        elif isinstance(event, Rejected):
            status = RdmaConnectReject.parse(event.private_data).sts
            reason = _REJECTIONS.get(status, str(event.reason))
            raise TransferError(f"the target rejects the connection: {reason}")
        elif isinstance(event, Unreachable | ConnectError):
            raise TransferError("the target does not answer")
        elif isinstance(event, Disconnected):
            self._disconnected(event)

    def _disconnected(self, event: Disconnected) -> None:
        for queue in self._queues:
            if queue.connection == event.id and not self.is_closed:
                queue.connection = 0
                self.host.manager.disconnect(event.id, self.host.simulator.now)
                queue.fail()

    def _poll(self, _frame: bytes, _now: int) -> None:
        for queue in self._queues:
            if queue.poll() and not queue.is_failed and not self.is_closed:
                self.host.later(queue.fail)


def _connect_data(controller: int) -> ConnectData:
    """Return the data of Connect for a controller's id."""
    return ConnectData(
        hostid=bytes(15) + b"\1",
        cntlid=controller,
        subnqn=SUBSYSTEM.encode().ljust(256, b"\0"),
        hostnqn=_HOST.encode().ljust(256, b"\0"),
    )


def _responded(finished: Finished, response: NvmeCompletion | None) -> None:
    finished(ABORTED if response is None else status_name(response.status))


_REJECTIONS: Final = {reason.value: reason.name for reason in RejectStatus}
_KEYED: Final = SglType.KEYED_DATA_BLOCK


def _sgl(memory: Registered, offset: int, size: int, *, in_capsule: bool = False) -> dict[str, int]:
    """Return the SGL descriptor of memory, or of data in the capsule."""
    if in_capsule:
        return {
            "length": size,
            "sgl_type": SglType.DATA_BLOCK,
            "sgl_subtype": SglSubtype.OFFSET,
        }
    address = memory.address + offset
    return {"address": address, "length": size, "key": memory.rkey, "sgl_type": _KEYED}


def _nothing() -> None:
    """Do nothing when the queues are connected."""
