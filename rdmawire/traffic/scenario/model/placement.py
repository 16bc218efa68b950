"""Where the adapter and the GPU of a scenario's host are plugged in: its topology."""

from typing import Annotated, Any, ClassVar, Final

from rdmawire.topology import Device, Iommu, Machine, PeerStatus, peer_status
from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.document import TextError
from rdmawire.traffic.scenario.section import Found, Given, Section, key
from rdmawire.traffic.scenario.types import FLAG, Many, Number, Parsed, ValueType, Word


def _name(text: str) -> str:
    if not text:
        raise TextError
    return text


def _device_called(what: str, example: str) -> ValueType:
    """Return the type of a device of a topology, which is given by its name there."""
    return Parsed(f"the name of {what} of the topology, such as {example}", _name, (example,))


HOST_NAME: Final = Parsed(
    "a shipped host or a file with a host, such as dgx-h200", _name, ("dgx-h200", "two-sockets")
)


class PlacePlan(Section):
    """The links within a host, and which of its devices it uses.

    ``machine`` is the topology of ``host``, with the settings that are given here. ``adapter`` is
    the adapter, ``gpu`` the place of the host's GPU, ``node`` the NUMA node of its memory.
    """

    called: ClassVar = "the topology of a host"
    short: ClassVar = "host"

    host: Annotated[
        str,
        HOST_NAME,
        key(
            "A shipped host (`rdmawire topo --list`), or a file that `rdmawire topo` reads, seen "
            "from the folder of the scenario."
        ),
    ]
    adapter: Annotated[
        str,
        _device_called("an adapter", "mlx5_0"),
        key("Its RDMA adapter; by default the one nearest to the GPU."),
    ] = ""
    gpu: Annotated[
        str,
        _device_called("a GPU", "GPU0"),
        key("Where its GPU is plugged in; by default the first GPU."),
    ] = ""
    node: Annotated[
        int | None,
        Number(0, 4095, "the number of a NUMA node"),
        key("NUMA node of host memory; by default that of the adapter.", "memory node"),
    ] = None
    iommu: Annotated[
        str | None,
        Word([mode.value for mode in Iommu]),
        key("What the IOMMU does; by default as the topology has it."),
    ] = None
    peer_to_peer: Annotated[
        bool | None,
        FLAG,
        key(
            "Whether the firmware lets the root forward requests between devices; by default as "
            "the topology has it.",
            "peer to peer",
        ),
    ] = None
    acs: Annotated[
        tuple[str, ...],
        Many(_device_called("a PCIe switch", "sw0"), alone=True),
        key("PCIe switches with ACS, which send requests between devices to the root."),
    ] = ()
    machine: Given[Machine | None] = None

    def finish(self, found: Found, context: ParseContext) -> Any:
        return context.rules[PlacePlan](self, found, context)

    @property
    def host_machine(self) -> Machine:
        """The topology; only a place that was not read has none."""
        assert self.machine is not None
        return self.machine

    @property
    def device(self) -> Device:
        """The adapter."""
        return self.host_machine.device(self.adapter)

    @property
    def gpu_device(self) -> Device | None:
        """The GPU, if the topology has one."""
        return self.host_machine.device(self.gpu) if self.gpu else None

    @property
    def status(self) -> PeerStatus:
        """Whether the adapter may access the GPU's memory."""
        gpu = self.gpu_device
        return PeerStatus.OK if gpu is None else peer_status(self.host_machine, self.device, gpu)
