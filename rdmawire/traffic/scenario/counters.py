"""Every counter of which a scenario may expect something: what it is of, and what it says.

``client.retransmits`` is of a host, ``client-leaf.lost`` of a link, ``leaf:server.marks`` of a
port of a switch, ``leaf.stranded`` of a switch. How each is read is
:mod:`rdmawire.traffic.scenario.runner.counting`'s.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from rdmawire.fabric.classify import PRIORITIES
from rdmawire.fabric.link import FAULT_WORDS
from rdmawire.ib.hw_counters import MEANINGS
from rdmawire.ib.rx_parser import Drop
from rdmawire.memory.page import Path


class Of(Enum):
    """What has counters."""

    HOST = "host"
    LINK = "link"
    PORT = "port"
    SWITCH = "switch"


SENT: Final = {
    "frames": "Frames that the host sent.",
    "frame_bytes": "Bytes of frames that the host sent.",
    "messages": "Messages that the host asked for: SENDs, WRITEs, READs, atomics; each once.",
    "bytes": "Bytes of these messages.",
    "retransmits": "Request packets that the host sent again.",
    "naks": "NAKs that the host sent, RNR NAKs aside.",
    "rnr_naks": "RNR NAKs that the host sent.",
    "cnps": "Congestion notifications that the host sent.",
    "mads": "Management datagrams that the host sent, such as those of its connection manager.",
}
"""Of what a host sends."""

DROPPED: Final = {f"dropped_{reason.name.lower()}": reason for reason in Drop}
"""Why a host dropped frames."""

_MOVED: Final = {
    "bytes": "Bytes that the adapter moved by the path {}.",
    "transactions": "DMA transactions by the path {}.",
    "copies": "Copies that a processor or a GPU made for DMA by the path {}.",
}

MOVED: Final = {f"{path.name.lower()}_{what}": (path, what) for path in Path for what in _MOVED}
"""What a host's adapter moved, by which path."""

HARDWARE: Final = MEANINGS
"""What a host's adapter counts under the names of drivers."""

_OF_HOST: Final = {
    **SENT,
    "dropped": "Frames that the adapter dropped, for any reason.",
    **{
        name: f"Frames that the adapter dropped: {reason.value}."
        for name, reason in DROPPED.items()
    },
    **{name: _MOVED[what].format(path.name) for name, (path, what) in MOVED.items()},
    "pauses": "How often the network stopped the host, by priorities.",
    "paused_ns": "How long the network stopped the host (ns), summed over priorities.",
    **HARDWARE,
}

FAULTS: Final = {word: do for do, word in FAULT_WORDS.items() if word != "lost"}
"""Counters of faults, and the verbs of the faults."""

_OF_LINK: Final = {
    "frames": "Frames that were put on the link.",
    "lost": "Frames that faults lost.",
    "oversized": "Frames that were longer than the link's MTU, and lost.",
    **{name: f"Frames that faults {name}." for name in FAULTS},
}

_BY_PRIORITY: Final = {
    "drops": "Frames for which there was no room.",
    "marks": "Frames that were marked with CE.",
    "stops": "Pauses that the port asked for.",
    "pauses": "How often the port was stopped.",
    "paused_ns": "How long the port was stopped (ns).",
}

_OF_PORT: Final = {
    **_BY_PRIORITY,
    **{
        f"{name}_{priority}": f"{help_} Priority {priority}."
        for name, help_ in _BY_PRIORITY.items()
        for priority in range(PRIORITIES)
    },
}

_OF_SWITCH: Final = {
    "stranded": "Frames that no port led on.",
    "peak": "Most bytes in the buffer at a time.",
}

COUNTERS: Final[Mapping[Of, Mapping[str, str]]] = {
    Of.HOST: _OF_HOST,
    Of.LINK: _OF_LINK,
    Of.PORT: _OF_PORT,
    Of.SWITCH: _OF_SWITCH,
}
"""All counters and what they say, by what has them."""


def current_name(counter: str) -> str:
    """The name of a counter that a file may call by its earlier name, such as ``frame_octets``."""
    renamed = counter.replace("octets", "bytes")
    return renamed if any(renamed in counters for counters in COUNTERS.values()) else counter
