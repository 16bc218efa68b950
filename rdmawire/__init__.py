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

__version__ = "0.1.0"

if TYPE_CHECKING:
    # The public names. `as` marks them as public for type checkers (PEP 484, stub files). At run
    # time _NAMES has the same names.
    from rdmawire.capture import Reader as Reader
    from rdmawire.capture import Record as Record
    from rdmawire.capture import Writer as Writer
    from rdmawire.capture import create_capture as create_capture
    from rdmawire.capture import open_capture as open_capture
    from rdmawire.columns import iter_columns as iter_columns
    from rdmawire.columns import read_columns as read_columns
    from rdmawire.dissect import Dissection as Dissection
    from rdmawire.dissect import Dissector as Dissector
    from rdmawire.dissect import summary as summary
    from rdmawire.errors import CaptureError as CaptureError
    from rdmawire.errors import MemoryFault as MemoryFault
    from rdmawire.errors import RdmaError as RdmaError
    from rdmawire.errors import VerbsError as VerbsError
    from rdmawire.errors import WireError as WireError
    from rdmawire.fabric import ALL_ACCESS as ALL_ACCESS
    from rdmawire.fabric import Buffer as Buffer
    from rdmawire.fabric import CaptureTap as CaptureTap
    from rdmawire.fabric import Faults as Faults
    from rdmawire.fabric import Host as Host
    from rdmawire.fabric import Link as Link
    from rdmawire.fabric import Network as Network
    from rdmawire.fabric import Pair as Pair
    from rdmawire.fabric import Place as Place
    from rdmawire.fabric import Registered as Registered
    from rdmawire.fabric import Simulator as Simulator
    from rdmawire.fabric import Switch as Switch
    from rdmawire.fabric import connect as connect
    from rdmawire.filter import Filter as Filter
    from rdmawire.filter import FilterError as FilterError
    from rdmawire.ib import STANDARD as STANDARD
    from rdmawire.ib import Nic as Nic
    from rdmawire.ib import QPInit as QPInit
    from rdmawire.ib import QueuePair as QueuePair
    from rdmawire.ib import Rules as Rules
    from rdmawire.memory import Access as Access
    from rdmawire.memory import AddressSpace as AddressSpace
    from rdmawire.memory import Path as Path
    from rdmawire.memory import Region as Region
    from rdmawire.memory.gpu import A100 as A100
    from rdmawire.memory.gpu import H200 as H200
    from rdmawire.memory.gpu import T4 as T4
    from rdmawire.memory.gpu import Gdr as Gdr
    from rdmawire.memory.gpu import GpuDriver as GpuDriver
    from rdmawire.memory.gpu import GpuProfile as GpuProfile
    from rdmawire.memory.gpu import Peermem as Peermem
    from rdmawire.stats import Statistics as Statistics
    from rdmawire.traffic.edit import EditError as EditError
    from rdmawire.traffic.edit import Editor as Editor
    from rdmawire.traffic.edit import edit_capture as edit_capture
    from rdmawire.traffic.generate import Sizes as Sizes
    from rdmawire.traffic.generate import TrafficSpec as TrafficSpec
    from rdmawire.traffic.generate import Verb as Verb
    from rdmawire.traffic.generate import generate as generate
    from rdmawire.traffic.scenario import ScenarioError as ScenarioError
    from rdmawire.traffic.scenario import open_host as open_host
    from rdmawire.traffic.scenario import play as play
    from rdmawire.traffic.scenario import read_scenario as read_scenario
    from rdmawire.traffic.scenario import read_scenario_text as read_scenario_text
    from rdmawire.traffic.scenario import read_shipped as read_shipped
    from rdmawire.units import gbps as gbps
    from rdmawire.units import ms as ms
    from rdmawire.units import us as us
    from rdmawire.verbs import IBTA as IBTA
    from rdmawire.verbs import RXE as RXE
    from rdmawire.verbs import AddressHandle as AddressHandle
    from rdmawire.verbs import CompletionQueue as CompletionQueue
    from rdmawire.verbs import Profile as Profile
    from rdmawire.verbs import QPAttributes as QPAttributes
    from rdmawire.verbs import QPAttrMask as QPAttrMask
    from rdmawire.verbs import QPCap as QPCap
    from rdmawire.verbs import QPState as QPState
    from rdmawire.verbs import QPType as QPType
    from rdmawire.verbs import RecvWR as RecvWR
    from rdmawire.verbs import SendFlags as SendFlags
    from rdmawire.verbs import SendOpcode as SendOpcode
    from rdmawire.verbs import SendWR as SendWR
    from rdmawire.verbs import Sge as Sge
    from rdmawire.verbs import SharedReceiveQueue as SharedReceiveQueue
    from rdmawire.verbs import WCOpcode as WCOpcode
    from rdmawire.verbs import WCStatus as WCStatus
    from rdmawire.verbs import WorkCompletion as WorkCompletion

_NAMES = {
    "rdmawire.capture": ("Reader", "Record", "Writer", "create_capture", "open_capture"),
    "rdmawire.columns": ("iter_columns", "read_columns"),
    "rdmawire.dissect": ("Dissection", "Dissector", "summary"),
    "rdmawire.errors": ("CaptureError", "MemoryFault", "RdmaError", "VerbsError", "WireError"),
    "rdmawire.fabric": (
        *("ALL_ACCESS", "Buffer", "CaptureTap", "Faults", "Host", "Link", "Network"),
        *("Pair", "Place", "Registered", "Simulator", "Switch", "connect"),
    ),
    "rdmawire.filter": ("Filter", "FilterError"),
    "rdmawire.ib": ("STANDARD", "Nic", "QPInit", "QueuePair", "Rules"),
    "rdmawire.memory": ("Access", "AddressSpace", "Path", "Region"),
    "rdmawire.memory.gpu": ("A100", "H200", "T4", "Gdr", "GpuDriver", "GpuProfile", "Peermem"),
    "rdmawire.stats": ("Statistics",),
    "rdmawire.traffic.edit": ("EditError", "Editor", "edit_capture"),
    "rdmawire.traffic.generate": ("Sizes", "TrafficSpec", "Verb", "generate"),
    "rdmawire.traffic.scenario": (
        *("ScenarioError", "play", "read_scenario", "read_scenario_text", "read_shipped"),
        "open_host",
    ),
    "rdmawire.units": ("gbps", "ms", "us"),
    "rdmawire.verbs": (
        *("IBTA", "RXE", "AddressHandle", "CompletionQueue", "Profile", "QPAttributes"),
        *("QPAttrMask", "QPCap", "QPState", "QPType", "RecvWR", "SendFlags", "SendOpcode"),
        *("SendWR", "Sge", "SharedReceiveQueue", "WCOpcode", "WCStatus", "WorkCompletion"),
    ),
}
"""The public names of each package: those that the import statements above name."""
_PACKAGES = {name: package for package, names in _NAMES.items() for name in names}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Load a public name, or ``__all__``, when it is first used (PEP 562)."""
        if name == "__all__":
            value = sorted(_PACKAGES)
        elif name in _PACKAGES:
            value = getattr(import_module(_PACKAGES[name]), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """Return the public names, and all that is loaded."""
        return sorted({*globals(), *_PACKAGES})


_here = os.path.dirname(__file__)
if os.path.isfile(os.path.join(_here, "layers")):
    # A checkout without symbolic links (git's core.symlinks=false, as on Windows): `layers` is a
    # text file that holds the link's target, ../layers. The folder is found beside this package.
    __path__.append(os.path.dirname(_here))
del _here
