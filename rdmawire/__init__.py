"""rdmawire: a packet-level RDMA emulator and wire-format toolkit.

What most programs need can be imported from here::

    from rdmawire import ALL_ACCESS, GpuDriver, H200, Pair, Peermem, open_capture

Importing this package is cheap: a name is loaded from its package when it is first used. The
packages have more: :mod:`rdmawire.verbs`, :mod:`rdmawire.ib`, :mod:`rdmawire.memory`,
:mod:`rdmawire.fabric`, :mod:`rdmawire.capture`, :mod:`rdmawire.dissect`, :mod:`rdmawire.filter`,
:mod:`rdmawire.columns`, :mod:`rdmawire.stats`, :mod:`rdmawire.traffic.edit`,
:mod:`rdmawire.traffic.generate` and the modules of :mod:`rdmawire.wire`, one for each protocol.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rdmawire.capture import Reader, Record, Writer, create_capture, open_capture
    from rdmawire.columns import iter_columns, read_columns
    from rdmawire.dissect import Dissection, Dissector, summary
    from rdmawire.errors import CaptureError, MemoryFault, RdmaError, VerbsError, WireError
    from rdmawire.fabric import (
        ALL_ACCESS,
        Buffer,
        CaptureTap,
        Faults,
        Host,
        Link,
        Network,
        Pair,
        Place,
        Registered,
        Simulator,
        Switch,
        connect,
    )
    from rdmawire.filter import Filter, FilterError
    from rdmawire.ib import STANDARD, Nic, QPInit, QueuePair, Rules
    from rdmawire.memory import Access, AddressSpace, Path, Region
    from rdmawire.memory.gpu import A100, H200, T4, Gdr, GpuDriver, GpuProfile, Peermem
    from rdmawire.stats import Statistics
    from rdmawire.traffic.edit import EditError, Editor, edit_capture
    from rdmawire.traffic.generate import Order, Sizes, Verb, generate
    from rdmawire.traffic.scenario.document import ScenarioError
    from rdmawire.traffic.scenario.reader import read_scenario, read_scenario_text
    from rdmawire.traffic.scenario.runner.play import play
    from rdmawire.traffic.scenario.shipped import read_shipped
    from rdmawire.units import gbps, ms, us
    from rdmawire.verbs import (
        IBTA,
        RXE,
        AddressHandle,
        CompletionQueue,
        Profile,
        QPAttributes,
        QPAttrMask,
        QPCap,
        QPState,
        QPType,
        RecvWR,
        SendFlags,
        SendOpcode,
        SendWR,
        Sge,
        SharedReceiveQueue,
        WCOpcode,
        WCStatus,
        WorkCompletion,
    )

__all__ = [
    "A100",
    "ALL_ACCESS",
    "H200",
    "IBTA",
    "RXE",
    "STANDARD",
    "T4",
    "Access",
    "AddressHandle",
    "AddressSpace",
    "Buffer",
    "CaptureError",
    "CaptureTap",
    "CompletionQueue",
    "Dissection",
    "Dissector",
    "EditError",
    "Editor",
    "Faults",
    "Filter",
    "FilterError",
    "Gdr",
    "GpuDriver",
    "GpuProfile",
    "Host",
    "Link",
    "MemoryFault",
    "Network",
    "Nic",
    "Order",
    "Pair",
    "Path",
    "Peermem",
    "Place",
    "Profile",
    "QPAttrMask",
    "QPAttributes",
    "QPCap",
    "QPInit",
    "QPState",
    "QPType",
    "QueuePair",
    "RdmaError",
    "Reader",
    "Record",
    "RecvWR",
    "Region",
    "Registered",
    "Rules",
    "ScenarioError",
    "SendFlags",
    "SendOpcode",
    "SendWR",
    "Sge",
    "SharedReceiveQueue",
    "Simulator",
    "Sizes",
    "Statistics",
    "Switch",
    "Verb",
    "VerbsError",
    "WCOpcode",
    "WCStatus",
    "WireError",
    "WorkCompletion",
    "Writer",
    "connect",
    "create_capture",
    "edit_capture",
    "gbps",
    "generate",
    "iter_columns",
    "ms",
    "open_capture",
    "play",
    "read_columns",
    "read_scenario",
    "read_scenario_text",
    "read_shipped",
    "summary",
    "us",
]

__version__ = "0.1.0"

_PACKAGES = {
    "rdmawire.capture": ("Reader", "Record", "Writer", "create_capture", "open_capture"),
    "rdmawire.columns": ("iter_columns", "read_columns"),
    "rdmawire.dissect": ("Dissection", "Dissector", "summary"),
    "rdmawire.errors": ("CaptureError", "MemoryFault", "RdmaError", "VerbsError", "WireError"),
    "rdmawire.fabric": (
        "ALL_ACCESS",
        "Buffer",
        "CaptureTap",
        "Faults",
        "Host",
        "Link",
        "Network",
        "Pair",
        "Place",
        "Registered",
        "Simulator",
        "Switch",
        "connect",
    ),
    "rdmawire.filter": ("Filter", "FilterError"),
    "rdmawire.ib": ("Nic", "QPInit", "QueuePair", "Rules", "STANDARD"),
    "rdmawire.memory": ("Access", "AddressSpace", "Path", "Region"),
    "rdmawire.memory.gpu": ("A100", "Gdr", "GpuDriver", "GpuProfile", "H200", "Peermem", "T4"),
    "rdmawire.stats": ("Statistics",),
    "rdmawire.traffic.edit": ("EditError", "Editor", "edit_capture"),
    "rdmawire.traffic.generate": ("Order", "Sizes", "Verb", "generate"),
    "rdmawire.traffic.scenario.document": ("ScenarioError",),
    "rdmawire.traffic.scenario.runner.play": ("play",),
    "rdmawire.traffic.scenario.reader": ("read_scenario", "read_scenario_text"),
    "rdmawire.traffic.scenario.shipped": ("read_shipped",),
    "rdmawire.units": ("gbps", "ms", "us"),
    "rdmawire.verbs": (
        "AddressHandle",
        "CompletionQueue",
        "IBTA",
        "Profile",
        "QPAttrMask",
        "QPAttributes",
        "QPCap",
        "QPState",
        "QPType",
        "RXE",
        "RecvWR",
        "SendFlags",
        "SendOpcode",
        "SendWR",
        "Sge",
        "SharedReceiveQueue",
        "WCOpcode",
        "WCStatus",
        "WorkCompletion",
    ),
}
"""The public names, by the package that each is loaded from."""

_HOMES = {name: package for package, names in _PACKAGES.items() for name in names}


def __getattr__(name: str) -> object:
    """Load a public name when it is first used (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Names of the package: the public ones, and what is loaded."""
    return sorted({*globals(), *__all__})


_here = os.path.dirname(__file__)
if os.path.isfile(os.path.join(_here, "layers")):
    # A checkout without symbolic links (git's core.symlinks=false, as on Windows): `layers` is a
    # text file that holds the link's target, ../layers. The folder is found beside this package.
    __path__.append(os.path.dirname(_here))
del _here
