"""The adapters: queue pairs in lanes, memory, and the work of a round."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import Final, NamedTuple

from rdmawire.errors import RdmaError
from rdmawire.fabric.host import ALL_ACCESS, Host
from rdmawire.fabric.link import SECOND, bit_times
from rdmawire.fabric.pair import ATTRIBUTES
from rdmawire.ib.congestion.dcqcn import Dcqcn, DcqcnParameters
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.ib.retransmit_timer import ACK_TIMEOUT_UNIT
from rdmawire.memory.gpu.device import H200
from rdmawire.memory.gpu.driver import GpuDriver
from rdmawire.memory.mr_table import Extent
from rdmawire.memory.page import PAGE_64K
from rdmawire.memory.region import PageList, Region
from rdmawire.traffic.generate.spec import LAST_TIMEOUT, TrafficSpec, Verb
from rdmawire.verbs.ah import AddressHandle
from rdmawire.verbs.engine import BURST
from rdmawire.verbs.enums import QPType, WCStatus, WorkCompletion
from rdmawire.verbs.profile import IBTA
from rdmawire.verbs.qp_attr import QPCap
from rdmawire.verbs.wr import ATOMIC_SIZE, RecvWR, SendOpcode, SendWR, Sge
from rdmawire.wire.ib import GRH
from rdmawire.wire.inet import ECN
from rdmawire.wire.management import MTU
from rdmawire.wire.serial import MAX_IN_FLIGHT, MODULUS

PAGE: Final = PAGE_64K


class PageRun(NamedTuple):
    """Contiguous pages: their address and their bus addresses."""

    address: int
    bus: tuple[int, ...]


class _Lent(PageList):
    """Pages that stay pinned, so views of them may be kept, also of GPU pages."""

    lends_devices = True


def host_memory(host: Host) -> Callable[[int, bytes], PageRun]:
    """Return a function that allocates host memory starting with the given bytes."""

    def allocate(count: int, data: bytes) -> PageRun:
        memory = host.space.allocate(count * PAGE)
        memory.write(memory.base, data)
        return PageRun(memory.base, tuple(range(memory.base, memory.base + count * PAGE, PAGE)))

    return allocate


def gpu_memory(host: Host) -> Callable[[int, bytes], PageRun]:
    """Return a function that allocates GPU memory, pinned through its BAR1."""
    driver = GpuDriver(host.space)
    gpu = driver.add(H200)

    def allocate(count: int, data: bytes) -> PageRun:
        address = gpu.allocate(count * PAGE).address
        gpu.write(address, data)
        return PageRun(address, driver.get_pages_persistent(address, count * PAGE).addresses)

    return allocate


class Buffers:
    """Memory of one host: ``source`` is sent, ``sink`` is written, ``words`` are atomic counters.

    ``source`` and ``sink`` hold ``longest`` bytes, the counters eight bytes for each of ``words``.
    """

    def __init__(self, host: Host, *, longest: int, words: int, gpu: bool, random: Random) -> None:
        self._host = host
        allocate = gpu_memory(host) if gpu else host_memory(host)
        times = max(-(-longest // PAGE), 1)
        self.source = self._register(allocate(1, random.randbytes(PAGE)), times)
        self.sink = self._register(allocate(1, b"\0"), times)
        data = random.randbytes(8 * words)
        self.words = self._register(allocate(max(-(-len(data) // PAGE), 1), data), 1)

    def _register(self, pages: PageRun, times: int) -> Region:
        """Register the pages repeated ``times`` times."""
        bus, host = pages.bus * times, self._host
        extent = Extent(pages.address, pages.address, len(bus) * PAGE)
        return host.nic.memory.register(
            host.pd, extent, ALL_ACCESS, lambda: _Lent(host.space, pages.address, bus, PAGE)
        )


class MessageType(NamedTuple):
    """A type of message. ``datagram``: sent by unconnected queue pairs."""

    opcode: SendOpcode
    datagram: bool = False


_WRITE: Final = MessageType(SendOpcode.RDMA_WRITE)
_WRITE_IMM: Final = MessageType(SendOpcode.RDMA_WRITE_WITH_IMM)
_SEND: Final = MessageType(SendOpcode.SEND)
_SEND_IMM: Final = MessageType(SendOpcode.SEND_WITH_IMM)
_READ: Final = MessageType(SendOpcode.RDMA_READ)
_FETCH_ADD: Final = MessageType(SendOpcode.ATOMIC_FETCH_AND_ADD)
_CMP_SWP: Final = MessageType(SendOpcode.ATOMIC_CMP_AND_SWP)
_DATAGRAM: Final = MessageType(SendOpcode.SEND, datagram=True)
_DATAGRAM_IMM: Final = MessageType(SendOpcode.SEND_WITH_IMM, datagram=True)
ATOMICS: Final = (_FETCH_ADD, _CMP_SWP)

KINDS: Final[dict[Verb, tuple[tuple[MessageType, int], ...]]] = {
    Verb.WRITE: ((_WRITE, 1),),
    Verb.SEND: ((_SEND, 1),),
    Verb.READ: ((_READ, 1),),
    Verb.ATOMIC: ((_FETCH_ADD, 1), (_CMP_SWP, 1)),
    Verb.UD: ((_DATAGRAM, 1),),
    Verb.CNP: ((_WRITE, 1),),
    Verb.MIX: (
        *((_WRITE, 6), (_WRITE_IMM, 2), (_SEND, 4), (_SEND_IMM, 2), (_READ, 5)),
        *((_FETCH_ADD, 2), (_CMP_SWP, 1), (_DATAGRAM, 3), (_DATAGRAM_IMM, 1)),
    ),
}
"""Message types of each verb, with their relative frequency."""

TAKES_RECEIVE: Final = frozenset(
    {SendOpcode.SEND, SendOpcode.SEND_WITH_IMM, SendOpcode.RDMA_WRITE_WITH_IMM}
)

WITHOUT_DATA: Final = frozenset({SendOpcode.RDMA_READ, *(kind.opcode for kind in ATOMICS)})
"""Operations whose request packets carry no data."""

FRAMES: Final = 1024
"""Approximate number of frames in a round of equal messages."""
VARIED: Final = 256
"""Number of messages in a round of different messages."""
LOSSY: Final = 16
MAX_LOSSY: Final = 64
"""Maximum messages in a round with losses; few, so that most rounds lose no frame."""
_LOST: Final = 0.3
"""Intended number of lost frames in a round."""

_GRAIN: Final = 64


class Message(NamedTuple):
    """One message: its lane, its length in bytes, and its offset in the page."""

    lane: int
    kind: MessageType
    length: int
    offset: int
    imm: int


def messages(spec: TrafficSpec) -> tuple[Message, ...]:
    """Return the messages of a round; lanes take turns."""
    random = Random(f"{spec.seed}/messages")  # noqa: S311 - repeatable is what it must be
    kinds = [kind for kind, times in KINDS[spec.verb] for _ in range(times)]
    found = []
    for number in range(_count(spec)):
        kind = random.choice(kinds) if len(kinds) > 1 else kinds[0]
        length = _length(spec, kind, random)
        found.append(
            Message(
                number % spec.lanes, kind, length, _offset(length, random), random.getrandbits(32)
            )
        )
    return tuple(found)


def _count(spec: TrafficSpec) -> int:
    """Return the number of messages in a round, equal for all lanes."""
    if spec.verb is Verb.CNP:
        return spec.lanes
    packets = -(-spec.lengths.largest // spec.mtu) + 1
    wanted = max(FRAMES // packets, 1)
    if spec.lengths.varied or len(KINDS[spec.verb]) > 1:
        wanted = VARIED
    if spec.loss:
        lucky = int(_LOST / (spec.loss * packets))
        wanted = min(wanted, max(LOSSY, min(lucky, MAX_LOSSY)))
    return -(-wanted // spec.lanes) * spec.lanes


def _length(spec: TrafficSpec, kind: MessageType, random: Random) -> int:
    if kind in ATOMICS:
        return ATOMIC_SIZE
    length = spec.lengths.pick(random)
    return min(length, spec.mtu) if kind.datagram else length


def _offset(length: int, random: Random) -> int:
    """Return an offset: any at which a short message fits in the page, 0 for a long message."""
    return random.randrange((PAGE - length) // _GRAIN + 1) * _GRAIN if length <= PAGE else 0


WORD: Final = (1 << 64) - 1


class WorkRequestFactory:
    """Makes the work requests of messages between the stores of two hosts.

    ``addend`` is the operand of fetch-and-add. Compare-and-swap compares with it and fails except
    with probability 2**-64, so a word changes by the same step in each round.
    """

    def __init__(self, client: Buffers, server: Buffers, addend: int) -> None:
        self._client = client
        self._server = server
        self.addend = addend

    def work(self, message: Message) -> SendWR:
        """Return the work request of a message, without the address of a datagram's peer."""
        opcode = message.kind.opcode
        if message.kind in ATOMICS:
            return self._atomic(message)
        if opcode is SendOpcode.RDMA_READ:
            return _transfer(message, self._client.sink, self._server.source)
        return _transfer(message, self._client.source, self._server.sink)

    def _atomic(self, message: Message) -> SendWR:
        sink, words = self._client.sink, self._server.words
        return SendWR(
            message.kind.opcode,
            (Sge(sink.iova, ATOMIC_SIZE, sink.lkey),),
            remote_address=words.iova + ATOMIC_SIZE * message.lane,
            rkey=words.rkey,
            compare_add=self.addend,
            swap=~self.addend & WORD,
        )


