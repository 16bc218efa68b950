"""Two hosts with one connection over one link, and a host that answers captured requests.

::

    pair = Pair(link=Link(latency=us(1), drop={2}))
    pair.client.write(b"hello", to=pair.server.region)
    pair.drive()
    assert pair.server.region.read(5) == b"hello"
"""

from collections.abc import Iterator
from contextlib import contextmanager
from errno import EINVAL
from functools import partial
from typing import Final, NamedTuple

from rdmawire.capture.io import AnyPath
from rdmawire.errors import VerbsError
from rdmawire.fabric.capture import CaptureTap
from rdmawire.fabric.host import ALL_ACCESS, Buffer, Host, Place, Registered
from rdmawire.fabric.link import Link
from rdmawire.fabric.simulator import Simulator
from rdmawire.ib.encapsulation import gids_of
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.ib.rules import Rules
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.identifier import Count, Randomness
from rdmawire.memory.page import PAGE_4K, PAGE_64K
from rdmawire.terminal import describe
from rdmawire.validate import check_int, check_type
from rdmawire.verbs.ah import AddressHandle
from rdmawire.verbs.enums import QPType, WorkCompletion
from rdmawire.verbs.profile import IBTA, Profile
from rdmawire.verbs.qp_attr import QPAttributes, QPCap
from rdmawire.verbs.wr import ATOMIC_SIZE, RecvWR, SendOpcode, SendWR, Sge
from rdmawire.wire import roce
from rdmawire.wire.ib import DETH, Placement
from rdmawire.wire.inet import Ethernet
from rdmawire.wire.management import MTU
from rdmawire.wire.opcode import Service, service_of

ATTRIBUTES: Final = QPAttributes(
    path_mtu=MTU.MTU_1024,
    qkey=0x11,
    rq_psn=100,
    sq_psn=100,
    qp_access_flags=ALL_ACCESS,
    max_rd_atomic=4,
    max_dest_rd_atomic=4,
    min_rnr_timer=12,
    timeout=14,
    retry_cnt=7,
    rnr_retry=6,
)
"""Attributes of a common connection. RNR retries are limited, so it fails without receives."""

CAP: Final = QPCap(1024, 1024, 4, 4, 256)
COMPLETIONS: Final = 1 << 12
REGION: Final = PAGE_64K
PSN_BITS: Final = 24
_KINDS: Final = (QPType.RC, QPType.UC, QPType.UD)


def connect(
    one: Host,
    qp: QueuePair,
    other: Host,
    other_qp: QueuePair,
    attributes: QPAttributes = ATTRIBUTES,
    *,
    traffic_class: int = 0,
    packets_in_flight: int | None = None,
) -> None:
    """Bring two queue pairs from RESET to RTS, each with the other as its peer.

    ``attributes`` are those of the first; the second has the same, with ``sq_psn`` and
    ``rq_psn`` swapped. ``traffic_class`` applies to frames of both directions: DSCP, and ECN in
    the two lowest bits. ``packets_in_flight`` is the maximum number of unacknowledged request
    packets of either queue pair; ``None`` is the limit of its profile.
    """
    check_type("attributes", attributes, QPAttributes)
    crossed = attributes._replace(sq_psn=attributes.rq_psn, rq_psn=attributes.sq_psn)
    ends = (one, qp, attributes), (other, other_qp, crossed)
    for (host, own, wanted), (peer, peers, _) in (ends, ends[::-1]):
        path = host.path_to(peer, traffic_class)
        host.bring_up(own, wanted._replace(ah=path, dest_qp_num=peers.qp_num))
        if packets_in_flight is not None:
            host.nic.limit_in_flight(own, packets_in_flight)


class Posted(NamedTuple):
    """Posted work: its number, and its local memory."""

    wr_id: int
    buffer: Registered


