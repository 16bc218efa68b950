"""A collective operation as a job of a sweep."""

from collections.abc import Mapping
from dataclasses import dataclass

from rdmawire.fabric import Cable
from rdmawire.gpudirect.nccl.collective import CollectiveSpec, bytes_sent
from rdmawire.gpudirect.nccl.flow import flow_run
from rdmawire.gpudirect.nccl.run import CollectiveRun
from rdmawire.gpudirect.sweep.run import Value
from rdmawire.units import SECOND


@dataclass(frozen=True, slots=True)
class CollectiveJob:
    """A collective operation over links like ``cable``, as packets or as ``flows``.

    ``loss`` is the share of frames that are lost, ``topology`` the name of what each host is, if
    the layout of the specification is that of one. The results are the duration, the bytes of the
    operation per second of it (the algorithm bandwidth of NCCL's tests), their bus bandwidth, and
    the messages between hosts and bytes within them.
    """

    spec: CollectiveSpec
    cable: Cable
    loss: float = 0.0
    flows: bool = False
    topology: str | None = None

    @property
    def settings(self) -> Mapping[str, Value]:
        """The settings, with the protocol and the channels that are used."""
        spec = self.spec
        return {
            "collective": spec.collective.value,
            "topology": self.topology,
            "hosts": spec.hosts,
            "gpus": spec.gpus,
            "algorithm": spec.algorithm.value,
            "protocol": spec.chosen_protocol.name,
            "channels": spec.chosen_channels,
            "qps": spec.net.qps,
            "rate": self.cable.rate,
            "loss": self.loss,
            "seed": spec.seed,
            "dtype": spec.dtype,
            "bytes": spec.size,
        }

    def run(self) -> Mapping[str, int]:
        """Do it; raises :class:`~rdmawire.errors.RdmaError` if it cannot be."""
        duration, messages, local = self._flows() if self.flows else self._packets()
        spec = self.spec
        moved = bytes_sent(spec.collective, spec.size, spec.ranks)
        return {
            "duration_ns": duration,
            "bytes_per_s": round(spec.size / duration * SECOND),
            "bus_bytes_per_s": round(moved / duration * SECOND),
            "messages": messages,
            "local_bytes": local,
        }

    def _flows(self) -> tuple[int, int, int]:
        report = flow_run(self.spec, self.cable)
        return report.duration, report.messages, report.nvlink_bytes

    def _packets(self) -> tuple[int, int, int]:
        run = CollectiveRun(self.spec, self.cable)
        run.lose(self.loss)
        duration = run.run()
        messages = sum(connection.messages for connection in run.connections)
        return duration, messages, sum(edge.bytes for edge in run.local_edges)