def _transfer(message: Message, local: Region, remote: Region) -> SendWR:
    """Return the work request between the same offset of two regions."""
    piece = Sge(local.iova + message.offset, message.length, local.lkey)
    return SendWR(
        message.kind.opcode,
        (piece,) if message.length else (),
        remote_address=remote.iova + message.offset,
        rkey=remote.rkey,
        imm_data=message.imm,
    )


_HEADERS: Final = 128
"""Maximum bytes of a frame besides its payload."""
_TURN: Final = IBTA.packets_per_ack + BURST
"""Maximum frames that a queue pair sends before it requests an ACK."""
_BOTH: Final = 2
"""Both directions."""


def exponent(spec: TrafficSpec, messages: Iterable[Message]) -> int:
    """Return the Local ACK Timeout exponent (IBA 9.7.6.1.3): the requested or a sufficient one."""
    if spec.timeout is not None:
        return spec.timeout
    units = _longest(spec, list(messages)) // ACK_TIMEOUT_UNIT
    return min(units.bit_length() + 1, LAST_TIMEOUT)


def _longest(spec: TrafficSpec, messages: list[Message]) -> int:
    """Return the longest time to answer a request (ns), in any order of the queue pairs."""
    frames = sum(_frames(message.length, spec.mtu) for message in messages)
    queued = _time(spec, min(frames, spec.lanes * _TURN), spec.rate)
    time = _BOTH * spec.links * (queued + spec.latency)
    return time if spec.marks is None else time + _slowed_down(spec, messages)