class End(Host):
    """One end of a connection. ``region`` is memory that the peer may access.

    Each method posts one work request, numbered from 1 on, with a new local buffer. Data to
    send or write may also be registered memory, which is then sent completely.
    """

    peer: "End"

    def __init__(
        self,
        number: int,
        simulator: Simulator,
        kind: QPType,
        cap: QPCap,
        *,
        profile: Profile,
        rules: Rules,
        ipv6: bool,
        place: Place | None,
        random: Randomness | None = None,
    ) -> None:
        super().__init__(
            number, profile=profile, rules=rules, ipv6=ipv6, place=place, random=random
        )
        self.simulator = simulator
        self.region = self.buffer(REGION)
        self.cq = self.nic.create_cq(COMPLETIONS)
        self.qp = self.nic.create_qp(kind, QPInit(self.pd, self.cq, self.cq, cap))
        self._numbers = Count(1)

    def post(self, wr: SendWR, buffer: Registered | None = None) -> Posted:
        """Post any send work request with its local memory ``buffer``, by default the region.

        Sets its number and, for a datagram, the peer's address.
        """
        check_type("wr", wr, SendWR)
        wr = self._addressed(wr)._replace(wr_id=next(self._numbers))
        self.nic.post_send(self.qp, (wr,))
        return Posted(wr.wr_id, self.region if buffer is None else buffer)

    def _addressed(self, wr: SendWR) -> SendWR:
        """Add the peer's address to datagrams that have none."""
        if self.qp.service.connected or wr.ah is not None:
            return wr
        qpn, qkey = self.peer.qp.qp_num, self.peer.qp.qkey
        return wr._replace(ah=self.path_to(self.peer), remote_qpn=qpn, remote_qkey=qkey)

    def send(
        self,
        data: bytes | Registered = b"",
        *,
        imm: int | None = None,
        invalidate: int | None = None,
    ) -> Posted:
        """SEND, optionally with an immediate or a key of the peer to invalidate."""
        source, length = self._source(data)
        wr = SendWR(SendOpcode.SEND, _piece(source, length))
        if imm is not None:
            wr = wr._replace(opcode=SendOpcode.SEND_WITH_IMM, imm_data=imm)
        elif invalidate is not None:
            wr = wr._replace(opcode=SendOpcode.SEND_WITH_INV, invalidate_rkey=invalidate)
        return self.post(wr, source)

    def _source(self, data: bytes | Registered) -> tuple[Registered, int]:
        """Registered memory that contains the data, and its length in bytes."""
        if isinstance(data, Registered):
            return data, data.region.length
        return self.filled(data), len(data)

    def write(
        self,
        data: bytes | Registered,
        *,
        to: Registered,
        offset: int = 0,
        imm: int | None = None,
    ) -> Posted:
        """RDMA WRITE to the peer's memory, optionally with an immediate."""
        source, length = self._source(data)
        wr = _remote(SendOpcode.RDMA_WRITE, source, length, to, offset)
        if imm is not None:
            wr = wr._replace(opcode=SendOpcode.RDMA_WRITE_WITH_IMM, imm_data=imm)
        return self.post(wr, source)

    def read(self, length: int, *, of: Registered, offset: int = 0) -> Posted:
        """RDMA READ of the peer's memory, into the buffer returned."""
        check_int("length", length)
        sink = self.buffer(max(length, 1))
        return self.post(_remote(SendOpcode.RDMA_READ, sink, length, of, offset), sink)

    def fetch_add(self, value: int, *, of: Registered, offset: int = 0) -> Posted:
        """Add to eight bytes of the peer's memory; return the buffer for the previous value."""
        sink = self.buffer(ATOMIC_SIZE)
        wr = _remote(SendOpcode.ATOMIC_FETCH_AND_ADD, sink, ATOMIC_SIZE, of, offset)
        return self.post(wr._replace(compare_add=value), sink)

    def compare_swap(self, compare: int, swap: int, *, of: Registered, offset: int = 0) -> Posted:
        """Swap eight bytes of the peer's memory if they equal ``compare``; as :meth:`fetch_add`."""
        sink = self.buffer(ATOMIC_SIZE)
        wr = _remote(SendOpcode.ATOMIC_CMP_AND_SWP, sink, ATOMIC_SIZE, of, offset)
        return self.post(wr._replace(compare_add=compare, swap=swap), sink)

    def atomic_write(self, data: bytes, *, to: Registered, offset: int = 0) -> Posted:
        """Write eight bytes of the peer's memory atomically. IBA A19."""
        source = self.filled(data)
        return self.post(_remote(SendOpcode.ATOMIC_WRITE, source, len(data), to, offset), source)

    def flush(
        self,
        length: int,
        *,
        of: Registered,
        offset: int = 0,
        placement: int = Placement.GLOBAL_VISIBILITY,
    ) -> Posted:
        """Wait until earlier writes have reached the ``placement`` domain. IBA A19."""
        wr = _remote(SendOpcode.FLUSH, of, 0, of, offset)
        return self.post(wr._replace(length=length, placement=placement), of)

    def receive(self, length: int = 0) -> Posted:
        """Post a receive for a message of ``length`` bytes, preceded by a GRH for datagrams."""
        check_int("length", length)
        size = length + self.qp.service.grh
        buffer = self.buffer(max(size, 1))
        recv = RecvWR(_piece(buffer, size), next(self._numbers))
        self.nic.post_recv(self.qp, (recv,))
        return Posted(recv.wr_id, buffer)

    def poll(self) -> list[WorkCompletion]:
        """Poll all completions."""
        return self.cq.poll(COMPLETIONS)


