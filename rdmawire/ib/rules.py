"""What a request packet is to the responder: a row for each opcode."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from rdmawire.ib.service import Fault
from rdmawire.snapshot import shared
from rdmawire.verbs.enums import WCOpcode

if TYPE_CHECKING:
    from rdmawire.ib.qp import QueuePair
    from rdmawire.ib.rx_parser import Arrival

Step = Callable[["QueuePair", "Role", "Arrival"], Fault | None]


class Family(NamedTuple):
    """Packets that may follow one another in a message.

    ``too_long`` is the fault of octets beyond the message's limit; an ``exact`` message has as
    many as its first packet announced.
    """

    name: str
    too_long: Fault
    exact: bool

    def __deepcopy__(self, _: object) -> Self:
        return self


IDLE = Family("no message", Fault.OP_SEQUENCE, exact=False)
SEND = Family("SEND", Fault.TOO_LONG, exact=False)
WRITE = Family("RDMA WRITE", Fault.LENGTH, exact=True)
REQUEST = Family("a request of one packet", Fault.LENGTH, exact=True)

NO_HEADER: Final = -1
"""The place of a header that an opcode does not have."""


@dataclass(frozen=True, slots=True, eq=False)
class Role:
    """One opcode of one service.

    ``begins`` and ``ends`` say whether it is the first and the last packet of its message: most
    operations have messages of one packet. ``access`` are the rights it needs, of the queue pair
    and of the key. ``receipt`` is how it completes a receive, ``None`` where it does not. ``again``
    are the steps of a duplicate that has bytes read again. The fields from ``reth`` on are
    the places of these headers behind the BTH, :data:`NO_HEADER` where there is none. ``follows``
    is the family of the message that is coming in when the packet comes, :data:`IDLE` for one that
    begins. ``plain`` says that no header adds to the completion of a receive.
    """

    family: Family
    steps: tuple[Step, ...]
    begins: bool = True
    ends: bool = True
    access: int = 0
    receipt: WCOpcode | None = None
    again: tuple[Step, ...] = ()
    reth: int = NO_HEADER
    immdt: int = NO_HEADER
    ieth: int = NO_HEADER
    atomiceth: int = NO_HEADER
    feth: int = NO_HEADER
    deth: int = NO_HEADER
    follows: Family = field(init=False)
    plain: bool = field(init=False)

    __deepcopy__ = shared

    def __post_init__(self) -> None:
        object.__setattr__(self, "follows", IDLE if self.begins else self.family)
        adding = (self.immdt, self.ieth, self.deth)
        object.__setattr__(self, "plain", all(place == NO_HEADER for place in adding))
