"""Nodes of a collective operation: GPUs, NVSwitches, the switch that adds; and where they are."""

from collections.abc import Sequence

from rdmawire.gpudirect.nccl.collective import CollectiveSpec
from rdmawire.gpudirect.nccl.in_network import aggregation_node, nvswitch_of
from rdmawire.gpudirect.nccl.layout import LocalPath
from rdmawire.gpudirect.nccl.plan import EdgeId


class Nodes:
    """Where the nodes of an operation are, and what joins two of one host.

    ``names`` are those of the ranks in messages, if they have names.
    """

    def __init__(self, spec: CollectiveSpec, names: Sequence[str] = ()) -> None:
        self._spec = spec
        self._names = names
        self.layout = spec.chosen_layout
        self.aggregation = aggregation_node(spec)
        self._first_nvswitch = nvswitch_of(spec, 0)

    @property
    def adapters(self) -> int:
        """The number of adapters of all hosts."""
        return len(self.layout.rates) * self._spec.hosts

    def is_local(self, edge: EdgeId) -> bool:
        """Return whether an edge is within a host."""
        return self._host_of(edge.source) == self._host_of(edge.target)

    def _host_of(self, node: int) -> int | None:
        """Return the host of a GPU or of NVSwitches; none for the switch of the network."""
        if node == self.aggregation:
            return None
        if node < self._spec.ranks:
            return node // self._spec.gpus
        return node - self._first_nvswitch

    def adapter_of(self, node: int) -> int:
        """Return the number of a node's adapter; that of the switch that adds is the last."""
        if node == self.aggregation:
            return self.adapters
        host, gpu = divmod(node, self._spec.gpus)
        return host * len(self.layout.rates) + self.layout.adapters[gpu]

    def is_direct(self, node: int) -> bool:
        """Return whether a node is a GPU whose memory its adapter accesses."""
        return node < self._spec.ranks and self.layout.direct[node % self._spec.gpus]

    def local_port(self, edge: EdgeId) -> tuple[int, ...]:
        """Return what names the links that an edge within a host shares with others.

        A GPU shares its links among all others; each port of an NVSwitch has its own.
        """
        return edge[:1] if edge.source < self._spec.ranks else edge[:2]

    def local_path(self, edge: EdgeId) -> LocalPath:
        """Return the path between two GPUs, or between a GPU and the NVSwitches of its host."""
        gpus = self._spec.gpus
        if max(edge.source, edge.target) >= self._spec.ranks:
            return LocalPath(self._spec.nvlink_rate, self._spec.nvlink_latency)
        return self.layout.paths[edge.source % gpus][edge.target % gpus]

    def name_of(self, node: int) -> str:
        """Return what messages call a node."""
        if node >= self._spec.ranks:
            return "the aggregation node"
        return f"rank {node} ({self._names[node]})" if self._names else f"rank {node}"
