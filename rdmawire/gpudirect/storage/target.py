"""The target of NVMe over RDMA: queues of a controller, each a queue pair, and a drive behind them.

A READ is executed by the drive into host memory, and its data goes to the host by RDMA WRITE
before the response; the data of a WRITE is in the capsule, or comes by RDMA READ.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from rdmawire.gpudirect.storage.capsule import (
    COMMAND_SIZE,
    COMPLETION_SIZE,
    PORT,
    AdminCommand,
    ConnectCommand,
    ConnectData,
    IOCommand,
    IOOpcode,
    NvmeCompletion,
    RdmaConnectAccept,
    RdmaConnectReject,
    RdmaConnectRequest,
    RejectStatus,
    SglSubtype,
    SglType,
    Status,
    parse_command,
)
from rdmawire.gpudirect.storage.controller import (
    MAX_ENTRIES,
    MAX_QUEUES,
    CommandResult,
    Controller,
)
from rdmawire.gpudirect.storage.drive import Drive, size_of
from rdmawire.gpudirect.storage.host import StorageHost, polled
from rdmawire.ib.cm import (
    ConnectRequest,
    ConnParam,
    Disconnected,
    PortSpace,
    service_id,
)
from rdmawire.topology import BusRoute
from rdmawire.verbs import RecvWR, SendOpcode, SendWR, WCOpcode, WCStatus, WorkCompletion
from rdmawire.wire.management import MTU

CAPSULE_DATA: Final = 4096
"""Most bytes of data in a command capsule: Linux's default (inline_data_size)."""
SERVICE: Final = service_id(PortSpace.TCP, PORT)
_Command = AdminCommand | IOCommand | ConnectCommand


class StorageTarget:
    """A subsystem at port 4420 of a host. ``errors`` are the failures of its RDMA work.

    ``route`` is that of the drive's DMA to host memory.
    """

    def __init__(
        self, host: StorageHost, drive: Drive, route: BusRoute, mtu: int, max_transfer: int
    ) -> None:
        self.host = host
        self.drive = drive
        self.route = route
        self.controller = Controller(drive.namespace, CAPSULE_DATA)
        self.errors: list[str] = []
        self.max_transfer = max_transfer
        self._mtu = MTU.of(mtu)
        self._queues: dict[int, _TargetQueue] = {}
        host.manager.listen(SERVICE)
        host.application.on_event = self._handle
        host.application.on_taken.append(self._poll)

    def _handle(self, event: object) -> None:
        if isinstance(event, ConnectRequest):
            self._accept(event)
        elif isinstance(event, Disconnected) and event.id in self._queues:
            del self._queues[event.id]
            self.host.manager.disconnect(event.id, self.host.simulator.now)

    def _accept(self, request: ConnectRequest) -> None:
        now = self.host.simulator.now
        wanted = RdmaConnectRequest.parse(request.private_data)
        reason = _refusal(wanted)
        if reason is not None:
            data = RdmaConnectReject(sts=reason).build()
            self.host.manager.reject(request.id, now, data)
            return
        queue = _TargetQueue(self, wanted.qid, wanted.hsqsize + 1)
        self._queues[request.id] = queue
        answer = RdmaConnectAccept(crqsize=queue.depth).build()
        self.host.manager.accept(request.id, queue.qp, now, ConnParam(answer, path_mtu=self._mtu))
        queue.connected()

    def _poll(self, _frame: bytes, _now: int) -> None:
        for number, queue in list(self._queues.items()):
            for completion in polled(queue.qp):
                reason = _failure(completion)
                if reason is None:
                    self.host.later(partial(queue.completed, completion))
                elif completion.status is not WCStatus.WR_FLUSH_ERR:
                    self._fail(number, f"{queue.work_of(completion.wr_id)}: {reason}")
                    break

    def _fail(self, number: int, reason: str) -> None:
        """Note why work failed, and end the connection."""
        self.errors.append(reason)
        del self._queues[number]
        self.host.manager.disconnect(number, self.host.simulator.now)


def _failure(completion: WorkCompletion) -> str | None:
    """Return what is wrong with a completion; a capsule has a command at least."""
    if completion.status is not WCStatus.SUCCESS:
        return completion.status.name
    if completion.opcode is WCOpcode.RECV and completion.byte_len < COMMAND_SIZE:
        return f"a capsule of {completion.byte_len} bytes"
    return None


