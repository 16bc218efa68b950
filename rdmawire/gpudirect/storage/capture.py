"""NVMe over RDMA in a capture: the connections, and each command with its response.

Queue pairs and queues are known from the messages of the connection manager, so that the capture
has to begin before them. Retransmitted capsules are read once.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from rdmawire.capture import Record, open_capture
from rdmawire.capture.io import AnyPath
from rdmawire.decode import FrameLayout, walk_frame
from rdmawire.gpudirect.storage.capsule import (
    COMMAND_SIZE,
    COMPLETION_SIZE,
    PORT,
    Command,
    NvmeCompletion,
    RdmaConnectRequest,
    parse_command,
)
from rdmawire.ib.cm import PortSpace, service_id
from rdmawire.wire.cm import REP, REQ, REQConsumerData
from rdmawire.wire.ib import BTH
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.serial import is_before

_SENDS: Final = frozenset(
    {
        Opcode.RC_SEND_FIRST,
        Opcode.RC_SEND_ONLY,
        Opcode.RC_SEND_ONLY_WITH_IMMEDIATE,
        Opcode.RC_SEND_ONLY_WITH_INVALIDATE,
    }
)
"""Packets that a message of SEND begins with."""
MAX_QUEUES: Final = 1 << 16
"""Most queues of a capture that are remembered; of others no capsule is read."""

_End = tuple[bytes, int]
"""An address (4 or 16 bytes) and a queue pair number, or a communication id."""


class CapturedCommand(NamedTuple):
    """A command of a capture: its frame and time (ns since the epoch), and its queue.

    ``completion`` is its response, or nothing if the capture has none; ``end_ns`` is its time.
    """

    frame: int
    time_ns: int
    qid: int
    command: Command
    completion: NvmeCompletion | None
    end_ns: int


class _Queue:
    """A queue of a connection: the host's commands that wait for a response, by their ids."""

    def __init__(self, qid: int) -> None:
        self.qid = qid
        self.waiting: dict[int, CapturedCommand] = {}
        self.last: dict[bool, int] = {}


class CapsuleReader:
    """Reads frames one after the other; :meth:`read` returns the commands that a frame completes.

    ``ports`` are those of targets.
    """

    def __init__(self, ports: tuple[int, ...] = (PORT,)) -> None:
        self._services = {service_id(PortSpace.TCP, port) for port in ports}
        self._asked: dict[_End, tuple[_End, int]] = {}
        self._queues: dict[_End, tuple[_Queue, bool]] = {}
        self._all: list[_Queue] = []
        self._number = 0

    def read(self, record: Record) -> CapturedCommand | None:
        """Read a record of a capture; return the command whose response it has, if any."""
        self._number += 1
        layout = walk_frame(record.data, record.link_type)
        headers = {type(one.header): one.header for one in layout.headers}
        request, reply, bth = headers.get(REQ), headers.get(REP), headers.get(BTH)
        if isinstance(request, REQ):
            self._ask(request, headers.get(REQConsumerData), layout.hosts[0])
        elif isinstance(reply, REP):
            self._accept(reply, layout.hosts)
        elif isinstance(bth, BTH) and bth.opcode in _SENDS and layout.packet is not None:
            return self._capsule(record, layout, bth)
        return None

    def _ask(self, request: REQ, consumer: object, host: bytes) -> None:
        is_known = request.service_id in self._services
        if is_known and isinstance(consumer, REQConsumerData):
            qid = RdmaConnectRequest.parse(consumer.private_data).qid
            self._asked[host, request.local_comm_id] = (host, request.local_qpn), qid

    def _accept(self, reply: REP, hosts: tuple[bytes, bytes]) -> None:
        target, host = hosts
        asked = self._asked.pop((host, reply.remote_comm_id), None)
        if asked is None or len(self._all) >= MAX_QUEUES:
            return
        end, qid = asked
        queue = _Queue(qid)
        self._all.append(queue)
        self._queues[target, reply.local_qpn] = queue, True
        self._queues[end] = queue, False

    def _capsule(self, record: Record, layout: FrameLayout, bth: BTH) -> CapturedCommand | None:
        found = self._queues.get((layout.hosts[1], bth.destqp))
        if found is None or layout.packet is None:
            return None
        queue, is_command = found
        last = layout.headers[-1]
        data = record.data[last.offset + last.header.SIZE : layout.packet.stop - bth.padcnt]
        if not is_before(queue.last.get(is_command, bth.psn - 1), bth.psn):
            return None
        queue.last[is_command] = bth.psn
        if is_command and len(data) >= COMMAND_SIZE:
            command = parse_command(data, queue.qid)
            queue.waiting[command.cid] = CapturedCommand(
                self._number, record.time_ns, queue.qid, command, None, 0
            )
        elif not is_command and len(data) == COMPLETION_SIZE:
            return self._completed(queue, NvmeCompletion.parse(data), record.time_ns)
        return None

    def _completed(
        self, queue: _Queue, completion: NvmeCompletion, now: int
    ) -> CapturedCommand | None:
        command = queue.waiting.pop(completion.cid, None)
        return None if command is None else command._replace(completion=completion, end_ns=now)

    def rest(self) -> Iterator[CapturedCommand]:
        """Yield the commands that have no response."""
        for queue in self._all:
            yield from queue.waiting.values()


def read_capsules(path: AnyPath, ports: tuple[int, ...] = (PORT,)) -> Iterator[CapturedCommand]:
    """Yield the commands of a capture in the order of their responses, then those without one.

    Raises :class:`~rdmawire.errors.CaptureError` if the capture cannot be read.
    """
    capsules = CapsuleReader(ports)
    with open_capture(path) as reader:
        for record in reader:
            if (command := capsules.read(record)) is not None:
                yield command
    yield from capsules.rest()
