"""An end of a reliable connection as software uses it: what it posts and polls takes time."""

from collections.abc import Callable
from functools import partial
from math import ceil
from typing import Final

from rdmawire.errors import TransferError
from rdmawire.fabric import CAP, Simulator, connect
from rdmawire.fabric.pair import ATTRIBUTES
from rdmawire.gpudirect.transfer.host import TransferHost
from rdmawire.ib import QPInit, QueuePair
from rdmawire.memory.page import Path
from rdmawire.verbs import QPCap, QPType, SendWR, WCStatus, WorkCompletion
from rdmawire.wire.management import MTU

Wake = Callable[[str], None]
"""Function called with the name of a host that has something to transmit."""

_MAX_POLLED: Final = 1 << 10
_IN_FLIGHT: Final = 1 << 21
"""Bytes of packets in flight: more than any of the wires holds in a round trip."""


class RdmaEndpoint:
    """A queue pair of a host, with one completion queue for both of its queues.

    ``on_completion`` is called with each completion when the adapter has written it;
    :class:`TransferError` is raised for one that is no success. ``later`` is for what software does
    then. ``cap`` are the sizes of the queues.
    """

    def __init__(
        self, host: TransferHost, simulator: Simulator, wake: Wake, cap: QPCap = CAP
    ) -> None:
        self.host = host
        self.on_completion: Callable[[WorkCompletion], None] = _ignore
        self._simulator = simulator
        self._wake = wake
        self._free_at = 0.0
        nic = host.host.nic
        cq = nic.create_cq(max(_MAX_POLLED, cap.max_send_wr + cap.max_recv_wr))
        self.queue: QueuePair = nic.create_qp(QPType.RC, QPInit(host.host.pd, cq, cq, cap))
        host.application.on_taken.append(self._poll)

    def post(self, *works: SendWR) -> None:
        """Post work; the WQEs are written to the adapter with the doorbell (BlueFlame)."""
        spent = len(works) * self.host.costs.post_time
        self.host.cpu += spent
        self._free_at = self.next_post() + spent
        delay = self._free_at - self._simulator.now + self.host.completion_delay()
        self.after(delay, partial(self._ring, works))

    def next_post(self) -> float:
        """Return the time (ns) at which the thread that posts is free: one post after the other."""
        return max(self._free_at, self._simulator.now)

    def _ring(self, works: tuple[SendWR, ...]) -> None:
        self.queue.post_send(works)
        self._wake(self.host.name)

    def later(self, delay: float, action: Callable[[], None]) -> None:
        """Do something when software has seen a completion, and ``delay`` (ns) after it."""
        self.after(delay + self.host.completion_delay(), action)

    def after(self, delay: float, action: Callable[[], None]) -> None:
        """Do something after ``delay`` (ns)."""
        self._simulator.call_at(ceil(self._simulator.now + delay), action)

    def flush_time(self) -> float:
        """Make writes to the GPU visible to kernels; return the time (ns) of the read that does.

        NCCL reads a byte through the adapter, from GPUs before compute capability 9.0.
        """
        gpu = self.host.gpu
        if not gpu.profile.posts_writes:
            return 0.0
        route = self.host.adapter_routes[Path.GPU_DIRECT]
        end = route.read(1, self._simulator.now) - self._simulator.now
        gpu.flush()
        return end

    def _poll(self, _frame: bytes, _now: int) -> None:
        for completion in self.queue.send_cq.poll(_MAX_POLLED):
            if completion.status is not WCStatus.SUCCESS:
                raise TransferError(f"the connection failed: {completion.status.name}")
            self.on_completion(completion)


def _ignore(_: WorkCompletion) -> None:
    """Do nothing with a completion that no software waits for."""


def connect_endpoints(one: RdmaEndpoint, other: RdmaEndpoint, mtu: int) -> None:
    """Connect two ends, with a path MTU in bytes."""
    connect(
        one.host.host,
        one.queue,
        other.host.host,
        other.queue,
        ATTRIBUTES._replace(path_mtu=MTU[f"MTU_{mtu}"]),
        packets_in_flight=_IN_FLIGHT // mtu,
    )
