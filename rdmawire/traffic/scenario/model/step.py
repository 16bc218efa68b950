"""Steps: every verb with its keys, and the keys of every step.

Keys of a verb set fields of :class:`StepPlan`: ``end``, ``local`` (memory at that end), ``remote``
(memory at the other), ``inline``; other keys are in ``values``; ``fill``, ``text`` and ``hex`` make
one ``content``. Send work has the opcode that it posts: :mod:`rdmawire.ib` alone defines which
types of connection support it, and how it uses local memory.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Final, NamedTuple

from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.document import Node
from rdmawire.traffic.scenario.model.collective import (
    ALGORITHM,
    AMONG,
    COLLECTIVES,
    DTYPE,
    MAX_CHANNELS,
    MAX_COLLECTIVE,
    MAX_QPS,
    PROTOCOL,
    CollectiveKind,
)
from rdmawire.traffic.scenario.model.connection import ATTRIBUTES, CONGESTION, STATE
from rdmawire.traffic.scenario.model.host import ACCESS, ERRNO, FILL, HEX, INLINE, TEXT, content_of
from rdmawire.traffic.scenario.model.packet import (
    FIELDS,
    HEADERS,
    ICRC,
    OFFSET,
    OPCODE,
    PACKET,
    PAD,
    PAYLOAD,
    PSN,
)
from rdmawire.traffic.scenario.references import END, HOST, SPAN, STEP, Spans
from rdmawire.traffic.scenario.section import (
    NOTHING,
    Clause,
    Found,
    Given,
    OneKey,
    Section,
    key,
    made_section,
)
from rdmawire.traffic.scenario.types import (
    FLAG,
    NAME,
    End,
    Flag,
    Many,
    Number,
    OneOf,
    Size,
    Span,
    Time,
    ValueType,
    Word,
)
from rdmawire.verbs.enums import WCStatus
from rdmawire.verbs.profile import PROFILES
from rdmawire.verbs.wr import SendFlags, SendOpcode
from rdmawire.wire.ib import Placement, Selectivity
from rdmawire.wire.management import PATH_MTUS

# Verbs.


class Parameter(NamedTuple):
    """One key of a verb. ``into`` is the field of the step; empty if it is one of the values."""

    type: ValueType
    help: str
    into: str = ""
    needed: bool = True


class Verb(NamedTuple):
    """An operation of a step. ``work`` is the opcode that it posts to a send queue, if any.

    Of the keys in one of ``alternatives``, a step has at most one.
    """

    help: str
    parameters: Mapping[str, Parameter]
    work: SendOpcode | None = None
    clause: str = ""
    alternatives: tuple[tuple[str, ...], ...] = (("fill", "text", "hex"),)

    @property
    def sends(self) -> bool:
        """Whether it sends a message to the peer. IBA 10.6, 10.7."""
        local = (SendOpcode.BIND_MW, SendOpcode.REG_MR, SendOpcode.LOCAL_INV)
        return self.work is not None and self.work not in local


SPANS: Final = Many(SPAN, alone=True)
GRANT: Final = Spans(windows=True)
"""Memory of the step's end, or a window of it."""
PEERS: Final = Spans(windows=True)
"""Memory of the peer, or a window of it."""
REMOTE: Final = Spans(windows=True, fits=False)
"""Memory of the peer, or a window of it; the bytes may go beyond its end."""
BITS_32: Final = Number(0, (1 << 32) - 1)
BITS_64: Final = Number(0, (1 << 64) - 1)

OF_PEER: Final = (REMOTE, PEERS)
"""Types of values that belong to the other end; all others belong to the step's end."""

PLACEMENT: Final = Word(Placement.__members__)
SELECTIVITY: Final = Word(Selectivity.__members__)

_ON: Final = {"on": Parameter(END, "End of a connection that does it.", "end")}
_FROM: Final = {"from": Parameter(SPANS, "Memory to send.", "local", needed=False)}
_INLINE: Final = {
    "inline": Parameter(INLINE, "Bytes to send inline, instead of memory.", "inline", needed=False)
}
_INTO: Final = {"into": Parameter(SPANS, "Memory for the response.", "local", needed=False)}
_TO: Final = {"to": Parameter(REMOTE, "Memory of the peer.", "remote")}
_IMM: Final = {"imm": Parameter(BITS_32, "Immediate data.")}
_ACCESS: Final = {"access": Parameter(ACCESS, "Access rights; by default all.", needed=False)}
_SEND: Final = _ON | _FROM | _INLINE


