"""A planted bug: rules of an adapter or of a parser with one row replaced by a wrong one."""

from collections.abc import Callable
from typing import Final, NamedTuple

from rdmawire.errors import FuzzError
from rdmawire.fuzz.small_mpa_reader import MPARules
from rdmawire.fuzz.small_parsers import SmallParser
from rdmawire.ib.cm import CMRules
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.rules import RequestRule, Rules, Step
from rdmawire.ib.rx_parser import Arrival
from rdmawire.ib.service import Fault, Reaction
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.verbs.enums import QPType


class PlantedBug(NamedTuple):
    """A bug that an adapter's firmware, or a parser, could have.

    ``about`` says what the adapter does wrong, ``clause`` what it violates. ``service`` is the
    transport service that shows it, in the words of ``rdmawire fuzz run --service``, and ``kind``
    the target that shows it: ``engine`` by its replies, ``requester`` by the work that it posts,
    ``parser`` by what it reads from mutants of captured frames, ``cm`` by what a connection manager
    answers, ``mpa`` by what it finds in a TCP connection. Of a parser, ``service`` is its name, and
    ``parser`` has its rules; of a connection manager, ``service`` is the role, and ``cm`` its
    rules; of a reader of MPA, ``mpa`` has its rules.
    """

    name: str
    about: str
    clause: str
    rules: Rules = STANDARD
    service: str = "rc"
    kind: str = "engine"
    parser: SmallParser | None = None
    cm: CMRules | None = None
    mpa: MPARules | None = None

    @property
    def spec(self) -> dict[str, str]:
        """The specification of a fuzzer that finds the bug, for ``make_fuzzer``."""
        if self.kind in ("parser", "cm", "mpa"):
            return {"kind": self.kind, "bug": self.name}
        return {"kind": self.kind, "bug": self.name, "service": self.service}

    @property
    def healthy_spec(self) -> dict[str, str]:
        """The specification of a fuzzer of the same target without the bug."""
        if self.parser is not None:
            return {"kind": self.kind, "function": self.service}
        if self.cm is not None or self.mpa is not None:
            return {"kind": self.kind}
        return {"kind": self.kind, "service": self.service}


PARTS: Final = {
    "engine": "an adapter",
    "requester": "an adapter",
    "cm": "a connection manager",
    "mpa": "a reader of MPA",
    "parser": "a parser",
}
"""What has the bug, by ``kind``."""


def wrong_part(bug: PlantedBug, wanted: str) -> FuzzError:
    """Return the error about a bug that a fuzzer of the kind ``wanted`` cannot plant."""
    return FuzzError(
        f"{bug.name!r} is a bug of {PARTS[bug.kind]}, not of {PARTS[wanted]}: "
        "see rdmawire fuzz list"
    )


Change = Callable[[QueuePair, RequestRule, Arrival], None]
IGNORE: Final = Fault.QKEY
"""A fault that reliable connections never have: :func:`with_quiet_step` gives it no reaction."""


def no_check(_: QueuePair, __: RequestRule, ___: Arrival) -> Fault | None:
    """Check nothing: a step in place of a check."""
    return None


def with_step(old: Step, new: Step) -> Rules:
    """Return the standard's rules with a step replaced in all requests."""
    return STANDARD.with_step(old, new)


def with_quiet_step(old: Step, new: Step) -> Rules:
    """Return rules with another step, whose fault ``IGNORE`` ends a request without a reaction."""
    return with_step(old, new).with_reaction(QPType.RC, IGNORE, Reaction())


def with_reaction(fault: Fault, reaction: Reaction, qp_type: QPType = QPType.RC) -> Rules:
    """Return the standard's rules with another reaction to a fault."""
    return STANDARD.with_reaction(qp_type, fault, reaction)


def before(step: Step, change: Change) -> Rules:
    """Return rules in which ``change`` is called with the arguments of a step, before the step."""

    def changed(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
        change(qp, role, request)
        return step(qp, role, request)

    return with_step(step, changed)


def after(step: Step, change: Change) -> Rules:
    """Return rules in which ``change`` is called after a step that found no fault."""

    def changed(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
        fault = step(qp, role, request)
        if fault is None:
            change(qp, role, request)
        return fault

    return with_step(step, changed)
