"""The oracle: plays a case on a target and on the model, and compares them after each input.

It compares the replies, the completions and the bytes of memory. The first difference is a
:class:`Violation`, with what was expected, by which clause, and what happened.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from rdmawire.errors import FuzzError
from rdmawire.fuzz.exception_text import Raised
from rdmawire.fuzz.exchange import Expected, Numbers, Reply, Request
from rdmawire.fuzz.frames import FrameBuilder, payload_bytes, qkey_of, srq_of
from rdmawire.fuzz.inputs import (
    AnswerInput,
    Case,
    Input,
    PacketInput,
    ReceiveInput,
    WaitInput,
    WorkInput,
)
from rdmawire.fuzz.packet_validation import network_header, reply_of, request_of
from rdmawire.fuzz.pending_replies import PendingReplies
from rdmawire.fuzz.service_model import fresh_model
from rdmawire.fuzz.setup import PEER_QPN, Network, Setup
from rdmawire.fuzz.target import (
    Completion,
    CountingTarget,
    HoldingTarget,
    ObservableTarget,
    Target,
)
from rdmawire.fuzz.target_results import (
    check_completions,
    check_memory,
    checked_frame,
    completions_of,
    frames_of,
    numbers_of,
    place_of,
)
from rdmawire.terminal import plural, shorten
from rdmawire.validate import BytesLike
from rdmawire.verbs.profile import IBTA, Profile
from rdmawire.wire import serial
from rdmawire.wire.ib import Ack
from rdmawire.wire.opcode import SHAPES, Operation, Payload, Service

TIME: Final = "time"
"""``Violation.what`` of a call that takes too long."""


class Violation(NamedTuple):
    """The first difference between a target and the model.

    - ``place``: the index of the input in the case.
    - ``what``: what differs, such as ``replies`` or ``memory``.
    - ``expected``, ``happened``: both, in words; ``clause``: what requires it, or ``""``.
    - ``signature``: equal for violations that probably have the same cause.
    """

    place: int
    what: str
    expected: str
    happened: str
    clause: str
    signature: str


class Mismatch(NamedTuple):
    """A difference: ``what`` differs, the values of the model, those of the target, and why."""

    what: str
    wanted: tuple[object, ...]
    happened: tuple[object, ...]
    expected: Expected


class Counter(NamedTuple):
    """A counter and its value."""

    name: str
    value: int

    def __str__(self) -> str:
        """Describe the counter."""
        return f"{self.name} {self.value}"


class Player(Protocol):
    """Plays the inputs of a case on a target, and compares each with a model.

    ``frames`` are those of the case, if it is ``recording``: whether the target sent each, and its
    bytes. ``executed`` counts packets to the target, ``reached`` has the behaviours reached.
    """

    frames: list[tuple[bool, bytes]]
    recording: bool
    executed: int
    reached: set[Any]

    @property
    def failed(self) -> bool:
        """Whether the model's queue pair is in the error state."""
        ...

    def begin(self, setup: Setup) -> None:
        """Make a fresh queue pair and a fresh model."""
        ...

    def play(self, one: Input) -> Mismatch | None:
        """Play one input; return the first difference from the model, or ``None``."""
        ...

    def end(self) -> Mismatch | None:
        """End the case; return a difference that no single input shows, or ``None``."""
        ...


_DAMAGED: Final = Expected((), "IBA 9.6", "a damaged packet is dropped without an answer")
_WAITED: Final = Expected((), "IBA 9.7.5.1.2, 9.7.5.1.4", "what was pending is transmitted")
_NOTHING_DUE: Final = Expected((), "", "nothing is due")


class SessionRecord:
    """What the sessions of both roles record of a case."""

    def __init__(self) -> None:
        self.frames: list[tuple[bool, bytes]] = []
        """Frames of the case: whether the target sent it, and its bytes. Kept if ``recording``."""
        self.recording = False
        self.executed = 0
        self.reached: set[Any] = set()
        """Inputs, with the reasons of what the model expected of them: a measure of coverage."""


