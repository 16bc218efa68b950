"""The API reference: which page documents which public name. mkdocstrings draws the pages."""

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

import rdmawire
from rdmawire.wire.header import Header

FRONT_DOOR = "rdmawire"


class Page(NamedTuple):
    """A page of the API reference: its file name, its title, and the modules it documents."""

    name: str
    title: str
    modules: tuple[str, ...]


PAGES = (
    Page("verbs", "Verbs objects", ("rdmawire.verbs",)),
    Page("rnic", "Software RNIC", ("rdmawire.ib",)),
    Page("cm", "Connection manager", ("rdmawire.ib.cm",)),
    Page("congestion", "Congestion control", ("rdmawire.ib.congestion",)),
    Page("memory", "Memory regions and windows", ("rdmawire.memory",)),
    Page("gpu", "GPU memory", ("rdmawire.memory.gpu", "rdmawire.memory.gpu.cuda")),
    Page("gpudirect", "Traffic of GPUs", ("rdmawire.gpudirect",)),
    Page("transfer", "Transfers between GPUs", ("rdmawire.gpudirect.transfer",)),
    Page("kernel", "Kernels of GPUs", ("rdmawire.gpudirect.kernel",)),
    Page("ucx", "Messages of UCX", ("rdmawire.gpudirect.ucx",)),
    Page("nixl", "KV caches over NIXL", ("rdmawire.gpudirect.nixl",)),
    Page("deepep", "Tokens of experts", ("rdmawire.gpudirect.deepep",)),
    Page("storage", "GPUDirect Storage", ("rdmawire.gpudirect.storage",)),
    Page("workload", "Workloads of others", ("rdmawire.gpudirect.workload",)),
    Page("sweep", "Sweeps", ("rdmawire.gpudirect.sweep",)),
    Page("doctor", "Causes of problems", ("rdmawire.doctor",)),
    Page("topology", "Topology of a host", ("rdmawire.topology",)),
    Page("fabric", "Hosts, links and switches", ("rdmawire.fabric",)),
    Page("verbs-service", "Verbs service", ("rdmawire.verbs_service", "rdmawire.live")),
    Page("capture", "Capture files", ("rdmawire.capture",)),
    Page("decode", "Walk through a frame", ("rdmawire.decode",)),
    Page("dissect", "Dissection", ("rdmawire.dissect",)),
    Page("filter", "Display filters", ("rdmawire.filter",)),
    Page("columns", "Columns", ("rdmawire.columns",)),
    Page("stats", "Capture statistics", ("rdmawire.stats",)),
    Page("vectors", "Golden test vectors", ("rdmawire.vectors",)),
    Page("generate", "Traffic generation", ("rdmawire.traffic.generate",)),
    Page("edit", "Capture editing", ("rdmawire.traffic.edit", "rdmawire.traffic.edit.text")),
    Page("fuzz", "Fuzzing", ("rdmawire.fuzz", "rdmawire.fuzz.learn")),
    Page(
        "packets",
        "Packets, frames and checksums",
        tuple(
            f"rdmawire.wire.{name}"
            for name in ("roce", "native", "packet", "opcode", "ib", "inet", "icrc", "serial")
        ),
    ),
    Page(
        "iwarp",
        "FPDUs and iWARP messages",
        (
            "rdmawire.wire.mpa",
            "rdmawire.wire.rdmap",
            "rdmawire.wire.terminate",
        ),
    ),
    Page("tables", "Header tables and codecs", ("rdmawire.wire.header", "rdmawire.wire.codec")),
    Page(
        "layers",
        "Scapy layers and Construct structs",
        ("rdmawire.layers.scapy", "rdmawire.layers.construct"),
    ),
    Page("testing", "Hypothesis strategies", ("rdmawire.testing.strategies",)),
    Page("errors", "Errors and units", ("rdmawire.errors", "rdmawire.units")),
)
"""All pages but that of the front door, in the order of the navigation."""