def _what(help_: str, type_: ValueType = SPAN) -> dict[str, Parameter]:
    return {"what": Parameter(type_, help_)}


_CRAFTED: Final = {
    "on": Parameter(END, "End of a connection that sends it.", "end"),
    "opcode": Parameter(OPCODE, "Opcode of the packet; it has the headers.", needed=False),
    "hex": Parameter(
        PACKET,
        "The bytes from the BTH to the pad, instead of `opcode`. The headers before the BTH and "
        "the ICRC are added.",
        needed=False,
    ),
    "psn": Parameter(
        PSN,
        "PSN: a number, or relative to the one that the peer expects when the packet is sent. Of "
        "a response, the peer expects the PSN of its oldest request without a response. By "
        "default the expected one.",
        needed=False,
    ),
    "to": Parameter(
        REMOTE,
        "Memory of the peer: address, R_Key and length for a RETH, AtomicETH or IETH.",
        "remote",
        needed=False,
    ),
    "va_offset": Parameter(OFFSET, "Number added to the address of `to`.", needed=False),
    "rkey_offset": Parameter(OFFSET, "Number added to the R_Key of `to`.", needed=False),
    "queue": Parameter(
        NAME,
        "Shared receive queue of the peer that an XRCETH names; by default that of its end.",
        needed=False,
    ),
    "payload": Parameter(PAYLOAD, "Payload; by default none.", needed=False),
    "headers": Parameter(
        HEADERS, "Extended headers, instead of those that the opcode has.", needed=False
    ),
    "pad": Parameter(
        PAD,
        "Bytes of pad; by default up to a multiple of four. BTH.padcnt counts them.",
        needed=False,
    ),
    "fields": Parameter(
        FIELDS,
        "Values of fields, which replace the computed ones. Lengths are not adapted to them, "
        "checksums are.",
        needed=False,
    ),
    "icrc": Parameter(
        ICRC,
        "The ICRC: good; stale, that of the packet before `fields`; or bad, with one bit "
        "inverted. By default good.",
        needed=False,
    ),
}

_MOVED: Final = {
    "among": Parameter(AMONG, "Hosts that take part, one rank each, in the order of ranks."),
    "size": Parameter(
        Size(4, MAX_COLLECTIVE),
        "Bytes of the values of each host; of allgather, bytes of the result.",
    ),
    "dtype": Parameter(DTYPE, "Type of the values; by default int32.", needed=False),
    "qps": Parameter(
        Number(1, MAX_QPS), "Queue pairs of each connection; by default 1.", needed=False
    ),
    "split": Parameter(
        FLAG, "Whether each message is split over all queue pairs; by default false.", needed=False
    ),
    "mtu": Parameter(
        OneOf(PATH_MTUS), "Path MTU of its connections in bytes; by default 4096.", needed=False
    ),
    "dscp": Parameter(Number(0, 63), "DSCP of its frames; by default 0.", needed=False),
    "ecn": Parameter(
        FLAG,
        "Whether its frames are ECN-capable, so that switches may mark them; by default false.",
        needed=False,
    ),
    "attributes": Parameter(
        ATTRIBUTES, "Attributes of the queue pairs of its connections.", needed=False
    ),
    "congestion": Parameter(
        CONGESTION, "Congestion control of its connections; by default none.", needed=False
    ),
}
_RINGS: Final = {
    "protocol": Parameter(
        PROTOCOL, "NCCL's protocol; by default ll up to 1 MiB, else simple.", needed=False
    ),
    "channels": Parameter(
        Number(1, MAX_CHANNELS),
        "Rings or trees that share the work; by default 1 to 8, by the size.",
        needed=False,
    ),
}
_TREES: Final = {"algo": Parameter(ALGORITHM, "NCCL's algorithm; by default ring.", needed=False)}
_ROOT: Final = {
    "root": Parameter(
        HOST, "Host that has the values, or gets the sum; by default the first.", needed=False
    )
}


def _collective(kind: CollectiveKind) -> Verb:
    own = ({} if kind.pairwise else _RINGS) | (_TREES if kind.trees else {})
    return Verb(kind.help, _MOVED | own | (_ROOT if kind.rooted else {}))


