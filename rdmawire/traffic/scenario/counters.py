"""Every counter that a scenario may expect: its name, what it counts, and how it is read.

``client.retransmits`` is of a host, ``client-leaf.lost`` of a link, ``leaf:server.marks`` of a
port of a switch, ``leaf.stranded`` of a switch.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from rdmawire.fabric.classify import PRIORITIES
from rdmawire.fabric.link import FAULT_WORDS
from rdmawire.ib.hw_counters import MEANINGS
from rdmawire.ib.rx_parser import Drop
from rdmawire.memory.page import Path

if TYPE_CHECKING:
    from rdmawire.fabric.link import Link
    from rdmawire.fabric.port_queue import Mac
    from rdmawire.fabric.switch import Switch, SwitchPort
    from rdmawire.ib.verbs import Verbs
    from rdmawire.topology import Bus

T = TypeVar("T")


class Of(Enum):
    """What has counters."""

    HOST = "host"
    LINK = "link"
    PORT = "port"
    SWITCH = "switch"


class HostCounts(NamedTuple):
    """The sources of a host's counters: its adapter, its sent frames, its MAC and its bus."""

    nic: "Verbs"
    sent: Mapping[str, int]
    mac: "Mac"
    bus: "Bus | None" = None


class LinkCounts(NamedTuple):
    """The sources of a link's counters.

    ``lost`` counts the frames that faults lost, ``hits`` those that one type of fault changed.
    """

    link: "Link"
    lost: Callable[[], int]
    hits: Callable[[str], int]


class Counter(NamedTuple, Generic[T]):
    """A counter: ``help`` says what it counts, ``read`` reads it from its source."""

    help: str
    read: Callable[[T], int]


# Hosts.

SENT: Final = {
    "frames": "Frames that the host sent.",
    "frame_bytes": "Bytes of frames that the host sent.",
    "messages": "Messages that the host requested (SEND, WRITE, READ, atomic), each counted once.",
    "bytes": "Bytes of these messages.",
    "retransmits": "Request packets that the host retransmitted.",
    "naks": "NAKs that the host sent, without RNR NAKs.",
    "rnr_naks": "RNR NAKs that the host sent.",
    "cnps": "CNPs that the host sent.",
    "mads": "Management datagrams that the host sent, such as those of its connection manager.",
}
"""Of what a host sends."""

DROPPED: Final = {f"dropped_{reason.name.lower()}": reason for reason in Drop}
"""Why a host dropped frames."""

_MOVED: Final = {
    "bytes": "Bytes that the adapter transferred by DMA, path {}.",
    "transactions": "DMA transactions, path {}.",
    "copies": "Copies by a processor or a GPU for DMA, path {}.",
}
"""What a host's adapter moved by a path."""

HARDWARE: Final = MEANINGS
"""What a host's adapter counts under the names of drivers."""


def _sent(name: str, host: HostCounts) -> int:
    return host.sent.get(name, 0)


def _dropped(reason: Drop, host: HostCounts) -> int:
    return host.nic.drops[reason]


def _moved(path: Path, what: str, host: HostCounts) -> int:
    return int(getattr(host.nic.memory.counter[path], what))


_TRANSLATED: Final = {
    "hits": "PCIe requests of the host's devices whose translation was in the IO-TLB.",
    "misses": "PCIe requests of the host's devices for which the IOMMU read its page table.",
}
"""What the IOMMU of a host with a topology translated."""


def _translated(name: str, host: HostCounts) -> int:
    return 0 if host.bus is None else int(getattr(host.bus.translations, name))


def _hardware(name: str, host: HostCounts) -> int:
    return host.nic.device.counter(name)


