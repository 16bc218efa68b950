"""Packets received straight into GPU memory, which kernels poll for and answer: ICMP and UDP echo.

As of DOCA GPUNetIO: the adapter writes frames and completions to memory, by flow rules and RSS; a
warp for each receive queue polls them, makes replies in place, and rings the doorbell of its send
queue; or passes the packets to a second kernel by a semaphore. All other frames go to a queue of
the host's operating system. Steps can be forgotten: the run then shows what happens, for a seed.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from rdmawire.errors import FabricError, KernelError
from rdmawire.fabric import Envelope, Network, Rule, Simulator, place_of, star
from rdmawire.gpudirect.kernel.echo import (
    MIN_FRAME,
    EchoProtocol,
    EchoRequest,
    os_reply,
    padded,
)
from rdmawire.gpudirect.kernel.echo_client import EchoClient, ScheduledFrame
from rdmawire.gpudirect.kernel.echo_kernels import (
    STUCK,
    EchoKernels,
    ExitFlag,
    OperatingSystem,
    QueueCount,
    gpu_reply,
)
from rdmawire.gpudirect.kernel.echo_spec import GpuEchoSpec, Pipeline
from rdmawire.gpudirect.kernel.gpu_host import CABLE, GpuHost, system_of
from rdmawire.gpudirect.kernel.run import POLL, Happened
from rdmawire.ib import FlowRule
from rdmawire.units import SECOND, us
from rdmawire.wire.inet import EtherType

_START: Final = us(5)
"""Time (ns) after which the client begins, with that of the first stores: buffers are posted."""


class GpuEchoReport(NamedTuple):
    """The result of a run. ``duration`` and ``times`` (of right replies) are in ns.

    ``sent`` requests had ``answered`` right replies, of ``expected`` ones. ``wrong`` replies were
    not right, ``lost`` packets were lost on a link, and ``discarded`` ones found no buffer.
    ``by_os`` frames were answered by the operating system, ARP included. ``stuck`` is what never
    ended, or nothing.
    """

    spec: GpuEchoSpec
    duration: int
    sent: int
    expected: int
    answered: int
    wrong: int
    lost: int
    discarded: int
    by_os: int
    queues: list[QueueCount]
    times: list[int]
    stuck: str
    frames: int
    timeline: list[Happened]

    @property
    def missing(self) -> int:
        """Replies that are missing without a loss and without a discarded request."""
        return max(self.expected - self.answered - self.lost - self.discarded, 0)

    @property
    def is_right(self) -> bool:
        """Whether all replies came that could come, and all were right."""
        return not (self.wrong or self.missing or self.stuck)


class GpuEcho:
    """A run; :meth:`run` may be called once. ``network`` carries the packets."""

    def __init__(self, spec: GpuEchoSpec) -> None:
        spec.check()
        self.spec = spec
        self.network = Network(Simulator(event_limit=_event_limit(spec)), seed=spec.seed)
        self.server = GpuHost("server", 2, spec.model)
        self._place = place_of(2)
        requests = list(_requests(spec, self._place.gid[12:]))
        self.client = self._client(requests)
        self.system = system_of(
            [self.server], self.network.simulator, self.network.wake, spec.seed, spec.max_delay
        )
        star(self.network, {"client": self.client, "server": self.server}, CABLE)
        size = max((len(request.frame) for request in requests), default=MIN_FRAME)
        exit_flag = ExitFlag(self.server)
        self._kernels = [EchoKernels(spec, self.server, size, exit_flag) for _ in range(spec.warps)]
        self._os = OperatingSystem(
            self.server, self._place, size, exit_flag, lambda: self.client.is_done
        )
        self._steer()
        self._loss = self._lose()
        self._frames = 0
        for host in self.network.hosts:
            self.network.tap(host, self._count)

    def _client(self, requests: list[ScheduledFrame]) -> EchoClient:
        start = _START + 4 * self.spec.max_delay
        address = self._place.gid[12:]
        return EchoClient(place_of(1), address, requests, self._reply_of, start, self.spec.quiet)

    def _steer(self) -> None:
        """Create the flows: echo requests to the GPU, all others to the operating system."""
        spec, nic = self.spec, self.server.host.nic
        queues = tuple(kernels.queue.receives.qp for kernels in self._kernels)
        echo = FlowRule(
            queues[0],
            dmac=self.server.mac,
            ethertype=EtherType.IPV4,
            ip_protocol=spec.protocol.number,
            dst_port=spec.port if spec.protocol is EchoProtocol.UDP else None,
            rss=queues,
        )
        nic.create_flow(echo)
        nic.create_flow(FlowRule(self._os.queue.receives.qp, priority=1))

    def _lose(self) -> Rule:
        """Let the client's link lose IP packets."""
        rule = Rule("drop", {"eth.type": EtherType.IPV4}, chance=self.spec.loss)
        if self.spec.loss:
            self.network.set_faults("client-s1", rule)
        return rule

    def _count(self, _frame: Envelope, _now: int) -> None:
        self._frames += 1

    def _reply_of(self, frame: bytes) -> bytes | None:
        """Return the right reply to a frame: that of the GPU, or of the operating system."""
        return gpu_reply(self.spec, frame) or os_reply(frame, self._place)

    def run(self) -> GpuEchoReport:
        """Do it, and return the result."""
        for number, kernels in enumerate(self._kernels):
            self._launch(number, kernels)
        self.system.launch(self._os.run, self.server.processor)
        stuck = ""
        try:
            self.network.simulator.run()
        except (KernelError, FabricError) as error:
            stuck = str(error)
        if not stuck and self.client.server_mac is None:
            stuck = "client: no ARP reply"
        return self._report(stuck)

    def _launch(self, number: int, kernels: EchoKernels) -> None:
        if self.spec.kernels is Pipeline.ONE:
            self.system.launch(kernels.echo, self.server.warp(f"warp{number}"))
        else:
            self.system.launch(kernels.receive, self.server.warp(f"rx{number}"))
            self.system.launch(kernels.process, self.server.warp(f"tx{number}"))

    def _report(self, stuck: str) -> GpuEchoReport:
        client = self.client
        queues, rest = [kernels.queue.count for kernels in self._kernels], self._os.queue.count
        return GpuEchoReport(
            self.spec,
            self.network.simulator.now,
            client.sent,
            client.expected,
            len(client.answers),
            len(client.wrong),
            self._loss.hits,
            sum(queue.discarded for queue in (*queues, rest)),
            rest.answered,
            queues,
            [client.answers[number] for number in sorted(client.answers)],
            stuck,
            self._frames,
            self.system.timeline,
        )


def _requests(spec: GpuEchoSpec, server: bytes) -> Iterator[ScheduledFrame]:
    """Yield the requests, with bursts at even distances."""
    client = place_of(1)
    for number in range(spec.total):
        time = number // spec.burst * spec.burst * SECOND // spec.rate
        if spec.requests:
            yield ScheduledFrame(time, padded(bytes(6) + client.mac + spec.requests[number][12:]))
            continue
        wanted = EchoRequest(spec.protocol, number, number % spec.flows, spec.size, spec.port)
        yield ScheduledFrame(time, wanted.frame(client, server))


def _event_limit(spec: GpuEchoSpec) -> int:
    """Return more events than a run can have: polls until the end, and packets."""
    return 1_000_000 + 4 * (spec.time + STUCK) // POLL * spec.warps + 1000 * spec.total
