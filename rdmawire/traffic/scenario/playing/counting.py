"""What all counters say, by the names that files have for them."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from rdmawire.traffic.scenario.playing.observe import Observer
from rdmawire.traffic.scenario.playing.stage import Stage
from rdmawire.traffic.scenario.playing.tally import (
    OF_HOST,
    OF_LINK,
    OF_PORT,
    OF_SWITCH,
    HostTally,
    LinkTally,
)

_Readers = dict[str, Callable[[Any], int]]


class Counting(NamedTuple):
    """The counters of a scenario as they are now."""

    stage: Stage
    observer: Observer

    def read(self, of: str, counter: str) -> int:
        """One counter of a host, a link, a port or a switch."""
        return self.reader(of, counter)()

    def reader(self, of: str, counter: str) -> Callable[[], int]:
        """What reads one counter, again and again."""
        counted, readers = self._counted(of)
        return partial(readers[counter], counted)

    def all(self) -> dict[str, int]:
        """Every counter, as files name them: ``client.retransmits``, ``leaf:server.marks``."""
        return {
            f"{of}.{name}": read(counted)
            for of in self._subjects()
            for counted, readers in (self._counted(of),)
            for name, read in readers.items()
        }

    def _subjects(self) -> Iterator[str]:
        """Everything that counts; a host that is on no link has sent nothing."""
        network = self.stage.network
        yield from self.observer.hosts
        for things in (network.links, network.switches, network.ports):
            yield from things

    def _counted(self, of: str) -> tuple[object, _Readers]:
        """What a subject has counted, and how its counters are read from that."""
        stage, network = self.stage, self.stage.network
        if of in stage.machines:
            nic = stage.machines[of].host.nic
            tally = HostTally(nic, self.observer.hosts[of].sent, network.macs[of])
            return tally, OF_HOST
        if of in network.links:
            return LinkTally(network.links[of], stage.faults[of]), OF_LINK
        if of in network.ports:
            return network.ports[of], OF_PORT
        return network.switches[of], OF_SWITCH
