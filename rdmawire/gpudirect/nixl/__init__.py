"""KV caches of disaggregated serving: blocks that a decode worker reads, as NIXL does over UCX.

::

    from rdmawire import open_host
    from rdmawire.gpudirect.nixl import KvSpec, kv_transfer

    machine = open_host("dgx-h200").machine
    report = kv_transfer(KvSpec(machine, "GPU0", "GPU1", blocks=8, layers=2))
"""

from rdmawire.gpudirect.nixl.descriptor import (
    Descriptor,
    DescriptorPair,
    deserialize,
    merged,
    serialize,
)
from rdmawire.gpudirect.nixl.kv_transfer import (
    MAX_BYTES,
    MAX_READS,
    KvReport,
    KvSpec,
    KvTransfer,
    kv_transfer,
)

__all__ = [
    "MAX_BYTES",
    "MAX_READS",
    "Descriptor",
    "DescriptorPair",
    "KvReport",
    "KvSpec",
    "KvTransfer",
    "deserialize",
    "kv_transfer",
    "merged",
    "serialize",
]
