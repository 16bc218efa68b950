"""Every verb of a scenario's ``work``: its purpose, and its keys in addition to those of any step.

Keys of a verb set fields of :class:`~rdmawire.traffic.scenario.model.StepPlan`: ``end``, ``local``
(memory at that end), ``remote`` (memory at the other), ``inline``; other keys are in ``values``;
``fill``, ``text`` and ``hex`` make one ``content``. Send work has the opcode that it posts:
:mod:`rdmawire.ib` alone defines which types of connection support it, and how it uses local memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from rdmawire.verbs.wr import SendOpcode


class Takes(Enum):
    """The types of values that verbs take."""

    END = "End"
    SPAN = "Span, of memory"
    SPANS = "tuple[Span, ...], of memory"
    GRANT = "Span, of memory or a window"
    REMOTE = "Span, of the peer's memory or a window of it; it may go beyond"
    PEERS = "Span, of the peer's memory or a window of it"
    BYTES = "bytes"
    BITS_32 = "int, 32 bits"
    BITS_64 = "int, 64 bits"
    FILL = "Content, of a word"
    TEXT = "Content, of text"
    HEX = "Content, of hex digits"
    ACCESS = "tuple[str, ...]: names of Access"
    STATE = "str: a name of QPState"
    ATTRIBUTES = "Mapping[str, int]: names of QPAttributes"
    PLACEMENT = "str: a name of Placement"
    SELECTIVITY = "str: a name of Selectivity"


OF_PEER: Final = (Takes.REMOTE, Takes.PEERS)
"""Values that belong to the other end; all others belong to the step's end."""


class Parameter(NamedTuple):
    """One key of a verb. ``into`` is the field of the step, or ``values`` if it has none."""

    takes: Takes
    help: str
    into: str = "values"
    needed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """An operation of a step.

    ``work`` is the opcode that it posts to a send queue, if any.
    """

    help: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    work: SendOpcode | None = None
    clause: str = ""

    @property
    def sends(self) -> bool:
        """Whether it sends a message to the peer."""
        return self.work is not None and self.work not in _AT_HOME


_AT_HOME: Final = (SendOpcode.BIND_MW, SendOpcode.REG_MR, SendOpcode.LOCAL_INV)
"""Work that sends nothing. IBA 10.6, 10.7."""

_ON: Final = {"on": Parameter(Takes.END, "The end that does it.", "end")}
_FROM: Final = {"from": Parameter(Takes.SPANS, "What is sent.", "local", needed=False)}
_INLINE: Final = {
    "inline": Parameter(
        Takes.BYTES, "Bytes that are sent in place of memory.", "inline", needed=False
    )
}
_INTO: Final = {
    "into": Parameter(Takes.SPANS, "Where the answer is placed.", "local", needed=False)
}
_TO: Final = {"to": Parameter(Takes.REMOTE, "The peer's memory.", "remote")}
_IMM: Final = {"imm": Parameter(Takes.BITS_32, "The immediate.")}
_ACCESS: Final = {
    "access": Parameter(Takes.ACCESS, "What is allowed; all, if left out.", needed=False)
}
_SEND: Final = _ON | _FROM | _INLINE


def _what(help_: str, takes: Takes = Takes.SPAN) -> dict[str, Parameter]:
    return {"what": Parameter(takes, help_)}


