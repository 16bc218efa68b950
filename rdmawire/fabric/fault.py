"""Faults as data: rules select frames of a link and apply actions to them.

::

    link.faults = Faults(
        [
            Rule("drop", {"bth.destqp": 0x11, "bth.psn": 100, "bth.opcode": 0x0A}, nth=1),
            Rule("set", {"bth.psn": range(200, 300)}, chance=0.1, field="reth.rkey", value=7),
        ],
        Random(7),
    )
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from inspect import signature
from math import prod
from random import Random
from typing import Final

from rdmawire.decode import PROTOCOLS, Protocols
from rdmawire.errors import FabricError
from rdmawire.fabric.classify import Classifier, marked
from rdmawire.fabric.field import FieldName, Fields, check_value
from rdmawire.fabric.frame import MAX_REDIRECTS, Envelope
from rdmawire.fabric.link import FAULT_WORDS, Delivery
from rdmawire.units import us
from rdmawire.validate import (
    TIME,
    CollectionOf,
    Constraint,
    InstanceOf,
    Integer,
    MappingOf,
    Number,
    OneOf,
    check,
    check_attributes,
    check_values,
)
from rdmawire.wire.field_registry import Value

Deliveries = Iterable[Delivery]
Action = Callable[..., Deliveries]
_TRAITS: Final = Classifier()


def fields_of(delivery: Delivery) -> Fields:
    """The fields of a delivery's frame."""
    return Fields(delivery.data, protocols=delivery.protocols)


def drop(delivery: Delivery, random: Random) -> Deliveries:  # noqa: ARG001 - an action
    """Lose the frame."""
    return ()


def duplicate(delivery: Delivery, random: Random, *, times: int = 1, wait: int = 0) -> Deliveries:  # noqa: ARG001
    """Deliver ``times`` more copies, each ``wait`` ns after the one before."""
    return [delivery._replace(wait=delivery.wait + wait * n) for n in range(times + 1)]


def delay(delivery: Delivery, random: Random, *, by: int = us(10), most: int = 0) -> Deliveries:
    """Deliver it ``by`` ns late, or at random up to ``most``; later frames overtake it."""
    late = random.randint(by, most) if most > by else by
    return (delivery._replace(wait=delivery.wait + late),)


def reorder(
    delivery: Delivery,
    random: Random,  # noqa: ARG001
    *,
    behind: int = 1,
    most: int = us(100),
) -> Deliveries:
    """Deliver it after ``behind`` later frames of its port, or after ``most`` ns."""
    return (delivery._replace(wait=delivery.wait + most, behind=behind),)


def corrupt(
    delivery: Delivery,
    random: Random,
    *,
    byte: int = -1,
    bit: int = 0,
    anywhere: bool = False,
    seal: bool = False,
) -> Deliveries:
    """Flip one bit of the ``byte`` counted from the BTH, or from the pad's end if negative.

    ``anywhere`` leaves both to chance. With ``seal`` the ICRC fits what stands there then. Where
    there is no BTH, the whole frame counts, and unless sealed it is lost: no switch and no adapter
    takes in what has a bad FCS (IEEE 802.3, 4.2.4.1.2).
    """
    frame = delivery.data
    fields = fields_of(delivery)
    if not frame or (fields.packet is None and not seal):
        return ()
    places = fields.packet or range(len(frame))
    place = places[random.randrange(len(places)) if anywhere else byte % len(places)]
    turned = frame[place] ^ 1 << (random.randrange(8) if anywhere else bit)
    changed = frame[:place] + bytes((turned,)) + frame[place + 1 :]
    return (delivery._replace(data=fields.icrc_renewed(changed) if seal else changed),)


def truncate(delivery: Delivery, random: Random, *, by: int = 4, seal: bool = False) -> Deliveries:  # noqa: ARG001
    """Cut the last ``by`` bytes. With ``seal`` cut the payload, and recompute checksums.

    Without ``seal``, a frame that has no ICRC is lost, because its FCS is bad.
    """
    frame, fields = delivery.data, fields_of(delivery)
    if fields.packet is None and not seal and by > 0:
        return ()
    left = fields.shortened(by) if seal else frame[: max(len(frame) - by, 0)]
    return (delivery._replace(data=left),) if left else ()


def mark(delivery: Delivery, random: Random) -> Deliveries:  # noqa: ARG001
    """Set CE, as a congested switch does, if the frame is ECN-capable."""
    frame = delivery.data
    return (delivery._replace(data=marked(frame)) if _TRAITS.traits(frame).markable else delivery,)


