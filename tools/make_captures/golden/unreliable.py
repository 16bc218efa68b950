"""What becomes of requests that nobody answers: UC and UD drop them. IBA 9.8, 9.9.3."""

from collections.abc import Iterator, Mapping
from typing import Any

from rdmawire.ib import Fault
from rdmawire.verbs import QPType, SendOpcode
from rdmawire.wire.opcode import Opcode
from tools.make_captures.golden.case import (
    CLIENT,
    SERVER,
    STEP,
    Case,
    Ends,
    Lose,
    Receive,
    Say,
    Work,
    case,
    text,
)
from tools.make_captures.golden.errors import LOCAL_ONLY, ON_DEMAND, by_wrong_key, work

_S = SendOpcode
_LATER = Work(STEP, CLIENT, _S.SEND, 600)
_SEND = work(_S.SEND, 5)
_SHORT, _BROKEN = Receive(0, SERVER, 4), Receive(0, SERVER, 5, broken=True)


def _by_wrong_qkey(ends: Ends) -> Work:
    return _SEND._replace(key=ends[SERVER].attributes.qkey ^ 1)


_OF_UC: dict[Fault, tuple[Any, ...]] = {
    Fault.OP_VALID: (work(_S.RDMA_WRITE, 5),),
    Fault.NOT_READY: (_SEND,),
    Fault.TOO_LONG: (_SHORT, _SEND),
    Fault.RKEY: (Receive(0, SERVER, 600), by_wrong_key(work(_S.RDMA_WRITE, 600)), _LATER),
    Fault.LOCAL: (_BROKEN, _SEND),
    Fault.OPERATIONAL: (Lose(0, SERVER), work(_S.RDMA_WRITE, 5)._replace(at=STEP)),
}
_OF_UD: dict[Fault, tuple[Any, ...]] = {
    Fault.QKEY: (Receive(0, SERVER, 5), _by_wrong_qkey),
    Fault.NOT_READY: (_SEND,),
    Fault.TOO_LONG: (_SHORT, _SEND),
    Fault.LOCAL: (_BROKEN, _SEND),
}
"""What brings each fault about."""
_SERVERS: dict[Fault, Mapping[str, int]] = {
    Fault.OP_VALID: {"qp_access_flags": LOCAL_ONLY},
    Fault.OPERATIONAL: {"access": ON_DEMAND},
}
"""What the server must be for that."""


def unreliable() -> Iterator[Case]:
    """A case for each fault that a service without answers knows."""
    for kind, rows in ((QPType.UC, _OF_UC), (QPType.UD, _OF_UD)):
        for fault, does in rows.items():
            name = f"{kind.name.lower()}-{fault.name.lower().replace('_', '-')}"
            server = _SERVERS.get(fault, {})
            shows = f"{kind.name}: {fault.value}"
            yield case(name, shows, *does, server=server, kind=kind, fault=fault)
    yield from _of_gaps()
    yield case(
        "uc-length", "UC: a first packet that is not full",
        Receive(0, SERVER, 600), Say(0, CLIENT, Opcode.UC_SEND_FIRST, payload=text(252)),
        client={"silent": True}, kind=QPType.UC, fault=Fault.LENGTH,
    )  # fmt: skip


def _of_gaps() -> Iterator[Case]:
    """A gap ends the message; its receive is there for the next one. IBA 9.8.2.2."""
    for number, part in enumerate(("first", "middle", "last"), 1):
        yield case(
            f"uc-lost-{part}", f"UC: a SEND whose {part} packet is lost, and one behind it",
            Receive(0, SERVER, 600), work(_S.SEND, 600), _LATER,
            kind=QPType.UC, lost=(number,), fault=_OF_GAPS.get(part),
        )  # fmt: skip


_OF_GAPS = {"first": Fault.OP_SEQUENCE, "middle": Fault.OP_SEQUENCE}
