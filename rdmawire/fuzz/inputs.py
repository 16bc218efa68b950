"""Inputs of a fuzz case: packets relative to what the target expects, work, receives, and time.

A packet says what it means (the next PSN, the key of region 0 plus 1, 40 bytes), not its bytes:
:mod:`rdmawire.fuzz.frames` makes them. So a case keeps its meaning when inputs before it are
removed, and when it is played on a target with other numbers. A :class:`Case` is a setup and a
list of inputs; it is written as JSON.
"""

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from typing import Any, ClassVar, Final, Self

from rdmawire.errors import FuzzError
from rdmawire.fuzz.setup import AREAS, QKEY, Setup
from rdmawire.terminal import plural, quote_value, suggest
from rdmawire.verbs.wr import SendOpcode
from rdmawire.wire.ib import NO_CREDITS
from rdmawire.wire.opcode import SHAPES, Opcode

MAX_INPUTS: Final = 4096
"""Inputs of a case, at most."""
MAX_PAYLOAD: Final = 8192
"""Bytes of payload, at most."""


class ChecksumState(Enum):
    """What is done about the ICRC of a changed packet."""

    GOOD = "computed over the changed packet"
    STALE = "left as it was before the change"
    BROKEN = "good, with one bit inverted"


@dataclass(slots=True, unsafe_hash=True)  # a frozen class takes three times as long to fill
class PacketInput:
    """A packet to the target. It is a value: make another with ``dataclasses.replace``.

    - ``opcode``: of its BTH.
    - ``ahead``: its PSN minus the one that the target expects.
    - ``ackreq``: AckReq.
    - ``length``: bytes of payload; ``seed`` selects their values.
    - ``region``, ``offset``, ``dmalen``: memory that a RETH or AtomicETH names: an index of
      :data:`rdmawire.fuzz.setup.AREAS` (one more for the window), an offset in it, and a length, by
      default that of the payload. ``key`` is added to the key.
      Of a datagram, it is added to the Q_Key.
    - ``value``, ``compare``: operands of an atomic; ``value`` is also the immediate.
    - ``srq``: the shared receive queue that an XRC packet names, an index of
      :data:`rdmawire.fuzz.setup.SHARED_QUEUES`.
    - ``fields``: further fields by their names, such as ``bth.tver``, with their values.
    - ``cut``: bytes removed at the end of the packet, before the ICRC.
    - ``extra``: headers added (a header's name) or left out (its name after a ``-``).
    - ``checksum``: a member of :class:`ChecksumState`, by name.
    - ``room``: frames that the target may transmit before the next input, by default all that are
      pending. Its other frames wait, and its ACKs coalesce.
    """

    kind: ClassVar = "packet"

    opcode: int
    ahead: int = 0
    ackreq: int = 1
    length: int = 0
    seed: int = 0
    region: int = 0
    offset: int = 0
    dmalen: int | None = None
    key: int = 0
    value: int = 0
    compare: int = 0
    srq: int = 0
    fields: tuple[tuple[str, int], ...] = ()
    cut: int = 0
    extra: tuple[str, ...] = ()
    checksum: str = "GOOD"
    room: int | None = None

    @property
    def name(self) -> str:
        """The opcode's name, or its number."""
        try:
            return Opcode(self.opcode).name
        except ValueError:
            return f"opcode {self.opcode:#04x}"

    def __str__(self) -> str:
        """Describe the packet in a line."""
        where = f"expected{self.ahead:+d}" if self.ahead else "expected"
        parts = [self.name, f"PSN {where}"]
        if self.length:
            parts.append(plural(self.length, "byte"))
        named = ("region", "offset", "dmalen", "key", "value", "compare", "srq", "cut")
        parts += [f"{name} {getattr(self, name)}" for name in named if getattr(self, name)]
        parts += [f"{name} {value:#x}" for name, value in self.fields]
        parts += [f"header {name}" for name in self.extra]
        if not self.ackreq:
            parts.append("no AckReq")
        if self.checksum != ChecksumState.GOOD.name:
            parts.append(f"{self.checksum.lower()} ICRC")
        if self.room is not None:
            parts.append(f"the target transmits {plural(self.room, 'frame')} at most")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class ReceiveInput:
    """A receive that the target's application posts: ``length`` bytes.

    ``srq`` is the shared receive queue of an XRC target, as in :class:`PacketInput`.
    """

    kind: ClassVar = "receive"

    length: int
    srq: int = 0

    def __str__(self) -> str:
        """Describe the receive in a line."""
        queue = f" to shared queue {self.srq}" if self.srq else ""
        return f"the target posts a receive of {plural(self.length, 'byte')}{queue}"


