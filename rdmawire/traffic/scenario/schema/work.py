"""Steps: the keys of every one, and of each verb what it takes besides."""

from functools import partial
from typing import Final

from rdmawire.traffic.scenario.document import Items, Node
from rdmawire.traffic.scenario.form.kind import (
    TRUTH,
    Definitions,
    Json,
    Kind,
    Many,
    Word,
    misfit,
    number,
    time,
)
from rdmawire.traffic.scenario.form.reading import Reading
from rdmawire.traffic.scenario.form.record import NAME, Choice, Key, Record
from rdmawire.traffic.scenario.form.reference import END, SPAN, STEP, Spans
from rdmawire.traffic.scenario.model import StepPlan
from rdmawire.traffic.scenario.rules.work import check_step
from rdmawire.traffic.scenario.schema.connection import ATTRIBUTES
from rdmawire.traffic.scenario.schema.content import FILL, HEX, INLINE, TEXT
from rdmawire.traffic.scenario.schema.words import (
    ACCESS,
    ERRNO,
    PLACEMENT,
    SELECTIVITY,
    STATE,
    STATUS,
)
from rdmawire.traffic.scenario.verbs import VERBS, Parameter, Takes, Verb
from rdmawire.verbs.profile import PROFILES
from rdmawire.verbs.wr import SendFlags

MOST_TIMES: Final = 10**6
_MOST_DEPTH: Final = min(profile.max_qp_wr for profile in PROFILES.values())
_FLAGS: Final = tuple(flag.name or "" for flag in SendFlags if flag is not SendFlags.INLINE)

KINDS: Final[dict[Takes, Kind[object]]] = {
    Takes.END: END,
    Takes.SPAN: SPAN,
    Takes.SPANS: Many(SPAN, alone=True),
    Takes.GRANT: Spans(windows=True),
    Takes.REMOTE: Spans(windows=True, fits=False),
    Takes.PEERS: Spans(windows=True),
    Takes.OCTETS: INLINE,
    Takes.BITS_32: number(0, (1 << 32) - 1),
    Takes.BITS_64: number(0, (1 << 64) - 1),
    Takes.FILL: FILL,
    Takes.TEXT: TEXT,
    Takes.HEX: HEX,
    Takes.ACCESS: ACCESS,
    Takes.STATE: STATE,
    Takes.ATTRIBUTES: ATTRIBUTES,
    Takes.PLACEMENT: PLACEMENT,
    Takes.SELECTIVITY: SELECTIVITY,
}
"""How what verbs take is read."""

OF_ALL: Final = {
    "name": Key(kind=NAME, help="What it is called by steps that come after it."),
    "at": Key(kind=time(), help="When it is done."),
    "after": Key(
        kind=Many(STEP, alone=True),
        help="The steps that must be complete first. Without this and `at`, it is done with the "
        "step before it.",
    ),
    "refused": Key(kind=ERRNO, help="The errno that it must meet at once."),
}
"""Keys of every step."""

OF_QUEUES: Final = {
    "times": Key(kind=number(1, MOST_TIMES), help="How often each queue pair does it."),
    "depth": Key(kind=number(1, _MOST_DEPTH), help="How often it is under way at a time, at most."),
    "barrier": Key(
        kind=TRUTH, help="Whether all queue pairs finish a round before any begins the next."
    ),
    "status": Key(
        kind=STATUS,
        clause="IBA 11.6.2",
        help="How its completions must end; none: without any.",
    ),
}
"""Keys of steps whose work completes."""

OF_SENDS: Final = {
    "flags": Key(kind=Many(Word(_FLAGS), alone=True), help="How it is done; SIGNALED: completes.")
}
"""Keys of steps that post to send queues."""


_CONTENT: Final = (Takes.FILL, Takes.TEXT, Takes.HEX)


def _key(parameter: Parameter) -> Key:
    valued = parameter.into == "values"
    own = () if valued else (parameter.into,)
    return Key(
        kind=KINDS[parameter.takes],
        help=parameter.help,
        into=("content",) if parameter.takes in _CONTENT else own,
        within="values" if valued else "",
        needed=parameter.needed,
    )


def _record(word: str, verb: Verb) -> Record[StepPlan]:
    keys = {name: _key(parameter) for name, parameter in verb.parameters.items()}
    queued = verb.work is not None or word == "receive"
    keys |= (OF_SENDS if verb.work is not None else {}) | (OF_QUEUES if queued else {}) | OF_ALL
    needed = [name for name, parameter in verb.parameters.items() if parameter.needed]
    return Record(
        called=f"the verb {word}",
        plan=StepPlan,
        keys=keys,
        short=needed[0] if len(needed) == 1 else "",
        finish=check_step,
    )


RECORDS: Final = {word: _record(word, verb) for word, verb in VERBS.items()}


class Steps:
    """The list of steps; which is being read is counted."""

    step = Choice(records=RECORDS, called="a verb", into="verb")
    parts = (step,)
    said = "a list of steps"
    samples = ("[{write: {on: client/a, from: client.source, to: server.sink}}]",)

    def read(self, node: Node, reading: Reading) -> tuple[StepPlan, ...]:
        """Those that can be read; what is amiss with the others is told."""
        if not isinstance(node, Items):
            raise misfit(node, self.said)
        reads = (partial(self._read, item, place, reading) for place, item in enumerate(node.items))
        return reading.gather(reads)[0]

    def _read(self, node: Node, place: int, reading: Reading) -> StepPlan:
        reading.step = place
        return self.step.read(node, reading)

    def json(self, known: Definitions) -> Json:
        return {"type": "array", "items": self.step.json(known)}


STEPS: Final = Steps()