class Session(SessionRecord):
    """Plays inputs on one queue pair of a target, and compares each with the model.

    Of a target that is no :class:`ObservableTarget`, the replies alone are compared. ``profile``
    has the differences from ``ibta`` that are accepted (:mod:`rdmawire.fuzz.profile_differences`).
    With ``counters``, those of the target are compared at the end of each case; :class:`FuzzError`
    if it shows none.
    """

    def __init__(self, target: Target, profile: Profile = IBTA, *, counters: bool = False) -> None:
        super().__init__()
        self._target = target
        self._profile = profile
        self.observed = target if isinstance(target, ObservableTarget) else None
        self.holding = target if isinstance(target, HoldingTarget) else None
        self._counting = _counting(target) if counters else None
        check_methods(target)
        self._builders: dict[Network, FrameBuilder] = {}

    def begin(self, setup: Setup) -> None:
        """Make a fresh queue pair and a fresh model."""
        target = self._target
        target.reset(setup)
        numbers = numbers_of(target, setup)
        builder = self._builders.get(setup.network)
        if builder is None:
            builder = FrameBuilder(*place_of(target, setup), numbers)
            self._builders[setup.network] = builder
        builder.numbers = numbers
        self._builder = builder
        self.model = fresh_model(setup, numbers, self._profile)
        builder.base = self.model.wire << 5
        self._pending: PendingReplies | None = None
        self._late: Expected | None = None
        self.frames.clear()

    @property
    def failed(self) -> bool:
        """Whether the model's queue pair is in the error state."""
        return self.model.failed

    def play(self, one: Input) -> Mismatch | None:
        """Play one input; return the first difference from the model, or ``None``.

        Raises :class:`FuzzError` for an input that the target has no method for.
        """
        if isinstance(one, PacketInput):
            replies, expected = self._packet(one)
        elif self.observed is None:
            raise FuzzError(f"{self._target.name} takes packets alone, no input of kind {one.kind}")
        elif isinstance(one, ReceiveInput):
            expected = self._post_receive(one)
            if not self.observed.post_receive(one.length, one.srq):
                return Mismatch("a receive", ("accepted",), ("refused",), expected)
            replies = self._waited(0)
        elif isinstance(one, WaitInput):
            expected = self._transmitted(_NOTHING_DUE)
            replies = self._waited(one.ns)
        else:
            raise FuzzError(f"a responder has no input of kind {one.kind}")
        if self.recording:
            self.frames += [(True, reply) for reply in replies]
        return self._compared(expected, replies)

    def end(self) -> Mismatch | None:
        """Compare the replies that are still pending, and the counters."""
        if self._pending is not None and self.observed is not None:
            found = self._compared(self._transmitted(_NOTHING_DUE), self._waited(0))
            if found is not None:
                return found
        return self._counted()

    def _counted(self) -> Mismatch | None:
        """Compare the counters of the target with those of the model."""
        if self._counting is None:
            return None
        return different_counters(self.model.counters, self._counting.counters())

    def _packet(self, one: PacketInput) -> tuple[list[bytes], Expected]:
        model, builder = self.model, self._builder
        psn = (model.epsn + one.ahead) % serial.MODULUS
        frame = builder.frame(one, psn)
        if one.fields or one.extra or one.cut or one.checksum != "GOOD":
            request = request_of(
                frame, builder.headers, builder.numbers.qpn, any_sender=model.any_sender
            )
        else:
            request = _PLAIN.get(one.opcode >> 5, _plain_request)(one, psn, builder.numbers, frame)
        if self.recording:
            self.frames.append((False, frame))
        target = self._target
        if one.room is None:
            replies = frames_of(target, "send", target.send(frame))
        else:
            replies = self._hold(one).send_within(frame, one.room)
            frames_of(target, "send_within", replies)
        self.executed += 1
        if self._pending is not None:
            return replies, self._expected(one, request)
        if request is None:
            return replies, _DAMAGED
        expected = model.request(request)
        self.reached.add((one.opcode, expected.why))
        return replies, expected

    def _waited(self, ns: int) -> list[bytes]:
        """Let time pass on an observable target; return the frames sent."""
        assert self.observed is not None
        return frames_of(self.observed, "wait", self.observed.wait(ns))

    def _hold(self, one: PacketInput) -> HoldingTarget:
        """Return the target, if it can transmit later; from now on replies may be pending."""
        if self.holding is None:
            raise FuzzError(
                f"{self._target.name}: no method send_within, so room cannot be {one.room}"
            )
        self._pending = self._pending or PendingReplies(self.model)
        return self.holding

    def _expected(self, one: PacketInput, request: Request | None) -> Expected:
        """What a packet must cause while replies may be pending."""
        assert self._pending is not None
        expected = _DAMAGED if request is None else self._pending.request(request)
        if request is not None:
            self.reached.add((one.opcode, expected.why))
        return self._transmitted(expected, one.room)

    def _post_receive(self, one: ReceiveInput) -> Expected:
        if self._pending is None:
            return self.model.post_receive(one.length, one.srq)
        return self._transmitted(self._pending.post_receive(one.length, one.srq))

    def _transmitted(self, expected: Expected, room: int | None = None) -> Expected:
        """Return ``expected`` with the replies that are transmitted: those that were pending."""
        pending = self._pending
        if pending is None:
            return expected
        replies = pending.transmit(room)
        self._pending = pending or None
        self._late = expected._replace(replies=replies)
        return self._late

    def _compared(self, expected: Expected, replies: list[bytes]) -> Mismatch | None:
        """Compare replies with the model's, then what else the target shows."""
        wanted = expected.replies
        if (replies or wanted) and not self._match_replies(wanted, replies):
            happened = tuple(self._reply_of(reply) for reply in replies)
            if expected is self._late:
                return Mismatch("pending replies", wanted, happened, _WAITED)
            return Mismatch("replies", wanted, happened, expected)
        return None if self.observed is None else self._seen(self.observed, expected)

    def _seen(self, target: ObservableTarget, expected: Expected) -> Mismatch | None:
        """Compare completions and memory with the model's."""
        model, done = self.model, completions_of(target, target.completions())
        if done or model.completions:
            due, model.completions = model.completions, []
            if done != due:
                check_completions(target, done)
                return Mismatch("completions", tuple(due), tuple(done), expected)
        found = target.memory()
        # Not the other way round: a view compares its bytes one by one, a bytearray all at once.
        if model.memory != found:
            check_memory(target, found, model.memory)
            self._copy_undefined(found)
            if model.memory != found:
                return Mismatch("memory", *different_bytes(model.memory, found), expected)
        return None

    def _copy_undefined(self, found: BytesLike) -> None:
        """Copy the bytes that are undefined from the target's memory to the model's."""
        model = self.model
        for start, end in model.undefined:
            model.memory[start:end] = found[start:end]
        model.undefined.clear()

    def _match_replies(self, wanted: tuple[Reply, ...], replies: list[bytes]) -> bool:
        """Compare frames with replies, first as bytes, for speed; return if they are equal."""
        if len(wanted) != len(replies):
            return False
        for one, frame in zip(wanted, replies, strict=True):
            if self._builder.reply(one) == frame:
                continue
            if self._reply_of(frame) != one:
                return False
            self._builder.learn_path(frame)
        return True

    def _reply_of(self, frame: bytes) -> Reply | None:
        checked = checked_frame(self._target, frame)
        return reply_of(checked, self._builder.base, self._builder.medium)