def _piece(buffer: Registered, length: int) -> tuple[Sge, ...]:
    return (buffer.sge(length),) if length else ()


def _remote(
    opcode: SendOpcode, local: Registered, length: int, peers: Registered, offset: int
) -> SendWR:
    """Work on the peer's memory, ``offset`` bytes from the start of its buffer."""
    check_type("the peer's memory", peers, Registered)
    check_type("offset", offset, int)
    address = peers.address + offset
    return SendWR(opcode, _piece(local, length), remote_address=address, rkey=peers.rkey)


class Pair:
    """A client and a server, connected and ready to send.

    ``kind`` is RC, UC or UD (``VerbsError`` EINVAL for others: use :func:`connect`).
    ``profile`` and ``rules`` (:class:`rdmawire.ib.rules.Rules`) are the client's, ``peer_profile``
    and ``peer_rules`` the server's if they differ; ``places`` are the client's and the server's.
    ``attributes`` are the client's, as for :func:`connect`. Numbers of queue pairs, keys and
    starting PSNs are the same in each pair, or drawn from ``random`` if it is given:
    ``random.Random(1)`` draws the same ones in each run, ``random.SystemRandom()`` others.
    ``packets_in_flight`` applies to both ends, as for :func:`connect`.
    """

    def __init__(
        self,
        link: Link | None = None,
        *,
        kind: QPType = QPType.RC,
        profile: Profile = IBTA,
        peer_profile: Profile | None = None,
        rules: Rules = STANDARD,
        peer_rules: Rules | None = None,
        ipv6: bool = False,
        attributes: QPAttributes = ATTRIBUTES,
        cap: QPCap = CAP,
        places: tuple[Place | None, Place | None] = (None, None),
        random: Randomness | None = None,
        packets_in_flight: int | None = None,
    ) -> None:
        _check_kind(kind)
        check_type("places", places, tuple)
        check_int("the number of places", len(places), 2, 2)
        self.link = Link() if link is None else link
        check_type("link", self.link, Link)
        self.simulator = Simulator()
        make = partial(End, simulator=self.simulator, kind=kind, cap=cap, ipv6=ipv6, random=random)
        self.client = make(1, profile=profile, rules=rules, place=places[0])
        self.server = make(
            2,
            profile=profile if peer_profile is None else peer_profile,
            rules=rules if peer_rules is None else peer_rules,
            place=places[1],
        )
        self.client.peer, self.server.peer = self.server, self.client
        for end in (self.client, self.server):
            self.simulator.attach(end.nic, end.mac, self.link)
        if random is not None:
            psns = random.getrandbits(PSN_BITS), random.getrandbits(PSN_BITS)
            attributes = attributes._replace(sq_psn=psns[0], rq_psn=psns[1])
        qps = (self.client, self.client.qp, self.server, self.server.qp)
        connect(*qps, attributes, packets_in_flight=packets_in_flight)

    def __repr__(self) -> str:
        return (
            f"<Pair: client {self.client.qp!r}, server {self.server.qp!r}, {self.simulator.now} ns>"
        )

    def drive(self, until: int | None = None) -> None:
        """Run the simulator until nothing is left to do, or up to the time ``until`` (ns)."""
        self.simulator.run(until)

    @contextmanager
    def captured(self, path: AnyPath) -> Iterator[None]:
        """Capture all frames put on the link, lost frames too, with the link's frame numbers.

        In a pcapng, comments name the effects of faults on frames: ``lost on the link``.
        """
        with CaptureTap(path) as tap:
            self.simulator.on_sent.append(tap)
            self.link.on_carried.append(tap.carried)
            try:
                yield
            finally:
                self.simulator.on_sent.remove(tap)
                self.link.on_carried.remove(tap.carried)