VERBS: Final[dict[str, Verb]] = {
    "write": Verb(
        "RDMA WRITE to memory of the peer.", _SEND | _TO, SendOpcode.RDMA_WRITE, "IBA 9.4.3"
    ),
    "write_imm": Verb(
        "RDMA WRITE with Immediate, which also consumes a receive of the peer.",
        _SEND | _TO | _IMM,
        SendOpcode.RDMA_WRITE_WITH_IMM,
        "IBA 9.4.3",
    ),
    "send": Verb("SEND; consumes a receive of the peer.", _SEND, SendOpcode.SEND, "IBA 9.4.1"),
    "send_imm": Verb(
        "SEND with Immediate.",
        _SEND | _IMM,
        SendOpcode.SEND_WITH_IMM,
        "IBA 9.4.1",
    ),
    "send_inv": Verb(
        "SEND with Invalidate, which also invalidates a key of the peer.",
        _SEND | {"key": Parameter(PEERS, "Memory or window of the peer whose key is invalidated.")},
        SendOpcode.SEND_WITH_INV,
        "IBA 9.4.1",
    ),
    "read": Verb(
        "RDMA READ of memory of the peer.",
        _ON | _INTO | {"from": Parameter(REMOTE, "Memory of the peer.", "remote")},
        SendOpcode.RDMA_READ,
        "IBA 9.4.4",
    ),
    "compare_swap": Verb(
        "Atomic Compare and Swap of eight bytes of the peer.",
        _ON
        | _INTO
        | _TO
        | {
            "compare": Parameter(BITS_64, "Value to compare with."),
            "swap": Parameter(BITS_64, "New value if they are equal."),
        },
        SendOpcode.ATOMIC_CMP_AND_SWP,
        "IBA 9.4.5",
    ),
    "fetch_add": Verb(
        "Atomic Fetch and Add to eight bytes of the peer.",
        _ON | _INTO | _TO | {"add": Parameter(BITS_64, "Number to add.")},
        SendOpcode.ATOMIC_FETCH_AND_ADD,
        "IBA 9.4.5",
    ),
    "atomic_write": Verb(
        "ATOMIC WRITE of eight bytes of the peer.", _SEND | _TO, SendOpcode.ATOMIC_WRITE, "IBA A19"
    ),
    "flush": Verb(
        "FLUSH: complete when preceding writes are globally visible or persistent.",
        _ON
        | _TO
        | {
            "placement": Parameter(
                PLACEMENT,
                "Placement type; by default GLOBAL_VISIBILITY.",
                needed=False,
            ),
            "selectivity": Parameter(
                SELECTIVITY,
                "Selectivity level; by default MEMORY_REGION_RANGE.",
                needed=False,
            ),
        },
        SendOpcode.FLUSH,
        "IBA A19",
    ),
    "bind_mw": Verb(
        "Bind a memory window to memory of its host.",
        _ON | _what("The window.", GRANT) | {"to": Parameter(SPAN, "The memory.")} | _ACCESS,
        SendOpcode.BIND_MW,
        "IBA 10.6.6.2",
    ),
    "reg_mr": Verb(
        "Fast registration (REG_MR) of memory that has `fast: true`.",
        _ON | _what("The memory, as a whole.") | _ACCESS,
        SendOpcode.REG_MR,
        "IBA 10.6.4",
    ),
    "local_inv": Verb(
        "Invalidate a local key (LOCAL_INV).",
        _ON | _what("Memory window, or memory with `fast: true`.", GRANT),
        SendOpcode.LOCAL_INV,
        "IBA 10.8.3",
    ),
    "receive": Verb(
        "Post a receive; to the shared receive queue if the end has one.",
        _ON
        | {
            "into": Parameter(SPANS, "Memory for the message.", "local", needed=False),
            "byte_len": Parameter(
                BITS_32, "Expected byte length of its completions.", needed=False
            ),
            "imm": Parameter(BITS_32, "Expected immediate data of its completions.", needed=False),
        },
        clause="IBA 11.4.1.2",
    ),
    "register": Verb(
        "Register memory that is not registered, or was deregistered.",
        _what("The memory, as a whole.") | _ACCESS,
    ),
    "deregister": Verb("Deregister memory.", _what("The memory, as a whole.")),
    "free": Verb("Free GPU memory, even if it is registered.", _what("The memory, as a whole.")),
    "fill": Verb(
        "Fill memory, as the application would.",
        _what("The memory.")
        | {
            "fill": Parameter(FILL, "New content: zeros, count or random.", needed=False),
            "text": Parameter(TEXT, "New content as text.", needed=False),
            "hex": Parameter(HEX, "New content as hexadecimal digits.", needed=False),
        },
    ),
    "modify": Verb(
        "Modify the state or attributes of queue pairs.",
        _ON
        | {
            "state": Parameter(STATE, "New state.", needed=False),
            "attributes": Parameter(ATTRIBUTES, "Attributes to modify.", needed=False),
        },
        clause="IBA 11.2.5.2",
    ),
    "migrate": Verb("Migrate to the alternate path of a connection.", _ON, clause="IBA 17.2.8"),
    "disconnect": Verb(
        "Disconnect, if the connection was made by the connection manager.", _ON, clause="IBA 12.9"
    ),
    "inject": Verb(
        "Send a crafted packet to the peer, as if this end's queue pair had sent it. The queue "
        "pair itself does not change: it ignores the responses.",
        _CRAFTED,
        clause="IBA 9.2",
        alternatives=(("opcode", "hex"),),
    ),
    **{word: _collective(kind) for word, kind in COLLECTIVES.items()},
}
"""All verbs. The keys of every step (``name``, ``at``, ``after`` ...) are valid in addition."""


