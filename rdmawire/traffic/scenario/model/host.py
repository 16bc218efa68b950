"""Hosts: their addresses, GPUs, memory, windows and shared receive queues."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_
from typing import Annotated, Any, ClassVar, Final, NamedTuple

from rdmawire.errors import VerbsError
from rdmawire.memory.address_space import HOST_PAGE_SIZES
from rdmawire.memory.gpu.device import A100, H200, T4, GpuProfile
from rdmawire.memory.key import Access, check_access
from rdmawire.memory.page import PAGE_64K
from rdmawire.terminal import quote
from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.document import (
    Mark,
    Node,
    NodeError,
    Pairs,
    Scalar,
    TextError,
    listed,
)
from rdmawire.traffic.scenario.model.placement import PlacePlan
from rdmawire.traffic.scenario.references import GPU, MEMORY, SPAN
from rdmawire.traffic.scenario.section import (
    Clause,
    Found,
    Given,
    Named,
    OneSection,
    Section,
    key,
    read_section,
)
from rdmawire.traffic.scenario.types import (
    ADDRESS,
    MAC,
    NAME,
    Content,
    Custom,
    Definitions,
    Fill,
    Flag,
    Json,
    Many,
    Number,
    OneOf,
    Parsed,
    Size,
    Span,
    Word,
    format_size,
    invalid,
    parse_hex,
    parse_size,
    parse_utf8,
    parsed,
)
from rdmawire.verbs.profile import PROFILES

MODELS: Final[dict[str, GpuProfile]] = {profile.name: profile for profile in (T4, A100, H200)}
"""GPUs by the names of their models."""
VIAS: Final = ("peermem", "peermem-legacy", "dmabuf", "bounce")
"""Methods by which an adapter accesses the memory of a GPU."""
ACCESS: Final = Many(Word(Access.__members__), alone=True)
ERRNO: Final = Word(
    (
        *("EINVAL", "ENOMEM", "EFAULT", "EBUSY", "EOPNOTSUPP", "ENOTSUPP"),
        *("EACCES", "EBADF", "EEXIST", "EIO", "ENODEV", "ETIMEDOUT"),
    )
)
"""The errno names of verbs."""

MAX_MEMORY: Final = 1 << 40
"""Maximum bytes of one memory; untouched pages take no real memory."""
MAX_BAR1: Final = 1 << 40
MAX_FILLED: Final = 1 << 28
"""Maximum bytes of one memory that one step or the initial content may fill."""
_PAGE: Final = OneOf(HOST_PAGE_SIZES, parse_size, format_size, ("string",))
_MAX_SRQ: Final = min(profile.max_srq_wr for profile in PROFILES.values())


# Bytes given by a word, as text, or as hexadecimal digits.

_WORDS: Final = {fill.value: fill for fill in (Fill.ZEROS, Fill.COUNT, Fill.RANDOM)}


def _fill(text: str) -> Content:
    if text not in _WORDS:
        raise TextError(word=text, known=list(_WORDS))
    return Content(fill=_WORDS[text])


def _given(fill: Fill, parse: Callable[[str], bytes], text: str) -> Content:
    if not (data := parse(text)):
        raise TextError("one byte at least")
    return Content(fill=fill, data=data)


FILL: Final = Parsed(
    f"one of {listed(_WORDS)}", _fill, tuple(_WORDS), lambda content: content.fill.value
)
TEXT: Final = Parsed(
    "text",
    partial(_given, Fill.TEXT, parse_utf8),
    ("hello", '"hello, world"'),
    types=("string", "number"),
)
HEX: Final = Parsed(
    "hexadecimal digits",
    partial(_given, Fill.HEX, parse_hex),
    ('"00 ff"', "deadbeef"),
    types=("string", "number"),
)

FillKey = Annotated[
    Content | None,
    FILL,
    key("Content: zeros; count, the bytes 00 01 .. ff 00 ..; random, from the seed."),
]
TextKey = Annotated[Content | None, TEXT, key("Content as text, repeated to the end.")]
HexKey = Annotated[Content | None, HEX, key("Content as hexadecimal digits, repeated to the end.")]


def content_of(section: Any) -> Content:
    """Return the content of ``fill``, ``text`` or ``hex`` of a section; zeros without any."""
    return section.fill or section.text or section.hex or Content()


class ContentKeys(Section):
    """Bytes, given by one of these keys."""

    called: ClassVar = "bytes"
    alternatives: ClassVar = (("fill", "text", "hex"),)

    fill: FillKey = None
    text: TextKey = None
    hex: HexKey = None

    def finish(self, found: Found, context: ParseContext) -> Content:  # noqa: ARG002
        return content_of(self)


def _read_inline(node: Node, context: ParseContext) -> bytes:
    if isinstance(node, Scalar):
        empty = not node.text and not node.plain
        return b"" if empty else parsed(node, "text", parse_utf8)
    content: Content = read_section(ContentKeys, node, context)
    if content.fill not in (Fill.TEXT, Fill.HEX):
        raise invalid(node, INLINE.description)
    return content.data


def _inline_schema(definitions: Definitions) -> Json:
    text = {"type": ["string", "number", "boolean"]}
    return {"anyOf": [text, ContentKeys.json_schema(definitions)]}


INLINE: Final = Custom(
    "text, or {hex: digits}",
    ("hello", "{hex: 00 ff}", "{text: hello}"),
    _read_inline,
    schema=_inline_schema,
    parts=(ContentKeys,),
)
"""Bytes of a message: text, or ``{hex: ...}``."""


def _read_same(node: Node, context: ParseContext) -> Span | Content:
    if isinstance(node, Pairs):
        return _foreseen(node, read_section(ContentKeys, node, context))
    if isinstance(node, Scalar) and node.text == Fill.UNCHANGED.value:
        return Content(fill=Fill.UNCHANGED)
    if isinstance(node, Scalar) and node.text in _WORDS:
        return _foreseen(node, FILL.read(node, context))
    span: Span = SPAN.read(node, context)
    return span


def _foreseen(node: Node, content: Content) -> Content:
    """Return the content; :class:`NodeError` for random bytes, which cannot be expected."""
    if content.fill is Fill.RANDOM:
        raise NodeError(node.mark, "random bytes", SAME.description)
    return content


def _same_schema(definitions: Definitions) -> Json:
    both = [{"type": "string"}, ContentKeys.json_schema(definitions)]
    return {"anyOf": both, "description": SAME.description}


SAME: Final = Custom(
    "memory such as client.source, unchanged, zeros, count, {text: ...} or {hex: ...}",
    ("client.source", "unchanged", "zeros", "{hex: 00 ff}", "{text: hello}"),
    _read_same,
    schema=_same_schema,
    parts=(ContentKeys,),
)
"""Expected content of memory: that of other memory, its own at the beginning, or bytes."""


# Parts of hosts.


class GpuPlan(Section):
    """A GPU of a host. ``bar1`` is its aperture in bytes, if it differs from the model's."""

    called: ClassVar = "a GPU"
    short: ClassVar = "model"

    name: Annotated[str, NAME]
    model: Annotated[str, Word(MODELS), key("GPU model.")] = "H200"
    bar1: Annotated[
        int | None,
        Size(PAGE_64K, MAX_BAR1),
        key("Size of BAR1, of which the GPU reserves 1 MiB; by default that of the model."),
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
    Memory ``within`` other memory of the host is a part of it, from its byte ``offset`` on.
    ``content`` is from ``fill``, ``text`` or ``hex``.
    """

    called: ClassVar = "memory"
    short: ClassVar = "size"
    alternatives: ClassVar = (("fill", "text", "hex"),)

    name: Annotated[str, NAME]
    size: Annotated[int, Size(1, MAX_MEMORY), key("Size in bytes.")]
    fill: FillKey = None
    text: TextKey = None
    hex: HexKey = None
    gpu: Annotated[
        str | None, GPU, key("GPU that has the memory; by default it is host memory.")
    ] = None
    via: Annotated[
        str,
        Word(VIAS),
        key(
            "How the adapter accesses GPU memory. With peermem-legacy, the region is invalidated "
            "when the memory is freed; bounce copies through host memory."
        ),
    ] = "peermem"
    access: Annotated[
        tuple[str, ...] | None,
        ACCESS,
        Clause("IBA 10.6.3.1"),
        key("Access rights; by default all."),
    ] = None
    page: Annotated[int, _PAGE, key("Page size.")] = 4096
    registered: Annotated[Flag, key("Whether it is registered when the run begins.")] = True
    on_demand: Annotated[
        Flag,
        key("Whether it is registered for on-demand paging, with no pages pinned.", "on demand"),
    ] = False
    fast: Annotated[
        Flag, Clause("IBA 10.6.4"), key("Whether it is for fast registration by the verb `reg_mr`.")
    ] = False
    refused: Annotated[str | None, ERRNO, key("Expected errno of the registration.")] = None
    within: Annotated[
        str | None,
        MEMORY,
        key("Memory of the host that it is a part of, so that a part has a region of its own."),
    ] = None
    offset: Annotated[
        int, Size(0, MAX_MEMORY), key("First byte of the part, in the memory of `within`.")
    ] = 0
    content: Given[Content] = Content()

    def finish(self, found: Found, context: ParseContext) -> "MemoryPlan":
        plan = self.model_copy(
            update={"content": content_of(self), "fill": None, "text": None, "hex": None}
        )
        if plan.content.fill is not Fill.ZEROS and plan.size > MAX_FILLED:
            most = format_size(MAX_FILLED)
            what = f"{plan.size} bytes to fill"
            raise NodeError(found.at("size"), what, f"{most} at most, or zeros")
        if plan.name in context.names.of(context.scope[0], "windows"):
            raise NodeError(plan.mark, f"memory {quote(plan.name)}", "a name that no window has")
        if plan.access is not None and plan.refused is None:
            _check_access(plan.access, found)
        for rule in _CONTRADICTIONS:
            if rule.broken(plan, found):
                raise NodeError(found.at(rule.key), f"{rule.key!r} of {plan.name}", rule.expected)
        return plan


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
        "offset", "'within', too", lambda plan, found: "offset" in found.nodes and not plan.within
    ),
    _Contradiction("within", "host memory", lambda plan, _: bool(plan.within and plan.gpu)),
    _Contradiction(
        "page",
        "the page size of 'within'",
        lambda plan, found: "page" in found.nodes and bool(plan.within),
    ),
    _Contradiction(
        "fast", "memory that is not within other", lambda plan, _: plan.fast and bool(plan.within)
    ),
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
    max_wr: Annotated[int, Number(1, _MAX_SRQ), key("Maximum number of receives.")] = 1024
    limit: Annotated[
        int,
        Number(0, _MAX_SRQ),
        Clause("IBA 10.2.9"),
        key("The limit event occurs when fewer receives are left; 0 for never."),
    ] = 0
    xrc: Annotated[Flag, Clause("IBA A14"), key("Whether it is for XRC connections.")] = False
    other_domain: Annotated[
        Flag,
        Clause("IBA A14"),
        key(
            "Whether it is in an XRC domain of its own: no connection of the host may use it.",
            "other domain",
        ),
    ] = False

    def finish(self, found: Found, context: ParseContext) -> "SrqPlan":  # noqa: ARG002
        if self.limit > self.max_wr:
            raise NodeError(found.at("limit"), f"limit {self.limit}", f"no more than {self.max_wr}")
        if self.other_domain and not self.xrc:
            raise NodeError(found.at("other domain"), "'other domain'", "'xrc: true' besides")
        return self


def _wrong_parts(memories: tuple[MemoryPlan, ...]) -> Iterator[NodeError]:
    """Yield a mistake for memory within memory that comes later, or beyond its end."""
    before: dict[str, MemoryPlan] = {}
    names = {memory.name for memory in memories}
    for memory in memories:
        if memory.within in names:
            yield from _wrong_part(memory, before.get(memory.within))
        before[memory.name] = memory


def _wrong_part(part: MemoryPlan, whole: MemoryPlan | None) -> Iterator[NodeError]:
    if whole is None or whole.within or whole.gpu:
        expected = "host memory before it that is not itself within other memory"
        yield NodeError(part.mark, f"{part.name} within {part.within}", expected)
    elif part.offset + part.size > whole.size:
        what = f"bytes {part.offset} to {part.offset + part.size} of {whole.name}"
        yield NodeError(part.mark, what, f"a part of its {whole.size} bytes")


def _wrong_gpus(host: "HostPlan", found: Found) -> Iterator[NodeError]:
    """Yield a mistake for GPUs that have no place in the topology: it is that of one GPU."""
    if host.topology is None or not host.gpus:
        return
    if len(host.gpus) > 1:
        what = f"a topology with {len(host.gpus)} GPUs"
        yield NodeError(found.at("topology"), what, "one GPU at most, whose place is its 'gpu'")
    elif not host.topology.gpu:
        what = f"{host.topology.host}, which has no GPU"
        yield NodeError(found.at("topology"), what, f"a place for {host.gpus[0].name}")


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
    ``locked_memory`` is what its applications may register, ``peermem`` and ``dmabuf`` say which
    drivers register memory of GPUs. With a ``topology``, DMA takes the time of the host's links.
    """

    called: ClassVar = "a host"

    name: Annotated[str, NAME]
    address: Annotated[
        str | None,
        ADDRESSES,
        key(
            "IPv4 or IPv6 address; by default 10.0.0.1 for the first host. If there are several, "
            "the queue pairs of a connection use them in turn."
        ),
    ] = None
    mac: Annotated[
        str | None, MAC, key("Ethernet address; by default 02:00:00:00:00:01 for the first host.")
    ] = None
    profile: Annotated[str, Word(PROFILES), key("Profile of the adapter.")] = "ibta"
    gpus: Annotated[
        tuple[GpuPlan, ...], Named(GpuPlan, "GPUs by name", "gpu0"), key("GPUs of the host.")
    ] = ()
    windows: Annotated[
        tuple[WindowPlan, ...],
        Many(WINDOW),
        Clause("IBA 10.6.6"),
        key("Memory windows of type 2."),
    ] = ()
    memory: Annotated[
        tuple[MemoryPlan, ...],
        Named(MemoryPlan, "memory by name", "source"),
        key("Memory, by name."),
    ] = ()
    locked_memory: Annotated[
        int | None,
        Size(0, MAX_MEMORY),
        Clause("getrlimit(2)"),
        key(
            "Bytes of host memory that may be registered at once (`ulimit -l`); by default no "
            "limit. More is refused with ENOMEM.",
            "locked memory",
        ),
    ] = None
    peermem: Annotated[
        Flag,
        key(
            "Whether nvidia-peermem is loaded. Without it, `via: peermem` is refused with EFAULT: "
            "the address of a GPU is no host memory."
        ),
    ] = True
    dmabuf: Annotated[
        Flag,
        key(
            "Whether Linux and the adapter's driver take dma-bufs. Without it, `via: dmabuf` is "
            "refused with EOPNOTSUPP."
        ),
    ] = True
    topology: Annotated[
        PlacePlan | None,
        OneSection(PlacePlan),
        key(
            "The links within the host: then DMA takes their time, and memory of the GPU is "
            "registered only if the adapter may access it; else EINVAL. By default DMA takes no "
            "time."
        ),
    ] = None
    srqs: Annotated[
        tuple[SrqPlan, ...],
        Named(SrqPlan, "shared receive queues by name", "pool"),
        key("Shared receive queues.", "shared receives"),
    ] = ()
    further: Given[tuple[str, ...]] = ()

    def finish(self, found: Found, context: ParseContext) -> "HostPlan":
        names = [window.name for window in self.windows]
        if len(set(names)) < len(names):
            raise NodeError(found.at("windows"), "one name more than once", "each window once")
        context.report(_wrong_parts(self.memory))
        context.report(_wrong_gpus(self, found))
        addresses: Any = self.address or (None,)
        plan = self.model_copy(update={"address": addresses[0], "further": addresses[1:]})
        context.hosts[plan.name] = plan
        context.memory |= {(plan.name, memory.name): memory for memory in plan.memory}
        return plan
