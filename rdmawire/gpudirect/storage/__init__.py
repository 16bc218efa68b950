"""GPUDirect Storage: NVMe over Fabrics on RDMA, and a drive's DMA, into memory of a GPU.

::

    from rdmawire import open_host
    from rdmawire.gpudirect.storage import StoragePath, StorageSpec, storage

    machine = open_host("dgx-h200").machine
    report = storage(StorageSpec(machine, "GPU0", StoragePath.FABRIC, reads=4, writes=4))

The capsules, and the private data of the connections, are header tables
(:mod:`rdmawire.gpudirect.storage.capsule`).
"""

from rdmawire.gpudirect.storage.capsule import (
    AdminCommand,
    AdminOpcode,
    Command,
    ConnectCommand,
    ConnectData,
    FabricsCommand,
    FabricsType,
    FeatureId,
    IdentifyController,
    IdentifyNamespace,
    IOCommand,
    IOOpcode,
    NvmeCompletion,
    Property,
    PropertyCommand,
    RdmaConnectAccept,
    RdmaConnectReject,
    RdmaConnectRequest,
    RejectStatus,
    SglSubtype,
    SglType,
    Status,
    command_name,
    parse_command,
    status_name,
)
from rdmawire.gpudirect.storage.capture import CapsuleReader, CapturedCommand, read_capsules
from rdmawire.gpudirect.storage.controller import CommandResult, Controller
from rdmawire.gpudirect.storage.drive import DriveCosts, Namespace
from rdmawire.gpudirect.storage.run import (
    PLANS,
    StorageFault,
    StoragePath,
    StoragePlan,
    StorageReport,
    StorageRun,
    StorageSpec,
    storage,
)
from rdmawire.gpudirect.storage.workload import Executed

__all__ = [
    "PLANS",
    "AdminCommand",
    "AdminOpcode",
    "CapsuleReader",
    "CapturedCommand",
    "Command",
    "CommandResult",
    "ConnectCommand",
    "ConnectData",
    "Controller",
    "DriveCosts",
    "Executed",
    "FabricsCommand",
    "FabricsType",
    "FeatureId",
    "IOCommand",
    "IOOpcode",
    "IdentifyController",
    "IdentifyNamespace",
    "Namespace",
    "NvmeCompletion",
    "Property",
    "PropertyCommand",
    "RdmaConnectAccept",
    "RdmaConnectReject",
    "RdmaConnectRequest",
    "RejectStatus",
    "SglSubtype",
    "SglType",
    "Status",
    "StorageFault",
    "StoragePath",
    "StoragePlan",
    "StorageReport",
    "StorageRun",
    "StorageSpec",
    "command_name",
    "parse_command",
    "read_capsules",
    "status_name",
    "storage",
]