@dataclass(frozen=True, slots=True)
class WaitInput:
    """Time that passes: ``ns`` nanoseconds."""

    kind: ClassVar = "wait"

    ns: int

    def __str__(self) -> str:
        """Describe the time in a line."""
        return f"{self.ns} ns pass"


MAX_WORK: Final = 4160
"""Bytes of the SGEs of work, at most: more than a datagram can have."""
MAX_INLINE: Final = 512
"""Bytes of inline work, at most."""
MAX_SGES: Final = 4
ATOMIC_WORK: Final = ("ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD", "ATOMIC_WRITE")
"""Work whose SGEs have eight bytes."""
SINK_WORK: Final = ("RDMA_READ", *ATOMIC_WORK[:2])
"""Work whose response is written to its SGEs."""
WORK: Final = (
    *("SEND", "SEND_WITH_IMM", "SEND_WITH_INV", "RDMA_WRITE", "RDMA_WRITE_WITH_IMM"),
    *("RDMA_READ", *ATOMIC_WORK, "FLUSH"),
)
"""Names of :class:`SendOpcode` whose work can be posted."""
_EIGHT: Final = 8


@dataclass(frozen=True, slots=True)
class WorkInput:
    """Send work that the target's application posts.

    - ``verb``: a name of :data:`WORK`.
    - ``sges``: local memory, each SGE an index of :data:`rdmawire.fuzz.setup.AREAS`, an offset in
      it, and a length. ``key`` is added to the local key of the first.
    - ``signaled``, ``fence``, ``inline``: the send flags.
    - ``offset``: added to the address of the peer's memory.
    - ``value``, ``compare``: operands of an atomic; ``value`` is also the immediate, or the key to
      invalidate. ``compare`` is the length of a FLUSH.
    - ``srq``: the shared receive queue of the peer that its packets name, if it is XRC.
    - ``qkey``: the remote Q_Key of a datagram.

    Raises :class:`FuzzError` for work that no application can post.
    """

    kind: ClassVar = "work"

    verb: str
    sges: tuple[tuple[int, int, int], ...] = ()
    signaled: int = 1
    fence: int = 0
    inline: int = 0
    key: int = 0
    offset: int = 0
    value: int = 0
    compare: int = 0
    srq: int = 0
    qkey: int = QKEY

    def __post_init__(self) -> None:
        wrong = _wrong_work(self)
        if wrong:
            raise FuzzError(f"work {self.verb}: {wrong}")

    @property
    def name(self) -> str:
        """The name of its verb."""
        return self.verb

    @property
    def length(self) -> int:
        """Bytes of all its SGEs."""
        return sum(length for _, _, length in self.sges)

    @property
    def opcode(self) -> SendOpcode:
        """Its opcode, as in ibv_send_wr."""
        return SendOpcode[self.verb]

    def __str__(self) -> str:
        """Describe the work in a line."""
        parts = [f"the target posts {self.verb}"]
        parts += [f"{length} bytes at {at} of region {index}" for index, at, length in self.sges]
        parts += [name for name in ("fence", "inline") if getattr(self, name)]
        named = ("key", "offset", "value", "compare", "srq")
        parts += [f"{name} {getattr(self, name)}" for name in named if getattr(self, name)]
        parts += [f"Q_Key {self.qkey:#x}"] if self.qkey != QKEY else []
        return ", ".join(parts) + ("" if self.signaled else ", unsignaled")


