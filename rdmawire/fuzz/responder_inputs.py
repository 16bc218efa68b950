"""Random inputs for a responder: mostly what may follow, and near misses of every check.

The generator sees the model's state, so that it reaches states deep in a message and then sends
what is almost right: a PSN off by one, a key off by one, a length off by one.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from random import Random
from typing import Any, Final, NamedTuple, TypeVar

from rdmawire.fuzz.frames import MAX_NATIVE_PAYLOAD
from rdmawire.fuzz.inputs import ChecksumState, Input, PacketInput, ReceiveInput
from rdmawire.fuzz.responder_model import ResponderModel
from rdmawire.fuzz.setup import (
    AREAS,
    QKEY,
    RECEIVE_SLOT,
    SHARED_QUEUES,
    WINDOW,
    Network,
    Setup,
)
from rdmawire.verbs.enums import QPType
from rdmawire.wire.opcode import OPERATIONS, SHAPES, Service
from rdmawire.wire.opcode import Operation as Op
from rdmawire.wire.serial import MODULUS

T = TypeVar("T")

_NEAR_MISSES: Final = (0.01, 0.04, 0.25)
"""Shares of near misses in a case: with few of them a case is long, as most end the connection."""
_HELD: Final = (0, 0, 0, 0.7)
"""Shares of packets in a case after which the target has not enough room for all frames."""
_HELD_REPEATS: Final = 0.3
"""Share of duplicates in such a case."""
_ROOMS: Final = (0, 0, 0, 1, 2, 5)
_EMPTY_LAST: Final = 0.1
"""Share of messages in which a middle packet brings the last bytes."""
_PSNS: Final = (1000, 0, 1, MODULUS - 1, MODULUS - 2, MODULUS // 2, MODULUS // 2 - 1)
_QKEYS: Final = (QKEY, QKEY, 0, 0x8000_0000, 0x8001_0000, 0x7FFF_FFFF, 0xFFFF_FFFF)
"""Q_Keys; those whose high bit is set are privileged."""
_NETWORKS: Final = (
    *(Network.ROCE2_IPV4,) * 8,
    *(Network.ROCE2_IPV6, Network.ROCE1) * 2,
    *(Network.IB_LOCAL, Network.IB_GLOBAL),
)


def random_setup(random: Random, service: QPType = QPType.RC) -> Setup:
    """Return a setup: first PSNs near the wrap, small MTUs, few READs."""
    return Setup(
        service=service,
        network=random.choice(_NETWORKS),
        psn=random.choice(_PSNS),
        mtu=random.choice((256, 256, 512)),
        rd_atomic=random.choice((4, 4, 2, 1, 0)),
        rnr_timer=random.choice((12, 0, 31)),
        access=random.random() < 0.95,
        qkey=random.choice(_QKEYS) if service is QPType.UD else QKEY,
    )


class Traffic(NamedTuple):
    """What the requests of a service are drawn from.

    ``begin`` are the operations that begin a message, ``receives`` lengths of receives in bytes,
    ``mutations`` changes of a packet, ``srqs`` indices of shared receive queues, ``lengths`` those
    of payloads, besides the path MTU and one byte less. A value that is there twice is drawn twice
    as often. ``posts`` and ``repeats`` are the shares of receives and of duplicates among all
    inputs.
    """

    service: Service
    begin: tuple[Op, ...]
    receives: tuple[int, ...]
    mutations: "tuple[PacketChange, ...]"
    srqs: tuple[int, ...] = (0,)
    lengths: tuple[int, ...] = (0, 1, 3, 64)
    posts: float = 0.12
    repeats: float = 0.1

    @property
    def requests(self) -> tuple[int, ...]:
        """The opcodes of all requests."""
        return _REQUESTS[self.service]

    @property
    def lasts(self) -> dict[str, tuple[Op, ...]]:
        """The operations that end a message, by its family."""
        return _LASTS[self.service]


class ResponderInputs:
    """Draws the inputs of one case from ``random``, with the state of ``model``.

    ``receives`` says whether receives can be posted, ``holds`` whether the target can transmit
    later.
    """

    def __init__(
        self, random: Random, model: ResponderModel, *, receives: bool = True, holds: bool = False
    ) -> None:
        self._receives = receives
        self._random = random
        self._model = model
        self._uniform = random.random
        self._bits = random.getrandbits
        self._near_misses = self._choose(_NEAR_MISSES)
        self._traffic = traffic = TRAFFIC[model.wire]
        self._posts = 1 - traffic.posts
        self._base = model.wire << 5
        self._shares = len(traffic.srqs) > 1
        answers = traffic.service in (Service.RC, Service.XRC)
        self._held = self._choose(_HELD) if holds and answers else 0
        repeats = _HELD_REPEATS if self._held else traffic.repeats
        self._repeats = self._posts - repeats

    def _choose(self, among: Sequence[T]) -> T:
        """Return one of several values; a third of the time of Random.choice."""
        return among[int(self._uniform() * len(among))]

    def next(self) -> Input:
        """Return the next input."""
        one = self._next()
        if self._held and one.__class__ is PacketInput and self._uniform() < self._held:
            one.room = self._choose(_ROOMS)
        return one

    def _next(self) -> Input:
        number = self._uniform()
        if number < self._near_misses:
            return self._near_miss()
        if number > self._posts:
            return self._receive()
        if number > self._repeats:
            return self._repeated()
        return self._fitting()

    def _receive(self) -> Input:
        srq = self._choose(self._traffic.srqs)
        if not self._receives or self._model.waiting(srq) > 6:
            return self._fitting()
        lengths, any_length = self._traffic.receives, self._random.random() < 4 * self._near_misses
        return ReceiveInput(self._choose(lengths) if any_length else max(lengths), srq)

    def _fitting(self) -> PacketInput:
        """A packet that may follow: it continues a message, or begins one."""
        model = self._model
        family = model.message.family
        if family:
            return self._going_on(family)
        operation = self._choose(self._traffic.begin)
        if operation in _SINGLE and not model.setup.rd_atomic and self._uniform() < 0.8:
            operation = Op.SEND_ONLY
        return self._begin(operation)

    def _going_on(self, family: str) -> PacketInput:
        random, mtu = self._random, self._model.setup.mtu
        message = self._model.message
        left = message.limit - message.placed
        full = left > mtu or (left == mtu and random.random() < _EMPTY_LAST)
        if full and random.random() >= self._near_misses:
            return self._packet(_MIDDLES[family], mtu)
        length = left if 0 <= left <= mtu else random.randrange(1, mtu + 1)
        return self._packet(self._choose(self._traffic.lasts[family]), length)

    def _begin(self, operation: Op) -> PacketInput:
        if operation in _SINGLE:
            return self._single(operation)
        mtu = self._model.mtu
        if operation == _WRITE_FIRST:
            dmalen = self._choose((mtu + 1, 2 * mtu, 2 * mtu + 7, 3 * mtu))
            return self._packet(operation, mtu, dmalen=dmalen)
        lengths = (*self._traffic.lengths, mtu - 1, mtu)
        length = mtu if operation == _SEND_FIRST else self._choose(lengths)
        region = self._region(length, 2) if operation in _WRITES else 0
        if operation == _INVALIDATES:
            region = len(AREAS)
        return self._packet(operation, length, region)

    def _single(self, operation: Op) -> PacketInput:
        """A request whose response is more than an ACK."""
        random, mtu = self._random, self._model.mtu
        if operation == Op.RDMA_READ_REQUEST:
            dmalen = self._choose((0, 1, 64, mtu - 1, mtu, mtu + 1, 3 * mtu))
            return self._packet(operation, 0, self._region(dmalen, 1), dmalen)
        if operation == Op.FLUSH:
            return self._packet(operation, 0, dmalen=64, value=random.randrange(1, 4))
        offset = 8 * random.randrange(8)
        if random.random() < self._near_misses / 2:
            offset += self._choose((1, 2, 4))
        if operation == Op.CMP_SWAP:
            return self._compare_swap(offset)
        length = 8 if operation == Op.ATOMIC_WRITE else 0
        return self._packet(operation, length, offset=offset)

    def _compare_swap(self, offset: int) -> PacketInput:
        """Compare with what is there, or with one bit of it changed, or with any number."""
        random, start = self._random, AREAS[0].start + offset
        present = int.from_bytes(self._model.memory[start : start + 8], "little")
        number = random.random()
        if number < 0.3:
            return self._packet(Op.CMP_SWAP, 0, offset=offset)
        bit = 1 << random.randrange(64) if number < 0.6 else 0
        return self._packet(Op.CMP_SWAP, 0, offset=offset, compare=present ^ bit)

    def _region(self, length: int, small: int) -> int:
        """The first region, or ``small`` if it has ``length`` bytes after each offset."""
        fits = length <= AREAS[small].length - _OFFSETS[-1]
        return small if fits and self._random.random() < 0.25 else 0

    def _packet(
        self,
        operation: int,
        length: int,
        region: int = 0,
        dmalen: int | None = None,
        **more: int,
    ) -> PacketInput:
        """A packet with random values; ``more`` are fields that have given ones."""
        uniform, bits = self._uniform, self._bits
        ackreq = 1 if uniform() < 0.8 else 0
        seed = bits(9)
        while seed > 255:  # as in Random.randrange(256), which takes four times as long
            seed = bits(9)
        one = PacketInput(
            self._base | operation,
            0,
            ackreq,
            length,
            seed,
            region,
            _OFFSETS[int(uniform() * len(_OFFSETS))],
            dmalen,
            0,
            _VALUES[int(uniform() * len(_VALUES))],
            self._choose(_VALUES) if operation == _CMP_SWAP else 0,
        )
        if self._shares:
            one.srq = self._queue()
        return _replaced(one, **more) if more else one

    def _queue(self) -> int:
        """The shared receive queue of the message in progress, or any that may be used."""
        traffic, model = self._traffic, self._model
        if model.message.family:
            return model.selected
        return self._choose(traffic.srqs)

    def _repeated(self) -> PacketInput:
        """A duplicate: of a READ or atomic that is remembered, or of anything."""
        random, model = self._random, self._model
        if not model.remembered or random.random() < 0.3:
            return self._shifted(self._fitting(), self._choose((-1, -1, -2, -3, -9, -(1 << 23))))
        one = self._choose(list(model.remembered))
        skipped = random.randrange(one.packets)
        ahead = -((model.epsn - one.psn) % MODULUS) + skipped
        region = next((at for at, rkey in enumerate(model.numbers.rkeys) if rkey == one.rkey), 0)
        offset = one.va - model.numbers.vas[region] + skipped * model.setup.mtu
        dmalen = max(one.length - skipped * model.setup.mtu, 0)
        again = PacketInput(
            opcode=one.opcode,
            ahead=max(ahead, -(1 << 23)),
            length=8 if one.opcode & 31 == Op.ATOMIC_WRITE else 0,
            region=region,
            offset=offset,
            dmalen=dmalen,
            value=one.value,
            compare=one.compare,
        )
        return self._mutated(again) if random.random() < 4 * self._near_misses else again

    def _near_miss(self) -> PacketInput:
        """A packet that is almost right."""
        random = self._random
        one = self._fitting() if random.random() < 0.7 else self._packet(
            self._choose(self._traffic.requests) & 31,
            self._choose((0, 1, 8, 64, self._model.mtu)),
        )  # fmt: skip
        return self._mutated(one)

    def _mutated(self, one: PacketInput) -> PacketInput:
        mutation = self._choose(self._traffic.mutations)
        return mutation(self, one)

    # Mutations.

    def _shifted(self, one: PacketInput, steps: int) -> PacketInput:
        ahead = min(max(one.ahead + steps, -(1 << 23)), 1 << 23)
        return _replaced(one, ahead=ahead)

    def _other_psn(self, one: PacketInput) -> PacketInput:
        return self._shifted(one, self._choose(_STEPS))

    def _other_length(self, one: PacketInput) -> PacketInput:
        mtu = self._model.mtu
        long = min(2 * mtu, MAX_NATIVE_PAYLOAD)
        lengths = (0, 1, one.length - 1, one.length + 1, mtu - 1, mtu, mtu + 1, mtu + 4, long)
        return _replaced(one, length=max(self._choose(lengths), 0))

    def _other_dmalen(self, one: PacketInput) -> PacketInput:
        dmalen = one.length if one.dmalen is None else one.dmalen
        near = (dmalen - 1, dmalen + 1, 0, 1 << 31, (1 << 31) + 1, (1 << 32) - 1, one.length)
        return _replaced(one, dmalen=max(self._choose(near), 0))

    def _other_key(self, one: PacketInput) -> PacketInput:
        return _replaced(one, key=self._choose((1, -1, 0x100, -0x100, 0x10000, 1 << 31)))

    def _other_offset(self, one: PacketInput) -> PacketInput:
        area = (*AREAS, WINDOW)[one.region]
        dmalen = one.length if one.dmalen is None else one.dmalen
        end = area.length - dmalen
        offsets = (-1, -8, end, end + 1, end + 8, area.length, 1, 2, 4, 7, 1 << 63, 1 << 32)
        return _replaced(one, offset=self._choose(offsets))

    def _other_region(self, one: PacketInput) -> PacketInput:
        return _replaced(one, region=self._random.randrange(len(AREAS) + 1))

    def _other_opcode(self, one: PacketInput) -> PacketInput:
        number = self._random.random()
        if number < 0.2:
            return _replaced(one, opcode=self._random.randrange(256))
        if number < 0.3:
            return _replaced(one, opcode=one.opcode & 31 | self._random.randrange(8) << 5)
        return _replaced(one, opcode=self._choose(self._traffic.requests))

    def _other_queue(self, one: PacketInput) -> PacketInput:
        if self._random.random() < 0.3:
            number = self._choose((0, 1, 0x7F_FFFF, 0xFF_FFFF))
            return _replaced(one, fields=(("xrceth.xrcsrq", number),))
        return _replaced(one, srq=self._random.randrange(len(SHARED_QUEUES)))

    def _other_datagram(self, one: PacketInput) -> PacketInput:
        name, values = self._choose(_DATAGRAM_FIELDS)
        return _replaced(one, fields=((name, self._choose(values)),))

    def _bad_checksum(self, one: PacketInput) -> PacketInput:
        return _replaced(one, checksum=ChecksumState.BROKEN.name)

    def _other_field(self, one: PacketInput) -> PacketInput:
        name, values = self._choose(_LINK_FIELDS[self._model.setup.network])
        checksum = "STALE" if self._random.random() < 0.15 else "GOOD"
        fields = ((name, self._choose(values)),)
        return _replaced(one, fields=fields, checksum=checksum)

    def _truncated(self, one: PacketInput) -> PacketInput:
        return _replaced(one, cut=self._random.randrange(1, 9))

    def _other_headers(self, one: PacketInput) -> PacketInput:
        shape = SHAPES.get(one.opcode)
        own = list(shape.headers) if shape else []
        names = [f"-{name}" for name in own] + [*_ADDED]
        return _replaced(one, extra=(self._choose(names),))

    def _other_operands(self, one: PacketInput) -> PacketInput:
        return _replaced(one, value=self._choose(_VALUES), compare=self._choose(_VALUES))


def _replaced(one: PacketInput, **values: Any) -> PacketInput:
    """A copy with other values, in a third of the time of ``dataclasses.replace``."""
    made = PacketInput(*_values_of(one))
    for name, value in values.items():
        setattr(made, name, value)
    return made


_values_of: Final = attrgetter(*(field.name for field in fields(PacketInput)))


PacketChange = Callable[[ResponderInputs, PacketInput], PacketInput]
_MUTATIONS: Final[tuple[PacketChange, ...]] = (
    *(ResponderInputs._other_psn,) * 4,
    *(ResponderInputs._other_length,) * 3,
    *(ResponderInputs._other_dmalen,) * 2,
    *(ResponderInputs._other_key,) * 2,
    *(ResponderInputs._other_offset,) * 3,
    *(ResponderInputs._other_region,) * 2,
    *(ResponderInputs._other_opcode,) * 3,
    ResponderInputs._other_operands,
    ResponderInputs._bad_checksum,
    *(ResponderInputs._other_field,) * 4,
    ResponderInputs._truncated,
    ResponderInputs._other_headers,
)
"""Changes of a packet that names memory."""
_DATAGRAM_MUTATIONS: Final[tuple[PacketChange, ...]] = (
    *(ResponderInputs._other_key,) * 4,
    *(ResponderInputs._other_datagram,) * 4,
    *(ResponderInputs._other_length,) * 3,
    *(ResponderInputs._other_opcode,) * 3,
    ResponderInputs._other_psn,
    ResponderInputs._bad_checksum,
    *(ResponderInputs._other_field,) * 4,
    ResponderInputs._truncated,
    ResponderInputs._other_headers,
)
_ADDED: Final = ("immdt", "reth", "ieth", "atomiceth", "aeth", "deth", "xrceth")
_REQUESTS: Final = {
    service: tuple(
        opcode for opcode, shape in SHAPES.items() if opcode >> 5 == service and not shape.response
    )
    for service in Service
}
_CMP_SWAP: Final = Op.CMP_SWAP
_SEND_FIRST: Final = Op.SEND_FIRST
_WRITE_FIRST: Final = Op.RDMA_WRITE_FIRST
_INVALIDATES: Final = Op.SEND_ONLY_WITH_INVALIDATE
_SINGLE: Final = frozenset(
    (Op.RDMA_READ_REQUEST, Op.CMP_SWAP, Op.FETCH_ADD, Op.ATOMIC_WRITE, Op.FLUSH)
)
"""Operations that need the responder's resources."""
_WRITES: Final = (Op.RDMA_WRITE_ONLY, Op.RDMA_WRITE_ONLY_WITH_IMMEDIATE)
_BEGIN_UC: Final = (
    *(Op.SEND_ONLY, Op.SEND_FIRST, Op.SEND_FIRST, Op.SEND_ONLY_WITH_IMMEDIATE),
    *(Op.RDMA_WRITE_ONLY, Op.RDMA_WRITE_FIRST, Op.RDMA_WRITE_FIRST),
    Op.RDMA_WRITE_ONLY_WITH_IMMEDIATE,
)
_BEGIN: Final = (
    *(*_BEGIN_UC, Op.SEND_ONLY_WITH_INVALIDATE),
    *(Op.RDMA_READ_REQUEST, Op.RDMA_READ_REQUEST, Op.CMP_SWAP, Op.FETCH_ADD),
    *(Op.ATOMIC_WRITE, Op.FLUSH),
)
_MIDDLES: Final = {"SEND": Op.SEND_MIDDLE, "RDMA WRITE": Op.RDMA_WRITE_MIDDLE}
_ENDS: Final = {
    "SEND": (Op.SEND_LAST, Op.SEND_LAST_WITH_IMMEDIATE, Op.SEND_LAST_WITH_INVALIDATE),
    "RDMA WRITE": (Op.RDMA_WRITE_LAST, Op.RDMA_WRITE_LAST_WITH_IMMEDIATE),
}
_LASTS: Final = {
    service: {
        family: tuple(end for end in ends if end in operations) for family, ends in _ENDS.items()
    }
    for service, operations in OPERATIONS.items()
}
_STEPS: Final = (1, 1, 2, 3, -1, -1, -2, -8, 1 << 22, (1 << 23) - 1, 1 << 23, -(1 << 23))
_OFFSETS: Final = (0, 0, 1, 8, 16, 64, 100)
_VALUES: Final = (0, 1, 2, 7, 0xFFFFFFFF, (1 << 64) - 1, 1 << 63)
_TRANSPORT_FIELDS: Final = (
    ("bth.tver", (1, 15)),
    ("bth.pkey", (0x7FFF, 0x8001, 0, 0xFFFE)),
    ("bth.destqp", (0x10, 0x12, 0, 1, 0xFFFFFF)),
    ("bth.padcnt", (0, 1, 2, 3)),
    ("bth.se", (0, 1)),
    ("bth.migreq", (0, 1)),
    ("bth.fecn", (1,)),
    ("bth.becn", (1,)),
    ("bth.resv6", (1, 63)),
    ("bth.resv7", (1, 127)),
)
_FIELDS: Final = (
    *_TRANSPORT_FIELDS,
    ("ip.version", (0, 5, 6)),
    ("ip.ihl", (4, 6)),
    ("ip.dscp", (0, 63)),
    ("ip.ecn", (1, 2, 3)),
    ("ip.ttl", (0, 1, 255)),
    ("ip.mf", (1,)),
    ("ip.fragment_offset", (1,)),
    ("ip.protocol", (6, 0)),
    ("ip.total_length", (0, 20, 60, 0xFFFF)),
    ("ip.checksum", (0, 0x1234)),
    ("ip.src", (0x0A000003,)),
    ("ip.dst", (0x0A000003, 0xFFFFFFFF)),
    ("udp.dstport", (4790, 0)),
    ("udp.srcport", (0, 1, 0xFFFF)),
    ("udp.length", (0, 8, 0xFFFF)),
    ("udp.checksum", (1,)),
    ("eth.dst", (0x020000000003, 0xFFFFFFFFFFFF)),
    ("eth.src", (0x020000000009,)),
    ("eth.type", (0, 0x0806)),
)
"""Fields with values near their bounds."""
_GRH_FIELDS: Final = (
    ("grh.ipver", (0, 4, 5)),
    ("grh.tclass", (1, 255)),
    ("grh.flowlabel", (1, 0xFFFFF)),
    ("grh.paylen", (0, 4, 0xFFFF)),
    ("grh.nxthdr", (0, 17)),
    ("grh.hoplmt", (0, 255)),
    ("grh.sgid", (0, 0xFD00 << 112 | 3)),
    ("grh.dgid", (0, 0xFD00 << 112 | 3)),
)
_LRH_FIELDS: Final = (
    ("lrh.vl", (1, 15)),
    ("lrh.lver", (1, 15)),
    ("lrh.sl", (1, 15)),
    ("lrh.resv2", (1, 3)),
    ("lrh.lnh", (0, 1, 2, 3)),
    ("lrh.dlid", (0, 3, 5, 6, 0xC001, 0xFFFF)),
    ("lrh.resv5", (1, 31)),
    ("lrh.pktlen", (0, 5, 8, 2047)),
    ("lrh.slid", (0, 3, 6, 0xFFFF)),
)
_LINK_FIELDS: Final = {
    Network.ROCE2_IPV4: _FIELDS,
    Network.ROCE2_IPV6: _FIELDS,
    Network.ROCE1: _FIELDS + _GRH_FIELDS,
    Network.IB_LOCAL: _TRANSPORT_FIELDS + _LRH_FIELDS,
    Network.IB_GLOBAL: _TRANSPORT_FIELDS + _LRH_FIELDS + _GRH_FIELDS,
}
"""Fields that are changed, by network."""
_DATAGRAM_FIELDS: Final = (
    ("deth.qkey", (0, 1, 0x8001_0000, 0xFFFF_FFFF)),
    ("deth.srcqp", (0, 1, 0x4C, 0xFF_FFFF)),
    ("ip.src", (0x0A000003, 0x0A0000FE)),
    ("eth.src", (0x020000000009,)),
    ("ip.ecn", (1, 2, 3)),
    ("ip.ttl", (0, 1, 255)),
    ("bth.se", (1,)),
)
"""Fields of datagrams that are checked or delivered."""
_RECEIVE_LENGTHS: Final = (0, 1, 63, 64, 65, 255, 256, 257, 600, RECEIVE_SLOT)
_DATAGRAM_LENGTHS: Final = (
    *(4144,) * 8,
    *(4136,) * 4,
    *(600,) * 4,
    *(4135, RECEIVE_SLOT, 104, 43, 41, 40, 39, 0),
)
"""Few are short: a receive that is too short for a datagram is left for the next one."""
TRAFFIC: Final = {
    traffic.service: traffic
    for traffic in (
        Traffic(Service.RC, _BEGIN, _RECEIVE_LENGTHS, _MUTATIONS),
        Traffic(Service.UC, _BEGIN_UC, _RECEIVE_LENGTHS, _MUTATIONS),
        Traffic(
            Service.UD,
            (Op.SEND_ONLY, Op.SEND_ONLY_WITH_IMMEDIATE),
            _DATAGRAM_LENGTHS,
            _DATAGRAM_MUTATIONS,
            lengths=(0, 1, 3, 64, 64, 64, 255, 256, 600, 600),
            posts=0.35,
            repeats=0,
        ),
        Traffic(
            Service.XRC,
            _BEGIN,
            _RECEIVE_LENGTHS,
            (*_MUTATIONS, *(ResponderInputs._other_queue,) * 3),
            (0, 0, 1),
        ),
    )
}
"""What is drawn from, by service."""
