"""The reference page of the software RNIC: its tables, as they stand in the code."""

from collections.abc import Iterator
from dataclasses import fields

from rdmawire.ib import SERVICES, Drop, Fault, Reaction
from rdmawire.ib.hw_counters import DRIVERS, NOT_COUNTED, QP_COUNTERS, AdapterCounters
from rdmawire.ib.responder import REQUESTS
from rdmawire.ib.service import DATAGRAM, RELIABLE, UNRELIABLE
from rdmawire.verbs import PROFILES, VERBS, Profile, QPAttrMask, QPState, QPType, SendOpcode
from rdmawire.verbs.qp_attr import QP_TRANSITIONS, Needs, fields_of
from rdmawire.wire.ib import Nak
from rdmawire.wire.opcode import Opcode, Operation
from tools.docs.states import picture


def page() -> Iterator[str]:
    """Every table in turn."""
    yield "# The software RNIC\n"
    yield "Made from the tables that `rdmawire.ib` runs on.\n"
    for part in (_states, _work, _requests, _faults, _drops, _counters, _profiles):
        yield from part()


def _states() -> Iterator[str]:
    yield "## States of a queue pair\n"
    yield "IBA 10.3.1, 11.2.5.2. Every state may also go to RESET, and all but RESET to ERR.\n"
    yield picture(QP_TRANSITIONS)
    yield "\n| from | to | types | must be given | may be given |"
    yield "|---|---|---|---|---|"
    for (start, end, needs), types in _transitions().items():
        if end in (QPState.RESET, QPState.ERR):
            continue
        names = ", ".join(kind.name for kind in types)
        given = f"{_said(needs.required)} | {_said(needs.optional)}"
        yield f"| {start.name} | {end.name} | {names} | {given} |"


def _transitions() -> dict[tuple[QPState, QPState, Needs], list[QPType]]:
    """Transitions, with the types that have them alike."""
    found: dict[tuple[QPState, QPState, Needs], list[QPType]] = {}
    for (kind, start, end), needs in QP_TRANSITIONS.items():
        found.setdefault((start, end, needs), []).append(kind)
    return found


def _said(mask: QPAttrMask) -> str:
    return ", ".join(f"`{name}`" for name in fields_of(mask)) or "nothing"


def _work() -> Iterator[str]:
    yield "\n## Work\n"
    yield "Which send work each type of queue pair takes, and the operations it becomes."
    kinds = [kind for kind, service in SERVICES.items() if service.sends]
    yield "\n| work | " + " | ".join(kind.name for kind in kinds) + " | packets |"
    yield "|---" * (len(kinds) + 2) + "|"
    for opcode, verb in VERBS.items():
        marks = " | ".join("yes" if opcode in SERVICES[kind].verbs else "" for kind in kinds)
        packets = (verb.only, verb.first, verb.middle, verb.last)
        names = ", ".join(dict.fromkeys(f"`{Operation(p).name}`" for p in packets if p is not None))
        yield f"| `{SendOpcode(opcode).name}` | {marks} | {names or 'none: it is done here'} |"


def _requests() -> Iterator[str]:
    yield "\n## What the responder does with a request\n"
    yield (
        "The steps of each opcode, in order; the first that finds a fault ends them. They are "
        "functions of `rdmawire.ib.checks` and `rdmawire.ib.execute`.\n"
    )
    yield "| opcode | steps |"
    yield "|---|---|"
    for roles in REQUESTS.values():
        for opcode, role in roles.items():
            steps = ", ".join(f"`{step.__name__}`" for step in role.steps)
            yield f"| `{Opcode(opcode).name}` | {steps} |"


def _faults() -> Iterator[str]:
    yield "\n## What follows from a fault\n"
    yield "Services that acknowledge, and services that do not. IBA 9.7.5.2, 9.9.3.\n"
    yield "| fault | RC, XRC | UC | UD |"
    yield "|---|---|---|---|"
    for fault in Fault:
        tables = (RELIABLE, UNRELIABLE, DATAGRAM)
        cells = " | ".join(_follows(table.get(fault)) for table in tables)
        yield f"| {fault.value} | {cells} |"


def _follows(reaction: Reaction | None) -> str:
    if reaction is None:
        return "cannot be"
    said = [
        f"NAK `{Nak(reaction.nak).name}`" if reaction.nak is not None else "",
        "RNR NAK" if reaction.rnr else "",
        "ACK" if reaction.acknowledged else "",
        "answered again" if reaction.replay else "",
        "once for each gap" if reaction.once else "",
        f"receive ends with `{reaction.status.name}`" if reaction.status is not None else "",
        f"or `{reaction.notice.__name__}`" if reaction.notice is not None else "",
        "queue pair to ERR" if reaction.fatal else "",
        f"dropped, counted as `{reaction.drop.name}`" if reaction.drop is not None else "",
    ]
    return ", ".join(filter(None, said))


def _drops() -> Iterator[str]:
    yield "\n## Why frames are dropped\n"
    yield "The keys of `nic.drops`. Nothing is answered to these.\n"
    yield "| reason | means |"
    yield "|---|---|"
    yield from (f"| `{drop.name}` | {drop.value} |" for drop in Drop)


def _counters() -> Iterator[str]:
    yield "\n## Counters\n"
    yield (
        "`qp.counters` has those marked yes; `nic.counters` has their sums and all others. "
        "`mlx5` and `rxe` are the names in `hw_counters` of those drivers, `port` those in "
        "`counters` of a port (IBA 16.1.3.5).\n"
    )
    yield "| counter | of a queue pair | " + " | ".join(DRIVERS) + " | meaning |"
    yield "|---" * (len(DRIVERS) + 3) + "|"
    for row in fields(AdapterCounters):
        names = " | ".join(f"`{name}`" if (name := row.metadata[d]) else "" for d in DRIVERS)
        own = "yes" if row.name in QP_COUNTERS else ""
        yield f"| `{row.name}` | {own} | {names} | {row.metadata['meaning']} |"
    yield "\nThese stay 0:\n"
    yield "| counter | of | why |"
    yield "|---|---|---|"
    for driver, absent in NOT_COUNTED.items():
        yield from (f"| `{name}` | {driver} | {why} |" for name, why in absent.items())


def _profiles() -> Iterator[str]:
    yield "\n## Profiles\n"
    yield "Limits and habits of each kind of device: `rdmawire.verbs.profile`.\n"
    yield "| | " + " | ".join(f"`{name}`" for name in PROFILES) + " |"
    yield "|---" * (len(PROFILES) + 1) + "|"
    for field in fields(Profile):
        values = " | ".join(_value(getattr(one, field.name)) for one in PROFILES.values())
        yield f"| `{field.name}` | {values} |"


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} values, {value[1]} to {max(value)}"
    return getattr(value, "name", None) or f"{value}"