def _wrong_work(one: WorkInput) -> str:
    """Say what no application can post; nothing if it can."""
    if one.verb not in WORK:
        return f"use one of {', '.join(WORK)}"
    if len(one.sges) > MAX_SGES or one.length > MAX_WORK:
        return f"at most {MAX_SGES} SGEs with {MAX_WORK} bytes"
    if any(not _in_arena(*sge) for sge in one.sges):
        return "an SGE is a region, an offset and a length, in the memory or just outside"
    if one.verb in ATOMIC_WORK and one.length != _EIGHT:
        return "its SGEs have 8 bytes"
    if one.verb == "FLUSH" and one.sges:
        return "it has no SGEs"
    if one.inline and one.verb in (*SINK_WORK, "FLUSH"):
        return "it sends no data that could be inline"
    if one.inline and one.length > MAX_INLINE:
        return f"at most {MAX_INLINE} bytes inline"
    return ""


_OUTSIDE: Final = 64
"""Bytes that an SGE may extend beyond its region: in the guards."""


def _in_arena(index: int, offset: int, length: int) -> bool:
    if not 0 <= index < len(AREAS):
        return False
    return length > 0 and offset >= -_OUTSIDE and offset + length <= AREAS[index].length + _OUTSIDE


@dataclass(frozen=True, slots=True)
class AnswerInput:
    """A response packet to a target that is a requester, or a CNP.

    - ``opcode``: of its BTH: that of a response, or of a CNP.
    - ``ahead``: its PSN minus the oldest one that is not acknowledged.
    - ``syndrome``: that of its AETH, a byte. ``msn`` is added to the MSN of a responder that has
      executed everything up to the PSN.
    - ``length``: bytes of payload; ``seed`` selects their values.
    - ``value``: the original value of an atomic.
    - ``fields``, ``cut``, ``extra``, ``checksum``: as in :class:`PacketInput`.

    Raises :class:`FuzzError` for other opcodes.
    """

    kind: ClassVar = "answer"

    opcode: int
    ahead: int = 0
    syndrome: int = NO_CREDITS
    msn: int = 0
    length: int = 0
    seed: int = 0
    value: int = 0
    fields: tuple[tuple[str, int], ...] = ()
    cut: int = 0
    extra: tuple[str, ...] = ()
    checksum: str = "GOOD"

    def __post_init__(self) -> None:
        if self.opcode not in SHAPES or not SHAPES[self.opcode].response:
            raise FuzzError(f"answer: opcode {self.opcode:#04x} is not that of a response")

    @property
    def name(self) -> str:
        """The opcode's name."""
        return Opcode(self.opcode).name

    def __str__(self) -> str:
        """Describe the response in a line."""
        parts = [self.name, f"PSN oldest{self.ahead:+d}" if self.ahead else "PSN oldest"]
        if self.syndrome != _PLAIN_ACK:
            parts.append(f"syndrome {self.syndrome:#04x}")
        if self.length:
            parts.append(plural(self.length, "byte"))
        parts += [f"{name} {getattr(self, name)}" for name in ("msn", "value", "cut")
                  if getattr(self, name)]  # fmt: skip
        parts += [f"{name} {value:#x}" for name, value in self.fields]
        parts += [f"header {name}" for name in self.extra]
        if self.checksum != ChecksumState.GOOD.name:
            parts.append(f"{self.checksum.lower()} ICRC")
        return ", ".join(parts)


_PLAIN_ACK: Final = NO_CREDITS
"""The syndrome of an ACK without credits."""

ResponderInput = PacketInput | ReceiveInput | WaitInput
"""Inputs for a target that is a responder."""
Input = ResponderInput | WorkInput | AnswerInput
_KINDS: Final[dict[str, type[Any]]] = {
    made.kind: made for made in (PacketInput, ReceiveInput, WaitInput, WorkInput, AnswerInput)
}
_LIMITS: Final = {
    "opcode": (0, 255),
    "ahead": (-(1 << 23), 1 << 23),
    "ackreq": (0, 1),
    "length": (0, MAX_PAYLOAD),
    "seed": (0, 255),
    "region": (0, 3),
    "offset": (-(1 << 63), 1 << 63),
    "dmalen": (0, (1 << 32) - 1),
    "key": (-(1 << 31), 1 << 31),
    "value": (0, (1 << 64) - 1),
    "compare": (0, (1 << 64) - 1),
    "srq": (0, 3),
    "qkey": (0, (1 << 32) - 1),
    "cut": (0, MAX_PAYLOAD),
    "room": (0, 4096),
    "ns": (0, 1 << 62),
    "syndrome": (0, 255),
    "msn": (-(1 << 23), 1 << 23),
    "signaled": (0, 1),
    "fence": (0, 1),
    "inline": (0, 1),
}
"""The least and greatest value of each number."""