def different_counters(counted: Mapping[str, int], found: tuple[int, ...]) -> Mismatch | None:
    """Compare the counters of a model with the values of a target's, in the same order."""
    if found == (*counted.values(),):
        return None
    pairs = zip(counted.items(), found, strict=True)
    wrong = [(name, value, other) for (name, value), other in pairs if value != other]
    wanted = tuple(Counter(name, value) for name, value, _ in wrong)
    happened = tuple(Counter(name, value) for name, _, value in wrong)
    return Mismatch("counters", wanted, happened, _COUNTED)


def check_methods(target: object) -> None:
    """Raise :class:`FuzzError` for an object that lacks a method of :class:`Target`."""
    methods = ("reset", "numbers", "path", "send")
    missing = [name for name in methods if not callable(getattr(target, name, None))]
    named = getattr(target, "name", type(target).__name__)
    if missing:
        raise FuzzError(f"{named}: a target needs the method {', '.join(missing)}")
    if not hasattr(target, "name"):
        raise FuzzError(f"{named}: a target needs the attribute name, a text for reports")


def _counting(target: Target) -> CountingTarget:
    if not isinstance(target, CountingTarget):
        raise FuzzError(f"{target.name}: no method counters, so counters cannot be compared")
    return target


_COUNTED: Final = Expected((), "", "what the counters of drivers count")


