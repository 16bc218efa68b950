"""Messages of UCX, which CUDA-aware MPI sends: protocols, active messages, rendezvous.

::

    from rdmawire import open_host
    from rdmawire.gpudirect.ucx import TagSpec, read_config, tag_send

    machine = open_host("dgx-h200").machine
    config = read_config(["UCX_RNDV_THRESH=8k"])
    report = tag_send(TagSpec(machine, "GPU0", "GPU1", 1 << 16, config=config))
"""

from rdmawire.gpudirect.ucx.am import (
    HEADERS,
    MAX_CONTEXT,
    MAX_MPI_TAG,
    MAX_RANK,
    TRANSPORTS,
    AckHeader,
    ActiveMessage,
    AmHeader,
    AmId,
    EagerFirstHeader,
    EagerHeader,
    EagerMiddleHeader,
    MemoryType,
    PackedKey,
    RtrHeader,
    RtsHeader,
    UctTransport,
    mpi_tag,
)
from rdmawire.gpudirect.ucx.config import (
    AUTO_THRESHOLDS,
    VARIABLES,
    AutoThresholds,
    UcxConfig,
    Variable,
    read_config,
)
from rdmawire.gpudirect.ucx.protocol import BufferMemory, Fragment, Protocol, choose, fragments
from rdmawire.gpudirect.ucx.tag_send import MAX_SIZE, TagReport, TagSend, TagSpec, tag_send
from rdmawire.gpudirect.ucx.worker import PostedOperation

__all__ = [
    "AUTO_THRESHOLDS",
    "HEADERS",
    "MAX_CONTEXT",
    "MAX_MPI_TAG",
    "MAX_RANK",
    "MAX_SIZE",
    "TRANSPORTS",
    "VARIABLES",
    "AckHeader",
    "ActiveMessage",
    "AmHeader",
    "AmId",
    "AutoThresholds",
    "BufferMemory",
    "EagerFirstHeader",
    "EagerHeader",
    "EagerMiddleHeader",
    "Fragment",
    "MemoryType",
    "PackedKey",
    "PostedOperation",
    "Protocol",
    "RtrHeader",
    "RtsHeader",
    "TagReport",
    "TagSend",
    "TagSpec",
    "UctTransport",
    "UcxConfig",
    "Variable",
    "choose",
    "fragments",
    "mpi_tag",
    "read_config",
    "tag_send",
]