def _slowed_down(spec: TrafficSpec, messages: list[Message]) -> int:
    """Return the longest time until a sender requests an ACK (ns), at the minimum rate."""
    sent = [0 if message.kind.opcode in WITHOUT_DATA else message.length for message in messages]
    frames = min(_frames(max(sent), spec.mtu), IBTA.packets_per_ack) + 1
    return _time(spec, frames, min(spec.rate, int(DcqcnParameters().min_rate)))


def _frames(length: int, mtu: int) -> int:
    return max(-(-length // mtu), 1)


def _time(spec: TrafficSpec, frames: int, rate: int) -> int:
    """Return the longest time that ``frames`` frames take (ns)."""
    return frames * bit_times(min(spec.mtu, spec.lengths.largest) + _HEADERS) * SECOND // rate


PERSISTENT: Final = replace(IBTA, endless_retry_cnt=7)
"""An adapter profile with endless retries: each lost packet is retransmitted until it arrives."""

QPNS: Final = range(0x100, 0xFFFFFE)
"""Plausible queue pair numbers."""


class Unfinished(RdmaError):
    """Raised if traffic did not complete as specified."""


class ConnectedPair(NamedTuple):
    """Two connected queue pairs; ``asks`` is the requester's."""

    asks: QueuePair
    answers: QueuePair


class Position(NamedTuple):
    """Position of a flow to a queue pair: PSN, MSN, and the word that atomics return."""

    psn: int
    msn: int = 0
    word: int = 0


class TestAdapter(Host):
    """One adapter: memory, a CQ, and a shared receive queue, so that no ACK counts receives."""

    def __init__(self, number: int, spec: TrafficSpec, messages: int) -> None:
        super().__init__(number, profile=PERSISTENT, place=spec.place(number))
        random = Random(f"{spec.seed}/memory {number}")  # noqa: S311 - it must be repeatable
        longest = max(spec.lengths.largest, spec.mtu + GRH.SIZE)
        self.store = Buffers(self, longest=longest, words=spec.lanes, gpu=spec.gpu, random=random)
        self.cq = self.nic.create_cq(messages + 1)
        self.srq = self.nic.create_srq(self.pd, messages)
        sink = self.store.sink
        self._receive = RecvWR((Sge(sink.iova, sink.length, sink.lkey),))
        self._init = QPInit(self.pd, self.cq, self.cq, QPCap(messages, 0, 1, 0, 0), self.srq)

    def queue_pair(self, kind: QPType, number: int) -> QueuePair:
        """Create a queue pair with this number, in RESET."""
        return self.nic.create_qp(kind, self._init, number)

    def expect(self, messages: int) -> None:
        """Keep ``messages`` receives posted; unused ones remain."""
        missing = min(messages - len(self.srq), self.srq.free)
        self.nic.post_srq_recv(self.srq, [self._receive] * missing)

    def poll(self) -> list[WorkCompletion]:
        """Return all available completions."""
        return self.cq.poll(len(self.cq))


class Work(NamedTuple):
    """A message as posted: ``client`` posts ``wr`` to ``qp``; ``server`` is its peer."""

    client: TestAdapter
    qp: QueuePair
    wr: SendWR
    server: TestAdapter


class TestAdapters:
    """All adapters with their lanes: clients are requesters, servers responders.

    :meth:`TrafficSpec.pair_of` gives the two hosts of a lane.
    """

    def __init__(self, spec: TrafficSpec, messages: tuple[Message, ...]) -> None:
        self._spec = spec
        self._messages = messages
        self._timeout = exponent(spec, messages)
        self._random = Random(f"{spec.seed}/queue pairs")  # noqa: S311 - it must be repeatable
        self._numbers = self._random.sample(QPNS, 4 * spec.lanes)
        self.hosts = tuple(
            TestAdapter(number + 1, spec, len(messages)) for number in range(spec.hosts)
        )
        self.clients, self.servers = self.hosts[: spec.clients], self.hosts[spec.clients :]
        self._capable = self._senders_of_data(messages)
        datagrams = {message.kind.datagram for message in messages}
        self.lanes = self._lanes(QPType.RC) if False in datagrams else ()
        self.datagrams = self._lanes(QPType.UD) if True in datagrams else ()
        self._addend = self._random.getrandbits(64)
        self._work = [self._of(message) for message in messages]

    def pair(self, lane: int) -> tuple[TestAdapter, TestAdapter]:
        """Return the client and the server of a lane."""
        client, server = self._spec.pair_of(lane)
        return self.clients[client], self.servers[server]

    def _lanes(self, kind: QPType) -> tuple[ConnectedPair, ...]:
        return tuple(self._lane(kind, self.pair(number)) for number in range(self._spec.lanes))

    def _lane(self, kind: QPType, ends: tuple[TestAdapter, TestAdapter]) -> ConnectedPair:
        """Return two queue pairs in RTS, the client's and the server's."""
        lane = ConnectedPair(*(end.queue_pair(kind, self._numbers.pop()) for end in ends))
        there, back = self._first_psn(), self._first_psn()
        self._bring_up(*ends, lane, (there, back))
        self._bring_up(*ends[::-1], ConnectedPair(*lane[::-1]), (back, there))
        return lane

    def _first_psn(self) -> int:
        drawn = self._random.randrange(MODULUS)
        return drawn if self._spec.psn is None else self._spec.psn

    def _bring_up(
        self, own: TestAdapter, peer: TestAdapter, lane: ConnectedPair, psns: tuple[int, int]
    ) -> None:
        attributes = ATTRIBUTES._replace(
            path_mtu=MTU.of(self._spec.mtu),
            sq_psn=psns[0],
            rq_psn=psns[1],
            dest_qp_num=lane.answers.qp_num,
            ah=self.path(own, peer),
            max_rd_atomic=PERSISTENT.max_qp_init_rd_atom,
            max_dest_rd_atomic=PERSISTENT.max_qp_rd_atom,
            timeout=self._timeout,
        )
        own.bring_up(lane.asks, attributes)
        if lane.asks.service.reliable:
            own.nic.limit_in_flight(lane.asks, self._spec.window or MAX_IN_FLIGHT)
        self._control_congestion(own, lane.asks)

    def _control_congestion(self, own: TestAdapter, qp: QueuePair) -> None:
        """Enable CNPs and rate control. In traffic of CNPs only, servers answer each mark."""
        spec = self._spec
        if spec.verb is Verb.CNP and own in self.servers:
            own.nic.notify_congestion(qp, 0, spec.cnp_dscp << 2)
        if spec.marks is not None and qp.service.connected:
            own.nic.notify_congestion(qp, traffic_class=spec.cnp_dscp << 2)
            own.nic.control_congestion(qp, Dcqcn(DcqcnParameters.at(spec.rate)))

    def path(self, own: Host, peer: Host) -> AddressHandle:
        """Return the path from one host to another, with the ordered DSCP and ECN.

        Only queue pairs that send data are ECN-capable, not those that send only ACKs or READ
        requests.
        """
        ecn = ECN.ECT_0 if own.mac in self._capable else ECN.NOT_ECT
        return own.path_to(peer, self._spec.dscp << 2 | ecn)

    def _senders_of_data(self, messages: tuple[Message, ...]) -> tuple[bytes, ...]:
        """Return the MAC addresses of the hosts that send data, if ECN is used."""
        if self._spec.marks is None and self._spec.verb is not Verb.CNP:
            return ()
        opcodes = {message.kind.opcode for message in messages}
        asks = bool(opcodes - WITHOUT_DATA)
        answers = SendOpcode.RDMA_READ in opcodes
        senders = self.clients * asks + self.servers * answers
        return tuple(end.mac for end in senders)

    # A round.

    def _of(self, message: Message) -> Work:
        """Return the work request of a message and its queue pair."""
        client, server = self.pair(message.lane)
        wr = WorkRequestFactory(client.store, server.store, self._addend).work(message)
        if not message.kind.datagram:
            return Work(client, self.lanes[message.lane].asks, wr, server)
        own, peer = self.datagrams[message.lane]
        path = self.path(client, server)
        wr = wr._replace(ah=path, remote_qpn=peer.qp_num, remote_qkey=peer.qkey)
        return Work(client, own, wr, server)

    def post(self, count: int) -> None:
        """Post the first ``count`` messages of a round."""
        work = self._work[:count]
        receives = Counter(one.server for one in work if one.wr.opcode in TAKES_RECEIVE)
        for server in self.servers:
            server.expect(receives[server])
        for client, qp, wr, _ in work:
            client.nic.post_send(qp, (wr,))

    def poll(self) -> int:
        """Return the number of messages completed since the last call."""
        done = [completion for client in self.clients for completion in client.poll()]
        received = [completion for server in self.servers for completion in server.poll()]
        for completion in (*done, *received):
            if completion.status is not WCStatus.SUCCESS:
                status = WCStatus(completion.status).name
                raise Unfinished(
                    f"work ended with {status}, in traffic that goes on until all is there"
                )
        return len(done)

    # Positions in the conversation.

    def positions(self) -> dict[int, Position]:
        """Return positions by the number of the receiving queue pair."""
        found = {}
        for lane in (*self.lanes, *self.datagrams):
            psn = lane.asks.sq.next_psn
            found[lane.answers.qp_num] = Position(psn)
            found[lane.asks.qp_num] = Position(psn, lane.answers.inbound.msn)
        return found

    def step(self, before: dict[int, Position]) -> dict[int, Position]:
        """Return the change of each position since ``before``, one complete round earlier."""
        words = self._word_steps()
        return {
            number: Position(
                (now.psn - before[number].psn) % MODULUS,
                (now.msn - before[number].msn) % MODULUS,
                words.get(number, 0),
            )
            for number, now in self.positions().items()
        }

    def _word_steps(self) -> dict[int, int]:
        """Return the increment of each lane's word, by the requester's queue pair."""
        steps = {lane.asks.qp_num: 0 for lane in self.lanes}
        for message in self._messages:
            if message.kind.opcode is SendOpcode.ATOMIC_FETCH_AND_ADD:
                number = self.lanes[message.lane].asks.qp_num
                steps[number] = (steps[number] + self._addend) & WORD
        return steps
