"""The readers of each counter of :data:`rdmawire.traffic.scenario.counters.COUNTERS`."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from rdmawire.fabric.classify import PRIORITIES
from rdmawire.fabric.link import Link
from rdmawire.fabric.port_queue import Mac
from rdmawire.fabric.switch import Switch, SwitchPort
from rdmawire.ib.rx_parser import Drop
from rdmawire.ib.verbs import Verbs
from rdmawire.memory.page import Path
from rdmawire.traffic.scenario.counters import DROPPED, FAULTS, HARDWARE, MOVED, SENT
from rdmawire.traffic.scenario.runner.observer import Observer
from rdmawire.traffic.scenario.runner.testbed import LinkFaults, Testbed


class HostCounts(NamedTuple):
    """The sources of a host's counters: its adapter, its sent frames and its MAC."""

    nic: Verbs
    sent: Mapping[str, int]
    mac: Mac


class LinkCounts(NamedTuple):
    """The sources of a link's counters: the link and its faults."""

    link: Link
    faults: LinkFaults


def _sent(name: str, host: HostCounts) -> int:
    return host.sent.get(name, 0)


def _dropped(reason: Drop, host: HostCounts) -> int:
    return host.nic.drops[reason]


def _hardware(name: str, host: HostCounts) -> int:
    return host.nic.device.counter(name)


def _moved(path: Path, what: str, host: HostCounts) -> int:
    return int(getattr(host.nic.memory.counter[path], what))


OF_HOST: Final[dict[str, Callable[[HostCounts], int]]] = {
    **{name: partial(_sent, name) for name in SENT},
    "dropped": lambda host: sum(host.nic.drops.values()),
    **{name: partial(_dropped, reason) for name, reason in DROPPED.items()},
    **{name: partial(_moved, path, what) for name, (path, what) in MOVED.items()},
    "pauses": lambda host: sum(host.mac.egress.pauses),
    "paused_ns": lambda host: sum(host.mac.egress.paused_ns),
    **{name: partial(_hardware, name) for name in HARDWARE},
}


def _fault_hits(do: str, link: LinkCounts) -> int:
    return link.faults.hits(do)


OF_LINK: Final[dict[str, Callable[[LinkCounts], int]]] = {
    "frames": lambda link: link.link.frames,
    "lost": lambda link: link.faults.lost,
    "oversized": lambda link: link.link.oversized,
    **{name: partial(_fault_hits, do) for name, do in FAULTS.items()},
}

_ByPriority = Callable[[SwitchPort, int], int]

_BY_PRIORITY: Final[dict[str, _ByPriority]] = {
    "drops": lambda port, p: port.drops[p],
    "marks": lambda port, p: port.marks[p],
    "stops": lambda port, p: port.stops[p],
    "pauses": lambda port, p: port.egress.pauses[p],
    "paused_ns": lambda port, p: port.egress.paused_ns[p],
}


def _of_all(read: _ByPriority, port: SwitchPort) -> int:
    return sum(read(port, priority) for priority in range(PRIORITIES))


def _of_one(read: _ByPriority, priority: int, port: SwitchPort) -> int:
    return read(port, priority)


OF_PORT: Final[dict[str, Callable[[SwitchPort], int]]] = {
    **{name: partial(_of_all, read) for name, read in _BY_PRIORITY.items()},
    **{
        f"{name}_{priority}": partial(_of_one, read, priority)
        for name, read in _BY_PRIORITY.items()
        for priority in range(PRIORITIES)
    },
}

OF_SWITCH: Final[dict[str, Callable[[Switch], int]]] = {
    "stranded": lambda switch: switch.stranded,
    "peak": lambda switch: switch.buffer.peak,
}


_Readers = dict[str, Callable[[Any], int]]


class CounterReader(NamedTuple):
    """Reads the counters of a scenario."""

    testbed: Testbed
    observer: Observer

    def read(self, of: str, counter: str) -> int:
        """Return a counter of a host, a link, a port or a switch."""
        return self.reader(of, counter)()

    def reader(self, of: str, counter: str) -> Callable[[], int]:
        """Return a function that reads one counter."""
        counted, readers = self._counted(of)
        return partial(readers[counter], counted)

    def all(self) -> dict[str, int]:
        """Return every counter by its name: ``client.retransmits``, ``leaf:server.marks``."""
        return {
            f"{of}.{name}": read(counted)
            for of in self._subjects()
            for counted, readers in (self._counted(of),)
            for name, read in readers.items()
        }

    def _subjects(self) -> Iterator[str]:
        """Yield the names of all parts with counters; a host without a link has none."""
        network = self.testbed.network
        yield from self.observer.hosts
        for things in (network.links, network.switches, network.ports):
            yield from things

    def _counted(self, of: str) -> tuple[object, _Readers]:
        """Return the source of a subject's counters, and the function that reads each."""
        testbed, network = self.testbed, self.testbed.network
        if of in testbed.machines:
            nic = testbed.machines[of].host.nic
            tally = HostCounts(nic, self.observer.hosts[of].sent, network.macs[of])
            return tally, OF_HOST
        if of in network.links:
            return LinkCounts(network.links[of], testbed.faults[of]), OF_LINK
        if of in network.ports:
            return network.ports[of], OF_PORT
        return network.switches[of], OF_SWITCH