VERBS: Final[dict[str, Verb]] = {
    "write": Verb(
        work=SendOpcode.RDMA_WRITE,
        clause="IBA 9.4.3",
        help="Write to the peer's memory.",
        parameters=_SEND | _TO,
    ),
    "write_imm": Verb(
        work=SendOpcode.RDMA_WRITE_WITH_IMM,
        clause="IBA 9.4.3",
        help="Write to the peer's memory, and complete a receive there.",
        parameters=_SEND | _TO | _IMM,
    ),
    "send": Verb(
        work=SendOpcode.SEND,
        clause="IBA 9.4.1",
        help="Send to a receive of the peer.",
        parameters=_SEND,
    ),
    "send_imm": Verb(
        work=SendOpcode.SEND_WITH_IMM,
        clause="IBA 9.4.1",
        help="Send to a receive of the peer, with an immediate.",
        parameters=_SEND | _IMM,
    ),
    "send_inv": Verb(
        work=SendOpcode.SEND_WITH_INV,
        clause="IBA 9.4.1",
        help="Send to a receive of the peer, and invalidate a key of the peer.",
        parameters=_SEND
        | {"key": Parameter(Takes.PEERS, "The peer's memory or window whose key goes.")},
    ),
    "read": Verb(
        work=SendOpcode.RDMA_READ,
        clause="IBA 9.4.4",
        help="Read the peer's memory.",
        parameters=_ON | _INTO | {"from": Parameter(Takes.REMOTE, "The peer's memory.", "remote")},
    ),
    "compare_swap": Verb(
        work=SendOpcode.ATOMIC_CMP_AND_SWP,
        clause="IBA 9.4.5",
        help="Change eight bytes of the peer's if they are what they should be.",
        parameters=_ON
        | _INTO
        | _TO
        | {
            "compare": Parameter(Takes.BITS_64, "The value that must be there."),
            "swap": Parameter(Takes.BITS_64, "The value that replaces it."),
        },
    ),
    "fetch_add": Verb(
        work=SendOpcode.ATOMIC_FETCH_AND_ADD,
        clause="IBA 9.4.5",
        help="Add to eight bytes of the peer's.",
        parameters=_ON | _INTO | _TO | {"add": Parameter(Takes.BITS_64, "What is added.")},
    ),
    "atomic_write": Verb(
        work=SendOpcode.ATOMIC_WRITE,
        clause="IBA A19",
        help="Write eight bytes of the peer's at once.",
        parameters=_SEND | _TO,
    ),
    "flush": Verb(
        work=SendOpcode.FLUSH,
        clause="IBA A19",
        help="Wait until what was written before is where others see it.",
        parameters=_ON
        | _TO
        | {
            "placement": Parameter(
                Takes.PLACEMENT,
                "How far it must have come; GLOBAL_VISIBILITY, if left out.",
                needed=False,
            ),
            "selectivity": Parameter(
                Takes.SELECTIVITY,
                "How much of the region; MEMORY_REGION_RANGE, if left out.",
                needed=False,
            ),
        },
    ),
    "bind_mw": Verb(
        work=SendOpcode.BIND_MW,
        clause="IBA 10.6.6.2",
        help="Bind a memory window to memory of its host.",
        parameters=_ON
        | _what("The window.", Takes.GRANT)
        | {"to": Parameter(Takes.SPAN, "The memory.")}
        | _ACCESS,
    ),
    "reg_mr": Verb(
        work=SendOpcode.REG_MR,
        clause="IBA 10.6.4",
        help="Register memory that is for fast registration.",
        parameters=_ON | _what("The memory; all of it.") | _ACCESS,
    ),
    "local_inv": Verb(
        work=SendOpcode.LOCAL_INV,
        clause="IBA 10.8.3",
        help="Invalidate a key of one's own.",
        parameters=_ON | _what("The window, or memory for fast registration.", Takes.GRANT),
    ),
    "receive": Verb(
        clause="IBA 11.4.1.2",
        help="Post a receive, to the shared queue where the end has one.",
        parameters=_ON
        | {"into": Parameter(Takes.SPANS, "Where a message is placed.", "local", needed=False)},
    ),
    "register": Verb(
        help="Register memory that is not registered, or no more.",
        parameters=_what("The memory; all of it.") | _ACCESS,
    ),
    "deregister": Verb(
        help="Take back the registration of memory.",
        parameters=_what("The memory; all of it."),
    ),
    "free": Verb(
        help="The owner frees GPU memory, registered or not.",
        parameters=_what("The memory; all of it."),
    ),
    "fill": Verb(
        help="The application writes bytes to memory.",
        parameters=_what("The memory.")
        | {
            "fill": Parameter(Takes.FILL, "The new content, by a word.", needed=False),
            "text": Parameter(Takes.TEXT, "The new content, as text.", needed=False),
            "hex": Parameter(Takes.HEX, "The new content, as hexadecimal digits.", needed=False),
        },
    ),
    "modify": Verb(
        clause="IBA 11.2.5.2",
        help="Change state or attributes of queue pairs.",
        parameters=_ON
        | {
            "state": Parameter(Takes.STATE, "The state to go to.", needed=False),
            "attributes": Parameter(Takes.ATTRIBUTES, "What else changes.", needed=False),
        },
    ),
    "migrate": Verb(
        clause="IBA 17.2.8",
        help="Go over to the alternate path of a connection.",
        parameters=_ON,
    ),
    "disconnect": Verb(
        clause="IBA 12.9",
        help="End a connection that the connection manager made.",
        parameters=_ON,
    ),
}
"""All verbs. The keys of every step (``name``, ``at``, ``after`` ...) are valid in addition."""
