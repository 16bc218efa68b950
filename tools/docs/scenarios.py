"""The reference page of scenarios: the schema that the reader runs on, and what belongs to it."""

from collections.abc import Iterable, Iterator
from typing import Any

from rdmawire.fabric.action import ACTIONS
from rdmawire.ib.service import SERVICES
from rdmawire.traffic.scenario.counters import COUNTERS
from rdmawire.traffic.scenario.form.kind import Kind, Many, Word
from rdmawire.traffic.scenario.form.record import Named, Record, records_in
from rdmawire.traffic.scenario.listing import MUST_BE_THERE
from rdmawire.traffic.scenario.schema import fault, work
from rdmawire.traffic.scenario.schema.connection import CONGESTION
from rdmawire.traffic.scenario.schema.expect import EVENTS
from rdmawire.traffic.scenario.schema.whole import SCENARIO
from rdmawire.traffic.scenario.schema.words import STATUS
from rdmawire.traffic.scenario.shipped import read_shipped, shipped
from rdmawire.traffic.scenario.tables import REASONS, TYPES
from rdmawire.traffic.scenario.verbs import VERBS, Verb

_APART = ("the fault ", "the verb ")
"""Things with keys that have parts of their own."""


def page() -> Iterator[str]:
    """Every table in turn."""
    yield "# Scenarios\n"
    yield (
        "Made from the schema in `rdmawire.traffic.scenario.schema`, which reads files. "
        "[Write a scenario](../howto/write-scenarios.md) begins at the beginning.\n"
    )
    for part in (_values, _things, _faults, _steps, _counters, _words, _shipped):
        yield from part()


_VALUES = {
    "number": ("7", "0x1f"),
    "size": ("64", "8 KiB", "8k", "1.5 MiB"),
    "time": ("10 us", "1.5 ms", "1 s"),
    "rate": ("100 Gbit/s", "100G", "100Gbps"),
    "range": ("3", "3..5", "1..", "..9"),
    "span of memory": ("client.source", "client.source[0:100]", "client.source[4 KiB:]"),
    "end of a connection": ("client/a", "client/a#2"),
    "field of a frame": ("bth.psn", "infiniband.bth.psn", "ip.ecn", "frame.number"),
    "value of a field": ("100", "100..200", "[1, 5..9]", "RC_ACKNOWLEDGE", "10.0.0.1"),
}


def _values() -> Iterator[str]:
    yield "## Values\n"
    yield "| value | examples |"
    yield "|---|---|"
    for what, examples in _VALUES.items():
        yield f"| {what} | {', '.join(f'`{example}`' for example in examples)} |"
    yield (
        "\nThe ends of ranges are counted in; a span ends before its second number. A file has at "
        "most 1 MiB. Within braces and brackets, text needs quotes if it has a comma or a bracket. "
        "Aliases (`*name`) stand for what `&name` marks, and behind `<<` for its keys. Behind "
        "a size, `k`, `M` and `G` are powers of 1024, behind a rate powers of 1000.\n"
    )


def _things() -> Iterator[str]:
    for record in records_in(SCENARIO):
        if record.called.startswith(_APART):
            continue
        yield f"\n## {record.called[0].upper()}{record.called[1:]}\n"
        if record.short:
            yield f"In place of the keys, the value of `{record.short}` may stand alone.\n"
        yield from _table(record, record.keys)
        for prefix, row in record.prefixes.items():
            yield f"| `{prefix} HOST` | {_kind(row.kind)} | | {row.help} |"


def _table(record: Record[Any], keys: Iterable[str]) -> Iterator[str]:
    """Some keys of something."""
    yield "\n| key | value | if left out | meaning |"
    yield "|---|---|---|---|"
    for key in keys:
        row = record.keys[key]
        clause = f" *{row.clause}.*" if row.clause else ""
        left_out = record.left_out(key)
        usual = f"`{left_out}`" if left_out else MUST_BE_THERE if row.needed else ""
        yield f"| `{key}` | {_kind(row.kind)} | {usual} | {row.help}{clause} |"


