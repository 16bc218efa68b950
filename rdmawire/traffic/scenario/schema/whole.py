"""A scenario as a whole: the keys of a file."""

from functools import cache
from typing import Final

from rdmawire.traffic.scenario.document import TextError
from rdmawire.traffic.scenario.form import units
from rdmawire.traffic.scenario.form.kind import Leaf, number, time
from rdmawire.traffic.scenario.form.record import Key, Record, records_in
from rdmawire.traffic.scenario.model import Scenario
from rdmawire.traffic.scenario.schema.connection import CONNECTIONS
from rdmawire.traffic.scenario.schema.expect import EXPECT
from rdmawire.traffic.scenario.schema.host import HOSTS
from rdmawire.traffic.scenario.schema.network import LINKS, SWITCHES
from rdmawire.traffic.scenario.schema.work import STEPS

LONGEST_RUN: Final = 10**15
"""Nanoseconds of virtual time."""


def _text(text: str) -> str:
    if not text.strip():
        raise TextError
    return units.encoded(text).decode()


TEXT: Final = Leaf(said="text", parse=_text, samples=("One WRITE", '"A loss, and more"'))

SCENARIO: Final = Record(
    called="a scenario",
    plan=Scenario,
    keys={
        "name": Key(kind=TEXT, needed=True, help="What it shows, in a few words."),
        "about": Key(kind=TEXT, help="What happens in it, and why."),
        "seed": Key(
            kind=number(0, units.LARGEST),
            help="Of all that is random: the same seed gives the same octets.",
        ),
        "time limit": Key(
            kind=time(1, LONGEST_RUN), help="The virtual time by which all must be at rest."
        ),
        "hosts": Key(kind=HOSTS, needed=True, help="Who there is."),
        "switches": Key(kind=SWITCHES, help="What passes frames on."),
        "connections": Key(
            kind=CONNECTIONS, help="Its connections, by name; `a: client, server` will do."
        ),
        "links": Key(
            kind=LINKS,
            help="Its links, named by their ends: `client-leaf`. Two hosts have one of their own.",
        ),
        "work": Key(kind=STEPS, into=("steps",), help="What is done, one step after the other."),
        "expect": Key(kind=EXPECT, into=("expectations",), help="What must be so in the end."),
    },
)
"""The outermost row of the schema; all others are in it.

What is named comes before what names it: faults of links name ends of connections.
"""


@cache
def homes() -> dict[str, tuple[str, ...]]:
    """Of which things each key is one, for who finds it elsewhere."""
    found: dict[str, tuple[str, ...]] = {}
    for record in records_in(SCENARIO):
        for key in record.keys:
            found[key] = (*found.get(key, ()), record.called)
    return found