_OF_HOST: Final[dict[str, Counter[HostCounts]]] = {
    **{name: Counter(help_, partial(_sent, name)) for name, help_ in SENT.items()},
    "dropped": Counter(
        "Frames that the adapter dropped, for any reason.",
        lambda host: sum(host.nic.drops.values()),
    ),
    **{
        name: Counter(
            f"Frames that the adapter dropped: {reason.value}.", partial(_dropped, reason)
        )
        for name, reason in DROPPED.items()
    },
    **{
        f"{path.name.lower()}_{what}": Counter(help_.format(path.name), partial(_moved, path, what))
        for path in Path
        for what, help_ in _MOVED.items()
    },
    **{
        f"iotlb_{name}": Counter(help_, partial(_translated, name))
        for name, help_ in _TRANSLATED.items()
    },
    "pauses": Counter(
        "How often the host was paused, summed over priorities.",
        lambda host: sum(host.mac.egress.pauses),
    ),
    "paused_ns": Counter(
        "How long the host was paused (ns), summed over priorities.",
        lambda host: sum(host.mac.egress.paused_ns),
    ),
    **{name: Counter(help_, partial(_hardware, name)) for name, help_ in HARDWARE.items()},
}


# Links.

FAULTS: Final = {word: do for do, word in FAULT_WORDS.items() if word != "lost"}
"""Counters of faults, and the verbs of the faults."""


def _hits(do: str, link: LinkCounts) -> int:
    return link.hits(do)


_OF_LINK: Final[dict[str, Counter[LinkCounts]]] = {
    "frames": Counter("Frames sent on the link.", lambda link: link.link.frames),
    "lost": Counter("Frames that were lost by faults.", lambda link: link.lost()),
    "oversized": Counter(
        "Frames that were lost because they exceed the MTU of the link.",
        lambda link: link.link.oversized,
    ),
    **{
        name: Counter(f"Frames that faults {name}.", partial(_hits, do))
        for name, do in FAULTS.items()
    },
}


# Switches and their ports.

_Counts = Callable[["SwitchPort"], Mapping[int, int] | list[int]]

_BY_PRIORITY: Final[dict[str, tuple[str, _Counts]]] = {
    "drops": ("Frames dropped because the buffer or the queue was full.", lambda port: port.drops),
    "marks": ("Frames marked with CE.", lambda port: port.marks),
    "stops": ("Pauses that the port requested.", lambda port: port.stops),
    "pauses": ("How often the port was paused.", lambda port: port.egress.pauses),
    "paused_ns": ("How long the port was paused (ns).", lambda port: port.egress.paused_ns),
}


def _of_priorities(counts: _Counts, priorities: Iterable[int], port: "SwitchPort") -> int:
    by_priority = counts(port)
    return sum(by_priority[priority] for priority in priorities)


_OF_PORT: Final[dict[str, Counter["SwitchPort"]]] = {
    **{
        name: Counter(help_, partial(_of_priorities, counts, range(PRIORITIES)))
        for name, (help_, counts) in _BY_PRIORITY.items()
    },
    **{
        f"{name}_{one}": Counter(
            f"{help_} Priority {one}.", partial(_of_priorities, counts, (one,))
        )
        for name, (help_, counts) in _BY_PRIORITY.items()
        for one in range(PRIORITIES)
    },
}

_OF_SWITCH: Final[dict[str, Counter["Switch"]]] = {
    "stranded": Counter(
        "Frames that the switch could not forward.", lambda switch: switch.stranded
    ),
    "peak": Counter("Maximum bytes in the buffer at any time.", lambda switch: switch.buffer.peak),
}


COUNTERS: Final[Mapping[Of, Mapping[str, Counter[Any]]]] = {
    Of.HOST: _OF_HOST,
    Of.LINK: _OF_LINK,
    Of.PORT: _OF_PORT,
    Of.SWITCH: _OF_SWITCH,
}
"""All counters by what has them."""


def current_name(counter: str) -> str:
    """The name of a counter that a file may call by its earlier name, such as ``frame_octets``."""
    renamed = counter.replace("octets", "bytes")
    return renamed if any(renamed in counters for counters in COUNTERS.values()) else counter
