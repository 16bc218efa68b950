"""What a scenario says, once it is read: plain values, each with its place in the file.

Names are those of the file; nothing here is looked up or run. Times are ns, sizes octets, rates
bits a second. The reader (``rdmawire.traffic.scenario.reader``) makes a :class:`Scenario` of a
file, in which every name that is used is there; the runner plays it.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from rdmawire.traffic.scenario.document import Mark

__all__ = ["Mark"]


class Span(NamedTuple):
    """Octets of named memory: ``host.memory``, from ``offset`` on. No length: up to the end."""

    host: str
    memory: str
    offset: int = 0
    length: int | None = None


class End(NamedTuple):
    """One end of a connection: ``client/a``, or ``client/a#2`` for its second queue pair.

    ``number`` counts from 1 on; ``None`` means all of them.
    """

    host: str
    connection: str
    number: int | None = None


class Fill(Enum):
    """What memory holds in the beginning."""

    ZEROS = "zeros"
    COUNT = "count"
    """00 01 02 ... ff 00 ..."""
    RANDOM = "random"
    """Of the scenario's seed and the memory's name."""
    TEXT = "text"
    HEX = "hex"


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Octets as a file says them; ``text`` and ``hex`` are repeated until the memory is full."""

    fill: Fill = Fill.ZEROS
    octets: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPlan:
    """A GPU of a host. ``bar1`` is its aperture in octets, if not the model's."""

    name: str
    mark: Mark
    model: str = "H200"
    bar1: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Memory with a name, registered unless told otherwise.

    ``via`` is how an adapter gets to a GPU's memory: ``peermem``, ``peermem-legacy`` (the region
    goes when the owner frees it), ``dmabuf`` or ``bounce``. ``access`` are names of
    :class:`rdmawire.memory.access.Access`. ``refused`` is the errno that its registration must
    meet, for what is to fail. ``fast``: its region is made for fast registration, and grants
    nothing until the verb ``reg_mr``.
    """

    name: str
    size: int
    mark: Mark
    content: Content = Content()
    access: tuple[str, ...] | None = None
    page: int = 4096
    gpu: str | None = None
    via: str = "peermem"
    registered: bool = True
    on_demand: bool = False
    fast: bool = False
    refused: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPlan:
    """A memory window of type 2, unbound until ``bind_mw``. Spans name it as they name memory."""

    name: str
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class SrqPlan:
    """A shared receive queue, with its limit event; ``xrc`` for XRC's."""

    name: str
    mark: Mark
    max_wr: int = 1024
    limit: int = 0
    xrc: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlan:
    """A host with one adapter. ``address`` is IPv4 or IPv6; numbers make what is left out.

    ``further`` are more addresses of its port: queue pairs of a connection take them in turn.
    """

    name: str
    mark: Mark
    mac: str | None = None
    address: str | None = None
    further: tuple[str, ...] = ()
    profile: str = "ibta"
    gpus: tuple[GpuPlan, ...] = ()
    memory: tuple[MemoryPlan, ...] = ()
    windows: tuple[WindowPlan, ...] = ()
    srqs: tuple[SrqPlan, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """What befalls which frames of a link.

    ``do`` and ``options`` are those of :mod:`rdmawire.fabric.action`, ``where`` fields by the
    names of the wire's tables. ``sent_by`` narrows it to what one end of a connection sends;
    ``packet`` to one packet by its place in what that end requests, from 1 on: its PSN is the
    connection's first one and ``packet - 1``. ``nth`` is which time, counted for each PSN where
    ``packet`` is given, so that 2 is the first retransmission.
    """

    do: str
    mark: Mark
    where: Mapping[str, object] = field(default_factory=dict)
    sent_by: End | None = None
    packet: tuple[int, ...] = ()
    nth: tuple[int, ...] = ()
    chance: float = 1.0
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPlan:
    """A link between two hosts or switches, called ``one-other``."""

    ends: tuple[str, str]
    mark: Mark
    latency: int = 1_000
    rate: int | None = None
    mtu: int | None = None
    faults: tuple[FaultPlan, ...] = ()

    @property
    def name(self) -> str:
        return "-".join(self.ends)


def link_called(word: str, links: Container[str]) -> str:
    """The link that a word names by its ends, in either order; the word, where that names none."""
    turned = "-".join(reversed(word.split("-")))
    return turned if word not in links and turned in links else word


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlan:
    """A priority of a switch: its marks (``kmin``, ``kmax``, ``pmax``) and pauses, where given.

    Without ``headroom``, :func:`rdmawire.traffic.scenario.headroom.headroom_of` says it.
    """

    priority: int
    mark: Mark
    dscp: tuple[int, ...] = ()
    kmin: int | None = None
    kmax: int | None = None
    pmax: float = 1.0
    xoff: int | None = None
    xon: int | None = None
    headroom: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchPlan:
    """A switch, with the octets of its buffer and of one queue."""

    name: str
    mark: Mark
    buffer: int = 16 << 20
    queue: int = 1 << 20
    scheduling: str = "strict"
    queues: tuple[QueuePlan, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionPlan:
    """So many pairs of queue pairs between two hosts.

    ``type`` is RC, UC, UD or XRC; ``attributes`` are names of
    :class:`rdmawire.verbs.qp_attr.QPAttributes` (``timeout``, ``retry_cnt``, ``rnr_retry``,
    ``min_rnr_timer``, ``max_rd_atomic`` ...) for both ends, ``of_end`` more of them for one host.
    ``psn`` is the first of each end's requests. ``connect`` is ``at once``, or ``cm`` by the
    connection manager; ``reject`` has the second end refuse it, for this reason (a name of
    :class:`rdmawire.wire.cm_code.RejectReason`). ``packets_in_flight`` is how many request packets
    a queue pair leaves unacknowledged, ``None`` for the limit of its adapter's profile.

    ``congestion`` is a scheme's name (``dcqcn``, ``timely``), with its ``parameters``;
    ``cnp_interval`` how seldom (ns) marks are told, ``cnp_dscp`` by frames with
    which DSCP, the connection's own if ``None``. ``receives`` are posted at once: so many, each
    into this memory. ``alternate``: both ends have the same path once more
    as their alternate one, and are rearmed, for the verb ``migrate``.
    """

    name: str
    ends: tuple[str, str]
    mark: Mark
    type: str = "RC"
    count: int = 1
    mtu: int = 1024
    psn: tuple[int, int] = (100, 100)
    dscp: int = 0
    ecn: bool = False
    attributes: Mapping[str, int] = field(default_factory=dict)
    of_end: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    connect: str = "at once"
    reject: str | None = None
    alternate: bool = False
    packets_in_flight: int | None = None
    congestion: str | None = None
    parameters: Mapping[str, float] = field(default_factory=dict)
    cnp_interval: int | None = None
    cnp_dscp: int | None = None
    srq: Mapping[str, str] = field(default_factory=dict)
    receives: tuple["ReceivePlan", ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivePlan:
    """Receives at one end: ``count`` of them, each with all of ``into``."""

    at: End
    mark: Mark
    into: tuple[Span, ...] = ()
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """One thing that is done, and what it must lead to.

    ``verb`` is a row of :data:`rdmawire.traffic.scenario.verbs.VERBS`: send work (``write``,
    ``read``, ``send``, ``atomic_write`` ...), ``receive``, and what owners do (``free``,
    ``deregister``, ``invalidate``, ``fill``, ``modify``, ``migrate``, ``disconnect`` ...).
    ``values`` are what the verb takes beyond this.

    A step is done at ``at`` (ns), or when the steps in ``after`` are complete, or else with the
    steps before it. ``times`` repeats it for each queue pair, with at most ``depth`` under way;
    ``barrier`` has all queue pairs finish a round before any begins the next.

    ``status`` is how its completions must end (a name of ``WCStatus``), ``refused`` the errno
    that the verb itself must meet; ``None``: no completion is asked for, no refusal.
    """

    verb: str
    mark: Mark
    name: str = ""
    end: End | None = None
    local: tuple[Span, ...] = ()
    remote: Span | None = None
    inline: bytes | None = None
    values: Mapping[str, object] = field(default_factory=dict)
    flags: tuple[str, ...] = ("SIGNALED",)
    at: int | None = None
    after: tuple[str, ...] = ()
    times: int = 1
    depth: int | None = None
    barrier: bool = False
    status: str | None = "SUCCESS"
    refused: str | None = None


class Range(NamedTuple):
    """How many there must be; no ``most`` means no end."""

    least: int
    most: int | None

    def holds(self, found: int) -> bool:
        return self.least <= found and (self.most is None or found <= self.most)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryExpectation:
    """What memory must hold in the end: that of ``same_as`` then, or ``content``."""

    span: Span
    mark: Mark
    same_as: Span | None = None
    content: Content | None = None

    def __post_init__(self) -> None:
        if self.same_as is None and self.content is None:
            raise ValueError("memory that must hold nothing: neither 'same_as' nor 'content'")


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterExpectation:
    """A counter by name, ``client.retransmits`` or ``leaf:server.marks``, and what it must say.

    Names are those of :data:`rdmawire.traffic.scenario.counters.COUNTERS`.
    """

    of: str
    counter: str
    range: Range
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketExpectation:
    """How many frames with these fields there are, from one host or from anybody.

    Those that are put on ``link`` count, whoever puts them there; without one, those that hosts
    send. With ``arrived`` they count where they arrive instead: at an end of the link, or at a
    host.
    """

    where: Mapping[str, object]
    range: Range
    mark: Mark
    link: str | None = None
    sent_by: str | None = None
    arrived: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StateExpectation:
    """The state in which an end's queue pairs are in the end."""

    end: End
    state: str
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class EventExpectation:
    """Asynchronous events of a host, by class name, and how many."""

    host: str
    event: str
    range: Range
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeExpectation:
    """When the last frame has arrived and all work is done, in ns of virtual time."""

    range: Range
    mark: Mark


Expectation = (
    MemoryExpectation
    | CounterExpectation
    | PacketExpectation
    | StateExpectation
    | EventExpectation
    | TimeExpectation
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One scenario. ``source`` is what its file is called in messages.

    Two hosts without switches and links get a link from the reader, so ``links`` has them all.
    """

    name: str
    source: str
    about: str = ""
    seed: int = 0
    time_limit: int = 10**10
    hosts: tuple[HostPlan, ...] = ()
    switches: tuple[SwitchPlan, ...] = ()
    links: tuple[LinkPlan, ...] = ()
    connections: tuple[ConnectionPlan, ...] = ()
    steps: tuple[StepPlan, ...] = ()
    expectations: tuple[Expectation, ...] = ()
