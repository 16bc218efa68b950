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
from rdmawire.ib.device import ACK_TIMEOUT_UNIT
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.memory.gpu.device import H200
from rdmawire.memory.gpu.driver import GpuDriver
from rdmawire.memory.mr_table import Extent
from rdmawire.memory.page import PAGE_64K
from rdmawire.memory.region import PageList, Region
from rdmawire.traffic.generate.spec import LAST_TIMEOUT, Order, Verb
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


class Pages(NamedTuple):
    """Pages next to each other: where, and at what bus addresses."""

    address: int
    bus: tuple[int, ...]


class _Lent(PageList):
    """Pages that stay pinned, so that views of them may be kept, a GPU's too."""

    lends_devices = True


def host_memory(host: Host) -> Callable[[int, bytes], Pages]:
    """What gives pages of a host's memory, with these bytes at their start."""

    def allocate(count: int, data: bytes) -> Pages:
        memory = host.space.allocate(count * PAGE)
        memory.write(memory.base, data)
        return Pages(memory.base, tuple(range(memory.base, memory.base + count * PAGE, PAGE)))

    return allocate


def gpu_memory(host: Host) -> Callable[[int, bytes], Pages]:
    """What gives pages of a GPU's memory, pinned behind its BAR1."""
    driver = GpuDriver(host.space)
    gpu = driver.add(H200)

    def allocate(count: int, data: bytes) -> Pages:
        address = gpu.allocate(count * PAGE).address
        gpu.write(address, data)
        return Pages(address, driver.get_pages_persistent(address, count * PAGE).addresses)

    return allocate


