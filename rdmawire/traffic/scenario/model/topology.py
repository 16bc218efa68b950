"""A host in a file: its NUMA nodes, PCI Express switches, GPUs, adapters and drives."""

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Annotated, Any, ClassVar, Final, NamedTuple

from rdmawire.errors import TopologyError
from rdmawire.terminal import quote
from rdmawire.topology import (
    Device,
    DeviceKind,
    HostBridge,
    Iommu,
    Machine,
    NumaNode,
    PcieLink,
    Settings,
    Switch,
)
from rdmawire.topology.pcie import GENERATIONS, WIDTHS
from rdmawire.topology.registration import PAGE_2M, PAGE_4K, PAGE_64K
from rdmawire.topology.route import SOCKET_RATES, UALINK_RATES
from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.document import NodeError, TextError, listed
from rdmawire.traffic.scenario.section import Found, Named, Section, key
from rdmawire.traffic.scenario.types import (
    FLAG,
    TEXT,
    Many,
    Number,
    OneOf,
    Parsed,
    Rate,
    Size,
    Word,
    format_size,
    parse_size,
)

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_:.\-]{0,63}")
_LINK: Final = re.compile(r"[Gg]en ?(\d) x(\d{1,2})")
_PAIR: Final = re.compile(r"([A-Za-z0-9_:.]+)-([A-Za-z0-9_:.]+) x(\d{1,2})")
_CPUS: Final = re.compile(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*")
_MAX_BAR1: Final = 1 << 44
MAX_NVLINKS: Final = 64


def _matching(pattern: re.Pattern[str]) -> Callable[[str], str]:
    """Return what reads a text that a pattern matches."""

    def parse(text: str) -> str:
        if not pattern.fullmatch(text):
            raise TextError
        return text

    return parse


def _processors(text: str) -> str:
    """Return a list of processors whose ranges go upwards."""
    if not _CPUS.fullmatch(text):
        raise TextError
    for part in text.split(","):
        first, _, last = part.partition("-")
        if int(first) > int(last or first):
            raise TextError
    return text


def _link(text: str) -> PcieLink:
    found = _LINK.fullmatch(text)
    if found is None or int(found[1]) not in GENERATIONS or int(found[2]) not in WIDTHS:
        raise TextError
    return PcieLink(int(found[1]), int(found[2]))


class LinkedPair(NamedTuple):
    """A number of NVLinks or UALinks between two GPUs."""

    first: str
    second: str
    links: int


def _pair(text: str) -> LinkedPair:
    found = _PAIR.fullmatch(text)
    if found is None or not 0 < int(found[3]) <= MAX_NVLINKS:
        raise TextError
    return LinkedPair(found[1], found[2], int(found[3]))


DEVICE_NAME: Final = Parsed(
    "the name of a device, such as GPU0 or mlx5_0", _matching(_NAME), ("GPU0", "sw0")
)
LINK: Final = Parsed("a PCIe link: generation and width", _link, ("Gen5 x16", "Gen4 x8"))
PAIR: Final = Parsed("two GPUs and the number of links", _pair, ("GPU0-GPU1 x4",))
CPUS: Final = Parsed("processors as Linux lists them", _processors, ("0-55,112-167",))

_Below = Annotated[str, DEVICE_NAME, key("The switch or host bridge that it is below.")]
_Link = Annotated[PcieLink | None, LINK, key("Its PCIe link; not known by default.")]


class NodePlan(Section):
    """A NUMA node of a host."""

    called: ClassVar = "a NUMA node"
    short: ClassVar = "cpus"
    named: ClassVar = "number"

    number: Annotated[int, Number(0, 4095, "the number of a NUMA node")]
    cpus: Annotated[str, CPUS, key("Its processors.")] = ""


class BridgePlan(Section):
    """A host bridge, the root of PCI Express."""

    called: ClassVar = "a host bridge"
    short: ClassVar = "node"

    name: Annotated[str, DEVICE_NAME]
    node: Annotated[int, Number(0, 4095, "the number of a NUMA node"), key("NUMA node.")] = 0


class SwitchPlan(Section):
    """A PCI Express switch."""

    called: ClassVar = "a PCIe switch"
    short: ClassVar = "below"

    name: Annotated[str, DEVICE_NAME]
    below: _Below
    link: _Link = None
    acs: Annotated[bool, FLAG, key("Its ports redirect requests to the root (ACS).")] = False


class _DevicePlan(Section):
    """What all devices of a host have."""

    short: ClassVar = "below"
    kind: ClassVar[DeviceKind]

    name: Annotated[str, DEVICE_NAME]
    below: _Below
    link: _Link = None
    model: Annotated[str, TEXT, key("Its model.")] = ""
    address: Annotated[str, DEVICE_NAME, key("PCI address.")] = ""
    ats: Annotated[
        bool, FLAG, key("It keeps translations of the IOMMU (Address Translation Services).")
    ] = False

    def device(self) -> Device:
        """Return the device."""
        own = Device(self.name, self.kind, self.below, self.link, self.address, self.model)
        return replace(own, ats=self.ats)


class GpuDevicePlan(_DevicePlan):
    """A GPU of a host. ``coherent``: a link such as NVLink-C2C connects it to the processor."""

    called: ClassVar = "a GPU of a topology"
    kind: ClassVar = DeviceKind.GPU

    bar1: Annotated[int | None, Size(1 << 16, _MAX_BAR1), key("Size of BAR1.")] = None
    numa_id: Annotated[
        int | None,
        Number(0, 4095, "the number of a NUMA node"),
        key("NUMA node of its own memory, if it is one.", "memory node"),
    ] = None
    peer_to_peer: Annotated[
        bool, FLAG, key("It takes part in peer-to-peer transfers.", "peer to peer")
    ] = True
    coherent: Annotated[
        bool, FLAG, key("A coherent link (NVLink-C2C) connects it to the processor.")
    ] = False

    def device(self) -> Device:
        """Return the GPU."""
        return replace(
            super().device(),
            bar1=self.bar1,
            numa_id=self.numa_id,
            peer_to_peer=self.peer_to_peer,
            coherent=self.coherent,
        )


class AdapterPlan(_DevicePlan):
    """An RDMA adapter of a host."""

    called: ClassVar = "an adapter"
    kind: ClassVar = DeviceKind.ADAPTER

    rate: Annotated[int | None, Rate(), key("Rate of its port.")] = None

    def device(self) -> Device:
        """Return the adapter."""
        return replace(super().device(), rate=self.rate)


class DrivePlan(_DevicePlan):
    """An NVMe drive of a host."""

    called: ClassVar = "an NVMe drive"
    kind: ClassVar = DeviceKind.NVME


class TopologyPlan(Section):
    """The topology of a host."""

    called: ClassVar = "a topology"

    topology: Annotated[str, TEXT, key("Name of the host.")]
    source: Annotated[str, TEXT, key("Where the description is from.")] = ""
    nodes: Annotated[
        tuple[NodePlan, ...],
        Named(NodePlan, "NUMA nodes by number", "0"),
        key("NUMA nodes.", "numa nodes"),
    ]
    bridges: Annotated[
        tuple[BridgePlan, ...],
        Named(BridgePlan, "host bridges by name", "pci0000_00"),
        key("Host bridges.", "host bridges"),
    ]
    switches: Annotated[
        tuple[SwitchPlan, ...], Named(SwitchPlan, "switches by name", "sw0"), key("PCIe switches.")
    ] = ()
    gpus: Annotated[
        tuple[GpuDevicePlan, ...], Named(GpuDevicePlan, "GPUs by name", "GPU0"), key("GPUs.")
    ] = ()
    adapters: Annotated[
        tuple[AdapterPlan, ...],
        Named(AdapterPlan, "adapters by name", "mlx5_0"),
        key("RDMA adapters."),
    ] = ()
    drives: Annotated[
        tuple[DrivePlan, ...], Named(DrivePlan, "drives by name", "nvme0"), key("NVMe drives.")
    ] = ()
    nvlinks: Annotated[
        int,
        Number(0, MAX_NVLINKS, "a number of NVLinks"),
        key("NVLinks between every two GPUs, through NVSwitches."),
    ] = 0
    pairs: Annotated[
        tuple[LinkedPair, ...],
        Many(PAIR),
        key("NVLinks between some GPUs.", "nvlink pairs"),
    ] = ()
    ualinks: Annotated[
        int,
        Number(0, MAX_NVLINKS, "a number of UALinks"),
        key("UALinks of four lanes between every two GPUs, through UALink switches."),
    ] = 0
    ualink_pairs: Annotated[
        tuple[LinkedPair, ...],
        Many(PAIR),
        key("UALinks of four lanes between some GPUs.", "ualink pairs"),
    ] = ()
    ualink: Annotated[str, Word(UALINK_RATES), key("Generation of the UALinks.")] = "200G"
    iommu: Annotated[str, Word([mode.value for mode in Iommu]), key("What the IOMMU does.")] = (
        Iommu.OFF.value
    )
    iommu_page: Annotated[
        int,
        OneOf((PAGE_4K, PAGE_64K, PAGE_2M, 1 << 30), parse_size, format_size, ("string",)),
        key("Page size of the IOMMU's table.", "iommu page"),
    ] = PAGE_4K
    peer_to_peer: Annotated[
        bool,
        FLAG,
        key("The firmware lets the root forward requests between devices.", "peer to peer"),
    ] = True
    relaxed_ordering: Annotated[
        bool, FLAG, key("Relaxed ordering is enabled.", "relaxed ordering")
    ] = True
    virtual: Annotated[bool, FLAG, key("It is a virtual machine.")] = False
    socket_link: Annotated[
        str, Word(SOCKET_RATES), key("The link between sockets.", "socket link")
    ] = "UPI"

    machine: Any = None

    def finish(self, found: Found, context: ParseContext) -> "TopologyPlan":
        if context.diagnostics:
            return self
        numbers = [node.number for node in self.nodes]
        for bridge in self.bridges:
            if bridge.node not in numbers:
                expected = f"a NUMA node of this host: {listed(map(str, numbers))}"
                raise NodeError(bridge.mark, f"NUMA node {bridge.node}", expected)
        parents = [bridge.name for bridge in self.bridges]
        parents += [switch.name for switch in self.switches]
        below: list[SwitchPlan | _DevicePlan] = [*self.switches, *self._devices()]
        for plan in below:
            if plan.below not in parents:
                expected = f"a host bridge or switch: {listed(parents)}"
                raise NodeError(plan.mark, f"{plan.name} below {quote(plan.below)}", expected)
        try:
            machine = self._machine()
        except TopologyError as error:
            raise NodeError(found.mark, str(error), "a tree of devices") from None
        return self.model_copy(update={"machine": machine})

    def _devices(self) -> list[_DevicePlan]:
        return [*self.gpus, *self.adapters, *self.drives]

    def _machine(self) -> Machine:
        settings = Settings(
            Iommu(self.iommu),
            self.peer_to_peer,
            self.relaxed_ordering,
            self.virtual,
            self.socket_link,
            self.iommu_page,
            self.ualink,
        )
        return Machine(
            self.topology,
            tuple(NumaNode(node.number, node.cpus) for node in self.nodes),
            tuple(HostBridge(bridge.name, bridge.node) for bridge in self.bridges),
            tuple(Switch(one.name, one.below, one.link, one.acs) for one in self.switches),
            tuple(plan.device() for plan in self._devices()),
            self._links(self.nvlinks, self.pairs),
            settings,
            self._links(self.ualinks, self.ualink_pairs),
        )

    def _links(self, number: int, pairs: tuple[LinkedPair, ...]) -> dict[tuple[str, str], int]:
        """Return the links between every two GPUs, or those of pairs, by the names of the GPUs."""
        names = [gpu.name for gpu in self.gpus]
        every = dict.fromkeys(combinations(names, 2), number) if number else {}
        return every | {(pair.first, pair.second): pair.links for pair in pairs}
