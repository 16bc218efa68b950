"""What a run of traffic amounted to: a value, from frames that were counted and adapters.

::

    counter = FrameCounter()
    network.tap("client", counter)
    network.tap("server", counter)
    network.simulator.run()
    summary = summarise(counter, (client.nic, server.nic), network.simulator.now)
"""

from collections.abc import Iterable, Mapping
from operator import add, sub
from typing import Final, NamedTuple

from rdmawire.ib.verbs import Verbs
from rdmawire.memory.page import Path
from rdmawire.traffic.counter import FrameCounter


class Moved(NamedTuple):
    """DMA on one path: bytes, transactions, and copies that a processor or GPU made for them."""

    bytes: int
    transactions: int
    copies: int

    def plus(self, other: "Moved") -> "Moved":
        """Both together."""
        return Moved(*map(add, self, other))

    def minus(self, other: "Moved") -> "Moved":
        """What is more than the other."""
        return Moved(*map(sub, self, other))

    def by(self, times: int) -> "Moved":
        """The same so many times."""
        return Moved(*(count * times for count in self))


NO_DMA: Final = Moved(0, 0, 0)


class Summary(NamedTuple):
    """A run. ``messages`` and ``bytes`` are those of applications, ``frame_bytes`` the wire's.

    ``retransmits`` are request packets sent again, ``lost`` frames that never arrived, ``marks``
    frames with Congestion Experienced, ``failed`` messages that ended with an error of their own.
    ``mads`` are management datagrams, and ``refused`` connections that never stood. ``paths`` has
    the DMA of all adapters by way, those that moved something. ``virtual_ns`` is how long it took
    in the world, ``wall_s`` how long outside, if whoever ran it has measured that.
    """

    messages: int
    bytes: int
    frames: int
    frame_bytes: int
    retransmits: int
    naks: int
    rnr_naks: int
    cnps: int
    marks: int
    lost: int
    failed: int
    paths: Mapping[str, Moved]
    virtual_ns: int
    wall_s: float = 0.0
    mads: int = 0
    refused: int = 0


def summarise(
    counter: FrameCounter,
    nics: Iterable[Verbs],
    virtual_ns: int,
    *,
    lost: int = 0,
    failed: int = 0,
    refused: int = 0,
) -> Summary:
    """What was counted, with what these adapters moved."""
    return Summary(
        messages=counter.messages,
        bytes=counter.bytes,
        frames=counter.frames,
        frame_bytes=counter.frame_bytes,
        retransmits=counter.retransmits,
        naks=counter.naks,
        rnr_naks=counter.rnr_naks,
        cnps=counter.cnps,
        marks=counter.marks,
        lost=lost,
        failed=failed,
        paths=moved(nics),
        virtual_ns=virtual_ns,
        mads=counter.mads,
        refused=refused,
    )


def moved(nics: Iterable[Verbs]) -> dict[str, Moved]:
    """The DMA of these adapters by path (``host``, ``gpu_direct``, ``bounce``), where any was."""
    counters = [nic.memory.counter for nic in nics]
    ways = {}
    for path in Path:
        tallies = [counter[path] for counter in counters]
        ways[path.name.lower()] = Moved(
            sum(tally.bytes for tally in tallies),
            sum(tally.transactions for tally in tallies),
            sum(tally.copies for tally in tallies),
        )
    return {name: way for name, way in ways.items() if any(way)}


def added(one: Summary, other: Summary) -> Summary:
    """Both runs together, one after the other."""
    sums = {
        name: count + getattr(other, name)
        for name, count in one._asdict().items()
        if name != "paths"
    }
    return Summary(**sums, paths=_added(one.paths, other.paths))


def _added(one: Mapping[str, Moved], other: Mapping[str, Moved]) -> dict[str, Moved]:
    names = [path.name.lower() for path in Path]
    return {
        name: one.get(name, NO_DMA).plus(other.get(name, NO_DMA))
        for name in names
        if name in one or name in other
    }


def repeated(summary: Summary, times: int) -> Summary:
    """The same run so many times."""
    counts = {name: count * times for name, count in summary._asdict().items() if name != "paths"}
    paths = {name: way.by(times) for name, way in summary.paths.items()}
    return Summary(**counts, paths=paths)


NOTHING: Final = Summary(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {}, 0)
"""A run in which nothing happened."""
