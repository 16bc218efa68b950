"""The reference page of the software RNIC, generated from its tables."""

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
    yield "# Software RNIC\n"
    yield (
        "States, work requests, checks, faults, counters and profiles of the emulated adapter, "
        "generated from the tables of `rdmawire.ib` and `rdmawire.verbs`.\n"
    )
    for part in (_states, _work, _requests, _faults, _drops, _counters, _profiles):
        yield from part()


def _states() -> Iterator[str]:
    yield "## States of a queue pair\n"
    yield (
        "IBA 10.3.1, 11.2.5.2. A queue pair can also go from every state to RESET, and from every "
        "state except RESET to ERR.\n"
    )
    yield picture(QP_TRANSITIONS)
    yield "\n| from | to | types | required attributes | optional attributes |"
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
    yield "\n## Work requests\n"
    yield "The send work requests of each type of queue pair, and the packets that they send."
    kinds = [kind for kind, service in SERVICES.items() if service.sends]
    yield "\n| work request | " + " | ".join(kind.name for kind in kinds) + " | packets |"
    yield "|---" * (len(kinds) + 2) + "|"
    for opcode, verb in VERBS.items():
        marks = " | ".join("yes" if opcode in SERVICES[kind].verbs else "" for kind in kinds)
        packets = (verb.only, verb.first, verb.middle, verb.last)
        names = ", ".join(dict.fromkeys(f"`{Operation(p).name}`" for p in packets if p is not None))
        yield f"| `{SendOpcode(opcode).name}` | {marks} | {names or 'none'} |"


def _requests() -> Iterator[str]:
    yield "\n## Steps of the responder\n"
    yield (
        "The responder executes the steps of a request's opcode in order, and stops at the first "
        "step that finds a fault. Steps are functions of `rdmawire.ib.checks` and "
        "`rdmawire.ib.execute`.\n"
    )
    yield "| opcode | steps |"
    yield "|---|---|"
    for roles in REQUESTS.values():
        for opcode, role in roles.items():
            steps = ", ".join(f"`{step.__name__}`" for step in role.steps)
            yield f"| `{Opcode(opcode).name}` | {steps} |"


def _faults() -> Iterator[str]:
    yield "\n## Reactions to faults\n"
    yield "How the responder of each service reacts to a fault (`Fault`). IBA 9.7.5.2, 9.9.3.\n"
    yield "| fault | meaning | RC, XRC | UC | UD |"
    yield "|---|---|---|---|---|"
    for fault in Fault:
        tables = (RELIABLE, UNRELIABLE, DATAGRAM)
        cells = " | ".join(_follows(table.get(fault)) for table in tables)
        yield f"| `{fault.name}` | {fault.value} | {cells} |"


def _follows(reaction: Reaction | None) -> str:
    if reaction is None:
        return "impossible"
    said = [
        f"NAK `{Nak(reaction.nak).name}`" if reaction.nak is not None else "",
        "RNR NAK" if reaction.rnr else "",
        "ACK" if reaction.acknowledged else "",
        "response sent again" if reaction.replay else "",
        "once for each gap" if reaction.once else "",
        f"receive completes with `{reaction.status.name}`" if reaction.status is not None else "",
        f"or event `{reaction.notice.__name__}`" if reaction.notice is not None else "",
        "queue pair to ERR" if reaction.fatal else "",
        f"dropped, counted as `{reaction.drop.name}`" if reaction.drop is not None else "",
    ]
    return ", ".join(filter(None, said))


def _drops() -> Iterator[str]:
    yield "\n## Dropped packets\n"
    yield "The keys of `nic.drops`, which counts packets that are dropped without a response.\n"
    yield "| reason | meaning |"
    yield "|---|---|"
    yield from (f"| `{drop.name}` | {drop.value} |" for drop in Drop)


def _counters() -> Iterator[str]:
    yield "\n## Counters\n"
    yield (
        "`qp.counters` has the counters marked *yes*; `nic.counters` has their sums, and all "
        "others. The columns `mlx5` and `rxe` have the names in `hw_counters` of these drivers; "
        "`port` has the names in `counters` of a port (IBA 16.1.3.5).\n"
    )
    yield "| counter | of a queue pair | " + " | ".join(DRIVERS) + " | meaning |"
    yield "|---" * (len(DRIVERS) + 3) + "|"
    for row in fields(AdapterCounters):
        names = " | ".join(f"`{name}`" if (name := row.metadata[d]) else "" for d in DRIVERS)
        own = "yes" if row.name in QP_COUNTERS else ""
        yield f"| `{row.name}` | {own} | {names} | {row.metadata['meaning']} |"
    yield "\nThese counters are always 0:\n"
    yield "| counter | driver | why |"
    yield "|---|---|---|"
    for driver, absent in NOT_COUNTED.items():
        yield from (f"| `{name}` | {driver} | {why} |" for name, why in absent.items())


def _profiles() -> Iterator[str]:
    yield "\n## Profiles\n"
    yield (
        "Limits and behaviour of each device model. [`Profile`](api/verbs.md) explains the "
        "fields.\n"
    )
    yield "| | " + " | ".join(f"`{name}`" for name in PROFILES) + " |"
    yield "|---" * (len(PROFILES) + 1) + "|"
    for field in fields(Profile):
        values = " | ".join(_value(getattr(one, field.name)) for one in PROFILES.values())
        yield f"| `{field.name}` | {values} |"


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} values, {value[1]} to {max(value)}"
    return getattr(value, "name", None) or f"{value}"
