"""Inputs of a fuzz case: packets relative to what the target expects, receives, and time.

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
from rdmawire.fuzz.setup import Setup
from rdmawire.terminal import suggest
from rdmawire.wire.opcode import Opcode

MAX_INPUTS: Final = 4096
"""Inputs of a case, at most."""
MAX_PAYLOAD: Final = 8192
"""Bytes of payload, at most."""


class Checksum(Enum):
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
    - ``checksum``: a member of :class:`Checksum`, by name.
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
            parts.append(f"{self.length} bytes")
        named = ("region", "offset", "dmalen", "key", "value", "compare", "srq", "cut")
        parts += [f"{name} {getattr(self, name)}" for name in named if getattr(self, name)]
        parts += [f"{name} {value:#x}" for name, value in self.fields]
        parts += [f"header {name}" for name in self.extra]
        if not self.ackreq:
            parts.append("no AckReq")
        if self.checksum != Checksum.GOOD.name:
            parts.append(f"{self.checksum.lower()} ICRC")
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
        return f"the target posts a receive of {self.length} bytes{queue}"


@dataclass(frozen=True, slots=True)
class WaitInput:
    """Time that passes: ``ns`` nanoseconds."""

    kind: ClassVar = "wait"

    ns: int

    def __str__(self) -> str:
        """Describe the time in a line."""
        return f"{self.ns} ns pass"


Input = PacketInput | ReceiveInput | WaitInput
_KINDS: Final[dict[str, type[Any]]] = {
    made.kind: made for made in (PacketInput, ReceiveInput, WaitInput)
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
    "cut": (0, MAX_PAYLOAD),
    "ns": (0, 1 << 62),
}
"""The least and greatest value of each number."""


def input_as_json(one: Input) -> dict[str, Any]:
    """Return an input as JSON values; defaults are left out."""
    values: dict[str, Any] = {"input": one.kind}
    for field in fields(one):
        value = getattr(one, field.name)
        if field.default is MISSING or value != field.default:
            values[field.name] = dict(value) if field.name == "fields" else value
    return values


def input_from_json(values: Any, place: str = "input") -> Input:
    """Make an input of JSON values. Raises :class:`FuzzError`, with ``place``, for others."""
    if not isinstance(values, dict) or values.get("input") not in _KINDS:
        raise FuzzError(f"{place}: expected an object whose 'input' is one of {', '.join(_KINDS)}")
    kind = _KINDS[values["input"]]
    names = [field.name for field in fields(kind)]
    made: dict[str, Any] = {}
    for name, value in values.items():
        if name == "input":
            continue
        if name not in names:
            raise FuzzError(f"{place}: no value is named {name!r}{suggest(name, names)}")
        made[name] = _checked(place, name, value)
    missing = [field.name for field in fields(kind) if field.default is MISSING]
    for name in missing:
        if name not in made:
            raise FuzzError(f"{place}: {name} is missing")
    one: Input = kind(**made)
    return one


def _checked(place: str, name: str, value: Any) -> Any:
    if name in _LIMITS:
        least, greatest = _LIMITS[name]
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= greatest:
            raise FuzzError(f"{place}: {name} is a number from {least} to {greatest}")
        return value
    if name == "fields":
        return _checked_fields(place, value)
    if name == "extra":
        if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
            raise FuzzError(f"{place}: extra is a list of header names")
        return tuple(value)
    if value not in Checksum.__members__:
        raise FuzzError(f"{place}: {name} is one of {', '.join(Checksum.__members__)}")
    return value


def _checked_fields(place: str, value: Any) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, dict) or not all(isinstance(one, int) for one in value.values()):
        raise FuzzError(f"{place}: fields are names with numbers, such as {{'bth.tver': 1}}")
    return tuple(value.items())


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
