"""What a fault does to a frame: one table, by name.

Each action takes one copy of a frame on its way and gives those that go on. Its options are its
keywords. ``random`` is for actions that choose by chance.
"""

from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from random import Random
from typing import Final

from rdmawire.bound import TIME, Bound, Kind, Whole, Word
from rdmawire.fabric.field import Fields, check_value
from rdmawire.fabric.flow import Classifier, marked
from rdmawire.fabric.passing import Passing
from rdmawire.fabric.refusal import FabricError, check_values
from rdmawire.units import us
from rdmawire.wire.naming import Value

Passings = Iterable[Passing]
Action = Callable[..., Passings]
_TRAITS: Final = Classifier()


def drop(passing: Passing, random: Random) -> Passings:  # noqa: ARG001 - an action
    """It is lost."""
    return ()


def duplicate(passing: Passing, random: Random, *, times: int = 1, wait: int = 0) -> Passings:  # noqa: ARG001
    """It comes ``times`` more often, each ``wait`` ns after the one before."""
    return [passing._replace(wait=passing.wait + wait * n) for n in range(times + 1)]


def delay(passing: Passing, random: Random, *, by: int = us(10), most: int = 0) -> Passings:
    """It comes ``by`` ns late, or by chance up to ``most``; what comes meanwhile overtakes it."""
    late = random.randint(by, most) if most > by else by
    return (passing._replace(wait=passing.wait + late),)


def reorder(passing: Passing, random: Random, *, behind: int = 1, most: int = us(100)) -> Passings:  # noqa: ARG001
    """It comes behind so many that its port sends later; after ``most`` ns in any case."""
    return (passing._replace(wait=passing.wait + most, behind=behind),)


def corrupt(
    passing: Passing,
    random: Random,
    *,
    octet: int = -1,
    bit: int = 0,
    anywhere: bool = False,
    seal: bool = False,
) -> Passings:
    """One bit is turned: of the ``octet`` counted from the BTH, or from the pad's end if negative.

    ``anywhere`` leaves both to chance. With ``seal`` the ICRC fits what stands there then. Where
    there is no BTH, the whole frame counts, and unless sealed it is lost: no switch and no adapter
    takes in what has a bad FCS (IEEE 802.3, 4.2.4.1.2).
    """
    frame = passing.data
    fields = Fields(frame)
    if not frame or (fields.frame is None and not seal):
        return ()
    places = fields.transport or range(len(frame))
    place = places[random.randrange(len(places)) if anywhere else octet % len(places)]
    turned = frame[place] ^ 1 << (random.randrange(8) if anywhere else bit)
    changed = frame[:place] + bytes((turned,)) + frame[place + 1 :]
    return (passing._replace(data=fields.icrc_renewed(changed) if seal else changed),)


def truncate(passing: Passing, random: Random, *, by: int = 4, seal: bool = False) -> Passings:  # noqa: ARG001
    """The last octets are missing. With ``seal``, they are the payload's last, and all fits.

    Without, a frame that has no ICRC is lost, for its FCS is bad.
    """
    frame, fields = passing.data, Fields(passing.data)
    if fields.frame is None and not seal and by > 0:
        return ()
    left = fields.shortened(by) if seal else frame[: max(len(frame) - by, 0)]
    return (passing._replace(data=left),) if left else ()


def mark(passing: Passing, random: Random) -> Passings:  # noqa: ARG001
    """A switch met congestion: CE, if the frame is ECN-capable."""
    frame = passing.data
    return (passing._replace(data=marked(frame)) if _TRAITS.traits(frame).markable else passing,)


def rewrite(
    passing: Passing,
    random: Random,  # noqa: ARG001
    *,
    field: str,
    value: Value,
    seal: bool = True,
) -> Passings:
    """A field has another value, in the innermost header that has it. With ``seal`` all fits."""
    changed = Fields(passing.data).rewritten(field, value, seal=seal)
    return (passing._replace(data=changed),)


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
"""Every fault there is."""

OPTIONS: Final = {
    name: {p.name: p for p in signature(action).parameters.values() if p.kind is p.KEYWORD_ONLY}
    for name, action in ACTIONS.items()
}
"""The options of each."""


_COUNT: Final = Whole()
_TRUTH: Final = Kind(bool)

BOUNDS: Final[dict[str, dict[str, Bound]]] = {
    "drop": {},
    "duplicate": {"times": _COUNT, "wait": TIME},
    "delay": {"by": TIME, "most": TIME},
    "reorder": {"behind": _COUNT, "most": TIME},
    "corrupt": {"octet": Kind(int), "bit": Whole(0, 7), "anywhere": _TRUTH, "seal": _TRUTH},
    "truncate": {"by": Whole(called="a number of octets"), "seal": _TRUTH},
    "mark": {},
    "set": {"field": Kind(str), "seal": _TRUTH},
}
"""What each option may be; a value is what its field can hold."""


def check_action(do: str, options: Mapping[str, object]) -> None:
    """:class:`FabricError` unless there is this action, with these options and such values."""
    if reason := Word(tuple(ACTIONS)).wrong(do):
        raise FabricError(reason)
    known = OPTIONS[do]
    if wrong := sorted(options.keys() - known.keys()):
        raise FabricError(f"{do} has no option {wrong[0]!r}; it has {', '.join(known) or 'none'}")
    needed = (name for name, option in known.items() if option.default is option.empty)
    if missing := sorted(set(needed) - options.keys()):
        raise FabricError(f"{do} needs the option {missing[0]!r}")
    bounds = {name: bound for name, bound in BOUNDS[do].items() if name in options}
    check_values(do, options, bounds)
    if isinstance(field := options.get("field"), str):
        check_value(field, options["value"])
