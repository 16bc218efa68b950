"""Hosts: their addresses, GPUs, memory, windows and shared receive queues."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Annotated, Any, ClassVar, Final, NamedTuple

from rdmawire.errors import VerbsError
from rdmawire.memory.address_space import HOST_PAGE_SIZES
from rdmawire.memory.key import Access, check_access
from rdmawire.memory.page import PAGE_64K
from rdmawire.terminal import quote
from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.document import Mark, Node, NodeError, listed
from rdmawire.traffic.scenario.model.content import FillKey, HexKey, TextKey, content_of
from rdmawire.traffic.scenario.references import GPU
from rdmawire.traffic.scenario.section import Clause, Found, Given, Named, Section, key
from rdmawire.traffic.scenario.tables import ACCESS, ERRNO, MODELS, VIAS
from rdmawire.traffic.scenario.types import (
    ADDRESS,
    MAC,
    NAME,
    Content,
    Custom,
    Fill,
    Flag,
    Many,
    Number,
    Size,
    Word,
    invalid,
    one_of_sizes,
)
from rdmawire.units import SIZES, format_exactly
from rdmawire.verbs.profile import PROFILES

MAX_MEMORY: Final = 1 << 40
"""Maximum bytes of one memory; untouched pages take no real memory."""
MAX_BAR1: Final = 1 << 40
MAX_FILLED: Final = 1 << 28
"""Maximum bytes of one memory that one step or the initial content may fill."""
_MAX_SRQ: Final = min(profile.max_srq_wr for profile in PROFILES.values())


class GpuPlan(Section):
    """A GPU of a host. ``bar1`` is its aperture in bytes, if it differs from the model's."""

    called: ClassVar = "a GPU"
    short: ClassVar = "model"

    name: Annotated[str, NAME]
    model: Annotated[str, Word(tuple(MODELS)), key("Which GPU it is.")] = "H200"
    bar1: Annotated[
        int | None,
        Size(PAGE_64K, MAX_BAR1),
        key("Its aperture for peers, 1 MiB of it its own; that of the model if left out."),
    ] = None

    def finish(self, found: Found, context: ParseContext) -> "GpuPlan":  # noqa: ARG002
        if self.bar1 is not None and self.bar1 % PAGE_64K:
            raise NodeError(found.at("bar1"), f"{self.bar1} bytes", "whole pages of 64 KiB")
        return self


class MemoryPlan(Section):
    """Memory with a name, registered unless ``registered`` is false.

    ``via`` is how an adapter accesses a GPU's memory: ``peermem``, ``peermem-legacy`` (the region
    is lost when the owner frees it), ``dmabuf`` or ``bounce``. ``access`` are names of
    :class:`rdmawire.memory.key.Access`. ``refused`` is the expected errno of its registration.
    ``fast``: its region is for fast registration, and grants no access until the verb ``reg_mr``.
    ``content`` is from ``fill``, ``text`` or ``hex``.
    """

    called: ClassVar = "memory"
    short: ClassVar = "size"
    alternatives: ClassVar = (("fill", "text", "hex"),)

    name: Annotated[str, NAME]
    size: Annotated[int, Size(1, MAX_MEMORY), key("Its size in bytes.")]
    fill: FillKey = None
    text: TextKey = None
    hex: HexKey = None
    gpu: Annotated[str | None, GPU, key("The GPU that it is of; host memory if left out.")] = None
    via: Annotated[
        str,
        Word(VIAS),
        key(
            "How an adapter gets to a GPU's memory; peermem-legacy loses the region when the "
            "owner frees it, bounce copies."
        ),
    ] = "peermem"
    access: Annotated[
        tuple[str, ...] | None,
        ACCESS,
        Clause("IBA 10.6.3.1"),
        key("What is allowed; all if left out."),
    ] = None
    page: Annotated[int, one_of_sizes(HOST_PAGE_SIZES), key("The pages of the host.")] = 4096
    registered: Annotated[Flag, key("Whether it is registered from the beginning.")] = True
    on_demand: Annotated[
        Flag, key("Whether its pages are faulted in, not pinned.", "on demand")
    ] = False
    fast: Annotated[Flag, Clause("IBA 10.6.4"), key("Whether it waits for the verb `reg_mr`.")] = (
        False
    )
    refused: Annotated[str | None, ERRNO, key("The errno that its registration must meet.")] = None
    content: Given[Content] = Content()

    def finish(self, found: Found, context: ParseContext) -> "MemoryPlan":
        plan = self.model_copy(
            update={"content": content_of(self), "fill": None, "text": None, "hex": None}
        )
        plan._check_content(found)
        if plan.name in context.names.of(context.scope[0], "windows"):
            raise NodeError(plan.mark, f"memory {quote(plan.name)}", "a name that no window has")
        if plan.access is not None and plan.refused is None:
            _check_access(plan.access, found)
        for rule in _CONTRADICTIONS:
            if rule.broken(plan, found):
                raise NodeError(found.at(rule.key), f"{rule.key!r} of {plan.name}", rule.expected)
        return plan

    def _check_content(self, found: Found) -> None:
        if self.content.fill is not Fill.ZEROS and self.size > MAX_FILLED:
            most = format_exactly(MAX_FILLED, SIZES)
            what = f"{self.size} bytes to fill"
            raise NodeError(found.at("size"), what, f"{most} at most, or zeros")


