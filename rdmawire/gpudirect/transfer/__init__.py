"""Transfers between GPUs: by GPUDirect RDMA, through host memory, over TCP or NVLink.

Between hosts are RoCEv2 or InfiniBand; one path is between memories of hosts, without a GPU.

::

    from rdmawire import open_host
    from rdmawire.gpudirect.transfer import TransferPath, TransferSpec, transfer

    machine = open_host("dgx-h200").machine
    report = transfer(TransferSpec(machine, "GPU0", "GPU1", TransferPath.BOUNCE, 1 << 20))
"""

from rdmawire.gpudirect.transfer.host import LinkLayer
from rdmawire.gpudirect.transfer.path import (
    MAX_SIZE,
    PLANS,
    Plan,
    Registering,
    RegistrationCounts,
    Transfer,
    TransferPath,
    TransferReport,
    TransferSpec,
    WireKind,
    transfer,
)
from rdmawire.gpudirect.transfer.stage import StageKind

__all__ = [
    "MAX_SIZE",
    "PLANS",
    "LinkLayer",
    "Plan",
    "Registering",
    "RegistrationCounts",
    "StageKind",
    "Transfer",
    "TransferPath",
    "TransferReport",
    "TransferSpec",
    "WireKind",
    "transfer",
]
