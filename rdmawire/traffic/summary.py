"""What a run of traffic amounted to: a value, from frames that were counted and adapters.

::

    counter = FrameCounter()
    network.tap("client", counter)
    network.tap("server", counter)
    network.world.run()
    summary = summarise(counter, (client.nic, server.nic), network.world.now, wall_s=0.5)
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rdmawire.memory.counter import Path
from rdmawire.nic.verbs import Verbs
from rdmawire.traffic.counter import FrameCounter


class Moved(NamedTuple):
    """DMA on one path: octets, transactions, and copies that a processor or GPU made for them."""

    octets: int
    transactions: int
    copies: int


class Summary(NamedTuple):
    """A run. ``messages`` and ``octets`` are those of applications, ``frame_octets`` the wire's.

    ``retransmits`` are request packets sent again, ``lost`` frames that never arrived, ``marks``
    frames with Congestion Experienced, ``failed`` work that ended with an error. ``paths`` has the
    DMA of all adapters by way, those that moved something. ``virtual_ns`` is how long it took in
    the world, ``wall_s`` how long outside.
    """

    messages: int
    octets: int
    frames: int
    frame_octets: int
    retransmits: int
    naks: int
    rnr_naks: int
    cnps: int
    marks: int
    lost: int
    failed: int
    paths: Mapping[str, Moved]
    virtual_ns: int
    wall_s: float


def summarise(
    counter: FrameCounter,
    nics: Iterable[Verbs],
    virtual_ns: int,
    wall_s: float,
    *,
    lost: int = 0,
    failed: int = 0,
) -> Summary:
    """What was counted, with what these adapters moved."""
    return Summary(
        messages=counter.messages,
        octets=counter.octets,
        frames=counter.frames,
        frame_octets=counter.frame_octets,
        retransmits=counter.retransmits,
        naks=counter.naks,
        rnr_naks=counter.rnr_naks,
        cnps=counter.cnps,
        marks=counter.marks,
        lost=lost,
        failed=failed,
        paths=moved(nics),
        virtual_ns=virtual_ns,
        wall_s=wall_s,
    )


def moved(nics: Iterable[Verbs]) -> dict[str, Moved]:
    """The DMA of these adapters by path (``host``, ``gpu_direct``, ``bounce``), where any was."""
    counters = [nic.memory.counter for nic in nics]
    ways = {}
    for path in Path:
        tallies = [counter[path] for counter in counters]
        ways[path.name.lower()] = Moved(
            sum(tally.octets for tally in tallies),
            sum(tally.transactions for tally in tallies),
            sum(tally.copies for tally in tallies),
        )
    return {name: way for name, way in ways.items() if any(way)}