_NAMES: Final = {"verb": WORK, "checksum": tuple(ChecksumState.__members__)}
"""The values of those that are names."""


def input_as_json(one: Input) -> dict[str, Any]:
    """Return an input as JSON values; defaults are left out."""
    values: dict[str, Any] = {"input": one.kind}
    for field in fields(one):
        value = getattr(one, field.name)
        if field.default is MISSING or value != field.default:
            values[field.name] = dict(value) if field.name == "fields" else _plain(value)
    return values


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: tuples are lists, members of enums are numbers."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return int(value) if isinstance(value, int) else value


def input_from_json(values: Any, where: str = "input") -> Input:
    """Make an input of JSON values. Raises :class:`FuzzError`, with ``where``, for others."""
    kind = _KINDS.get(str(values.get("input"))) if isinstance(values, dict) else None
    if kind is None:
        raise FuzzError(f"{where}: expected an object whose 'input' is one of {', '.join(_KINDS)}")
    names = [field.name for field in fields(kind)]
    made: dict[str, Any] = {}
    for name, value in values.items():
        if name == "input":
            continue
        if name not in names:
            raise FuzzError(f"{where}: no value is named {quote_value(name)}{suggest(name, names)}")
        made[name] = _checked(where, name, value)
    missing = [field.name for field in fields(kind) if field.default is MISSING]
    for name in missing:
        if name not in made:
            raise FuzzError(f"{where}: {name} is missing")
    one: Input = kind(**made)
    return one


def _checked(where: str, name: str, value: Any) -> Any:
    if name in _LIMITS:
        least, greatest = _LIMITS[name]
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= greatest:
            raise FuzzError(f"{where}: {name} is a number from {least} to {greatest}")
        return value
    if name == "fields":
        return _checked_fields(where, value)
    if name == "extra":
        if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
            raise FuzzError(f"{where}: extra is a list of header names")
        return tuple(value)
    if name == "sges":
        return _checked_sges(where, value)
    if value not in (names := _NAMES[name]):
        raise FuzzError(f"{where}: {name} is one of {', '.join(names)}")
    return value


def _checked_fields(where: str, value: Any) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, dict) or not all(isinstance(one, int) for one in value.values()):
        raise FuzzError(f"{where}: fields are names with numbers, such as {{'bth.tver': 1}}")
    return tuple(value.items())


def _checked_sges(where: str, value: Any) -> tuple[tuple[int, ...], ...]:
    if not isinstance(value, list | tuple) or not all(map(_is_sge, value)):
        raise FuzzError(f"{where}: sges are lists of three numbers: region, offset, length")
    return tuple(tuple(one) for one in value)


def _is_sge(value: Any) -> bool:
    right = isinstance(value, list | tuple) and len(value) == len(("region", "offset", "length"))
    return right and all(type(number) is int for number in value)


@dataclass(frozen=True, slots=True)
class Case:
    """A setup and the inputs that are played on it, in order."""

    setup: Setup
    inputs: tuple[Input, ...]

    def with_inputs(self, inputs: Sequence[Input]) -> Self:
        """Return a copy with other inputs."""
        return type(self)(self.setup, tuple(inputs))

    def as_json(self) -> dict[str, Any]:
        """Return the case as JSON values."""
        return {
            "setup": self.setup.as_json(),
            "inputs": [input_as_json(one) for one in self.inputs],
        }

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """Make a case of JSON values. Raises :class:`FuzzError` for others."""
        if not isinstance(values, dict) or not isinstance(values.get("inputs"), list | tuple):
            raise FuzzError("case: expected an object with a setup and a list of inputs")
        if len(values["inputs"]) > MAX_INPUTS:
            raise FuzzError(f"case: more than {MAX_INPUTS} inputs")
        inputs = tuple(
            input_from_json(one, f"input {number}")
            for number, one in enumerate(values["inputs"], 1)
        )
        return cls(Setup.from_json(values.get("setup")), inputs)
