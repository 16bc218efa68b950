"""Generates the reference pages while MkDocs builds the site."""

import inspect
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import click
import mkdocs_gen_files

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from rdmawire import read_columns  # noqa: E402
from rdmawire.cli.command import load  # noqa: E402
from rdmawire.cli.gen import kinds  # noqa: E402
from rdmawire.cli.program import cli  # noqa: E402
from rdmawire.dissect import fields  # noqa: E402
from rdmawire.fuzz.tshark_differences import KNOWN_DIFFERENCES, KnownDifference  # noqa: E402
from rdmawire.fuzz.tshark_malformed import (  # noqa: E402
    MALFORMED_DIFFERENCES,
    MalformedDifference,
)
from rdmawire.fuzz.tshark_mutants import MUTANT_DIFFERENCES  # noqa: E402
from rdmawire.fuzz.tshark_process import PREFERENCES  # noqa: E402
from rdmawire.verbs import VERBS, WORK_QUEUE_TABLES, QPType, SendOpcode, segments_of  # noqa: E402
from rdmawire.wire.field_registry import shown_name  # noqa: E402
from rdmawire.wire.header import Header, Row  # noqa: E402
from rdmawire.wire.opcode import SHAPES  # noqa: E402
from rdmawire.wire.tables import tables_of  # noqa: E402
from tools.docs import api, libibverbs, librdmacm, machines, rnic, scenarios, vectors  # noqa: E402
from tools.docs.braces import guarded  # noqa: E402
from tools.docs.charts import MARKER, with_charts  # noqa: E402
from tools.docs.figure import figure  # noqa: E402
from tools.docs.roles import markdown  # noqa: E402

_SMALL = ROOT / "captures" / "faulty" / "bad_icrc.pcap"
"""Any capture: columns have the same dtypes in all."""

_HEADER_PAGES = {
    "infiniband": ("InfiniBand headers", ("ib",)),
    "iwarp": ("iWARP headers", ("mpa", "rdmap", "terminate")),
    "carriage": ("Encapsulation headers", ("inet", "erf")),
    "management": (
        "Management datagrams",
        *(("management", "mad", "rmpp", "smp", "notice", "sa", "perf"),),
    ),
    "connections": ("Connection management messages", ("cm",)),
}  # fmt: skip


def write(name: str, lines: Iterator[str]) -> None:
    """Add a page to the site."""
    with mkdocs_gen_files.open(f"reference/{name}.md", "w") as page:
        page.write("\n".join(map(guarded, lines)) + "\n")


def _headers(title: str, modules: tuple[str, ...]) -> Iterator[str]:
    yield f"# {title}"
    yield ""
    yield "Generated from the header tables in `rdmawire.wire`, which the codecs use too."
    for module in modules:
        for table in tables_of(module):
            yield from _header(table)


def _work_queues() -> Iterator[str]:
    yield "# Work queues\n"
    yield (
        "The layout of WQEs, CQEs and doorbells in memory, generated from the tables in "
        "`rdmawire.verbs.wqe`."
    )
    yield "\n| work request | segments between `WQEControl` and the SGEs |"
    yield "|---|---|"
    for opcode in VERBS:
        names = ", ".join(f"`{one.__name__}`" for one in segments_of(QPType.RC, opcode))
        yield f"| {SendOpcode(opcode).name} | {names or 'none'} |"
    yield (
        "\nBefore these segments, a datagram has an `AddressSegment`, and XRC a "
        "`SharedReceiveSegment`."
    )
    for table in WORK_QUEUE_TABLES:
        yield from _header(table, in_frames=False)


def _header(table: type[Header], *, in_frames: bool = True) -> Iterator[str]:
    """A table; fields of headers that are in frames also have names for filters."""
    yield f"\n## {table.__name__}\n"
    yield f"{markdown(inspect.getdoc(table) or '')}\n"
    clause = f" {table.clause}." if in_frames else ""
    yield f"*{table.SIZE} bytes.{clause}*\n"
    yield figure(table)
    yield "| bits | field | values |" + " name in filters |" * in_frames
    yield "|---|---|---|" + "---|" * in_frames
    for row in table.rows:
        names = f" {_names(table, row)} |" * in_frames
        yield f"| {_bits(row)} | `{row.name}` | {_meaning(row)} |{names}"


def _bits(row: Row) -> str:
    return f"{row.width}" if row.times == 1 else f"{row.times} x {row.width}"


def _names(table: type[Header], row: Row) -> str:
    names = dict.fromkeys(shown_name(table, row, meaning) for meaning in row.meanings())
    return "<br>".join(f"`{name}`" for name in names)


def _meaning(row: Row) -> str:
    enums = dict.fromkeys(m.enum for m in row.meanings() if m.enum is not None)
    said = [f"{m.name} {m.value}" for enum in enums for m in list(enum)[:8]]
    more = any(len(enum) > 8 for enum in enums)
    return ", ".join(said) + (", ..." if more else "") + (f" ({row.clause})" if row.clause else "")


def _opcodes() -> Iterator[str]:
    yield "# Opcodes\n"
    yield (
        "Every opcode of the standard, and the extended transport headers after the BTH. "
        "IBA 9.2.1, A14, A17, A19.\n"
    )
    yield "| opcode | name | headers | payload |"
    yield "|---|---|---|---|"
    for opcode, shape in sorted(SHAPES.items()):
        headers = " ".join(f"`{label}`" for label in shape.headers) or "none"
        yield f"| 0x{opcode:02X} | `{shape.name}` | {headers} | {shape.payload.value} |"


