"""The adapters: queue pairs in lanes, memory, and the work of a round."""

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Final, NamedTuple

from rdmawire.errors import RdmaError
from rdmawire.fabric.host import Host
from rdmawire.fabric.pair import ATTRIBUTES
from rdmawire.ib.congestion.dcqcn import Dcqcn, DcqcnParameters
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.traffic.generate.blend import TAKES_RECEIVE, WITHOUT_DATA, Message
from rdmawire.traffic.generate.memory import Store
from rdmawire.traffic.generate.order import Order, Verb
from rdmawire.traffic.generate.patience import exponent
from rdmawire.traffic.generate.work import WORD, Postman
from rdmawire.verbs.ah import AddressHandle
from rdmawire.verbs.enums import QPType, WCStatus, WorkCompletion
from rdmawire.verbs.profile import IBTA
from rdmawire.verbs.qp_attr import QPCap
from rdmawire.verbs.wr import RecvWR, SendOpcode, SendWR, Sge
from rdmawire.wire.ib import GRH
from rdmawire.wire.inet import ECN
from rdmawire.wire.management import MTU
from rdmawire.wire.psn import MAX_IN_FLIGHT, MODULUS

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
        self._heed_congestion(own, lane.asks)

    def _heed_congestion(self, own: End, qp: QueuePair) -> None:
        """Tell of marks, and slow down when told. For CNPs alone, servers tell of each mark."""
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

    def post(self, count: int, now: int) -> None:
        """The first so many messages of a round."""
        work = self._work[:count]
        receives = Counter(one.server for one in work if one.wr.opcode in TAKES_RECEIVE)
        for server in self.servers:
            server.expect(receives[server])
        for client, qp, wr, _ in work:
            client.nic.post_send(qp, (wr,), now)

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
