"""A host of NVMe over Fabrics or of a drive: a host with a GPU, and its connection manager."""

from collections.abc import Callable, Iterator
from functools import partial
from math import ceil
from random import Random
from typing import NamedTuple

from rdmawire.errors import TransferError, VerbsError
from rdmawire.fabric import CAP, NotifyingPort, Simulator
from rdmawire.gpudirect.transfer.host import TransferHost
from rdmawire.gpudirect.transfer.rdma_endpoint import Wake
from rdmawire.ib import QPInit, QueuePair
from rdmawire.ib.cm import CMSettings, ManagedPort
from rdmawire.ib.cm.machine import Neighbours
from rdmawire.memory.page import PAGE_64K
from rdmawire.topology import Costs, Device, Machine
from rdmawire.verbs import QPType, SendWR, WorkCompletion

_NEARBY = CMSettings(response_timeout=14, packet_life=8)
"""Response timeouts of milliseconds: the hosts are on one switch."""
_MAX_POLLED = 1 << 10


class StorageHostSpec(NamedTuple):
    """A host: its tree, one of its GPUs, and the constants of its times."""

    machine: Machine
    gpu: Device
    costs: Costs


class StorageHost(TransferHost):
    """A host whose software posts work after the time that it takes, and polls completions.

    Its regions of GPU memory are invalidated when the memory is freed.
    """

    def __init__(
        self, name: str, number: int, spec: "StorageHostSpec", simulator: Simulator
    ) -> None:
        machine, device, costs = spec
        super().__init__(name, number, machine, device, costs, persistent=False)
        self.simulator = simulator
        self._wake: Wake = _nothing

    def manage(self, wake: Wake, neighbours: Neighbours, seed: int) -> None:
        """Make the connection manager; ``wake`` is that of the network."""
        self._wake = wake
        random = Random(f"{seed}/{self.name}")  # noqa: S311 - repeatable
        managed = ManagedPort(self.host.nic, neighbours, random, _NEARBY)
        self.manager = managed.manager
        self.application = NotifyingPort(self.host.nic, managed)

    def queue_pair(self, depth: int) -> QueuePair:
        """Return a queue pair for ``depth`` commands, of which each needs two sends."""
        cq = self.host.nic.create_cq(8 * depth)
        cap = CAP._replace(max_send_wr=2 * depth, max_recv_wr=depth)
        return self.host.nic.create_qp(QPType.RC, QPInit(self.host.pd, cq, cq, cap))

    def post(self, queue: QueuePair, *work: SendWR) -> None:
        """Post work, when the processor and the bus have done their share."""
        at = ceil(self.simulator.now + self.post_delay())
        self.simulator.call_at(at, partial(self._ring, queue, work))

    def _ring(self, queue: QueuePair, work: tuple[SendWR, ...]) -> None:
        try:
            queue.post_send(work)
        except VerbsError as error:
            raise TransferError(f"{self.name}: {error}") from error
        self.wake()

    def later(self, action: Callable[[], None]) -> None:
        """Do something when software has seen a completion."""
        at = ceil(self.simulator.now + self.completion_delay())
        self.simulator.call_at(at, action)

    def wake(self) -> None:
        """Let the adapter transmit."""
        self._wake(self.name)

    def bus_addresses(self, size: int) -> Iterator[int]:
        """Pin GPU memory for a drive, as nvidia_p2p_get_pages; yield its bus addresses by page."""
        size += -size % PAGE_64K
        table = self._driver.get_pages(self._address, size, _nothing_more)
        yield from table.addresses

    def revoke(self) -> None:
        """Free the GPU memory: peers lose its pages."""
        self.gpu.free(self._address)


def polled(queue: QueuePair) -> list[WorkCompletion]:
    """Return the completions of a queue pair that have come."""
    return queue.send_cq.poll(_MAX_POLLED)


def _nothing(_: str) -> None:
    """Do nothing: the host is in no network."""


def _nothing_more() -> None:
    """Do nothing: the drive's next access fails."""
