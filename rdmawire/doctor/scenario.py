"""Checks of a scenario: settings of switches and memory that do not go together.

A scenario is then run, and what its frames show is found as in a capture.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from rdmawire.doctor.capture import examine_capture
from rdmawire.doctor.finding import Check, Finding, Severity, Subject, findings
from rdmawire.doctor.host import examine_host
from rdmawire.topology import Machine
from rdmawire.traffic.scenario import Scenario, play
from rdmawire.traffic.scenario.model.host import MODELS, HostPlan, MemoryPlan
from rdmawire.traffic.scenario.model.placement import PlacePlan

_ROCE_OVERHEAD: Final = 20 + 8 + 12 + 16 + 4 + 4
"""Bytes of an IP packet beside the payload: IPv4, UDP, BTH, RETH, immediate and ICRC."""
_PAGE: Final = 4096


def _queue_of(switch: Any, dscp: int) -> Any:
    """Return the queue of a switch for a DSCP, if it has settings."""
    for queue in switch.queues:
        if dscp in queue.dscp:
            return queue
    return next((queue for queue in switch.queues if not queue.priority and not queue.dscp), None)


def _at(mark: Any) -> str:
    return f"line {mark.line}: "


def _wrong_priority(scenario: Scenario) -> Iterator[str]:
    for switch in scenario.switches:
        lossless = [queue for queue in switch.queues if queue.xoff is not None]
        for connection in scenario.connections if lossless else ():
            if _queue_of(switch, connection.dscp) not in lossless:
                used = ", ".join(str(queue.priority) for queue in lossless)
                yield (
                    f"DSCP {connection.dscp} of connection {connection.name} is in no queue of "
                    f"{switch.name} with PFC, which priority {used} has"
                )


def _not_trusted(scenario: Scenario) -> Iterator[str]:
    for switch in scenario.switches:
        for connection in scenario.connections if switch.trust == "pcp" else ():
            queue = _queue_of(switch, connection.dscp)
            if queue is not None and queue.priority:
                yield (
                    f"{switch.name} takes priorities from VLAN tags, not DSCP {connection.dscp} of "
                    f"connection {connection.name}, which is for queue {queue.priority}"
                )


def _locked(scenario: Scenario) -> Iterator[str]:
    for host in scenario.hosts:
        if host.locked_memory is None:
            continue
        pinned = (one for one in host.memory if one.registered and not (one.gpu or one.on_demand))
        wanted = sum(-(-memory.size // _PAGE) * _PAGE for memory in pinned)
        if wanted > host.locked_memory:
            what = f"{host.name} registers {wanted} bytes"
            yield f"{what}, and may lock {host.locked_memory} (ulimit -l)"


def _refused_via(word: str) -> Callable[[Scenario], Iterator[str]]:
    """Return what finds GPU memory whose registration needs a driver that a host does not have."""

    def find(scenario: Scenario) -> Iterator[str]:
        for host in scenario.hosts:
            for memory in host.memory if not getattr(host, word) else ():
                if memory.gpu and memory.via.startswith(word) and memory.registered:
                    yield f"{host.name}.{memory.name}, via {memory.via}"

    return find


def _late_marks(scenario: Scenario) -> Iterator[str]:
    for switch in scenario.switches:
        for queue in switch.queues:
            if queue.kmin is None:
                continue
            limit = switch.queue if queue.xoff is None else queue.xoff
            what = "frames are dropped from" if queue.xoff is None else "xoff pauses at"
            if queue.kmin >= limit:
                where = f"{_at(queue.mark)}queue {queue.priority} of {switch.name}"
                yield f"{where}: kmin {queue.kmin}, but {what} {limit} bytes on"


def _not_capable(scenario: Scenario) -> Iterator[str]:
    for switch in scenario.switches:
        for connection in scenario.connections:
            queue = _queue_of(switch, connection.dscp)
            if queue is not None and queue.kmin is not None and not connection.ecn:
                yield f"connection {connection.name} uses queue {queue.priority} of {switch.name}"


def _small_mtu(scenario: Scenario) -> Iterator[str]:
    needed = 0
    for connection in scenario.connections:
        needed = max(needed, connection.mtu + _ROCE_OVERHEAD)
    for link in scenario.links:
        if link.mtu is not None and link.mtu < needed:
            yield f"link {'-'.join(link.ends)}: MTU {link.mtu}, packets have up to {needed} bytes"


def _pinned(host: HostPlan, gpu: str) -> list[MemoryPlan]:
    """Return the memory of a GPU that is registered through BAR1."""
    return [one for one in host.memory if one.gpu == gpu and one.registered and one.via != "bounce"]


def _full_bar1(scenario: Scenario) -> Iterator[str]:
    for host in scenario.hosts:
        for gpu in host.gpus:
            profile = MODELS[gpu.model]
            room = (profile.bar1 if gpu.bar1 is None else gpu.bar1) - profile.bar1_reserved
            wanted = sum(memory.size for memory in _pinned(host, gpu.name))
            if wanted > room:
                what = f"{wanted} bytes of {gpu.name} of {host.name} are registered"
                yield f"{what}, BAR1 has room for {room}"


def _freed(scenario: Scenario) -> Iterator[str]:
    for step in scenario.steps:
        if step.verb != "free":
            continue
        span: Any = step.values["what"]
        memory = next(
            one
            for host in scenario.hosts
            if host.name == span.host
            for one in host.memory
            if one.name == span.memory
        )
        if memory.registered:
            yield f"{span.host}.{memory.name}, registered by {memory.via}, is freed"


def _bounced(scenario: Scenario) -> Iterator[str]:
    for host in scenario.hosts:
        for memory in host.memory:
            if memory.gpu and memory.via == "bounce":
                yield f"{host.name}.{memory.name}"


def _other_node(scenario: Scenario) -> Iterator[str]:
    for host in scenario.hosts:
        place = host.topology
        if place is None or all(memory.gpu for memory in host.memory):
            continue
        own = place.host_machine.bridge_of(place.device).node
        if place.node != own:
            where = f"{place.device.name} on node {own}"
            yield f"host memory of {host.name} is on node {place.node}, {where}"


_SCENARIO: Final = Subject.SCENARIO
_ERROR, _WARNING = Severity.ERROR, Severity.WARNING

SCENARIO_CHECKS: Final = (
    Check(
        "pfc-not-for-dscp", _SCENARIO, _ERROR,
        "a switch has PFC, but not for the priority of this traffic",
        "map the DSCP of the connection to the queue with xoff, or set the DSCP that it has",
        "IEEE 802.1Q, 36", _wrong_priority,
    ),
    Check(
        "dscp-not-trusted", _SCENARIO, _ERROR,
        "a switch does not trust DSCPs: frames without a VLAN tag are in the default class",
        "trust DSCP at the ports of the switch (trust: dscp), or tag the frames",
        "IEEE 802.1Q, 6.9.3", _not_trusted,
    ),
    Check(
        "locked-memory", _SCENARIO, _ERROR,
        "more memory is registered than may be locked: ibv_reg_mr says Cannot allocate memory",
        "raise ulimit -l (locked memory), or register less at once",
        "ibv_reg_mr(3), getrlimit(2)", _locked,
    ),
    Check(
        "peermem-not-loaded", _SCENARIO, _ERROR,
        "nvidia-peermem is not loaded: ibv_reg_mr of a GPU address says Bad address",
        "modprobe nvidia-peermem, or register a dma-buf (via: dmabuf)",
        "nvidia-peermem documentation", _refused_via("peermem"),
    ),
    Check(
        "dmabuf-not-supported", _SCENARIO, _ERROR,
        "the kernel or the adapter's driver takes no dma-bufs: ibv_reg_dmabuf_mr says Operation "
        "not supported",
        "use Linux 5.12 or later and a driver with dma-buf, or nvidia-peermem (via: peermem)",
        "ibv_reg_dmabuf_mr(3)", _refused_via("dmabuf"),
    ),
    Check(
        "ecn-too-late", _SCENARIO, _WARNING,
        "frames are paused or dropped before any is marked",
        "set kmin and kmax below xoff, and below the maximum of the queue",
        "DCQCN, SIGCOMM 2015", _late_marks,
    ),
    Check(
        "not-ecn-capable", _SCENARIO, _WARNING,
        "a switch marks this priority, but the frames are not ECN-capable",
        "set ecn: true on the connection", "RFC 3168, 5", _not_capable,
    ),
    Check(
        "mtu-too-small", _SCENARIO, _ERROR,
        "the MTU of a link is smaller than packets of the path MTU",
        "raise the MTU of the link, or lower path_mtu", "IBA A17.9", _small_mtu,
    ),
    Check(
        "bar1-full", _SCENARIO, _ERROR,
        "more GPU memory is registered than BAR1 has room for: ibv_reg_mr says Bad address",
        "enable resizable BAR, register less at once, or go through host memory (via: bounce)",
        "nvidia-peermem: memory that it cannot pin is taken as not its own", _full_bar1,
    ),
    Check(
        "freed-while-registered", _SCENARIO, _ERROR,
        "GPU memory is freed while an adapter may access it",
        "deregister first; peers get remote access errors, or write to memory of others",
        "GPUDirect RDMA guide, 2.4", _freed,
    ),
    Check(
        "through-host-memory", _SCENARIO, _WARNING,
        "data of the GPU goes through host memory: each DMA is copied once more",
        "if the adapter may access the GPU, load nvidia-peermem (via: peermem) or use a dma-buf "
        "(via: dmabuf)",
        "nvidia-peermem documentation", _bounced,
    ),
    Check(
        "memory-of-another-socket", _SCENARIO, _WARNING,
        "host memory is on another NUMA node than the adapter: all bytes pass the link between",
        "allocate it on the node of the adapter (numactl --membind, or where the process runs)",
        "numactl(8), mbind(2)", _other_node,
    ),
)  # fmt: skip
"""Checks of a scenario."""


def _of_hosts(scenario: Scenario) -> list[Finding]:
    """Return what is wrong with the topologies of hosts, for the devices that they use."""
    found: dict[Check, list[str]] = {}
    for host in scenario.hosts:
        if host.topology is not None:
            for one in examine_host(_used(host, host.topology)):
                shown = (f"{host.name}: {text}" for text in one.evidence)
                found.setdefault(one.check, []).extend(shown)
    return [Finding(check, evidence) for check, evidence in found.items()]


def _used(host: HostPlan, place: PlacePlan) -> Machine:
    """Return the topology of a host with the devices that it uses alone."""
    gpu = place.gpu_device if host.gpus else None
    devices = (place.device,) if gpu is None else (gpu, place.device)
    return replace(place.host_machine, devices=devices, nvlinks={}, ualinks={})


def examine_scenario(scenario: Scenario) -> list[Finding]:
    """Return what is wrong with a scenario, by its settings and by the frames of a run.

    Hosts with a topology are examined as such, with the GPU and the adapter that they use.
    """
    found = [*_of_hosts(scenario), *findings(SCENARIO_CHECKS, scenario)]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "frames.pcap"
        play(scenario, capture=path)
        return [*found, *examine_capture(path)]