def _kind(kind: Kind[Any]) -> str:
    """What stands there: words, a link, or what a message would expect."""
    match kind:
        case Record():
            return f"[{kind.called}](#{kind.called.replace(' ', '-').lower()})"
        case Named():
            return f"{_kind(kind.record)} behind each name"
        case Word():
            return ", ".join(f"`{word}`" for word in kind.words)
        case Many(item=Word(), alone=True):
            return f"{_kind(kind.item)}; or a list of them"
        case Many(item=Record(), alone=True):
            return f"{_kind(kind.item)}, or a list of them"
    return _LINKS.get(id(kind), kind.said)


_LINKS = {
    id(fault.FAULTS): "a [fault](#faults), or a list of them",
    id(work.STEPS): "a list of [steps](#steps)",
    id(CONGESTION): "[`dcqcn`](#the-scheme-dcqcn) or [`timely`](#the-scheme-timely), or one of "
    "them with parameters",
}
"""Kinds that have parts of their own."""


def _faults() -> Iterator[str]:
    yield "\n## Faults\n"
    yield "Which frames of a link a fault is for:\n"
    yield from _table(fault.RECORDS["drop"], fault.COMMON_KEYS)
    for do, options in fault.OPTION_KEYS.items():
        yield f"\n### {do}\n"
        yield " ".join((ACTIONS[do].__doc__ or "").split()).replace("``", "`")
        if options:
            yield from _table(fault.RECORDS[do], options)


def _steps() -> Iterator[str]:
    yield "\n## Steps\n"
    yield "Keys of every step, of work that completes, and of work for send queues."
    keys = work.OF_ALL | work.OF_QUEUES | work.OF_SENDS
    yield from _table(work.RECORDS["write"], keys)
    yield "\n## Verbs\n"
    for word, verb in VERBS.items():
        yield f"\n### {word}\n"
        yield f"{verb.help}{_types(verb)}{f' *{verb.clause}.*' if verb.clause else ''}"
        yield from _table(work.RECORDS[word], verb.parameters)


def _types(verb: Verb) -> str:
    """The types of connections that have such work."""
    if verb.work is None:
        return ""
    types = (name for name, (one, _) in TYPES.items() if verb.work in SERVICES[one].verbs)
    return f" On {', '.join(types)}."


def _counters() -> Iterator[str]:
    yield "\n## Counters\n"
    yield (
        "`client.retransmits` is of a host, `client-leaf.lost` of a link, `leaf:server.marks` of "
        "the port by which a switch reaches the server, `leaf.stranded` of a switch.\n"
    )
    for of, counters in COUNTERS.items():
        yield f"\n### Of a {of.value}\n"
        yield "| counter | says |"
        yield "|---|---|"
        yield from (f"| `{name}` | {help_} |" for name, help_ in counters.items())


def _words() -> Iterator[str]:
    yield "\n## Events and endings\n"
    yield f"Events of hosts: {', '.join(f'`{event}`' for event in EVENTS)}.\n"
    yield "Some say why they came, and may be named with that: `client.Rejected.CONSUMER_REJECT`.\n"
    for event, reasons in REASONS.items():
        yield f"`{event}`: {', '.join(f'`{reason.name}`' for reason in reasons)}.\n"
    yield f"Endings of work: {', '.join(f'`{word}`' for word in STATUS.words)}.\n"


def _shipped() -> Iterator[str]:
    yield "\n## Scenarios that come with rdmawire\n"
    yield "`rdmawire run NAME` plays one, `rdmawire run --show NAME` prints it.\n"
    yield "| name | shows | what happens |"
    yield "|---|---|---|"
    for name in shipped():
        scenario = read_shipped(name)
        about = " ".join(scenario.about.split())
        yield f"| `{name}` | {scenario.name} | {about} |".replace("\\|", "|")