@cache
def names_of(module: str) -> tuple[str, ...]:
    """The names that a page lists: ``__all__``, or what the module defines, without headers."""
    loaded = import_module(module)
    names = list(getattr(loaded, "__all__", None) or _defined(inspect.getsource(loaded)))
    return tuple(name for name in names if not _is_elsewhere(getattr(loaded, name)))


def _is_elsewhere(value: object) -> bool:
    is_header = isinstance(value, type) and issubclass(value, Header) and value is not Header
    return is_header or isinstance(value, ModuleType)


def _defined(source: str) -> Iterator[str]:
    """Functions, classes and documented constants of a module, in order."""
    body = ast.parse(source).body
    for node, following in zip(body, [*body[1:], None], strict=True):
        documented = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        for name in _bound(node, documented=documented):
            if not name.startswith("_"):
                yield name


def _bound(node: ast.stmt, *, documented: bool) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if documented and isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [target.id for target in targets if isinstance(target, ast.Name)]
    return []


@cache
def homes() -> dict[str, str]:
    """The identifier under which each public name is documented, by its public path."""
    found: dict[str, str] = {}
    first: dict[tuple[str, int], str] = {}
    for module in [module for page in PAGES for module in page.modules]:
        for name in names_of(module):
            value, path = getattr(import_module(module), name), f"{module}.{name}"
            found[path] = first.setdefault((name, id(value)), _target(path))
    for name in names_of(FRONT_DOOR):
        path = f"{FRONT_DOOR}.{name}"
        found[path] = first.get((name, id(getattr(rdmawire, name))), path)
    return found


def _target(path: str) -> str:
    """Griffe takes a submodule for the function of that name, which is then named in full."""
    return f"{path}.{path.rpartition('.')[2]}" if path in sys.modules else path


def page(wanted: Page) -> Iterator[str]:
    """The lines of a page."""
    yield f"# {wanted.title}\n"
    for module in wanted.modules:
        targets = {name: homes()[f"{module}.{name}"] for name in names_of(module)}
        own = [name for name, home in targets.items() if home == f"{module}.{name}"]
        full = [home for home in targets.values() if home in map(_target, _paths(module, targets))]
        yield from _section(module, own, heading=len(wanted.modules) > 1)
        for home in full:
            yield f"::: {home}\n"
        elsewhere = [home for name, home in targets.items() if name not in own and home not in full]
        if elsewhere:
            yield f"\nAlso in `{module}`: {', '.join(map(_link, elsewhere))}.\n"


def _paths(module: str, names: Iterable[str]) -> list[str]:
    """The paths of names that are also submodules."""
    return [path for name in names if (path := f"{module}.{name}") in sys.modules]


def front_door() -> Iterator[str]:
    """The lines of the page of the package itself: its names, each with a link."""
    targets = {name: homes()[f"{FRONT_DOOR}.{name}"] for name in names_of(FRONT_DOOR)}
    yield "# Names of the package\n"
    yield "The names of `from rdmawire import ...`, which suffice for most programs.\n"
    yield "| names | documented in |"
    yield "|---|---|"
    for each in PAGES:
        on_page = {
            homes()[f"{module}.{name}"] for module in each.modules for name in names_of(module)
        }
        here = [home for home in targets.values() if home in on_page]
        if here:
            yield f"| {', '.join(map(_link, here))} | [{each.title}]({each.name}.md) |"
    own = [home for name, home in targets.items() if home == f"{FRONT_DOOR}.{name}"]
    yield f"| {', '.join(map(_link, own))} | this page |\n"
    for home in own:
        yield f"::: {home}\n"


def _section(module: str, names: list[str], *, heading: bool) -> Iterator[str]:
    yield f"::: {module}"
    yield "    options:"
    yield f"      show_root_heading: {str(heading).lower()}"
    yield f"      heading_level: {2 if heading else 1}"
    yield f"      members: [{', '.join(names)}]" if names else "      members: false"
    yield ""


def _link(path: str) -> str:
    return f"[`{path.rpartition('.')[2]}`][{path}]"
