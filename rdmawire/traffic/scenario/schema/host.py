"""Hosts: their addresses, GPUs, memory, windows and shared receive queues."""

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Final, NamedTuple

from rdmawire.errors import VerbsError
from rdmawire.memory.access import Access, check_access
from rdmawire.memory.page import PAGE_64K
from rdmawire.memory.window import HOST_PAGE_SIZES
from rdmawire.screen import quoted
from rdmawire.traffic.scenario.document import Node, NodeError, TextError, listed
from rdmawire.traffic.scenario.form import units
from rdmawire.traffic.scenario.form.kind import (
    TRUTH,
    Definitions,
    Json,
    Leaf,
    Many,
    Word,
    misfit,
    number,
    size,
)
from rdmawire.traffic.scenario.form.reading import Reading
from rdmawire.traffic.scenario.form.record import NAME, Found, Key, Named, Record
from rdmawire.traffic.scenario.form.reference import GPU
from rdmawire.traffic.scenario.model import (
    Fill,
    GpuPlan,
    HostPlan,
    MemoryPlan,
    SrqPlan,
    WindowPlan,
)
from rdmawire.traffic.scenario.rules.amount import MOST_FILLED
from rdmawire.traffic.scenario.schema.content import CONTENT_KEYS
from rdmawire.traffic.scenario.schema.words import ACCESS, ERRNO
from rdmawire.traffic.scenario.tables import MODELS, VIAS
from rdmawire.units import SIZES, format_exactly
from rdmawire.verbs.profile import PROFILES

MOST_MEMORY: Final = 1 << 40
"""Octets of one memory: what is never touched costs nothing."""
MOST_BAR1: Final = 1 << 40


def _page(text: str) -> int:
    found = units.size(text)
    if found not in HOST_PAGE_SIZES:
        raise TextError
    return found


_PAGES: Final = tuple(format_exactly(page, SIZES) for page in HOST_PAGE_SIZES)
PAGE: Final = Leaf(
    said=f"one of {listed(_PAGES)}",
    parse=_page,
    samples=_PAGES,
    shown=lambda page: format_exactly(page, SIZES),
)


def _check_bar1(plan: GpuPlan, found: Found, reading: Reading) -> GpuPlan:  # noqa: ARG001
    if plan.bar1 is not None and plan.bar1 % PAGE_64K:
        raise NodeError(found.at("bar1"), f"{plan.bar1} octets", "whole pages of 64 KiB")
    return plan


GPU_RECORD: Final = Record(
    called="a GPU",
    plan=GpuPlan,
    short="model",
    finish=_check_bar1,
    keys={
        "model": Key(kind=Word(tuple(MODELS)), help="Which GPU it is."),
        "bar1": Key(
            kind=size(PAGE_64K, MOST_BAR1),
            help="Its aperture for peers, 1 MiB of it its own; that of the model if left out.",
        ),
    },
)


def _check_memory(plan: MemoryPlan, found: Found, reading: Reading) -> MemoryPlan:
    """Rights that go together, an amount that may be filled, ways that there are."""
    if plan.content.fill is not Fill.ZEROS and plan.size > MOST_FILLED:
        most = format_exactly(MOST_FILLED, SIZES)
        raise NodeError(
            found.at("size"), f"{plan.size} octets to fill", f"{most} at most, or zeros"
        )
    if plan.name in reading.names.of(reading.scope[0], "windows"):
        raise NodeError(plan.mark, f"memory {quoted(plan.name)}", "a name that no window has")
    if plan.access is not None and plan.refused is None:
        _check_access(plan.access, found)
    for wrong in _CONTRADICTIONS:
        if wrong.broken(plan, found):
            raise NodeError(found.at(wrong.key), f"{wrong.key!r} of {plan.name}", wrong.expected)
    return plan


def _check_access(names: tuple[str, ...], found: Found) -> None:
    try:
        check_access(reduce(or_, (Access[name].value for name in names), 0))
    except VerbsError:
        expected = "LOCAL_WRITE, too, where peers may write"
        raise NodeError(found.at("access"), listed(names), expected) from None


class _Wrong(NamedTuple):
    """A key that does not go with the others, and what it needs."""

    key: str
    expected: str
    broken: Callable[[MemoryPlan, Found], bool]


_CONTRADICTIONS: Final = (
    _Wrong("via", "a gpu, too", lambda plan, found: "via" in found.nodes and plan.gpu is None),
    _Wrong("on demand", "host memory", lambda plan, _: plan.on_demand and plan.gpu is not None),
    _Wrong("fast", "host memory", lambda plan, _: plan.fast and plan.gpu is not None),
    _Wrong("page", "host memory", lambda plan, found: "page" in found.nodes and bool(plan.gpu)),
    _Wrong("access", "access at 'reg_mr'", lambda plan, _: plan.fast and plan.access is not None),
    _Wrong("refused", "registration", lambda plan, _: bool(plan.refused and not plan.registered)),
)
"""What does not go together."""