class Store:
    """The memory of one host. ``source`` is sent from, ``sink`` placed in; ``words`` are counters.

    The first two have room for ``longest`` bytes, the last for ``words`` times eight.
    """

    def __init__(self, host: Host, *, longest: int, words: int, gpu: bool, random: Random) -> None:
        self._host = host
        allocate = gpu_memory(host) if gpu else host_memory(host)
        times = max(-(-longest // PAGE), 1)
        self.source = self._register(allocate(1, random.randbytes(PAGE)), times)
        self.sink = self._register(allocate(1, b"\0"), times)
        data = random.randbytes(8 * words)
        self.words = self._register(allocate(max(-(-len(data) // PAGE), 1), data), 1)

    def _register(self, pages: Pages, times: int) -> Region:
        """The pages, one time after the other."""
        bus, host = pages.bus * times, self._host
        extent = Extent(pages.address, pages.address, len(bus) * PAGE)
        return host.nic.memory.register(
            host.pd, extent, ALL_ACCESS, lambda: _Lent(host.space, pages.address, bus, PAGE)
        )


class Kind(NamedTuple):
    """A kind of message. ``datagram``: by the queue pairs that are not connected."""

    opcode: SendOpcode
    datagram: bool = False


_WRITE: Final = Kind(SendOpcode.RDMA_WRITE)
_WRITE_IMM: Final = Kind(SendOpcode.RDMA_WRITE_WITH_IMM)
_SEND: Final = Kind(SendOpcode.SEND)
_SEND_IMM: Final = Kind(SendOpcode.SEND_WITH_IMM)
_READ: Final = Kind(SendOpcode.RDMA_READ)
_FETCH_ADD: Final = Kind(SendOpcode.ATOMIC_FETCH_AND_ADD)
_CMP_SWP: Final = Kind(SendOpcode.ATOMIC_CMP_AND_SWP)
_DATAGRAM: Final = Kind(SendOpcode.SEND, datagram=True)
_DATAGRAM_IMM: Final = Kind(SendOpcode.SEND_WITH_IMM, datagram=True)
ATOMICS: Final = (_FETCH_ADD, _CMP_SWP)

KINDS: Final[dict[Verb, tuple[tuple[Kind, int], ...]]] = {
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
"""The messages of each verb, and how often each kind comes among them."""

TAKES_RECEIVE: Final = frozenset(
    {SendOpcode.SEND, SendOpcode.SEND_WITH_IMM, SendOpcode.RDMA_WRITE_WITH_IMM}
)

WITHOUT_DATA: Final = frozenset({SendOpcode.RDMA_READ, *(kind.opcode for kind in ATOMICS)})
"""What is asked for in packets that carry no data."""

FRAMES: Final = 1024
"""About so many frames has a round of messages that are all alike."""
VARIED: Final = 256
"""So many messages has a round of different ones."""
LOSSY: Final = 16
MAX_LOSSY: Final = 64
"""Between so many it has where frames are lost: fewer, so that in most rounds none is."""
_LOST: Final = 0.3
"""Frames lost in a round, where that can be had."""

_GRAIN: Final = 64


class Message(NamedTuple):
    """One message: its lane, its bytes, and where in the page they begin."""

    lane: int
    kind: Kind
    length: int
    offset: int
    imm: int


def messages(order: Order) -> tuple[Message, ...]:
    """The messages of a round; lanes take turns."""
    random = Random(f"{order.seed}/messages")  # noqa: S311 - repeatable is what it must be
    kinds = [kind for kind, times in KINDS[order.verb] for _ in range(times)]
    found = []
    for number in range(_count(order)):
        kind = random.choice(kinds) if len(kinds) > 1 else kinds[0]
        length = _length(order, kind, random)
        found.append(
            Message(
                number % order.lanes, kind, length, _offset(length, random), random.getrandbits(32)
            )
        )
    return tuple(found)


def _count(order: Order) -> int:
    """As many for each lane."""
    if order.verb is Verb.CNP:
        return order.lanes
    packets = -(-order.lengths.largest // order.mtu) + 1
    wanted = max(FRAMES // packets, 1)
    if order.lengths.varied or len(KINDS[order.verb]) > 1:
        wanted = VARIED
    if order.loss:
        lucky = int(_LOST / (order.loss * packets))
        wanted = min(wanted, max(LOSSY, min(lucky, MAX_LOSSY)))
    return -(-wanted // order.lanes) * order.lanes


def _length(order: Order, kind: Kind, random: Random) -> int:
    if kind in ATOMICS:
        return ATOMIC_SIZE
    length = order.lengths.pick(random)
    return min(length, order.mtu) if kind.datagram else length


def _offset(length: int, random: Random) -> int:
    """Somewhere in the page where short messages fit; long ones begin with it."""
    return random.randrange((PAGE - length) // _GRAIN + 1) * _GRAIN if length <= PAGE else 0


WORD: Final = (1 << 64) - 1


class Postman:
    """Makes work of messages between the stores of two hosts.

    ``addend`` is what fetching atomics add. Comparisons compare with it, and so fail but by a
    chance of 2**-64: what stands in a word moves on by the same step in each round.
    """

    def __init__(self, client: Store, server: Store, addend: int) -> None:
        self._client = client
        self._server = server
        self.addend = addend

    def work(self, message: Message) -> SendWR:
        """What is posted for a message; a datagram's way comes on top of it."""
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
    """Bytes of one region, and the same of the other."""
    piece = Sge(local.iova + message.offset, message.length, local.lkey)
    return SendWR(
        message.kind.opcode,
        (piece,) if message.length else (),
        remote_address=remote.iova + message.offset,
        rkey=remote.rkey,
        imm_data=message.imm,
    )


_HEADERS: Final = 128
"""Bytes of a frame beside its payload, at most."""
_TURN: Final = IBTA.packets_per_ack + BURST
"""Frames that a queue pair sends until it asked for an ACK."""
_BOTH: Final = 2
"""There and back."""


def exponent(order: Order, messages: Iterable[Message]) -> int:
    """That of the Local ACK Timeout (IBA 9.7.6.1.3): what is asked for, or what fits."""
    if order.timeout is not None:
        return order.timeout
    units = _longest(order, list(messages)) // ACK_TIMEOUT_UNIT
    return min(units.bit_length() + 1, LAST_TIMEOUT)


def _longest(order: Order, messages: list[Message]) -> int:
    """Nanoseconds after which any request is answered, however the queue pairs take turns."""
    frames = sum(_frames(message.length, order.mtu) for message in messages)
    queued = _time(order, min(frames, order.lanes * _TURN), order.rate)
    time = _BOTH * order.links * (queued + order.latency)
    return time if order.marks is None else time + _slowed_down(order, messages)


def _slowed_down(order: Order, messages: list[Message]) -> int:
    """Nanoseconds that a sender takes until it asks for an ACK, where nobody is slower."""
    sent = [0 if message.kind.opcode in WITHOUT_DATA else message.length for message in messages]
    frames = min(_frames(max(sent), order.mtu), IBTA.packets_per_ack) + 1
    return _time(order, frames, min(order.rate, int(DcqcnParameters().min_rate)))


def _frames(length: int, mtu: int) -> int:
    return max(-(-length // mtu), 1)


def _time(order: Order, frames: int, rate: int) -> int:
    """Nanoseconds that so many frames take at most."""
    return frames * bit_times(min(order.mtu, order.lengths.largest) + _HEADERS) * SECOND // rate


PERSISTENT: Final = replace(IBTA, endless_retry_cnt=7)
"""An adapter that never gives a peer up: what is lost is sent again until it arrives."""

QPNS: Final = range(0x100, 0xFFFFFE)
"""Numbers of queue pairs that look like no mistake."""


class Unfinished(RdmaError):
    """Traffic that came to no good end: what the adapters did is not what was asked for."""


class Lane(NamedTuple):
    """Two queue pairs that talk to one another; ``asks`` is the requester's."""

    asks: QueuePair
    answers: QueuePair


class Position(NamedTuple):
    """Where what is sent to a queue pair stands: PSN, MSN, and the word that atomics return."""

    psn: int
    msn: int = 0
    word: int = 0


class End(Host):
    """One adapter: memory, a CQ, and a shared receive queue, so that no ACK counts receives."""

    def __init__(self, number: int, order: Order, messages: int) -> None:
        super().__init__(number, profile=PERSISTENT, place=order.place(number))
        random = Random(f"{order.seed}/memory {number}")  # noqa: S311 - it must be repeatable
        longest = max(order.lengths.largest, order.mtu + GRH.SIZE)
        self.store = Store(self, longest=longest, words=order.lanes, gpu=order.gpu, random=random)
        self.cq = self.nic.create_cq(messages + 1)
        self.srq = self.nic.create_srq(self.pd, messages)
        sink = self.store.sink
        self._receive = RecvWR((Sge(sink.iova, sink.length, sink.lkey),))
        self._init = QPInit(self.pd, self.cq, self.cq, QPCap(messages, 0, 1, 0, 0), self.srq)

    def queue_pair(self, kind: QPType, number: int) -> QueuePair:
        """A new one with this number, in RESET."""
        return self.nic.create_qp(kind, self._init, number)

    def expect(self, messages: int) -> None:
        """Have receives for so many; those that nobody took are there still."""
        missing = min(messages - len(self.srq), self.srq.free)
        self.nic.post_srq_recv(self.srq, [self._receive] * missing)

    def poll(self) -> list[WorkCompletion]:
        """All completions that are there."""
        return self.cq.poll(len(self.cq))


class Work(NamedTuple):
    """A message as it is posted: ``client`` posts ``wr`` to ``qp``; ``server`` is its peer."""

    client: End
    qp: QueuePair
    wr: SendWR
    server: End


class Ends:
    """All adapters with their lanes. Clients ask, servers answer.

    Which two hosts a lane joins, :meth:`Order.pair_of` says.
    """

    def __init__(self, order: Order, messages: tuple[Message, ...]) -> None:
        self._order = order
        self._messages = messages
        self._timeout = exponent(order, messages)
        self._random = Random(f"{order.seed}/queue pairs")  # noqa: S311 - it must be repeatable
        self._numbers = self._random.sample(QPNS, 4 * order.lanes)
        self.hosts = tuple(End(number + 1, order, len(messages)) for number in range(order.hosts))
        self.clients, self.servers = self.hosts[: order.clients], self.hosts[order.clients :]
        self._capable = self._senders_of_data(messages)
        datagrams = {message.kind.datagram for message in messages}
        self.lanes = self._lanes(QPType.RC) if False in datagrams else ()
        self.datagrams = self._lanes(QPType.UD) if True in datagrams else ()
        self._addend = self._random.getrandbits(64)
        self._work = [self._of(message) for message in messages]

    def pair(self, lane: int) -> tuple[End, End]:
        """The client and the server of a lane."""
        client, server = self._order.pair_of(lane)
        return self.clients[client], self.servers[server]

    def _lanes(self, kind: QPType) -> tuple[Lane, ...]:
        return tuple(self._lane(kind, self.pair(number)) for number in range(self._order.lanes))

    def _lane(self, kind: QPType, ends: tuple[End, End]) -> Lane:
        """Two queue pairs that are ready to send, the client's and the server's."""
        lane = Lane(*(end.queue_pair(kind, self._numbers.pop()) for end in ends))
        there, back = self._first_psn(), self._first_psn()
        self._bring_up(*ends, lane, (there, back))
        self._bring_up(*ends[::-1], Lane(*lane[::-1]), (back, there))
        return lane

    def _first_psn(self) -> int:
        drawn = self._random.randrange(MODULUS)
        return drawn if self._order.psn is None else self._order.psn

    def _bring_up(self, own: End, peer: End, lane: Lane, psns: tuple[int, int]) -> None:
        attributes = ATTRIBUTES._replace(
            path_mtu=MTU.of(self._order.mtu),
            sq_psn=psns[0],
            rq_psn=psns[1],
            dest_qp_num=lane.answers.number,
            ah=self.path(own, peer),
            max_rd_atomic=PERSISTENT.max_qp_init_rd_atom,
            max_dest_rd_atomic=PERSISTENT.max_qp_rd_atom,
            timeout=self._timeout,
        )
        own.bring_up(lane.asks, attributes)
        if lane.asks.service.reliable:
            own.nic.limit_in_flight(lane.asks, self._order.window or MAX_IN_FLIGHT)
        self._control_congestion(own, lane.asks)

    def _control_congestion(self, own: End, qp: QueuePair) -> None:
        """Send CNPs for marks, and react to CNPs. For CNPs alone, servers answer each mark."""
        order = self._order
        if order.verb is Verb.CNP and own in self.servers:
            own.nic.notify_congestion(qp, 0, order.cnp_dscp << 2)
        if order.marks is not None and qp.service.connected:
            own.nic.notify_congestion(qp, traffic_class=order.cnp_dscp << 2)
            own.nic.control_congestion(qp, Dcqcn(DcqcnParameters.at(order.rate)))

    def path(self, own: Host, peer: Host) -> AddressHandle:
        """From one host to the other, with the DSCP and the ECN that are asked for.

        A queue pair that has data to send is ECN-capable; one that only answers, or only asks, is
        not.
        """
        ecn = ECN.ECT_0 if own.mac in self._capable else ECN.NOT_ECT
        return own.path_to(peer, self._order.dscp << 2 | ecn)

    def _senders_of_data(self, messages: tuple[Message, ...]) -> tuple[bytes, ...]:
        """The Ethernet addresses of those whose frames carry data, if there is any ECN."""
        if self._order.marks is None and self._order.verb is not Verb.CNP:
            return ()
        opcodes = {message.kind.opcode for message in messages}
        asks = bool(opcodes - WITHOUT_DATA)
        answers = SendOpcode.RDMA_READ in opcodes
        senders = self.clients * asks + self.servers * answers
        return tuple(end.mac for end in senders)

    # A round.

    def _of(self, message: Message) -> Work:
        """Where a message is posted, and what."""
        client, server = self.pair(message.lane)
        wr = Postman(client.store, server.store, self._addend).work(message)
        if not message.kind.datagram:
            return Work(client, self.lanes[message.lane].asks, wr, server)
        own, peer = self.datagrams[message.lane]
        path = self.path(client, server)
        wr = wr._replace(ah=path, remote_qpn=peer.number, remote_qkey=peer.qkey)
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
        """How many messages are done since the last call."""
        done = [completion for client in self.clients for completion in client.poll()]
        received = [completion for server in self.servers for completion in server.poll()]
        for completion in (*done, *received):
            if completion.status is not WCStatus.SUCCESS:
                status = WCStatus(completion.status).name
                raise Unfinished(
                    f"work ended with {status}, in traffic that goes on until all is there"
                )
        return len(done)

    # Where the conversation stands.

    def positions(self) -> dict[int, Position]:
        """By the number of the queue pair that is sent to."""
        found = {}
        for lane in (*self.lanes, *self.datagrams):
            psn = lane.asks.sq.next_psn
            found[lane.answers.number] = Position(psn)
            found[lane.asks.number] = Position(psn, lane.answers.inbound.msn)
        return found

    def step(self, before: dict[int, Position]) -> dict[int, Position]:
        """How far each position moved since then, by one whole round."""
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
        """What is added to the word of each lane, by the requester's queue pair."""
        steps = {lane.asks.number: 0 for lane in self.lanes}
        for message in self._messages:
            if message.kind.opcode is SendOpcode.ATOMIC_FETCH_AND_ADD:
                number = self.lanes[message.lane].asks.number
                steps[number] = (steps[number] + self._addend) & WORD
        return steps
