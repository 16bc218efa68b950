"""Every counter of which a scenario may expect something: what it is of, and how it is read.

``client.retransmits`` is of a host, ``client-leaf.lost`` of a link, ``leaf:server.marks`` of a
port of a switch, ``leaf.stranded`` of a switch.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeVar

from rdmawire.fabric.flow import PRIORITIES
from rdmawire.fabric.link import Link
from rdmawire.fabric.mac import Mac
from rdmawire.fabric.switch import Switch, SwitchPort
from rdmawire.memory.counter import Path
from rdmawire.nic.unseal import Drop
from rdmawire.nic.verbs import Verbs
from rdmawire.traffic.scenario.playing.faults import LinkFaults


class Of(Enum):
    """What has counters."""

    HOST = "host"
    LINK = "link"
    PORT = "port"
    SWITCH = "switch"


class HostTally(NamedTuple):
    """What a host counts: its adapter, what it sent, and its way out."""

    nic: Verbs
    sent: Mapping[str, int]
    mac: Mac


class LinkTally(NamedTuple):
    """What a link counts, and what befell its frames."""

    link: Link
    faults: LinkFaults


T = TypeVar("T")


class Counter(NamedTuple, Generic[T]):
    """One counter: what it says, and how it is read of its subject."""

    help: str
    read: Callable[[T], int]


_SENT: Final = {
    "frames": "Frames that the host sent.",
    "frame_octets": "Octets of frames that the host sent.",
    "messages": "Messages that the host asked for: SENDs, WRITEs, READs, atomics; each once.",
    "octets": "Octets of these messages.",
    "retransmits": "Request packets that the host sent again.",
    "naks": "NAKs that the host sent, RNR NAKs aside.",
    "rnr_naks": "RNR NAKs that the host sent.",
    "cnps": "Congestion notifications that the host sent.",
}

_TALLIES: Final = {
    "octets": "Octets that the adapter moved by the path {}.",
    "transactions": "DMA transactions by the path {}.",
    "copies": "Copies that a processor or a GPU made for DMA by the path {}.",
}


def _sent(name: str, help_: str) -> Counter[HostTally]:
    return Counter(help_, lambda host: host.sent.get(name, 0))


def _dropped(reason: Drop) -> Counter[HostTally]:
    help_ = f"Frames that the adapter dropped: {reason.value}."
    return Counter(help_, lambda host: host.nic.drops[reason])


def _moved(path: Path, name: str, help_: str) -> Counter[HostTally]:
    return Counter(
        help_.format(path.name), lambda host: int(getattr(host.nic.memory.counter[path], name))
    )


OF_HOST: Final[dict[str, Counter[HostTally]]] = {
    **{name: _sent(name, help_) for name, help_ in _SENT.items()},
    "dropped": Counter(
        "Frames that the adapter dropped, for any reason.",
        lambda host: sum(host.nic.drops.values()),
    ),
    **{f"dropped_{reason.name.lower()}": _dropped(reason) for reason in Drop},
    **{
        f"{path.name.lower()}_{name}": _moved(path, name, help_)
        for path in Path
        for name, help_ in _TALLIES.items()
    },
    "pauses": Counter(
        "How often the network stopped the host, by priorities.",
        lambda host: sum(host.mac.egress.pauses),
    ),
    "paused_ns": Counter(
        "How long the network stopped the host (ns), summed over priorities.",
        lambda host: sum(host.mac.egress.paused_ns),
    ),
}

_BEFALLEN: Final = {
    "duplicate": "duplicated",
    "delay": "delayed",
    "reorder": "reordered",
    "corrupt": "corrupted",
    "truncate": "truncated",
    "mark": "marked",
    "set": "rewritten",
}
"""Faults, and what their counters are called."""


def _befallen(do: str, name: str) -> Counter[LinkTally]:
    return Counter(f"Frames that faults {name}.", lambda link: link.faults.hits(do))


OF_LINK: Final[dict[str, Counter[LinkTally]]] = {
    "frames": Counter("Frames that were put on the link.", lambda link: link.link.frames),
    "lost": Counter("Frames that faults lost.", lambda link: link.faults.lost),
    "oversized": Counter(
        "Frames that were longer than the link's MTU, and lost.", lambda link: link.link.oversized
    ),
    **{name: _befallen(do, name) for do, name in _BEFALLEN.items()},
}

_BY_PRIORITY: Final[dict[str, tuple[str, Callable[[SwitchPort, int], int]]]] = {
    "drops": ("Frames for which there was no room.", lambda port, p: port.drops[p]),
    "marks": ("Frames that were marked with CE.", lambda port, p: port.marks[p]),
    "stops": ("Pauses that the port asked for.", lambda port, p: port.stops[p]),
    "pauses": ("How often the port was stopped.", lambda port, p: port.egress.pauses[p]),
    "paused_ns": ("How long the port was stopped (ns).", lambda port, p: port.egress.paused_ns[p]),
}


def _of_all(help_: str, read: Callable[[SwitchPort, int], int]) -> Counter[SwitchPort]:
    return Counter(help_, lambda port: sum(read(port, p) for p in range(PRIORITIES)))


def _of_one(
    help_: str, read: Callable[[SwitchPort, int], int], priority: int
) -> Counter[SwitchPort]:
    return Counter(f"{help_} Priority {priority}.", lambda port: read(port, priority))


OF_PORT: Final[dict[str, Counter[SwitchPort]]] = {
    **{name: _of_all(*row) for name, row in _BY_PRIORITY.items()},
    **{
        f"{name}_{priority}": _of_one(*row, priority)
        for name, row in _BY_PRIORITY.items()
        for priority in range(PRIORITIES)
    },
}

OF_SWITCH: Final[dict[str, Counter[Switch]]] = {
    "stranded": Counter("Frames that no port led on.", lambda switch: switch.stranded),
    "peak": Counter("Most octets in the buffer at a time.", lambda switch: switch.buffer.peak),
}

COUNTERS: Final[
    Mapping[
        Of,
        Mapping[
            str, Counter[HostTally] | Counter[LinkTally] | Counter[SwitchPort] | Counter[Switch]
        ],
    ]
] = {
    Of.HOST: OF_HOST,
    Of.LINK: OF_LINK,
    Of.PORT: OF_PORT,
    Of.SWITCH: OF_SWITCH,
}
"""All counters, by what has them."""
