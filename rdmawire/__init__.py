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
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    # The public names. `as` marks them as public for type checkers (PEP 484, stub files); at run
    # time _packages() reads this list.
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
else:

    @cache
    def _packages() -> dict[str, str]:
        """Return the package of each public name, as the import statements above say.

        They are read from the compiled code, which is there even where the source is not.
        """
        from dis import get_instructions

        packages: dict[str, str] = {}
        package = ""
        for instruction in get_instructions(__spec__.loader.get_code(__name__)):
            if instruction.opname == "IMPORT_NAME":
                package = instruction.argval
            elif instruction.opname == "IMPORT_FROM" and package.startswith("rdmawire."):
                packages[instruction.argval] = package
        return packages

    def __getattr__(name: str) -> object:
        """Load a public name, or ``__all__``, when it is first used (PEP 562)."""
        if name == "__all__":
            value = sorted(_packages())
        elif name in _packages():
            value = getattr(import_module(_packages()[name]), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """Return the public names, and all that is loaded."""
        return sorted({*globals(), *_packages()})


_here = os.path.dirname(__file__)
if os.path.isfile(os.path.join(_here, "layers")):
    # A checkout without symbolic links (git's core.symlinks=false, as on Windows): `layers` is a
    # text file that holds the link's target, ../layers. The folder is found beside this package.
    __path__.append(os.path.dirname(_here))
del _here