MEMORY: Final = Record(
    called="memory",
    plan=MemoryPlan,
    short="size",
    finish=_check_memory,
    keys={
        "size": Key(kind=size(1, MOST_MEMORY), needed=True, help="Its octets."),
        **CONTENT_KEYS,
        "gpu": Key(kind=GPU, help="The GPU that it is of; host memory if left out."),
        "via": Key(
            kind=Word(VIAS),
            help="How an adapter gets to a GPU's memory; peermem-legacy loses the region when the "
            "owner frees it, bounce copies.",
        ),
        "access": Key(kind=ACCESS, clause="IBA 10.6.3.1", help="What is allowed; all if left out."),
        "page": Key(kind=PAGE, help="The pages of the host."),
        "registered": Key(kind=TRUTH, help="Whether it is registered from the beginning."),
        "on demand": Key(kind=TRUTH, help="Whether its pages are faulted in, not pinned."),
        "fast": Key(
            kind=TRUTH, clause="IBA 10.6.4", help="Whether it waits for the verb `reg_mr`."
        ),
        "refused": Key(kind=ERRNO, help="The errno that its registration must meet."),
    },
)


class WindowName:
    """The name of a window, with its place."""

    said = NAME.said
    samples = ("slot",)

    def read(self, node: Node, reading: Reading) -> WindowPlan:
        return WindowPlan(name=NAME.read(node, reading), mark=node.mark)

    def json(self, known: dict[str, dict[str, object]]) -> dict[str, object]:
        return NAME.json(known)


_MOST_SRQ: Final = min(profile.max_srq_wr for profile in PROFILES.values())


def _check_srq(plan: SrqPlan, found: Found, reading: Reading) -> SrqPlan:  # noqa: ARG001
    if plan.limit > plan.max_wr:
        raise NodeError(found.at("limit"), f"limit {plan.limit}", f"no more than {plan.max_wr}")
    return plan


SRQ: Final = Record(
    called="a shared receive queue",
    plan=SrqPlan,
    short="max_wr",
    finish=_check_srq,
    keys={
        "max_wr": Key(kind=number(1, _MOST_SRQ), help="Receives that it holds at most."),
        "limit": Key(
            kind=number(0, _MOST_SRQ),
            clause="IBA 10.2.9",
            help="Its owner is told once it holds fewer; 0 for never.",
        ),
        "xrc": Key(kind=TRUTH, clause="IBA A14", help="Whether it is for XRC connections."),
    },
)


def _keep(plan: HostPlan, found: Found, reading: Reading) -> HostPlan:
    names = [window.name for window in plan.windows]
    if len(set(names)) < len(names):
        raise NodeError(found.at("windows"), "one name more than once", "each window once")
    reading.hosts[plan.name] = plan
    reading.memory |= {(plan.name, memory.name): memory for memory in plan.memory}
    return plan


MAC: Final = Leaf(
    said="an Ethernet address such as 02:00:00:00:00:01",
    parse=units.mac,
    samples=("02:00:00:00:00:01", "0c:c4:7a:00:00:01"),
)
ADDRESS: Final = Leaf(
    said="an address such as 10.0.0.1 or fd00::1",
    parse=units.address,
    samples=("10.0.0.1", "fd00::1"),
)


class Addresses:
    """One address, or several: the first, and those that come besides."""

    said = f"{ADDRESS.said}, or a list of them"
    samples = (*ADDRESS.samples, "[10.0.0.1, 10.0.0.11]")
    parts = (ADDRESS,)

    def read(self, node: Node, reading: Reading) -> tuple[str, tuple[str, ...]]:
        found = Many(ADDRESS, alone=True).read(node, reading)
        if not found:
            raise misfit(node, self.said)
        return found[0], found[1:]

    def json(self, known: Definitions) -> Json:
        return Many(ADDRESS, alone=True).json(known)


HOST_RECORD: Final = Record(
    called="a host",
    plan=HostPlan,
    finish=_keep,
    keys={
        "address": Key(
            kind=Addresses(),
            into=("address", "further"),
            help="IPv4 or IPv6; 10.0.0.1 for the first host if left out. Queue pairs of a "
            "connection take several in turn.",
        ),
        "mac": Key(kind=MAC, help="Ethernet; 02:00:00:00:00:01 for the first if left out."),
        "profile": Key(kind=Word(tuple(PROFILES)), help="Which adapter it has."),
        "gpus": Key(
            kind=Named(record=GPU_RECORD, called="GPUs by name", example="gpu0"),
            help="Its GPUs.",
        ),
        "windows": Key(
            kind=Many(WindowName()), clause="IBA 10.6.6", help="Its memory windows, of type 2."
        ),
        "memory": Key(
            kind=Named(record=MEMORY, called="memory by name", example="source"),
            help="Its memory.",
        ),
        "shared receives": Key(
            kind=Named(record=SRQ, called="shared receive queues by name", example="pool"),
            into=("srqs",),
            help="Its shared receive queues.",
        ),
    },
)
HOSTS: Final = Named(record=HOST_RECORD, called="hosts by name", example="client")
