"""The controller of an NVMe subsystem: its properties, and the commands of its Admin queue.

A command gives a :class:`CommandResult`. This module does no I/O, and has no clock.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from rdmawire.gpudirect.storage.capsule import (
    COMMAND_SIZE,
    AdminCommand,
    AdminOpcode,
    ConnectCommand,
    ConnectData,
    FabricsType,
    FeatureId,
    IdentifyController,
    IdentifyNamespace,
    Property,
    PropertyCommand,
    Status,
    parse_command,
)
from rdmawire.gpudirect.storage.drive import BLOCK, MAX_TRANSFER, Namespace

SUBSYSTEM: Final = "nqn.2016-06.io.rdmawire:storage"
CONTROLLER_ID: Final = 1
ANY_CONTROLLER: Final = 0xFFFF
"""Controller id of a host that takes any (dynamic controller model). Base 6.3."""
MAX_QUEUES: Final = 16
MAX_ENTRIES: Final = 128
_ENABLE: Final = 1
_SHUTDOWN: Final = 0xC000
_READY: Final = 1
_SHUTDOWN_COMPLETE: Final = 2 << 2
_VERSION: Final = 2 << 16
_PAGE: Final = 1 << 12
_CAP: Final = 1 << 37 | 20 << 24 | 1 << 16 | MAX_ENTRIES - 1
"""NVM command set; ready within 20 units of 500 ms; contiguous queues; entries. Base 3.1.3.1."""
_SGLS: Final = 1 << 20 | 1 << 2 | 1
"""SGLs, keyed data blocks, and addresses that are offsets. Base 5.17.2.1."""


class CommandResult(NamedTuple):
    """What a command gives: its status, what it returns, and data for the host."""

    status: Status = Status.SUCCESS
    result: int = 0
    data: bytes = b""


class Controller:
    """A controller with one namespace; ``capsule_data`` is the most bytes of data in a capsule."""

    def __init__(self, namespace: Namespace, capsule_data: int) -> None:
        self.namespace = namespace
        self.capsule_data = capsule_data
        self.configuration = 0
        self.status = 0
        self._is_connected = False

    @property
    def is_ready(self) -> bool:
        """Whether the controller is enabled, and executes commands."""
        return bool(self.status & _READY)

    def connect(self, command: ConnectCommand, data: bytes) -> CommandResult:
        """Execute Connect with its data."""
        if command.recfmt:
            return CommandResult(Status.CONNECT_INCOMPATIBLE_FORMAT)
        wanted = ConnectData.parse(data)
        known = ANY_CONTROLLER if command.qid == 0 else CONTROLLER_ID
        name = wanted.subnqn.split(b"\0", 1)[0].decode("utf-8", "replace")
        if name != SUBSYSTEM or wanted.cntlid != known or command.qid > MAX_QUEUES:
            return CommandResult(Status.CONNECT_INVALID_PARAMETERS)
        if command.qid and not self.is_ready:
            return CommandResult(Status.COMMAND_SEQUENCE_ERROR)
        self._is_connected = True
        return CommandResult(result=CONTROLLER_ID)

    def execute(self, capsule: bytes) -> CommandResult:
        """Execute a command of the Admin queue, other than Connect."""
        if not self._is_connected:
            return CommandResult(Status.COMMAND_SEQUENCE_ERROR)
        command = parse_command(capsule, 0)
        if isinstance(command, PropertyCommand):
            return _PROPERTIES[command.fctype](self, command)
        if not isinstance(command, AdminCommand):
            return CommandResult(Status.INVALID_OPCODE)
        if not self.is_ready:
            return CommandResult(Status.COMMAND_SEQUENCE_ERROR)
        admin = _ADMIN.get(command.opcode)
        return CommandResult(Status.INVALID_OPCODE) if admin is None else admin(self, command)

    def get_property(self, command: PropertyCommand) -> CommandResult:
        """Execute Property Get."""
        known: Mapping[int, int] = {
            Property.CAP: _CAP,
            Property.VS: _VERSION,
            Property.CC: self.configuration,
            Property.CSTS: self.status,
        }
        if command.offset not in known or command.size != (command.offset == Property.CAP):
            return CommandResult(Status.INVALID_FIELD)
        return CommandResult(result=known[command.offset])

    def set_property(self, command: PropertyCommand) -> CommandResult:
        """Execute Property Set: of CC alone, which enables the controller and shuts it down."""
        if command.offset != Property.CC or command.size:
            return CommandResult(Status.INVALID_FIELD)
        self.configuration = command.value & 0xFFFF_FFFF
        self.status = _READY if self.configuration & _ENABLE else 0
        if self.configuration & _SHUTDOWN:
            self.status |= _SHUTDOWN_COMPLETE
        return CommandResult()

    def identify(self, command: AdminCommand) -> CommandResult:
        """Execute Identify of the controller or of the namespace."""
        kind = command.cdw10 & 0xFF
        if kind == 1:
            return CommandResult(data=self._identify_controller().build())
        if kind:
            return CommandResult(Status.INVALID_FIELD)
        if command.nsid != self.namespace.nsid:
            return CommandResult(Status.INVALID_NAMESPACE)
        blocks = self.namespace.blocks
        return CommandResult(
            data=IdentifyNamespace(blocks, blocks, blocks, lbads=BLOCK.bit_length() - 1).build()
        )

    def _identify_controller(self) -> IdentifyController:
        return IdentifyController(
            sn=b"1".ljust(20),
            mn=b"rdmawire".ljust(40),
            fr=b"1".ljust(8),
            mdts=(MAX_TRANSFER // _PAGE).bit_length() - 1,
            cntlid=CONTROLLER_ID,
            ver=_VERSION,
            maxcmd=MAX_ENTRIES,
            nn=1,
            sgls=_SGLS,
            subnqn=SUBSYSTEM.encode().ljust(256, b"\0"),
            ioccsz=(COMMAND_SIZE + self.capsule_data) // 16,
        )

    def set_features(self, command: AdminCommand) -> CommandResult:
        """Execute Set Features of the number of queues, of which as many as wanted are given."""
        if command.cdw10 & 0xFF != FeatureId.NUMBER_OF_QUEUES:
            return CommandResult(Status.INVALID_FIELD)
        submission, completion = command.cdw11 & 0xFFFF, command.cdw11 >> 16
        most = MAX_QUEUES - 1
        return CommandResult(result=min(completion, most) << 16 | min(submission, most))


_PROPERTIES: Final[Mapping[int, Callable[[Controller, PropertyCommand], CommandResult]]] = {
    FabricsType.PROPERTY_GET: Controller.get_property,
    FabricsType.PROPERTY_SET: Controller.set_property,
}
_ADMIN: Final[Mapping[int, Callable[[Controller, AdminCommand], CommandResult]]] = {
    AdminOpcode.IDENTIFY: Controller.identify,
    AdminOpcode.SET_FEATURES: Controller.set_features,
}
