"""The software RNIC for InfiniBand transport: frames and verbs in, frames and completions out.

It has no clock and no I/O: the time is an argument in integer nanoseconds.
"""

from rdmawire.ib import checks, execute
from rdmawire.ib.congestion.dcqcn import Dcqcn, DcqcnParameters
from rdmawire.ib.congestion.timely import Timely, TimelyParameters
from rdmawire.ib.engine import Nic
from rdmawire.ib.flow_steering import FlowCounter, FlowKind, FlowRule, HeaderMatch, RssHash
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.ib.rules import ExtendedHeader, RequestRule, Rules
from rdmawire.ib.rx_parser import Arrival, Drop
from rdmawire.ib.service import SERVICES, Fault, Reaction
from rdmawire.ib.standard_rules import STANDARD, with_work
from rdmawire.ib.udp import Datagram
from rdmawire.wire.roce import Medium

__all__ = [
    "SERVICES",
    "STANDARD",
    "Arrival",
    "Datagram",
    "Dcqcn",
    "DcqcnParameters",
    "Drop",
    "ExtendedHeader",
    "Fault",
    "FlowCounter",
    "FlowKind",
    "FlowRule",
    "HeaderMatch",
    "Medium",
    "Nic",
    "QPInit",
    "QueuePair",
    "Reaction",
    "RequestRule",
    "RssHash",
    "Rules",
    "Timely",
    "TimelyParameters",
    "checks",
    "execute",
    "with_work",
]