def _check_kind(kind: QPType) -> None:
    if kind not in _KINDS:
        kinds = ", ".join(one.name for one in _KINDS)
        found = kind.name if isinstance(kind, QPType) else describe(kind)
        raise VerbsError(f"no pair of {found}: there are pairs of {kinds}", EINVAL)


_QP_TYPES: Final = {Service.RC: QPType.RC, Service.UC: QPType.UC, Service.UD: QPType.UD}


class Responder(Host):
    """A host with the addresses, queue pair number and PSN that a first RoCEv2 request expects.

    A request does not contain its sender's QP number: ``peer_qpn`` is the destination of responses.
    ``attributes`` gives all other values. ``VerbsError`` EINVAL for services other than RC, UC
    and UD; ``WireError`` for bytes that are no RoCE frame.
    """

    def __init__(
        self,
        request: bytes,
        *,
        peer_qpn: int = 0,
        attributes: QPAttributes = ATTRIBUTES,
        profile: Profile = IBTA,
    ) -> None:
        frame = roce.parse(request)
        peer, own = gids_of(frame.headers)
        ethernet = next(piece for piece in frame.headers if isinstance(piece, Ethernet))
        super().__init__(place=Place(ethernet.dst, own), profile=profile)
        self.cq = self.nic.create_cq(COMPLETIONS)
        bth = frame.packet.bth
        init = QPInit(self.pd, self.cq, self.cq, CAP)
        self.qp = self.nic.create_qp(_qp_type(bth.opcode), init, bth.destqp)
        wanted = attributes._replace(
            ah=AddressHandle(ethernet.src, peer, own), dest_qp_num=peer_qpn, rq_psn=bth.psn
        )
        qkeys = (piece.qkey for piece in frame.packet.extended if isinstance(piece, DETH))
        self.bring_up(self.qp, wanted._replace(qkey=next(qkeys, attributes.qkey)))

    def memory(self, address: int, length: int, rkey: int, access: int = ALL_ACCESS) -> Buffer:
        """Register ``length`` bytes for the peer at the address and key in its requests.

        Accesses beyond ``length`` are refused.
        """
        inside = address % PAGE_4K
        memory = self.space.allocate(inside + length)
        start = memory.base + inside
        region = self.nic.memory.reg_mr(self.pd, start, length, access, iova=address)
        self.nic.memory.choose_key(region, rkey)
        return Buffer(memory, region)

    def receive(self, length: int) -> Buffer:
        """Post a receive for a message of ``length`` bytes, preceded by a GRH for datagrams."""
        sink = self.buffer(max(length + self.qp.service.grh, 1))
        self.nic.post_recv(self.qp, (RecvWR((sink.sge(),)),))
        return sink

    def answer(self, frame: bytes, now: int = 0) -> list[bytes]:
        """Receive one frame at ``now`` (ns); return the frames of the response.

        Empty for a request that needs no response, and for a dropped one: ``drops`` of
        the adapter (``nic``) count those, by reason.
        """
        self.nic.receive(frame, now)
        answers: list[bytes] = []
        while sent := self.nic.transmit(now):
            answers += sent
        return answers

    def poll(self) -> list[WorkCompletion]:
        """Poll all completions of receives."""
        return self.cq.poll(COMPLETIONS)


def _qp_type(opcode: int) -> QPType:
    service = service_of(opcode)
    if service not in _QP_TYPES:
        names = ", ".join(kind.name for kind in _QP_TYPES)
        raise VerbsError(f"no responder for {service.name}: there are {names}", EINVAL)
    return _QP_TYPES[service]