def rewrite(
    delivery: Delivery,
    random: Random,  # noqa: ARG001
    *,
    field: str,
    value: Value,
    seal: bool = True,
) -> Deliveries:
    """Set a field of the innermost header that has it. ``seal`` recomputes checksums."""
    changed = fields_of(delivery).rewritten(field, value, seal=seal)
    return (delivery._replace(data=changed),)


ACTIONS: Final[dict[str, Action]] = {
    "drop": drop,
    "duplicate": duplicate,
    "delay": delay,
    "reorder": reorder,
    "corrupt": corrupt,
    "truncate": truncate,
    "mark": mark,
    "set": rewrite,
}
"""All actions, by name."""

OPTIONS: Final = {
    name: {p.name: p for p in signature(action).parameters.values() if p.kind is p.KEYWORD_ONLY}
    for name, action in ACTIONS.items()
}
"""Options of each action."""


_COUNT: Final = Integer()
_TRUTH: Final = InstanceOf(bool)

OPTION_BOUNDS: Final[dict[str, dict[str, Constraint]]] = {
    "drop": {},
    "duplicate": {"times": _COUNT, "wait": TIME},
    "delay": {"by": TIME, "most": TIME},
    "reorder": {"behind": _COUNT, "most": TIME},
    "corrupt": {"byte": InstanceOf(int), "bit": Integer(0, 7), "anywhere": _TRUTH, "seal": _TRUTH},
    "truncate": {"by": Integer(called="a number of bytes"), "seal": _TRUTH},
    "mark": {},
    "set": {"field": InstanceOf(str), "seal": _TRUTH},
}
"""Allowed values of each option; a field value is bounded by its field."""


def check_action(do: str, options: Mapping[str, object]) -> None:
    """Raise :class:`FabricError` for an unknown action, an unknown option or a bad value."""
    if reason := OneOf(tuple(ACTIONS)).problem(do):
        raise FabricError(reason)
    known = OPTIONS[do]
    if wrong := sorted(options.keys() - known.keys()):
        raise FabricError(f"{do} has no option {wrong[0]!r}; it has {', '.join(known) or 'none'}")
    needed = (name for name, option in known.items() if option.default is option.empty)
    if missing := sorted(set(needed) - options.keys()):
        raise FabricError(f"{do} needs the option {missing[0]!r}")
    bounds = {name: bound for name, bound in OPTION_BOUNDS[do].items() if name in options}
    check_values(do, options, bounds, FabricError)
    if isinstance(field := options.get("field"), str):
        check_value(field, options["value"])


MAX_COUNTED: Final = 1 << 16
"""Different frames for which a rule counts occurrences; then it discards the oldest count."""

MAX_COPIES: Final = 1 << 12
"""Maximum number of copies of one frame, by all rules of a link together."""

Wanted = Value | range | Collection[Value]


RULE_BOUNDS: Final[dict[str, Constraint]] = {
    "where": MappingOf(InstanceOf(str), InstanceOf((int, Collection), but=(str,))),
    "nth": CollectionOf(Integer(1, called="a turn")),
    "per": CollectionOf(InstanceOf(str)),
    "chance": Number(0, 1),
}
"""Allowed values of the parameters that select frames."""


