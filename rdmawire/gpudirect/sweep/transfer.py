"""A transfer between GPUs as a job of a sweep."""

from collections.abc import Mapping
from dataclasses import dataclass

from rdmawire.gpudirect.sweep.run import Value
from rdmawire.gpudirect.transfer import TransferSpec, transfer


@dataclass(frozen=True, slots=True)
class TransferJob:
    """A transfer between GPUs of hosts like ``host``, the name of the machine."""

    spec: TransferSpec
    host: str

    @property
    def settings(self) -> Mapping[str, Value]:
        """The settings; a rate of ``None`` is that of the port of the adapter."""
        spec = self.spec
        return {
            "host": self.host,
            "source": spec.source,
            "target": spec.target,
            "path": spec.path.value,
            "chunk": spec.chunk,
            "slots": spec.slots,
            "rate": spec.rate or None,
            "mtu": spec.mtu,
            "latency": spec.cable_latency,
            "link_layer": spec.layer.value,
            "bytes": spec.size,
        }

    def run(self) -> Mapping[str, int]:
        """Do it; raises :class:`~rdmawire.errors.TransferError` if it cannot be."""
        return transfer(self.spec).totals()
