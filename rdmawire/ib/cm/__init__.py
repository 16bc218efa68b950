"""The connection manager: connects two queue pairs. IBA 12, with the terms of rdma_cm.

Sans-I/O, like the NIC: datagrams use the NIC's queue pair 1; time (ns) and randomness are
arguments. :class:`~rdmawire.ib.cm.manager.ManagedPort` is a NIC with its manager.
"""

from rdmawire.ib.cm.connection import CMSettings, ConnParam, OwnersQP, PortSpace, service_id
from rdmawire.ib.cm.event import (
    CMEvent,
    CMEventType,
    ConnectError,
    ConnectRequest,
    ConnectResponse,
    DatagramRequest,
    Disconnected,
    Established,
    Rejected,
    Resolved,
    TimewaitExit,
    Unreachable,
    Unresolved,
)
from rdmawire.ib.cm.machine import CMRules
from rdmawire.ib.cm.manager import ConnectionManager, ManagedPort
from rdmawire.ib.cm.receive import STANDARD

__all__ = [
    "STANDARD",
    "CMEvent",
    "CMEventType",
    "CMRules",
    "CMSettings",
    "ConnParam",
    "ConnectError",
    "ConnectRequest",
    "ConnectResponse",
    "ConnectionManager",
    "DatagramRequest",
    "Disconnected",
    "Established",
    "ManagedPort",
    "OwnersQP",
    "PortSpace",
    "Rejected",
    "Resolved",
    "TimewaitExit",
    "Unreachable",
    "Unresolved",
    "service_id",
]