def _fields() -> Iterator[str]:
    yield "# Fields\n"
    yield "All field names for `dissect -e` and filters, as `rdmawire fields` lists them.\n"
    yield (
        "The last column is the NumPy dtype of a [column](../howto/columns.md) of this field "
        "(`values`, of shape `(rows,)`).\n"
    )
    columns = read_columns(_SMALL, [info.name for info in fields()])
    yield "| name | type | clause | meaning | dtype |"
    yield "|---|---|---|---|---|"
    for info in fields():
        dtype = columns[info.name].values.dtype
        yield f"| `{info.name}` | {info.type} | {info.clause} | {info.doc} | `{dtype}` |"


def _commands() -> Iterator[str]:
    yield "# Commands\n"
    yield from _command(None, "rdmawire", cli)


def _command(parent: click.Context | None, name: str, command: click.Command) -> Iterator[str]:
    """The help of a command, and of its subcommands."""
    context = click.Context(
        command, info_name=name, parent=parent, terminal_width=90, max_content_width=90
    )
    if parent is not None:
        yield f"## {context.command_path}\n"
    yield f"```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for sub in command.list_commands(context):
            found = command.get_command(context, sub)
            assert found is not None
            yield from _command(context, sub, found)
            for kind, other in _hidden_in(sub, found):
                yield from _command(context, f"{sub} {kind}", other)


def _hidden_in(name: str, command: click.Command) -> Iterable[tuple[str, click.Command]]:
    """Commands that a command calls by its first word."""
    if name == "gen":
        return kinds().items()
    if isinstance(command, click.Group):
        return ()
    found: Mapping[str, tuple[str, str]] = getattr(command, "subcommands", {})
    return [(word, load(module)) for word, (_, module) in found.items()]


def _wireshark() -> Iterator[str]:
    yield "# Differences from Wireshark\n"
    yield (
        "A test compares every field that has a Wireshark name with tshark 4.0.17, in every frame "
        "of the shipped captures except `native.pcap`, `carried_infiniband.pcap` and "
        "`bad_vcrc.pcap`, whose link type (247) tshark cannot open. The table lists all "
        "differences: the test fails for any other difference, and for a row that is no longer "
        "needed. tshark runs with these preferences, which enable what rdmawire always does:\n"
    )
    yield "".join(f"- `{preference}`\n" for preference in PREFERENCES)
    yield (
        "Fields that only tshark has are not compared; "
        "[Move from tshark](../howto/move-from-tshark.md) lists them.\n"
    )
    yield "| fields | frames | what tshark does | example |"
    yield "|---|---|---|---|"
    for row in KNOWN_DIFFERENCES:
        yield f"| {_fields_of(row)} | {row.where} | {row.reason} | `{row.seen_in}` |"
    yield (
        "\nMutants of these frames, as `rdmawire fuzz run dissectors` makes them, show these "
        "differences, too:\n"
    )
    yield "| fields | frames | what tshark does |"
    yield "|---|---|---|"
    for row in MUTANT_DIFFERENCES:
        yield f"| {_fields_of(row)} | {row.where} | {row.reason} |"
    yield "\nIn mutants that rdmawire or tshark calls malformed:\n"
    yield "| fields | frames | what tshark does |"
    yield "|---|---|---|"
    for malformed in MALFORMED_DIFFERENCES:
        yield f"| {_fields_of(malformed)} | {malformed.where} | {malformed.reason} |"


def _fields_of(row: KnownDifference | MalformedDifference) -> str:
    return ", ".join(f"`{field}`" for field in row.fields)


def _captures() -> Iterator[str]:
    yield "# Shipped captures\n"
    yield (
        "The captures in `captures/`. The manifest of each folder, `manifest.toml`, has the number "
        "of frames, the SHA-256 and the origin of each file.\n"
    )
    for manifest in sorted((ROOT / "captures").glob("*/manifest.toml")):
        yield f"\n## {manifest.parent.name}\n"
        yield "| file | frames | origin | shows |"
        yield "|---|---|---|---|"
        for entry in tomllib.loads(manifest.read_text())["capture"]:
            shows = entry.get("shows") or entry.get("packets", "")
            client = f" `{entry['client']}`" if entry.get("client") else ""
            origin = entry["origin"] + client.replace("|", "\\|")
            yield f"| `{entry['file']}` | {entry['frames']} | {origin} | {shows} |"


def _copy_machine(file: machines.MachineFile) -> None:
    """Add the Graphviz file of a machine to the site."""
    name = f"{file.name}.dot"
    with mkdocs_gen_files.open(f"reference/machines/{name}", "w") as out:
        out.write((file.folder / name).read_text("ascii"))


def _draw_charts() -> None:
    """Put charts into the pages that ask for them."""
    docs = ROOT / "docs"
    for path in sorted(docs.rglob("*.md")):
        text = path.read_text()
        if MARKER.search(text):
            with mkdocs_gen_files.open(path.relative_to(docs), "w") as page:
                page.write(with_charts(text))


for page, (title, modules) in _HEADER_PAGES.items():
    write(f"headers/{page}", _headers(title, modules))
write("headers/work-queues", _work_queues())
write("opcodes", _opcodes())
write("fields", _fields())
write("commands", _commands())
write("wireshark", _wireshark())
write("captures", _captures())
write("rnic", rnic.page())
write("libibverbs", libibverbs.page())
write("librdmacm", librdmacm.page())
write("scenarios", scenarios.page())
write("vectors", vectors.page(ROOT / "captures"))
write("machines", machines.page())
for machine in machines.files():
    _copy_machine(machine)
write("api/rdmawire", api.front_door())
for room in api.PAGES:
    write(f"api/{room.name}", api.page(room))
_draw_charts()