def _check_access(names: tuple[str, ...], found: Found) -> None:
    try:
        check_access(reduce(or_, (Access[name].value for name in names), 0))
    except VerbsError:
        expected = "LOCAL_WRITE, too, where peers may write"
        raise NodeError(found.at("access"), listed(names), expected) from None


class _Contradiction(NamedTuple):
    """A key that is not valid with the others, and what it requires."""

    key: str
    expected: str
    broken: Callable[[MemoryPlan, Found], bool]


_CONTRADICTIONS: Final = (
    _Contradiction("via", "a gpu, too", lambda plan, found: "via" in found.nodes and not plan.gpu),
    _Contradiction("on demand", "host memory", lambda plan, _: plan.on_demand and bool(plan.gpu)),
    _Contradiction("fast", "host memory", lambda plan, _: plan.fast and bool(plan.gpu)),
    _Contradiction(
        "page", "host memory", lambda plan, found: "page" in found.nodes and bool(plan.gpu)
    ),
    _Contradiction(
        "access", "access at 'reg_mr'", lambda plan, _: plan.fast and plan.access is not None
    ),
    _Contradiction(
        "refused", "registration", lambda plan, _: bool(plan.refused and not plan.registered)
    ),
)
"""Keys of memory that exclude each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPlan:
    """A memory window of type 2, unbound until ``bind_mw``. Spans use its name like a memory's."""

    name: str
    mark: Mark


WINDOW: Final = Custom(
    NAME.description,
    ("slot",),
    lambda node, context: WindowPlan(name=NAME.read(node, context), mark=node.mark),
    schema=NAME.json,
)


class SrqPlan(Section):
    """A shared receive queue, with its limit event; ``xrc``: for XRC queue pairs."""

    called: ClassVar = "a shared receive queue"
    short: ClassVar = "max_wr"

    name: Annotated[str, NAME]
    max_wr: Annotated[int, Number(1, _MAX_SRQ), key("Receives that it holds at most.")] = 1024
    limit: Annotated[
        int,
        Number(0, _MAX_SRQ),
        Clause("IBA 10.2.9"),
        key("The limit event comes once it holds fewer; 0 for never."),
    ] = 0
    xrc: Annotated[Flag, Clause("IBA A14"), key("Whether it is for XRC connections.")] = False

    def finish(self, found: Found, context: ParseContext) -> "SrqPlan":  # noqa: ARG002
        if self.limit > self.max_wr:
            raise NodeError(found.at("limit"), f"limit {self.limit}", f"no more than {self.max_wr}")
        return self


def _read_addresses(node: Node, context: ParseContext) -> tuple[str, ...]:
    found: tuple[str, ...] = _MANY.read(node, context)
    if not found:
        raise invalid(node, ADDRESSES.description)
    return found


_MANY: Final = Many(ADDRESS, alone=True)
ADDRESSES: Final = Custom(
    _MANY.description,
    (*ADDRESS.examples, "[10.0.0.1, 10.0.0.11]"),
    _read_addresses,
    schema=_MANY.json,
)


class HostPlan(Section):
    """A host with one adapter. ``address`` is IPv4 or IPv6; its number gives default addresses.

    ``further`` are more addresses of its port: queue pairs of a connection use them in turn.
    """

    called: ClassVar = "a host"

    name: Annotated[str, NAME]
    address: Annotated[
        str | None,
        ADDRESSES,
        key(
            "IPv4 or IPv6; 10.0.0.1 for the first host if left out. Queue pairs of a connection "
            "take several in turn."
        ),
    ] = None
    mac: Annotated[
        str | None, MAC, key("Ethernet; 02:00:00:00:00:01 for the first if left out.")
    ] = None
    profile: Annotated[str, Word(tuple(PROFILES)), key("Which adapter it has.")] = "ibta"
    gpus: Annotated[
        tuple[GpuPlan, ...], Named(GpuPlan, "GPUs by name", "gpu0"), key("Its GPUs.")
    ] = ()
    windows: Annotated[
        tuple[WindowPlan, ...],
        Many(WINDOW),
        Clause("IBA 10.6.6"),
        key("Its memory windows, of type 2."),
    ] = ()
    memory: Annotated[
        tuple[MemoryPlan, ...], Named(MemoryPlan, "memory by name", "source"), key("Its memory.")
    ] = ()
    srqs: Annotated[
        tuple[SrqPlan, ...],
        Named(SrqPlan, "shared receive queues by name", "pool"),
        key("Its shared receive queues.", "shared receives"),
    ] = ()
    further: Given[tuple[str, ...]] = ()

    def finish(self, found: Found, context: ParseContext) -> "HostPlan":
        names = [window.name for window in self.windows]
        if len(set(names)) < len(names):
            raise NodeError(found.at("windows"), "one name more than once", "each window once")
        plan = self._with_addresses()
        context.hosts[plan.name] = plan
        context.memory |= {(plan.name, memory.name): memory for memory in plan.memory}
        return plan

    def _with_addresses(self) -> "HostPlan":
        addresses: Any = self.address
        if not addresses:
            return self
        first, *others = addresses
        return self.model_copy(update={"address": first, "further": tuple(others)})
