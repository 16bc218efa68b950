"""Messages as packets: RDMA WRITEs with immediate between the adapters of ranks.

Two ranks of different hosts have a reliable connection for each adapter that they use. The
immediate is the number of the send among the operations of its rank, which the receiver knows from
the same trace. A WRITE without data announces a long message; one with bit 31 set in its immediate
clears it. Memory stands for that of the GPUs: DMA takes the links between adapter and GPU. Each
message has a place of its own at either end, so an early one waits in memory.
"""

from collections import deque
from functools import partial
from math import ceil
from random import Random
from typing import Final, NamedTuple

from rdmawire.errors import WorkloadError
from rdmawire.fabric import (
    ATTRIBUTES,
    CAP,
    Buffer,
    DmaPort,
    Host,
    Network,
    NotifyingPort,
    connect,
    place_of,
)
from rdmawire.gpudirect.transfer.host import Traffic
from rdmawire.gpudirect.workload.graph import Kind, Workload
from rdmawire.gpudirect.workload.placement import SWITCH, Placement
from rdmawire.gpudirect.workload.replay import Done, RankMessage, Replay
from rdmawire.ib import QPInit, QueuePair
from rdmawire.memory.page import Path
from rdmawire.topology import Bus, BusRoute
from rdmawire.verbs import (
    QPType,
    RecvWR,
    SendFlags,
    SendOpcode,
    SendWR,
    WCOpcode,
    WCStatus,
    WorkCompletion,
)
from rdmawire.wire.management import MTU

MAX_BYTES: Final = 1 << 28
"""Bytes of all messages between hosts."""
MAX_RANKS: Final = 256
_CLEAR: Final = 1 << 31
_MAX_POLLED: Final = 1 << 12
_OUTSTANDING: Final = 32
"""Sends of a queue pair that are not completed; the peer has twice as many receives."""
_IN_FLIGHT: Final = 512
"""Unacknowledged packets of a queue pair: more than a wire holds in a round trip."""
_BLOCK: Final = 1 << 16


class _Work(NamedTuple):
    """A WRITE with immediate: of which message, its immediate, and whether it has the data."""

    message: RankMessage
    immediate: int
    has_data: bool


class _Port:
    """An adapter in the network. All its queue pairs have one CQ; ``ends`` are by their numbers."""

    def __init__(self, name: str, number: int, route: BusRoute) -> None:
        self.name = name
        self.host = Host(place=place_of(number))
        self.mac = self.host.mac
        self.application = NotifyingPort(self.host.nic)
        self.nic = DmaPort(self.application, self.host.nic, {Path.HOST: route})
        self.cq = self.host.nic.create_cq(_MAX_POLLED)
        self.ends: dict[int, _End] = {}

    def queue_pair(self) -> QueuePair:
        """Return a new queue pair."""
        cap = CAP._replace(max_send_wr=_OUTSTANDING, max_recv_wr=2 * _OUTSTANDING)
        return self.host.nic.create_qp(QPType.RC, QPInit(self.host.pd, self.cq, self.cq, cap))


class _End:
    """One end of a connection: its rank, its queue pair, and memory for what it sends and takes."""

    def __init__(self, rank: int, port: _Port, sent: int, taken: int) -> None:
        self.rank = rank
        self.port = port
        self.qp = port.queue_pair()
        self.source: Buffer = port.host.buffer(max(sent, 1))
        self.target: Buffer = port.host.buffer(max(taken, 1))
        self.peer: _End = self
        self.outstanding: deque[_Work] = deque()
        self.waiting: deque[_Work] = deque()
        port.ends[self.qp.qp_num] = self


