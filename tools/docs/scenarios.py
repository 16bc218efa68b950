"""The reference page of scenarios, generated from the models of scenario files."""

from collections.abc import Iterable, Iterator

from rdmawire import read_shipped
from rdmawire.fabric import ACTIONS
from rdmawire.ib import SERVICES
from rdmawire.traffic.scenario.counters import COUNTERS
from rdmawire.traffic.scenario.model import Scenario
from rdmawire.traffic.scenario.model.connection import CONGESTION, TYPES
from rdmawire.traffic.scenario.model.expectation import EVENTS, REASONS
from rdmawire.traffic.scenario.model.network import (
    FAULT_LIST,
    FAULT_OPTIONS,
    FaultPlan,
    fault_section,
)
from rdmawire.traffic.scenario.model.step import (
    OF_ALL,
    OF_QUEUES,
    OF_SENDS,
    STATUS,
    STEPS,
    VERBS,
    Verb,
    verb_section,
)
from rdmawire.traffic.scenario.reader import REQUIRED, shipped
from rdmawire.traffic.scenario.section import Named, OneSection, Section, sections_in
from rdmawire.traffic.scenario.types import Custom, Many, ValueType

_APART = ("the fault ", "the verb ")
"""Things with keys that have parts of their own."""


def page() -> Iterator[str]:
    """Every table in turn."""
    yield "# Scenarios\n"
    yield (
        "All keys of scenario files, generated from the models in "
        "`rdmawire.traffic.scenario.model`. For an introduction, read "
        "[Write a scenario](../howto/write-scenarios.md).\n"
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
        "\nA range includes both ends; a span does not include its second number. A file has at "
        "most 1 MiB. In braces and brackets, text with a comma or a bracket needs quotes. An alias "
        "(`*name`) is the value that `&name` marks, and `<<: *name` adds the keys of that value. "
        "In sizes, `k`, `M` and `G` are powers of 1024, in rates powers of 1000.\n"
    )


def _things() -> Iterator[str]:
    for section in sections_in(Scenario):
        if section.called.startswith(_APART):
            continue
        yield f"\n## {section.called[0].upper()}{section.called[1:]}\n"
        if section.short:
            yield f"Instead of keys, you can write only the value of `{section.short}`.\n"
        yield from _table(section, section.keys())
        for prefix, row in section.prefixed().items():
            yield f"| `{prefix} HOST` | {_type(row.type)} | | {row.help} |"


def _table(section: type[Section], names: Iterable[str]) -> Iterator[str]:
    """Some keys of a section."""
    yield "\n| key | value | default | meaning |"
    yield "|---|---|---|---|"
    for name in names:
        row = section.keys()[name]
        clause = f" *{row.clause}.*" if row.clause else ""
        usual = f"`{row.left_out}`" if row.left_out else REQUIRED if row.needed else ""
        yield f"| `{name}` | {_type(row.type)} | {usual} | {row.help}{clause} |"


def _type(type_: ValueType) -> str:
    """What may stand there: words, a link, or what a message would expect."""
    match type_:
        case OneSection():
            return _link(type_.section)
        case Named():
            return f"{_link(type_.section)} for each name"
        case Many(item=OneSection(section)):
            return f"{_link(section)}, or a list of them"
        case Custom(schema={"enum": [*words]}):
            return ", ".join(f"`{word}`" for word in words)
        case Many(item=Custom(schema={"enum": _}), alone=True):
            return f"{_type(type_.item)}; or a list of them"
    return _LINKS.get(id(type_), type_.label)


def _link(section: type[Section]) -> str:
    return f"[{section.called}](#{section.called.replace(' ', '-').lower()})"


_LINKS = {
    id(FAULT_LIST): "a [fault](#faults), or a list of them",
    id(STEPS): "a list of [steps](#steps)",
    id(CONGESTION): "[`dcqcn`](#the-scheme-dcqcn) or [`timely`](#the-scheme-timely), or one of "
    "them with parameters",
}
"""Types that have parts of their own."""


def _faults() -> Iterator[str]:
    yield "\n## Faults\n"
    yield "These keys of every fault select frames of a link:\n"
    yield from _table(fault_section("drop"), FaultPlan.keys())
    for do, options in FAULT_OPTIONS.items():
        yield f"\n### {do}\n"
        yield " ".join((ACTIONS[do].__doc__ or "").split()).replace("``", "`")
        if options:
            yield from _table(fault_section(do), options)


def _steps() -> Iterator[str]:
    yield "\n## Steps\n"
    yield "Keys of every step, of steps that post work, and of steps that post to send queues."
    keys = (*OF_ALL, *OF_QUEUES, *OF_SENDS)
    yield from _table(verb_section("write"), keys)
    yield "\n## Verbs\n"
    for word, verb in VERBS.items():
        yield f"\n### {word}\n"
        yield f"{verb.help}{_types(verb)}{f' *{verb.clause}.*' if verb.clause else ''}"
        yield from _table(verb_section(word), verb.parameters)


def _types(verb: Verb) -> str:
    """The types of connections that have such work."""
    if verb.work is None:
        return ""
    types = (name for name, (one, _) in TYPES.items() if verb.work in SERVICES[one].verbs)
    return f" On {', '.join(types)}."


def _counters() -> Iterator[str]:
    yield "\n## Counters\n"
    yield (
        "`client.retransmits` is a counter of a host, `client-leaf.lost` of a link, "
        "`leaf:server.marks` of the port of a switch that leads to the server, `leaf.stranded` of "
        "a switch.\n"
    )
    for of, counters in COUNTERS.items():
        yield f"\n### Of a {of.value}\n"
        yield "| counter | meaning |"
        yield "|---|---|"
        yield from (f"| `{name}` | {counter.help} |" for name, counter in counters.items())


def _words() -> Iterator[str]:
    yield "\n## Events and completion statuses\n"
    yield f"Events of hosts: {', '.join(f'`{event}`' for event in EVENTS)}.\n"
    yield "You can add the reason to some of them: `client.Rejected.CONSUMER_REJECT`.\n"
    for event, reasons in REASONS.items():
        yield f"`{event}`: {', '.join(f'`{reason.name}`' for reason in reasons)}.\n"
    yield f"Completion statuses: {', '.join(f'`{word}`' for word in STATUS.examples)}.\n"


def _shipped() -> Iterator[str]:
    yield "\n## Shipped scenarios\n"
    yield "`rdmawire run NAME` runs a scenario, `rdmawire run --show NAME` prints its text.\n"
    yield "| name | title | description |"
    yield "|---|---|---|"
    for name in shipped():
        scenario = read_shipped(name)
        about = " ".join(scenario.about.split())
        yield f"| `{name}` | {scenario.name} | {about} |".replace("\\|", "|")
