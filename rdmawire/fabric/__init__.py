"""Virtual time: a simulator with links, faults, switches, hosts, taps and captures.

Import public names from here; the modules of this package define them.
"""

from rdmawire.errors import FabricError
from rdmawire.fabric.capture import CaptureTap, Meter, Sampler
from rdmawire.fabric.classify import PRIORITIES
from rdmawire.fabric.dma import DmaPort, adapter_routes
from rdmawire.fabric.fault import ACTIONS, OPTIONS, Faults, Rule
from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.host import (
    ALL_ACCESS,
    Buffer,
    Host,
    LoopbackPort,
    NotifyingPort,
    Place,
    Registered,
)
from rdmawire.fabric.infiniband import (
    SPEEDS,
    InfiniBandLink,
    InfiniBandSpeed,
    InfiniBandSwitch,
    packet_rate,
)
from rdmawire.fabric.link import Arrival, Chances, Link
from rdmawire.fabric.network import (
    Cable,
    InfiniBandCable,
    Network,
    leaf_spine,
    place_of,
    row,
    star,
)
from rdmawire.fabric.pair import ATTRIBUTES, CAP, End, Pair, Posted, Responder, connect
from rdmawire.fabric.pfc import headroom, pfc_frame
from rdmawire.fabric.port_queue import Mac
from rdmawire.fabric.simulator import Attachment, Port, Relay, SimulationLimit, Simulator, Tap
from rdmawire.fabric.switch import Switch, SwitchPort
from rdmawire.fabric.switch_config import KIB, MIB, Marking, Pausing, SwitchSettings

__all__ = [
    "ACTIONS",
    "ALL_ACCESS",
    "ATTRIBUTES",
    "CAP",
    "KIB",
    "MIB",
    "OPTIONS",
    "PRIORITIES",
    "SPEEDS",
    "Arrival",
    "Attachment",
    "Buffer",
    "Cable",
    "CaptureTap",
    "Chances",
    "DmaPort",
    "End",
    "Envelope",
    "FabricError",
    "Faults",
    "Host",
    "InfiniBandCable",
    "InfiniBandLink",
    "InfiniBandSpeed",
    "InfiniBandSwitch",
    "Link",
    "LoopbackPort",
    "Mac",
    "Marking",
    "Meter",
    "Network",
    "NotifyingPort",
    "Pair",
    "Pausing",
    "Place",
    "Port",
    "Posted",
    "Registered",
    "Relay",
    "Responder",
    "Rule",
    "Sampler",
    "SimulationLimit",
    "Simulator",
    "Switch",
    "SwitchPort",
    "SwitchSettings",
    "Tap",
    "adapter_routes",
    "connect",
    "headroom",
    "leaf_spine",
    "packet_rate",
    "pfc_frame",
    "place_of",
    "row",
    "star",
]