class PacketCarrier:
    """Moves the messages of a :class:`Replay` as packets of a ``network``, within hosts by copies.

    Raises :class:`WorkloadError` for too many bytes.
    """

    def __init__(
        self, replay: Replay, placement: Placement, network: Network, seed: int = 0
    ) -> None:
        self._replay = replay
        self._placement = placement
        self.network = network
        self._simulator = network.simulator
        self._messages: dict[tuple[int, int], RankMessage] = {}
        self._offsets: dict[tuple[int, int], int] = {}
        self._buses = [Bus(placement.machine) for _ in range(placement.hosts)]
        self._local: dict[tuple[int, int], BusRoute] = {}
        self._block = Random(seed).randbytes(_BLOCK)  # noqa: S311 - repeatable
        self.traffic = Traffic()
        totals = self._totals(replay.workload)
        self._ports: dict[str, _Port] = {}
        self._ends: dict[tuple[int, int, int], _End] = {}
        self._join(sorted({(min(a, b), max(a, b), nic) for a, b, nic in totals}))
        for one, other, nic in sorted(totals):
            if (one, other, nic) not in self._ends:
                self._connect(one, other, nic, totals)

    def _totals(self, workload: Workload) -> dict[tuple[int, int, int], int]:
        """Give each message between hosts its place; return the bytes by source, target and nic."""
        totals: dict[tuple[int, int, int], int] = {}
        host = self._placement.host
        for rank, operations in enumerate(workload.ranks):
            for index, one in enumerate(operations):
                if one.kind is Kind.SEND and host(rank) != host(one.peer):
                    key = rank, one.peer, one.nic
                    self._offsets[rank, index] = totals.get(key, 0)
                    totals[key] = totals.get(key, 0) + one.size
        if sum(totals.values()) > MAX_BYTES:
            raise WorkloadError(
                f"{sum(totals.values())} bytes of messages between hosts; at most {MAX_BYTES} as"
                " packets: compute flows"
            )
        return totals

    def _join(self, pairs: list[tuple[int, int, int]]) -> None:
        """Join the adapters that are used to the switch."""
        self.network.add_switch(SWITCH)
        for rank, nic in sorted({(rank, nic) for *ranks, nic in pairs for rank in ranks}):
            name = self._placement.port(rank, nic)
            if name in self._ports:
                continue
            bus = self._buses[self._placement.host(rank)]
            route = bus.route(self._placement.adapter_route(rank, nic))
            port = self._ports[name] = _Port(name, len(self._ports) + 1, route)
            port.application.on_taken.append(partial(self._poll, port))
            self.network.add_host(name, port)
            rate = self._placement.rate(self._placement.adapter(rank, nic))
            self.network.join(name, SWITCH, self._placement.cable._replace(rate=rate).link())
            self.network.tap(name, self.traffic)
        self.network.find_routes()

    def _connect(
        self, one: int, other: int, nic: int, totals: dict[tuple[int, int, int], int]
    ) -> None:
        there, back = totals.get((one, other, nic), 0), totals.get((other, one, nic), 0)
        first = _End(one, self._ports[self._placement.port(one, nic)], there, back)
        second = _End(other, self._ports[self._placement.port(other, nic)], back, there)
        first.peer, second.peer = second, first
        connect(
            first.port.host,
            first.qp,
            second.port.host,
            second.qp,
            ATTRIBUTES._replace(path_mtu=MTU.MTU_4096),
            packets_in_flight=_IN_FLIGHT,
        )
        for end in (first, second):
            end.qp.post_recv(tuple(RecvWR() for _ in range(2 * _OUTSTANDING)))
        self._ends[one, other, nic], self._ends[other, one, nic] = first, second

    # Messages.

    def send(self, message: RankMessage) -> None:
        """Write the data of a message."""
        if self._is_local(message):
            self._copy(message)
            return
        self._messages[message.source, message.index] = message
        end = self._end(message)
        data = message.payload if message.payload is not None else self._pattern(message)
        end.source.write(data, self._offset(message))
        self._post(end, _Work(message, message.index, has_data=True))

    def announce(self, message: RankMessage) -> None:
        """Let the target know of a message."""
        if self._is_local(message):
            self._control(message, self._replay.arrived)
            return
        self._messages[message.source, message.index] = message
        self._post(self._end(message), _Work(message, message.index, has_data=False))

    def clear(self, message: RankMessage) -> None:
        """Let the source know that the target is ready."""
        if self._is_local(message):
            self._control(message, self._replay.cleared)
            return
        self._post(self._end(message).peer, _Work(message, message.index | _CLEAR, has_data=False))

    def finish(self) -> None:
        """Take the completions that no frame was followed by: those of failed connections."""
        for port in self._ports.values():
            self._poll(port)

    def _end(self, message: RankMessage) -> _End:
        return self._ends[message.source, message.target, message.nic]

    def _offset(self, message: RankMessage) -> int:
        return self._offsets[message.source, message.index]

    def _pattern(self, message: RankMessage) -> bytes:
        """Return bytes that each message has for itself."""
        number = (message.source << 20 | message.index) * 0x9E3779B1 % _BLOCK
        count = -(-(number + message.size) // _BLOCK)
        return (self._block * count)[number : number + message.size]

    def _post(self, end: _End, work: _Work) -> None:
        """Post work, or let it wait for work before it."""
        if len(end.outstanding) == _OUTSTANDING:
            end.waiting.append(work)
            return
        end.outstanding.append(work)
        at, size = (self._offset(work.message), work.message.size) if work.has_data else (0, 0)
        request = SendWR(
            SendOpcode.RDMA_WRITE_WITH_IMM,
            (end.source.sge(size, at),) if size else (),
            remote_address=end.peer.target.address + at,
            rkey=end.peer.target.rkey,
            imm_data=work.immediate,
            flags=SendFlags.SIGNALED,
        )
        end.qp.post_send((request,))
        self.network.wake(end.port.name)

    def _poll(self, port: _Port, _frame: bytes = b"", _now: int = 0) -> None:
        for completion in port.cq.poll(_MAX_POLLED):
            end = port.ends[completion.qp_num]
            self._check(end, completion)
            if completion.opcode is WCOpcode.RECV_RDMA_WITH_IMM:
                end.qp.post_recv((RecvWR(),))
                self._take(end, completion.imm_data)
            else:
                self._sent(end)

    def _check(self, end: _End, completion: WorkCompletion) -> None:
        if completion.status is not WCStatus.SUCCESS:
            raise WorkloadError(
                f"the connection of rank {end.rank} with rank {end.peer.rank} failed:"
                f" {completion.status.name}"
            )

    def _sent(self, end: _End) -> None:
        work = end.outstanding.popleft()
        if end.waiting:
            self._post(end, end.waiting.popleft())
        if work.has_data:
            self._messages.pop((work.message.source, work.message.index), None)
            self._replay.acknowledged(work.message)

    def _take(self, end: _End, immediate: int) -> None:
        """Take what a peer has written."""
        if immediate & _CLEAR:
            self._replay.cleared(self._messages[end.rank, immediate & ~_CLEAR])
            return
        message = self._messages[end.peer.rank, immediate]
        if not message.announced or message.receive is not None:
            self._read(end, message)
        self._replay.arrived(message)

    def _read(self, end: _End, message: RankMessage) -> None:
        """Read the data of a message from memory; data that no one uses is compared."""
        data = end.target.read(message.size, self._offset(message)) if message.size else b""
        if message.payload is not None:
            message.payload = data
        elif data != self._pattern(message):
            name = self._replay.workload.name(message.source, message.index)
            raise WorkloadError(f"{name}: the data that arrived is not what was sent")

    # Within a host.

    def _is_local(self, message: RankMessage) -> bool:
        return self._placement.host(message.source) == self._placement.host(message.target)

    def _copy(self, message: RankMessage) -> None:
        now = self._simulator.now
        end = ceil(self._route(message).write(message.size, now))
        self._simulator.call_at(end, partial(self._replay.arrived, message))
        end += ceil(self._route(message).latency)
        self._simulator.call_at(end, partial(self._replay.acknowledged, message))

    def _control(self, message: RankMessage, done: Done) -> None:
        delay = ceil(self._route(message).latency)
        self._simulator.call_at(self._simulator.now + delay, partial(done, message))

    def _route(self, message: RankMessage) -> BusRoute:
        key = message.source, message.target
        if key not in self._local:
            bus = self._buses[self._placement.host(message.source)]
            self._local[key] = bus.route(self._placement.local_route(*key))
        return self._local[key]


def check_ranks(workload: Workload) -> None:
    """Raise :class:`WorkloadError` for too many ranks."""
    if len(workload.ranks) > MAX_RANKS:
        raise WorkloadError(
            f"{len(workload.ranks)} ranks; at most {MAX_RANKS} as packets: compute flows"
        )