_new: Final = tuple.__new__
_NO_MORE: Final = Request(0, 0, 0, b"")[10:]


def _plain_request(
    one: PacketInput, psn: int, numbers: Numbers, _: bytes, more: tuple[Any, ...] = _NO_MORE
) -> Request:
    """The request of an input without unusual parts; ``more`` are its last values."""
    opcode, length, region, dmalen = one.opcode, one.length, one.region, one.dmalen
    operands = _OPERANDS.get(opcode & 31)
    value, compare = operands(one) if operands else (one.value & _BITS_32, 0)
    first = (
        opcode,
        psn,
        one.ackreq,
        payload_bytes(one.seed, length),
        (numbers.vas[region] + one.offset) & _BITS_64,
        (numbers.rkeys[region] + one.key) & _BITS_32,
        length if dmalen is None else dmalen,
        value,
        compare,
        not _ALLOWED.get(opcode, _no_payload)(length),
    )
    return _new(Request, first + more)


def _plain_datagram(one: PacketInput, psn: int, numbers: Numbers, frame: bytes) -> Request:
    header = network_header(frame, numbers.medium)
    more = (qkey_of(one, numbers), PEER_QPN, 0, header)
    return _plain_request(one, psn, numbers, frame, more)


def _plain_xrc(one: PacketInput, psn: int, numbers: Numbers, frame: bytes) -> Request:
    return _plain_request(one, psn, numbers, frame, (0, 0, srq_of(one, numbers), b""))


_PLAIN: Final[dict[int, Callable[[PacketInput, int, Numbers, bytes], Request]]] = {
    Service.UD: _plain_datagram,
    Service.XRC: _plain_xrc,
}
"""How the request of an input without unusual parts is made in services with further headers."""


def _of_atomic(one: PacketInput) -> tuple[int, int]:
    return one.value, one.compare


def _of_flush(one: PacketInput) -> tuple[int, int]:
    return one.value & 3 or 1, one.compare & 1


_OPERANDS: Final[dict[int, Callable[[PacketInput], tuple[int, int]]]] = {
    Operation.CMP_SWAP: _of_atomic,
    Operation.FETCH_ADD: _of_atomic,
    Operation.FLUSH: _of_flush,
}
"""Value and compare, as the packet's headers hold them. Others have an immediate at most."""
_BITS_64: Final = (1 << 64) - 1
_BITS_32: Final = (1 << 32) - 1
_LENGTHS: Final[dict[Payload, Callable[[int], bool]]] = {
    Payload.ANY: lambda _: True,
    Payload.EIGHT: lambda length: length == 8,
    Payload.NONE: lambda length: not length,
}
_ALLOWED: Final = {opcode: _LENGTHS[shape.payload] for opcode, shape in SHAPES.items()}
"""Whether an opcode allows a payload of this length."""


def _no_payload(_: int) -> bool:
    """A reserved opcode allows nothing."""
    return False


def judge(target: Target, case: Case, session: Player | None = None) -> Violation | None:
    """Play a case; return the first violation, or ``None``.

    ``session`` is that of the role that is fuzzed; by default that of a responder.
    """
    session = Session(target) if session is None else session
    found = begin(session, case.setup)
    if found is not None:
        return violation(0, None, found)
    for index, one in enumerate(case.inputs):
        found = play(session, one)
        if found is not None:
            return violation(index, one, found)
    if case.inputs and (found := end(session)) is not None:
        return violation(len(case.inputs) - 1, case.inputs[-1], found)
    return None


def begin(session: Player, setup: Setup) -> Mismatch | None:
    """Begin a case; an exception of the target is a difference, too."""

    def step() -> None:
        session.begin(setup)

    return _caught(step)


def play(session: Player, one: Input) -> Mismatch | None:
    """Play one input; an exception of the target is a difference, too.

    Raises :class:`FuzzError` for an input that the session has no method for.
    """
    return _caught(lambda: session.play(one))


