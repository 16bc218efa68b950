"""Steps: the keys of every step, and the additional keys of each verb."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

from pydantic import create_model

from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.document import Node
from rdmawire.traffic.scenario.model.connection import ATTRIBUTES
from rdmawire.traffic.scenario.model.content import FILL, HEX, INLINE, TEXT, content_of
from rdmawire.traffic.scenario.references import END, SPAN, STEP, Spans
from rdmawire.traffic.scenario.section import (
    NOTHING,
    Clause,
    Found,
    Given,
    LazySections,
    OneKey,
    Section,
    key,
)
from rdmawire.traffic.scenario.tables import (
    ACCESS,
    ERRNO,
    PLACEMENT,
    SELECTIVITY,
    STATE,
    STATUS,
)
from rdmawire.traffic.scenario.types import (
    NAME,
    End,
    Flag,
    Many,
    Number,
    Span,
    Time,
    ValueType,
    Word,
)
from rdmawire.traffic.scenario.verbs import VERBS, Takes
from rdmawire.verbs.profile import PROFILES
from rdmawire.verbs.wr import SendFlags

MAX_TIMES: Final = 10**6
_MAX_DEPTH: Final = min(profile.max_qp_wr for profile in PROFILES.values())
_FLAGS: Final = tuple(flag.name or "" for flag in SendFlags if flag is not SendFlags.INLINE)

TYPES_OF: Final[dict[Takes, ValueType]] = {
    Takes.END: END,
    Takes.SPAN: SPAN,
    Takes.SPANS: Many(SPAN, alone=True),
    Takes.GRANT: Spans(windows=True),
    Takes.REMOTE: Spans(windows=True, fits=False),
    Takes.PEERS: Spans(windows=True),
    Takes.BYTES: INLINE,
    Takes.BITS_32: Number(0, (1 << 32) - 1),
    Takes.BITS_64: Number(0, (1 << 64) - 1),
    Takes.FILL: FILL,
    Takes.TEXT: TEXT,
    Takes.HEX: HEX,
    Takes.ACCESS: ACCESS,
    Takes.STATE: STATE,
    Takes.ATTRIBUTES: ATTRIBUTES,
    Takes.PLACEMENT: PLACEMENT,
    Takes.SELECTIVITY: SELECTIVITY,
}
"""The type of each value that verbs take."""


class StepPlan(Section):
    """An operation, and its expected result.

    ``verb`` is a row of :data:`rdmawire.traffic.scenario.verbs.VERBS`: send work (``write``,
    ``read``, ``send``, ``atomic_write`` ...), ``receive``, and control actions (``free``,
    ``deregister``, ``invalidate``, ``fill``, ``modify``, ``migrate``, ``disconnect`` ...).
    ``values`` are further values of the verb.

    A step starts at ``at`` (ns), or when the steps in ``after`` are complete, or else with the
    preceding steps. ``times`` repeats it for each queue pair, with at most ``depth`` outstanding;
    with ``barrier``, all queue pairs finish a round before any begins the next.

    ``status`` is the expected status of its completions (a name of ``WCStatus``), ``refused`` the
    expected errno of the verb; ``None``: no completion, no failure is expected.
    """

    called: ClassVar = "a step"

    verb: Given[str]
    end: Given[End | None] = None
    local: Given[tuple[Span, ...]] = ()
    remote: Given[Span | None] = None
    inline: Given[bytes | None] = None
    values: Given[Mapping[str, object]] = NOTHING
    flags: Annotated[
        tuple[str, ...],
        Many(Word(_FLAGS), alone=True),
        key("How it is done; SIGNALED: completes."),
    ] = ("SIGNALED",)
    times: Annotated[int, Number(1, MAX_TIMES), key("How often each queue pair does it.")] = 1
    depth: Annotated[
        int | None,
        Number(1, _MAX_DEPTH),
        key("How many of them are outstanding at a time, at most."),
    ] = None
    barrier: Annotated[
        Flag, key("Whether all queue pairs finish a round before any begins the next.")
    ] = False
    status: Annotated[
        str | None,
        STATUS,
        Clause("IBA 11.6.2"),
        key("How its completions must end; none: without any."),
    ] = "SUCCESS"
    name: Annotated[str, NAME, key("What it is called by steps that come after it.")] = ""
    at: Annotated[int | None, Time(), key("When it is done.")] = None
    after: Annotated[
        tuple[str, ...],
        Many(STEP, alone=True),
        key(
            "The steps that must be complete first. Without this and `at`, it is done with the "
            "step before it."
        ),
    ] = ()
    refused: Annotated[str | None, ERRNO, key("The errno that it must meet at once.")] = None


OF_SENDS: Final = ("flags",)
"""Keys of steps that post to send queues."""
OF_QUEUES: Final = ("times", "depth", "barrier", "status")
"""Keys of steps whose work completes."""
OF_ALL: Final = ("name", "at", "after", "refused")
"""Keys of every step."""

_CONTENT: Final = (Takes.FILL, Takes.TEXT, Takes.HEX)


class VerbKeys(Section):
    """The keys of one verb: its own, and those of steps."""

    named: ClassVar = "verb"

    verb: Given[Any]

    def finish(self, found: Found, context: ParseContext) -> Any:
        word = str(self.verb.text)
        fields: dict[str, Any] = {"verb": word, "mark": found.mark}
        values: dict[str, Any] = {}
        for name, row in VERBS[word].parameters.items():
            if name not in found.nodes:
                continue
            value = getattr(self, _field(name, row.into))
            if row.takes in _CONTENT:
                values["content"] = content_of(self)
            elif row.into == "values":
                values[name] = value
            else:
                fields[row.into] = value
        common = (name for name in (*OF_SENDS, *OF_QUEUES, *OF_ALL) if name in found.nodes)
        fields |= {name: getattr(self, name) for name in common}
        step = context.rules[StepPlan](StepPlan(**fields, values=values), found, context)
        context.steps.append(step)
        return step


def _field(name: str, into: str) -> str:
    return name if into == "values" else into


def _section(word: str) -> type[VerbKeys]:
    verb = VERBS[word]
    fields: dict[str, Any] = {
        _field(name, row.into): (
            Annotated[Any, TYPES_OF[row.takes], key(row.help, name)],
            ... if row.needed else None,
        )
        for name, row in verb.parameters.items()
    }
    queued = verb.work is not None or word == "receive"
    common = (*(OF_SENDS if verb.work is not None else ()), *(OF_QUEUES if queued else ()), *OF_ALL)
    fields |= {
        name: (StepPlan.__annotations__[name], StepPlan.model_fields[name].default)
        for name in common
    }
    model = create_model(f"Verb_{word}", __base__=VerbKeys, **fields)
    model.called = f"the verb {word}"
    model.alternatives = (("fill", "text", "hex"),)
    needed = model.needed()
    model.short = needed[0] if len(needed) == 1 else ""
    return model


class _Step(OneKey):
    """One step. The context counts them."""

    def read(self, node: Node, context: ParseContext) -> StepPlan:
        context.step += 1
        step: StepPlan = super().read(node, context)
        return step


VERB_SECTIONS: Final = LazySections(VERBS, _section)
STEPS: Final = Many(_Step(VERB_SECTIONS, "a verb"), partly=True, called="a list of steps")
