"""What befalls frames on a link: faults and their options."""

from typing import Any, Final

from rdmawire.fabric.action import ACTIONS, OPTIONS
from rdmawire.traffic.scenario.document import Node, NodeError, Pairs
from rdmawire.traffic.scenario.form.kind import (
    TRUTH,
    Definitions,
    Json,
    Many,
    Numbers,
    fraction,
    number,
    size,
    time,
)
from rdmawire.traffic.scenario.form.reading import Reading
from rdmawire.traffic.scenario.form.record import Choice, Found, Key, Record
from rdmawire.traffic.scenario.form.reference import END
from rdmawire.traffic.scenario.form.wanted import FIELD, WHERE, value_of
from rdmawire.traffic.scenario.model import FaultPlan, Mark
from rdmawire.wire.psn import MODULUS

LONGEST_WAIT: Final = 10**12
_WAIT = time(0, LONGEST_WAIT)
_NUMBERS: Final = Numbers(1, MODULUS)
_SEAL: Final = Key(kind=TRUTH, help="Whether lengths, checksums and ICRC fit again.")


class Raw:
    """A value that is read once it is known which field it is of."""

    said = "a value of the field"
    samples = ("1",)

    def read(self, node: Node, reading: Reading) -> Node:  # noqa: ARG002 - a kind
        return node

    def json(self, known: Definitions) -> Json:  # noqa: ARG002 - a kind
        return {"type": ["integer", "string"]}


OPTION_KEYS: Final[dict[str, dict[str, Key]]] = {
    "drop": {},
    "duplicate": {
        "times": Key(kind=number(1, 64), help="How many more copies come."),
        "wait": Key(kind=_WAIT, help="What each waits behind the one before."),
    },
    "delay": {
        "by": Key(kind=_WAIT, help="How late it comes."),
        "most": Key(kind=_WAIT, help="If greater than `by`: it comes so late at most, by chance."),
    },
    "reorder": {
        "behind": Key(kind=number(1, 1 << 16), help="How many overtake it."),
        "most": Key(kind=_WAIT, help="How long it waits for them at most."),
    },
    "corrupt": {
        "octet": Key(
            kind=number(-(1 << 16), 1 << 16),
            help="Which octet, from the BTH on; from the pad's end, if negative.",
        ),
        "bit": Key(kind=number(0, 7), help="Which bit of it, the lowest first."),
        "anywhere": Key(kind=TRUTH, help="Whether chance says which bit."),
        "seal": _SEAL,
    },
    "truncate": {
        "by": Key(kind=size(1, 1 << 16), help="How many octets are missing."),
        "seal": _SEAL,
    },
    "mark": {},
    "set": {
        "field": Key(kind=FIELD, needed=True, help="Which field has another value."),
        "value": Key(kind=Raw(), needed=True, help="That value."),
        "seal": _SEAL,
    },
}
"""The options of each fault."""


def _row(mark: Mark, first: int, every: int, times: int) -> range:
    del mark
    return range(first, first + every * times, every)


ROW: Final = Record(
    called="packets in equal steps",
    plan=_row,
    keys={
        "first": Key(kind=number(1, MODULUS), needed=True, help="The first packet, from 1 on."),
        "every": Key(kind=number(1, MODULUS), needed=True, help="How many packets on the next is."),
        "times": Key(kind=number(1, MODULUS), needed=True, help="How many they are."),
    },
)


class Places:
    """Packets by their places: numbers, or the same packet of each of so many messages."""

    said = f"{_NUMBERS.said}; or {{first: 5, every: 10, times: 3}} for 5, 15 and 25"
    samples = (*_NUMBERS.samples, "{first: 5, every: 10, times: 3}")

    def read(self, node: Node, reading: Reading) -> tuple[int, ...]:
        if not isinstance(node, Pairs):
            return _NUMBERS.read(node, reading)
        row = ROW.read(node, reading)
        if row[-1] > MODULUS:
            raise NodeError(node.mark, f"packet {row[-1]}", f"packets from 1 to {MODULUS}")
        reading.spend(len(row), node)
        return tuple(row)

    def json(self, known: Definitions) -> Json:
        return {"anyOf": [_NUMBERS.json(known), ROW.json(known)], "description": self.said}


PLACES: Final = Places()
COMMON_KEYS: Final = {
    "where": Key(kind=WHERE, help="The fields that frames have which it befalls."),
    "sent by": Key(kind=END, help="The end that sends them."),
    "packet": Key(
        kind=PLACES,
        help="Which packet of what that end requests, from 1 on: its PSN is the first one's and "
        "`packet` - 1. With `first`, `every` and `times`, one of each message.",
    ),
    "nth": Key(
        kind=Numbers(1, 1 << 32),
        help="Which time, from 1 on; counted for each packet by itself where `packet` is given, "
        "so that 2 is the first retransmission.",
    ),
    "chance": Key(kind=fraction(0, 1), help="How often, of the times that it could."),
}
"""Which frames a fault befalls."""


def _check(plan: FaultPlan, found: Found, reading: Reading) -> FaultPlan:
    del reading
    if plan.packet and plan.sent_by is None:
        raise NodeError(found.at("packet"), "'packet' without 'sent by'", "the end that sends it")
    node = plan.options.get("value")
    if node is not None:
        options: Any = plan.options
        options["value"] = value_of(str(plan.options["field"]), options["value"])
    return plan


def _record(do: str) -> Record[FaultPlan]:
    options = {
        name: Key(kind=row.kind, help=row.help, needed=row.needed, within="options")
        for name, row in OPTION_KEYS[do].items()
    }
    return Record(
        called=f"the fault {do}",
        plan=FaultPlan,
        keys=COMMON_KEYS | options,
        finish=_check,
        usual={name: OPTIONS[do][name].default for name, row in options.items() if not row.needed},
    )


RECORDS: Final = {do: _record(do) for do in ACTIONS}
FAULTS: Final = Many(Choice(records=RECORDS, called="a fault", into="do"), alone=True, lenient=True)