# Steps.

SUCCESS: Final = WCStatus.SUCCESS.name
"""The status of successful work."""
STATUS: Final = Word((*WCStatus.__members__, "none"), "a completion status")

MAX_TIMES: Final = 10**6
_MAX_DEPTH: Final = min(profile.max_qp_wr for profile in PROFILES.values())
_FLAGS: Final = tuple(flag.name or "" for flag in SendFlags if flag is not SendFlags.INLINE)


class StepPlan(Section):
    """An operation, and its expected result.

    ``verb`` is a row of :data:`VERBS`: send work (``write``, ``read``, ``send`` ...), ``receive``,
    and control actions (``free``, ``deregister``, ``fill``, ``modify``, ``disconnect`` ...).
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
        key("Send flags; with SIGNALED, the work has a completion."),
    ] = ("SIGNALED",)
    times: Annotated[
        int, Number(1, MAX_TIMES), key("Number of times that each queue pair does it.")
    ] = 1
    depth: Annotated[
        int | None,
        Number(1, _MAX_DEPTH),
        key("Maximum outstanding at a time."),
    ] = None
    barrier: Annotated[
        Flag, key("Whether all queue pairs finish a round before any begins the next.")
    ] = False
    status: Annotated[
        str | None,
        STATUS,
        Clause("IBA 11.6.2"),
        key("Expected status of its completions; none: no completion is expected."),
    ] = "SUCCESS"
    name: Annotated[str, NAME, key("Name of the step, for `after` of later steps.")] = ""
    at: Annotated[int | None, Time(), key("Time at which it begins.")] = None
    after: Annotated[
        tuple[str, ...],
        Many(STEP, alone=True),
        key(
            "Steps that must be complete first. Without `after` and `at`, the step begins with "
            "the preceding one."
        ),
    ] = ()
    refused: Annotated[str | None, ERRNO, key("Expected errno of the verb.")] = None


OF_SENDS: Final = ("flags",)
"""Keys of steps that post to send queues."""
OF_QUEUES: Final = ("times", "depth", "barrier", "status")
"""Keys of steps whose work completes."""
OF_ALL: Final = ("name", "at", "after", "refused")
"""Keys of every step."""


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
            if row.type in (FILL, TEXT, HEX):
                values["content"] = content_of(self)
            elif row.into:
                fields[row.into] = getattr(self, row.into)
            else:
                values[name] = getattr(self, name)
        common = (*OF_SENDS, *OF_QUEUES, *OF_ALL)
        fields |= {name: getattr(self, name) for name in common if name in found.nodes}
        step = context.rules[StepPlan](StepPlan(**fields, values=values), found, context)
        context.steps.append(step)
        return step


@cache
def verb_section(word: str) -> type[VerbKeys]:
    """Return the section of a verb: its own keys, and those of steps that it may have."""
    verb = VERBS[word]
    fields: dict[str, Any] = {
        row.into or name: (
            Annotated[Any, row.type, key(row.help, name)],
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
    model = made_section(VerbKeys, f"the verb {word}", fields)
    model.alternatives = verb.alternatives
    needed = model.needed()
    model.short = needed[0] if len(needed) == 1 else ""
    return model


class _Step(OneKey):
    """One step. The context counts them."""

    def read(self, node: Node, context: ParseContext) -> StepPlan:
        context.step += 1
        step: StepPlan = super().read(node, context)
        return step


STEPS: Final = Many(_Step(VERBS, verb_section, "a verb"), partly=True, called="a list of steps")