def _refusal(wanted: RdmaConnectRequest) -> RejectStatus | None:
    """Return why a connection is rejected, if it is."""
    if wanted.recfmt:
        return RejectStatus.INVALID_RECFMT
    if wanted.qid > MAX_QUEUES:
        return RejectStatus.INVALID_QID
    if not 0 < wanted.hsqsize < MAX_ENTRIES:
        return RejectStatus.INVALID_HSQSIZE
    return None


class _TargetQueue:
    """A queue of the controller: capsules come in, and responses go out. A slot is a command's."""

    def __init__(self, target: StorageTarget, qid: int, depth: int) -> None:
        self.qid = qid
        self.depth = depth
        self._target = target
        self._host = target.host
        self._is_connected = False
        self._head = 0
        self._reading: dict[int, Callable[[], None]] = {}
        self._capsule = COMMAND_SIZE + (CAPSULE_DATA if qid else 0)
        self._room = target.max_transfer if qid else CAPSULE_DATA
        host = self._host.host
        self._capsules = host.buffer(depth * self._capsule)
        self._responses = host.buffer(depth * COMPLETION_SIZE)
        self._data = host.buffer(depth * self._room)
        self.qp = self._host.queue_pair(depth)

    def connected(self) -> None:
        """Post the receives: the queue pair is connected."""
        for slot in range(self.depth):
            self._receive(slot)

    def _receive(self, slot: int) -> None:
        sge = self._capsules.sge(self._capsule, slot * self._capsule)
        self.qp.post_recv((RecvWR((sge,), wr_id=slot),))

    def work_of(self, number: int) -> str:
        """Return the name of a work request by its ``wr_id``."""
        return _WORK.get(number // MAX_ENTRIES, "RECV")

    def completed(self, completion: WorkCompletion) -> None:
        """Take a completion: a capsule, or the data of a WRITE."""
        slot = completion.wr_id % MAX_ENTRIES
        if completion.opcode is WCOpcode.RECV:
            self._begin(slot)
        elif completion.opcode is WCOpcode.RDMA_READ:
            self._reading.pop(slot)()

    def _begin(self, slot: int) -> None:
        """Execute a command."""
        self._head = (self._head + 1) % self.depth
        data = self._capsules.read(self._capsule, slot * self._capsule)
        command = parse_command(data, self.qid)
        if isinstance(command, ConnectCommand):
            then = partial(self._connect, slot, command)
            self._with_data(slot, command, ConnectData.SIZE, then)
        elif not self._is_connected:
            self._answer(slot, CommandResult(Status.COMMAND_SEQUENCE_ERROR))
        elif isinstance(command, IOCommand):
            self._execute(slot, command)
        elif self.qid:
            self._answer(slot, CommandResult(Status.INVALID_OPCODE))
        else:
            self._administer(slot, data)

    def _connect(self, slot: int, command: ConnectCommand, address: int) -> None:
        data = self._host.host.space.read(address, ConnectData.SIZE)
        outcome = self._target.controller.connect(command, data)
        if (command.qid, command.sqsize + 1) != (self.qid, self.depth):
            outcome = CommandResult(Status.CONNECT_INVALID_PARAMETERS)
        self._is_connected = outcome.status is Status.SUCCESS
        self._answer(slot, outcome)

    def _administer(self, slot: int, capsule: bytes) -> None:
        outcome = self._target.controller.execute(capsule)
        if not outcome.data:
            self._answer(slot, outcome)
            return
        command = AdminCommand.parse(capsule)
        if not _is_keyed(command) or command.length < len(outcome.data):
            self._answer(slot, CommandResult(Status.DATA_SGL_LENGTH_INVALID))
            return
        self._data.write(outcome.data, slot * self._room)
        self._answer(slot, outcome, self._write(slot, command, len(outcome.data)))

    # Commands of an I/O queue.

    def _execute(self, slot: int, command: IOCommand) -> None:
        status = self._check(command)
        if status is not Status.SUCCESS:
            self._answer(slot, CommandResult(status))
        elif command.opcode == IOOpcode.READ:
            at = self._data.address + slot * self._room
            self._on_drive(slot, command, at)
        else:
            then = partial(self._on_drive, slot, command)
            self._with_data(slot, command, size_of(command), then)

    def _check(self, command: IOCommand) -> Status:
        """Return the status that a command has before its data is transferred."""
        status = self._target.drive.namespace.check(command)
        if status is not Status.SUCCESS:
            return status
        if size_of(command) > self._target.max_transfer:
            return Status.INVALID_FIELD
        if command.length != size_of(command):
            return Status.DATA_SGL_LENGTH_INVALID
        if command.opcode == IOOpcode.READ and not _is_keyed(command):
            return Status.SGL_DESCRIPTOR_TYPE_INVALID
        return Status.SUCCESS

    def _on_drive(self, slot: int, command: IOCommand, address: int) -> None:
        done = partial(self._done, slot, command)
        self._target.drive.execute(command, address, self._target.route, done)

    def _done(self, slot: int, command: IOCommand, status: Status) -> None:
        """Send the data of a READ, and the response."""
        is_read = command.opcode == IOOpcode.READ and status is Status.SUCCESS
        writes = self._write(slot, command, size_of(command)) if is_read else ()
        self._answer(slot, CommandResult(status), writes)

    # Data and responses.

    def _with_data(
        self, slot: int, command: _Command, size: int, then: Callable[[int], None]
    ) -> None:
        """Call ``then`` with the bus address of the data that comes from the host."""
        start = self._capsules.address + slot * self._capsule
        if not _is_keyed(command):
            if not _is_in_capsule(command, size, self._capsule):
                self._answer(slot, CommandResult(Status.DATA_SGL_LENGTH_INVALID))
                return
            then(start + COMMAND_SIZE + command.address)
            return
        at = slot * self._room
        self._reading[slot] = partial(then, self._data.address + at)
        work = SendWR(
            SendOpcode.RDMA_READ,
            (self._data.sge(size, at),),
            _READ * MAX_ENTRIES + slot,
            remote_address=command.address,
            rkey=command.key,
        )
        self._host.post(self.qp, work)

    def _write(self, slot: int, command: AdminCommand | IOCommand, size: int) -> tuple[SendWR, ...]:
        work = SendWR(
            SendOpcode.RDMA_WRITE,
            (self._data.sge(size, slot * self._room),),
            _WRITE * MAX_ENTRIES + slot,
            remote_address=command.address,
            rkey=command.key,
        )
        return (work,)

    def _answer(self, slot: int, outcome: CommandResult, writes: tuple[SendWR, ...] = ()) -> None:
        """Send the response, after the data."""
        command = AdminCommand.parse(self._capsules.read(COMMAND_SIZE, slot * self._capsule))
        failed = outcome.status is not Status.SUCCESS
        response = NvmeCompletion(
            outcome.result, self._head, 0, command.cid, dnr=int(failed), status=outcome.status
        )
        at = slot * COMPLETION_SIZE
        self._responses.write(response.build(), at)
        self._receive(slot)
        sge = self._responses.sge(COMPLETION_SIZE, at)
        send = SendWR(SendOpcode.SEND, (sge,), _SEND * MAX_ENTRIES + slot)
        if _is_keyed(command) and command.sgl_subtype == SglSubtype.INVALIDATE_KEY:
            opcode = SendOpcode.SEND_WITH_INV
            send = send._replace(opcode=opcode, invalidate_rkey=command.key)
        self._host.post(self.qp, *writes, send)


_SEND, _WRITE, _READ = 1, 2, 3
_WORK: Final = {_SEND: "SEND", _WRITE: "RDMA WRITE", _READ: "RDMA READ"}


def _is_keyed(command: _Command) -> bool:
    return command.sgl_type == SglType.KEYED_DATA_BLOCK


def _is_in_capsule(command: _Command, size: int, capsule: int) -> bool:
    """Whether an offset descriptor names ``size`` bytes of the capsule."""
    kind = command.sgl_type, command.sgl_subtype
    fits = COMMAND_SIZE + command.address + size <= capsule
    return kind == (SglType.DATA_BLOCK, SglSubtype.OFFSET) and command.length == size and fits
