"""What is in the pack of golden captures."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from rdmawire.verbs import QPType
from tools.make_captures.golden import carried, cm
from tools.make_captures.golden.acks import acks, rnr
from tools.make_captures.golden.case import Case
from tools.make_captures.golden.errors import errors
from tools.make_captures.golden.network import network
from tools.make_captures.golden.played import Played, play
from tools.make_captures.golden.retransmission import retransmission
from tools.make_captures.golden.scripted import scripted
from tools.make_captures.golden.unreliable import unreliable
from tools.make_captures.golden.verbs import path_mtus, verbs


class Golden(NamedTuple):
    """A capture of cases, one behind the other."""

    name: str
    shows: str
    cases: Callable[[], Iterable[Played]]


def _played(*tables: Callable[[], Iterator[Case]]) -> Callable[[], Iterable[Played]]:
    return lambda: map(play, chain.from_iterable(table() for table in tables))


def _verbs(kind: QPType) -> Callable[[], Iterator[Case]]:
    return lambda: verbs(kind)


GOLDEN = (
    Golden("rc.pcap", "every verb of RC, in every size", _played(_verbs(QPType.RC))),
    Golden("uc.pcap", "every verb of UC, in every size", _played(_verbs(QPType.UC))),
    Golden("ud.pcap", "every verb of UD, in every size", _played(_verbs(QPType.UD))),
    Golden("xrc.pcap", "every verb of XRC, in every size", _played(_verbs(QPType.XRC_INI))),
    Golden("path_mtu.pcap", "every path MTU", _played(path_mtus)),
    Golden("acks.pcap", "credits, coalesced ACKs, READs, fences, SE", _played(acks)),
    Golden("rnr.pcap", "every RNR timer, and how waiting ends", _played(rnr)),
    Golden(
        "errors.pcap",
        "every fault of a request, every NAK, and what both ends make of it",
        _played(errors, scripted, unreliable),
    ),
    Golden(
        "retransmission.pcap",
        "frames lost, repeated and late; timeouts; PSNs that go round",
        _played(retransmission),
    ),
    Golden("network.pcap", "ECN and CNPs, pauses, path migration", _played(network)),
    Golden("connections.pcap", "connections made, refused, lost and ended", cm.connections),
    Golden("carried_ethernet.pcap", "Ethernet frames of every kind", carried.in_ethernet),
    Golden("carried_links.pcapng", "records of other link types", carried.on_links),
    Golden("carried_infiniband.pcap", "InfiniBand's own links", carried.on_infiniband),
)
"""All golden captures; each has a file of the same name, with ``.json``, beside it."""