def end(session: Player) -> Mismatch | None:
    """End a case; an exception of the target is a difference, too."""
    return _caught(session.end)


def _caught(step: Callable[[], Mismatch | None]) -> Mismatch | None:
    try:
        return step()
    except FuzzError:
        raise
    except Exception as error:
        return Mismatch("exception", ("no exception",), (Raised.of(error),), Expected())


def violation(index: int, one: Input | None, found: Mismatch) -> Violation:
    """Describe a difference found at the input ``one`` with this ``index``.

    ``one`` is ``None`` for a difference before the first input.
    """
    what, wanted, happened, expected = found
    shown = "" if one is None else one.name if isinstance(one, _NAMED) else one.kind
    kinds = ",".join(dict.fromkeys(_kinds(what, wanted, happened)))
    data = _different_data(wanted, happened)
    return Violation(
        place=index,
        what=what,
        expected=_words(wanted) + data[0] + (f" ({expected.why})" if expected.why else ""),
        happened=_words(happened) + data[1],
        clause=expected.clause,
        signature=_signature(what, shown, expected.why, kinds),
    )


def _signature(what: str, shown: str, why: str, kinds: str) -> str:
    """Name the cause: of some differences, it is not the last input."""
    alone = what in ("counters", "exception", "pending replies")
    return f"{what} | {kinds}" if alone else f"{what} | {shown} | {why} | {kinds}"


def _different_data(wanted: tuple[object, ...], happened: tuple[object, ...]) -> tuple[str, str]:
    """Show the first bytes of data in which replies differ that are the same in words."""
    for one, other in zip(wanted, happened, strict=False):
        if isinstance(one, Reply) and one != other and str(one) == str(other):
            assert isinstance(other, Reply)
            (due,), (sent,) = different_bytes(one.data, other.data, "data")
            return f" [PSN {one.psn}: {due}]", f" [PSN {one.psn}: {sent}]"
    return "", ""


_NAMED: Final = (PacketInput, AnswerInput, WorkInput)


_MAX_WORDS: Final = 4000
"""Characters of what was expected, or happened, in words."""


def _words(values: tuple[object, ...]) -> str:
    words = (str(value) if value is not None else "a damaged frame" for value in values)
    return shorten("; ".join(words), _MAX_WORDS) or "nothing"


def _kinds(what: str, wanted: tuple[object, ...], happened: tuple[object, ...]) -> Iterable[str]:
    """The kinds of what happened; where that may be many frames, the first difference."""
    if what in ("memory", "state"):
        return ()
    return (_first_difference(wanted, happened),) if what in _MANY else map(_kind, happened)


_MANY: Final = ("requests", "pending replies")


def _first_difference(wanted: tuple[object, ...], happened: tuple[object, ...]) -> str:
    """What the first frame is that differs, or whether one is missing or not wanted."""
    for one, other in zip(wanted, happened, strict=False):
        if one != other:
            return _kind(other)
    return "missing" if len(happened) < len(wanted) else "not wanted"


def _kind(one: object) -> str:
    """The kind of a request, reply or completion, without its numbers."""
    if isinstance(one, Counter):
        return one.name
    if isinstance(one, Raised):
        return one.kind
    if isinstance(one, Request):
        return str(one.opcode)
    if isinstance(one, Reply):
        code = one.syndrome & 31 if one.syndrome >> 5 == Ack.NAK else 0
        return f"{one.operation}:{one.syndrome >> 5}:{code}"
    return one.status.name if isinstance(one, Completion) else "damaged"


def different_bytes(
    wanted: BytesLike, found: BytesLike, what: str = "memory"
) -> tuple[tuple[str], tuple[str]]:
    """Describe the bytes of memory, or of data, that differ."""
    wanted, found = bytes(wanted), bytes(found)
    offsets = [offset for offset, byte in enumerate(found) if byte != wanted[offset]]
    first, last = offsets[0], offsets[-1] + 1
    shown = slice(first, min(last, first + 16))
    verb = "differs" if len(offsets) == 1 else "differ"
    where = f"{plural(len(offsets), 'byte')} {verb}, {first}..{last - 1} of the {what}"
    return (f"{wanted[shown].hex()} at {first}",), (f"{found[shown].hex()}: {where}",)
