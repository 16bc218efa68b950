"""Faults as data: rules say which frames of a link, and what befalls them.

::

    link.faults = Faults(
        [
            Rule("drop", {"bth.destqp": 0x11, "bth.psn": 100, "bth.opcode": 0x0A}, nth=1),
            Rule("set", {"bth.psn": range(200, 300)}, chance=0.1, field="reth.rkey", value=7),
        ],
        Random(7),
    )
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import prod
from random import Random
from typing import Final

from rdmawire.bound import Bound, Kind, Many, Real, Table, Whole
from rdmawire.fabric.action import ACTIONS, check_action
from rdmawire.fabric.field import Fields, check_name
from rdmawire.fabric.frame import MAX_REDIRECTS, Envelope
from rdmawire.fabric.passing import BEFALLEN, Passing
from rdmawire.fabric.refusal import FabricError, check_settings, check_values
from rdmawire.wire.naming import Value

MOST_COUNTED: Final = 1 << 16
"""Different frames of which a rule counts the times; then it forgets those counted first."""

MOST_COPIES: Final = 1 << 12
"""Of one frame, by all rules of a link together."""

Wanted = Value | range | Collection[Value]


BOUNDS: Final[dict[str, Bound]] = {
    "where": Table(Kind(str), Kind((int, Collection), but=(str,))),
    "nth": Many(Whole(1, called="a turn")),
    "per": Many(Kind(str)),
    "chance": Real(0, 1),
}
"""What says which frames a rule means, and what each may be."""


class Rule:
    """Which frames, and what is done to them.

    ``do`` names a row of :data:`~rdmawire.fabric.action.ACTIONS`, ``options`` are its keywords.
    ``where`` gives fields, by the names of the wire's tables, and the value or the values that
    they must have. Of the frames that are so, those are meant whose turn is in ``nth`` (from 1
    on; all, if left out); turns are counted anew for each combination of the fields in ``per``,
    so that with ``per=("bth.psn",)`` turn 2 is a retransmission. ``chance`` (0.0 to 1.0) comes
    last.

    ``fits`` counts the frames with these fields, ``turns`` those of them whose turn it was,
    ``meant`` those that chance met, and ``hits`` those that did not stay as they were: a frame
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
        check_values(do, {"where": where, "nth": turns, "per": per, "chance": chance}, BOUNDS)
        self.do = do
        self.where = {name: _values(wanted) for name, wanted in where.items()}
        self.nth = turns
        self.per = tuple(per)
        self.chance = chance
        self.options = options
        self.fits = self.turns = self.meant = self.hits = 0
        self._counted: dict[tuple[Value | None, ...], int] = {}
        for name in (*self.where, *self.per):
            check_name(name)

    def __repr__(self) -> str:
        return f"Rule({self.do!r}, {self.where!r}, nth={self.nth!r}, hits={self.hits})"

    def means(self, fields: Fields, random: Random) -> bool:
        """Whether this frame is meant. It is counted."""
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
        if len(counted) >= MOST_COUNTED:
            del counted[next(iter(counted))]
        counted[key] = turn
        return turn

    @property
    def copies(self) -> int:
        """How often a frame comes that is meant."""
        return copies_by(self.do, self.options)

    def apply(self, passings: list[Passing], random: Random) -> list[Passing]:
        """What becomes of the copies of a frame that is meant."""
        self.meant += 1
        befallen = [after for passing in passings for after in self._befall(passing, random)]
        self.hits += not passings or befallen != passings
        return befallen

    def _befall(self, passing: Passing, random: Random) -> list[Passing]:
        """What becomes of one copy; where that is any different, it says what was done."""
        after = list(ACTIONS[self.do](passing, random, **self.options))
        if after == [passing]:
            return after
        said = (*passing.befallen, BEFALLEN[self.do])
        return [one._replace(befallen=said) for one in after]


def copies_by(do: str, options: Mapping[str, object]) -> int:
    """How often a frame comes, by what is done to it."""
    times = options.get("times", 1)
    return 1 + times if do == "duplicate" and isinstance(times, int) else 1


def _values(wanted: Wanted) -> Collection[Value]:
    """The values that are wanted, one or many; a tuple is a list of values."""
    return (wanted,) if isinstance(wanted, int | bytes) else wanted


class Faults:
    """Rules of a link. All that mean a frame act on it, one after the other.

    All that is random comes from ``random``: the same seed gives the same faults. A frame that is
    sent elsewhere again and again is lost: :data:`~rdmawire.fabric.frame.MAX_REDIRECTS`.
    :class:`FabricError` for what is no rule, and for rules that make more than
    :data:`MOST_COPIES` of one frame.
    """

    def __init__(self, rules: Iterable[Rule], random: Random | None = None) -> None:
        check_values("Faults", {"rules": rules}, {"rules": Kind(Iterable)})
        self.rules = tuple(rules)
        check_settings(self, {"rules": Many(Kind(Rule))})
        if (copies := prod(rule.copies for rule in self.rules)) > MOST_COPIES:
            raise FabricError(f"{copies} copies of one frame; {MOST_COPIES} at most")
        self._random = Random(0) if random is None else random  # noqa: S311 - repeatable

    def befall(self, frame: Envelope, number: int) -> list[Passing]:
        """What becomes of the frame with this number on its link."""
        fields = Fields(frame.data, number)
        passings = [Passing(frame.data)]
        for rule in self.rules:
            if rule.means(fields, self._random):
                passings = rule.apply(passings, self._random)
        return [one for one in passings if frame.redirects_with(one.data) <= MAX_REDIRECTS]