class Rule:
    """Selects frames and applies an action to them.

    ``do`` names a row of :data:`~rdmawire.fabric.fault.ACTIONS`, ``options`` are its keywords.
    ``where`` maps field names of the wire's tables to the value or values that a frame must
    have. ``nth`` (from 1; all by default) selects among the frames that match, by occurrence;
    occurrences are counted separately for each combination of the fields in ``per``, so with
    ``per=("bth.psn",)`` occurrence 2 is a retransmission. ``chance`` (0.0 to 1.0) is applied
    last.

    ``fits`` counts the frames that match ``where``, ``turns`` those of them selected by ``nth``,
    ``meant`` those also selected by ``chance``, and ``hits`` those that were changed: a frame
    that is not ECN-capable is not marked.
    """

    __slots__ = (
        *("_counted", "chance", "do", "fits", "hits", "meant"),
        *("nth", "options", "per", "turns", "where"),
    )

    def __init__(
        self,
        do: str,
        where: Mapping[str, Wanted] | None = None,
        *,
        nth: int | Collection[int] = (),
        per: Sequence[str] = (),
        chance: float = 1.0,
        **options: object,
    ) -> None:
        check_action(do, options)
        turns = (nth,) if isinstance(nth, int) else nth
        where = {} if where is None else where
        check_values(
            do,
            {"where": where, "nth": turns, "per": per, "chance": chance},
            RULE_BOUNDS,
            FabricError,
        )
        self.do = do
        self.where = {FieldName(name): _values(wanted) for name, wanted in where.items()}
        self.nth = turns
        self.per = tuple(map(FieldName, per))
        self.chance = chance
        if isinstance(field := options.get("field"), str):
            options["field"] = FieldName(field)
        self.options = options
        self.fits = self.turns = self.meant = self.hits = 0
        self._counted: dict[tuple[Value | None, ...], int] = {}

    def __repr__(self) -> str:
        return f"Rule({self.do!r}, {self.where!r}, nth={self.nth!r}, hits={self.hits})"

    def means(self, fields: Fields, random: Random) -> bool:
        """Whether the rule selects this frame. Update the counters."""
        for name, wanted in self.where.items():
            if not fields.has(name, wanted):
                return False
        self.fits += 1
        if self.nth and self._turn(fields) not in self.nth:
            return False
        self.turns += 1
        return self.chance >= 1.0 or random.random() < self.chance

    def _turn(self, fields: Fields) -> int:
        counted, key = self._counted, tuple(fields.get(name) for name in self.per)
        turn = counted.pop(key, 0) + 1
        if len(counted) >= MAX_COUNTED:
            del counted[next(iter(counted))]
        counted[key] = turn
        return turn

    @property
    def copies(self) -> int:
        """Number of copies the rule makes of a frame that it selects."""
        return copies_by(self.do, self.options)

    def apply(self, deliveries: list[Delivery], random: Random) -> list[Delivery]:
        """Apply the rule to all copies of a frame that it selects."""
        self.meant += 1
        changed = [after for delivery in deliveries for after in self._apply_to(delivery, random)]
        self.hits += not deliveries or changed != deliveries
        return changed

    def _apply_to(self, delivery: Delivery, random: Random) -> list[Delivery]:
        """Apply the rule to one copy. A changed copy gets the word for the effect."""
        after = list(ACTIONS[self.do](delivery, random, **self.options))
        if after == [delivery]:
            return after
        said = (*delivery.faults, FAULT_WORDS[self.do])
        return [one._replace(faults=said) for one in after]


def copies_by(do: str, options: Mapping[str, object]) -> int:
    """Number of copies that an action with these options delivers."""
    times = options.get("times", 1)
    return 1 + times if do == "duplicate" and isinstance(times, int) else 1


def _values(wanted: Wanted) -> Collection[Value]:
    """The wanted values as a collection."""
    return (wanted,) if isinstance(wanted, int | bytes) else wanted


class Faults:
    """Rules of a link. All that select a frame are applied to it, one after the other.

    All random numbers come from ``random``: the same seed gives the same faults. A frame that is
    readdressed too often is lost: :data:`~rdmawire.fabric.frame.MAX_REDIRECTS`. ``protocols`` say
    what carries what in the frames, as for a :class:`~rdmawire.dissect.Dissector`.
    :class:`FabricError` for an object that is no rule, and for rules that make more than
    :data:`MAX_COPIES` of one frame.
    """

    def __init__(
        self,
        rules: Iterable[Rule],
        random: Random | None = None,
        *,
        protocols: Protocols = PROTOCOLS,
    ) -> None:
        check("Faults.rules", rules, InstanceOf(Iterable), FabricError)
        self.rules = tuple(rules)
        check_attributes(self, {"rules": CollectionOf(InstanceOf(Rule))}, FabricError)
        if (copies := prod(rule.copies for rule in self.rules)) > MAX_COPIES:
            raise FabricError(f"{copies} copies of one frame; {MAX_COPIES} at most")
        self._protocols = protocols
        self._random = Random(0) if random is None else random  # noqa: S311 - must be repeatable

    def apply(self, frame: Envelope, number: int) -> list[Delivery]:
        """Apply all rules to the frame with this number on its link."""
        fields = Fields(frame.data, number, self._protocols)
        deliveries = [Delivery(frame.data, 0, 0, (), self._protocols)]
        for rule in self.rules:
            if rule.means(fields, self._random):
                deliveries = rule.apply(deliveries, self._random)
        return [one for one in deliveries if frame.redirects_with(one.data) <= MAX_REDIRECTS]
