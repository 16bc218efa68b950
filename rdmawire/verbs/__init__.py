"""Objects that every RDMA transport has: work requests, completions, queues, attributes, events.

The names and numbers are those of libibverbs. An engine (:mod:`rdmawire.ib`) works on these;
nothing here knows a packet.
"""

from rdmawire.verbs.ah import AddressHandle, GIDType, mapped, multicast_mac
from rdmawire.verbs.async_event import (
    AccessViolation,
    AsyncChannel,
    AsyncEvent,
    CommunicationEstablished,
    CompletionEvent,
    CQError,
    Event,
    EventType,
    GIDChanged,
    InvalidRequest,
    LastWQEReached,
    PathMigrated,
    PathMigrationFailed,
    PKeyChanged,
    PortActive,
    PortError,
    QPFatal,
    SendQueueDrained,
    SRQLimitReached,
)
from rdmawire.verbs.cq import CompChannel, CompletionQueue
from rdmawire.verbs.engine import Clock, Engine
from rdmawire.verbs.enums import (
    MigrationState,
    NetworkType,
    PortState,
    QPState,
    QPType,
    WCFlags,
    WCOpcode,
    WCStatus,
    WorkCompletion,
)
from rdmawire.verbs.multicast import MULTICAST_QPN
from rdmawire.verbs.profile import IBTA, PROFILES, RXE, AtomicCap, Bug, PortAttr, Profile
from rdmawire.verbs.qp_attr import QPAttributes, QPAttrMask, QPCap
from rdmawire.verbs.srq import SharedReceiveQueue, SRQType, XRCReceiver
from rdmawire.verbs.wr import BindMW, RecvWR, RegMR, SendFlags, SendOpcode, SendWR, Sge

__all__ = [
    "IBTA",
    "MULTICAST_QPN",
    "PROFILES",
    "RXE",
    "AccessViolation",
    "AddressHandle",
    "AsyncChannel",
    "AsyncEvent",
    "AtomicCap",
    "BindMW",
    "Bug",
    "CQError",
    "Clock",
    "CommunicationEstablished",
    "CompChannel",
    "CompletionEvent",
    "CompletionQueue",
    "Engine",
    "Event",
    "EventType",
    "GIDChanged",
    "GIDType",
    "InvalidRequest",
    "LastWQEReached",
    "MigrationState",
    "NetworkType",
    "PKeyChanged",
    "PathMigrated",
    "PathMigrationFailed",
    "PortActive",
    "PortAttr",
    "PortError",
    "PortState",
    "Profile",
    "QPAttrMask",
    "QPAttributes",
    "QPCap",
    "QPFatal",
    "QPState",
    "QPType",
    "RecvWR",
    "RegMR",
    "SRQLimitReached",
    "SRQType",
    "SendFlags",
    "SendOpcode",
    "SendQueueDrained",
    "SendWR",
    "Sge",
    "SharedReceiveQueue",
    "WCFlags",
    "WCOpcode",
    "WCStatus",
    "WorkCompletion",
    "XRCReceiver",
    "mapped",
    "multicast_mac",
]
