"""Random inputs for a requester: work, responses that may follow, and near misses of every check.

The generator sees the model's state, so that it answers what is outstanding: mostly right, or
almost right, as a hostile or careless responder.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, Final

from rdmawire.fuzz.inputs import (
    ATOMIC_WORK,
    MAX_INLINE,
    SINK_WORK,
    AnswerInput,
    ChecksumState,
    Input,
    WaitInput,
    WorkInput,
)
from rdmawire.fuzz.requester_model import READ_RESPONSES, RequesterModel
from rdmawire.fuzz.requester_services import SELECTS_OWN_QKEY
from rdmawire.fuzz.responder_inputs import random_setup
from rdmawire.fuzz.responder_services import PORT_MTU
from rdmawire.fuzz.setup import AREAS, QKEY, Setup
from rdmawire.fuzz.work_requests import QueuedWork
from rdmawire.verbs.enums import QPType
from rdmawire.wire.ib import NO_CREDITS, RNR_TIMER_NS, Ack, Nak
from rdmawire.wire.opcode import SHAPES, Opcode, Service
from rdmawire.wire.opcode import Operation as Op


def random_requester_setup(random: Random, service: QPType = QPType.RC) -> Setup:
    """Return a setup: first PSNs near the wrap, few retries, short and no time-outs."""
    return replace(
        random_setup(random, service),
        rd_atomic=random.choice((4, 4, 2, 1)),
        timeout=random.choice((14, 14, 8, 1, 0)),
        retry_cnt=random.choice((3, 3, 1, 0, 7)),
        rnr_retry=random.choice((3, 1, 0, 7, 6)),
    )


class RequesterInputs:
    """Draws the inputs of one case from ``random``, with the state of ``model``."""

    def __init__(self, random: Random, model: RequesterModel) -> None:
        self._random = random
        self._model = model
        self._depth = random.choice(_DEPTHS)
        self._base = _RESPONDING.get(model.wire, Service.RC) << 5

    def next(self) -> Input:
        """Return the next input."""
        number, model = self._random.random(), self._model
        wants_work = len(model.work) < self._depth
        if model.room and number < (0.5 if wants_work else 0.15):
            return self._work()
        if number < 0.85:
            return self._fitting()
        if number < 0.95:
            return self._mutated(self._fitting())
        return self._wait()

    # Work and time.

    def _work(self) -> WorkInput:
        random = self._random
        wire = self._model.wire
        verb = random.choice(_WORK_OF.get(wire, _WORK))
        sges = self._sges(verb)
        small = sum(length for _, _, length in sges) <= MAX_INLINE
        inline = small and verb not in (*SINK_WORK, "FLUSH") and random.random() < 0.15
        return WorkInput(
            verb,
            sges,
            signaled=int(self._model.room < _FEW or random.random() < 0.7),
            fence=int(random.random() < 0.15 and wire in _RESPONDING),
            inline=int(inline),
            key=random.choice(_KEYS) if random.random() < 0.01 else 0,
            offset=random.choice(_OFFSETS),
            value=random.choice(_VALUES),
            compare=random.choice(_VALUES),
            **self._destination(),
        )

    def _destination(self) -> dict[str, int]:
        """What work of the service says besides about its destination."""
        if self._model.wire is Service.UD:
            return {"qkey": self._random.choice(_QKEYS)}
        if self._model.wire is Service.XRC:
            return {"srq": self._random.choice((0, 0, 1, 2, 3))}
        return {}

    def _sges(self, verb: str) -> tuple[tuple[int, int, int], ...]:
        random, mtu = self._random, self._model.setup.mtu
        if self._model.wire is Service.UD and verb in _DATAGRAMS and random.random() < 0.1:
            return self._long_sges()
        if verb == "FLUSH":
            return ()
        if verb in ATOMIC_WORK:
            first = random.choice((_EIGHT, _EIGHT, 1, 4))
            sizes = [first, _EIGHT - first]
        else:
            length = random.choice((0, 1, 3, 64, mtu - 1, mtu, mtu + 1, 2 * mtu, 2 * mtu + 7))
            first = random.choice((length, length, length // 2, min(length, mtu - 1)))
            sizes = [first, length - first]
        return tuple(self._sge(verb, size) for size in sizes if size)

    def _long_sges(self) -> tuple[tuple[int, int, int], ...]:
        """SGEs of about as many bytes as a datagram has at most."""
        length = self._random.choice((PORT_MTU - 1, PORT_MTU, PORT_MTU + 1))
        size = AREAS[0].length
        return (0, 0, size), (0, 0, size - 8), (0, 0, length - 2 * size + 8)

    def _sge(self, verb: str, size: int) -> tuple[int, int, int]:
        """An SGE of a region that allows the access; rarely of another, or partly outside."""
        random = self._random
        if random.random() < 0.01:
            index = random.choice([at for at, area in enumerate(AREAS) if area.length >= size])
            return index, random.choice((-1, AREAS[index].length - size + 1)), size
        regions = (0, 0, 2) if verb in SINK_WORK else (0, 0, 1, 2)
        fitting = [index for index in regions if AREAS[index].length >= size]
        index = random.choice(fitting) if random.random() < 0.99 or size > _SMALL else 1
        most = AREAS[index].length - size
        return index, random.choice((0, most, random.randrange(most + 1))), size

    def _wait(self) -> WaitInput:
        """Time that passes: at most ten time-outs, as some targets retry without a limit."""
        random, model = self._random, self._model
        times = [1, 1000]
        if model.deadline is None:
            times += [RNR_TIMER_NS[1], RNR_TIMER_NS[12], RNR_TIMER_NS[0]]
        else:
            left = model.deadline - model.now
            times += [left, left, left - 1, left + 1]
            times += [] if model.waiting else [2 * left, 10 * left]
        return WaitInput(max(random.choice(times), 0))

    # Responses.

    def _fitting(self) -> AnswerInput:
        """A response that may follow: to the oldest work, to later work, or an error."""
        random, model = self._random, self._model
        number = random.random()
        started = [one for one in model.work if one.first >= 0 and one.packets]
        if not started or number < 0.08:
            return self._ack(random.choice((-1, -1, -2, 0, model.in_flight, -(1 << 23))))
        if number < 0.14:
            return self._refusal()
        one = started[0] if number < 0.75 else random.choice(started)
        return self._response(one)

    def _response(self, one: QueuedWork) -> AnswerInput:
        """The next right response to this work."""
        random, model = self._random, self._model
        if not one.verb.answered:
            packet = one.end - 1
            if one.packets > 1 and random.random() < 0.3:
                packet = random.randrange(max(one.first, model.unacked), one.end)
            return self._ack(packet - model.unacked)
        ahead = one.first + one.answered - model.unacked
        if one.verb.response == Op.ATOMIC_ACKNOWLEDGE:
            return self._made(Op.ATOMIC_ACKNOWLEDGE, ahead, value=random.choice(_VALUES))
        return self._read_response(one, ahead)

    def _read_response(self, one: QueuedWork, ahead: int) -> AnswerInput:
        mtu, last = self._model.setup.mtu, one.answered == one.packets - 1
        operations = _LASTS if last else _OTHERS
        right = operations[one.answered > 0]
        length = one.one.length if one.one.verb == "RDMA_READ" else 0
        length = min(max(length - one.answered * mtu, 0), mtu)
        operation = right if self._random.random() < 0.9 else self._random.choice(operations)
        return self._made(operation, ahead, length=length)

    def _ack(self, ahead: int) -> AnswerInput:
        return self._made(Op.ACKNOWLEDGE, ahead)

    def _made(self, operation: int, ahead: int, **more: Any) -> AnswerInput:
        random, opcode = self._random, self._base | operation
        granted = random.choice(_CREDITS) if random.random() < 0.3 else NO_CREDITS
        seed = random.randrange(256)
        return AnswerInput(opcode, max(ahead, -(1 << 23)), syndrome=granted, seed=seed, **more)

    def _refusal(self) -> AnswerInput:
        """A NAK or RNR NAK of any packet that is outstanding."""
        random, model = self._random, self._model
        ahead = random.choice((0, 0, random.randrange(model.in_flight + 1)))
        kind = random.choice((*(Ack.RNR_NAK,) * 2, *(Ack.NAK,) * 3, Ack.RESERVED))
        value = random.randrange(32)
        if kind == Ack.NAK:
            value = random.choice((0, 0, 0, 0, *Nak, value))
        return replace(self._ack(ahead), syndrome=kind << 5 | value)

    # Mutations.

    def _mutated(self, one: AnswerInput) -> AnswerInput:
        return self._random.choice(_MUTATIONS)(self, one)

    def _other_psn(self, one: AnswerInput) -> AnswerInput:
        ahead = one.ahead + self._random.choice(_STEPS)
        return replace(one, ahead=min(max(ahead, -(1 << 23)), 1 << 23))

    def _other_opcode(self, one: AnswerInput) -> AnswerInput:
        opcode = self._random.choice(_OPCODES)
        if opcode >> 5 == 0 and not (self._base and self._random.random() < 0.2):
            opcode |= self._base
        return replace(one, opcode=opcode)

    def _other_length(self, one: AnswerInput) -> AnswerInput:
        mtu = self._model.setup.mtu
        lengths = (0, 1, one.length - 1, one.length + 1, mtu - 1, mtu, mtu + 1, 2 * mtu)
        return replace(one, length=max(self._random.choice(lengths), 0))

    def _other_syndrome(self, one: AnswerInput) -> AnswerInput:
        return replace(one, syndrome=self._random.randrange(256))

    def _other_msn(self, one: AnswerInput) -> AnswerInput:
        steps = (1, -1, 2, -2, 1 << 22, -(1 << 23))
        granted = self._random.choice(_CREDITS)
        return replace(one, msn=self._random.choice(steps), syndrome=granted)

    def _bad_checksum(self, one: AnswerInput) -> AnswerInput:
        return replace(one, checksum=ChecksumState.BROKEN.name)

    def _other_field(self, one: AnswerInput) -> AnswerInput:
        name, values = self._random.choice(_FIELDS)
        return replace(one, fields=((name, self._random.choice(values)),))

    def _truncated(self, one: AnswerInput) -> AnswerInput:
        return replace(one, cut=self._random.randrange(1, 9))

    def _other_headers(self, one: AnswerInput) -> AnswerInput:
        names = ("aeth", "-aeth", "atomicacketh", "-atomicacketh", "immdt")
        return replace(one, extra=(self._random.choice(names),))

    def _notification(self, _: AnswerInput) -> AnswerInput:
        """A CNP."""
        return AnswerInput(Opcode.CNP)


_FEW: Final = 4
_DEPTHS: Final = (1, 4, 4, 8, 14)
"""How much work is kept outstanding, in different cases."""
_SMALL: Final = 512
_EIGHT: Final = 8
_MUTATIONS: Final[tuple[Callable[[RequesterInputs, AnswerInput], AnswerInput], ...]] = (
    *(RequesterInputs._other_psn,) * 4,
    *(RequesterInputs._other_opcode,) * 3,
    *(RequesterInputs._other_length,) * 2,
    *(RequesterInputs._other_syndrome,) * 3,
    *(RequesterInputs._other_msn,) * 2,
    RequesterInputs._bad_checksum,
    RequesterInputs._other_field,
    RequesterInputs._truncated,
    RequesterInputs._other_headers,
    RequesterInputs._notification,
)
"""Changes of a response; one that is listed more often is drawn more often."""

_MESSAGES: Final = ("SEND", "SEND_WITH_IMM", "RDMA_WRITE", "RDMA_WRITE_WITH_IMM") * 2
_WORK: Final = (
    *("SEND", "SEND", "SEND_WITH_IMM", "SEND_WITH_INV"),
    *("RDMA_WRITE", "RDMA_WRITE", "RDMA_WRITE_WITH_IMM"),
    *("RDMA_READ", "RDMA_READ", "RDMA_READ", *ATOMIC_WORK, "FLUSH"),
)
_KEYS: Final = (1, -1, 0x100, 1 << 31)
_OFFSETS: Final = (0, 0, 8, 100, -(1 << 63))
_VALUES: Final = (0, 1, 2, 7, 0xFFFFFFFF, (1 << 64) - 1, 1 << 63)
_CREDITS: Final = (0, 0, 1, 2, 3, 4, 30, 31)
_STEPS: Final = (1, 1, 2, 3, -1, -1, -2, -8, 1 << 22, 1 << 23, -(1 << 23))
_QKEYS: Final = (QKEY, QKEY, 0, SELECTS_OWN_QKEY - 1, SELECTS_OWN_QKEY, 0xFFFF_FFFF)
_RESPONDING: Final = {Service.RC: Service.RC, Service.XRC: Service.XRC}
"""Services with responses; the others get those of RC, which they ignore."""
_DATAGRAMS: Final = ("SEND", "SEND_WITH_IMM")
_WORK_OF: Final = {
    Service.UC: (*_MESSAGES, *_MESSAGES, *_WORK),
    Service.UD: (*_DATAGRAMS * 8, *_WORK),
}
"""Work to draw from for UC and UD: mostly work that the service has."""
_LASTS: Final = (Op.RDMA_READ_RESPONSE_ONLY, Op.RDMA_READ_RESPONSE_LAST)
_OTHERS: Final = (Op.RDMA_READ_RESPONSE_FIRST, Op.RDMA_READ_RESPONSE_MIDDLE)
_OPCODES: Final = (
    *READ_RESPONSES,
    *READ_RESPONSES,
    *(Op.ACKNOWLEDGE, Op.ATOMIC_ACKNOWLEDGE) * 3,
    *(opcode for opcode, shape in SHAPES.items() if shape.response),
)
_FIELDS: Final = (
    ("bth.tver", (1, 15)),
    ("bth.pkey", (0x7FFF, 0x8001, 0)),
    ("bth.destqp", (0x10, 0x12, 0, 1, 0xFFFFFF)),
    ("bth.padcnt", (0, 1, 2, 3)),
    ("bth.se", (1,)),
    ("bth.ackreq", (1,)),
    ("bth.fecn", (1,)),
    ("bth.becn", (1,)),
    ("bth.resv7", (1, 127)),
    ("ip.dscp", (0, 63)),
    ("ip.ecn", (1, 2, 3)),
    ("ip.ttl", (0, 1, 255)),
    ("ip.src", (0x0A000003,)),
    ("ip.dst", (0x0A000003,)),
    ("udp.dstport", (4790,)),
    ("udp.length", (0, 8, 0xFFFF)),
    ("eth.dst", (0x020000000003,)),
)
"""Fields with values near their bounds."""
