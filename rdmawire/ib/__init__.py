"""The software RNIC for InfiniBand transport: frames and verbs in, frames and completions out.

It has no clock and no I/O: the time is an argument in integer nanoseconds.
"""

from rdmawire.ib import checks
from rdmawire.ib.congestion.dcqcn import Dcqcn, DcqcnParameters
from rdmawire.ib.congestion.timely import Timely, TimelyParameters
from rdmawire.ib.engine import Nic
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.ib.rules import RequestRule, Rules
from rdmawire.ib.rx_parser import Arrival, Drop
from rdmawire.ib.service import SERVICES, Fault, Reaction
from rdmawire.ib.standard_rules import STANDARD

__all__ = [
    "SERVICES",
    "STANDARD",
    "Arrival",
    "Dcqcn",
    "DcqcnParameters",
    "Drop",
    "Fault",
    "Nic",
    "QPInit",
    "QueuePair",
    "Reaction",
    "RequestRule",
    "Rules",
    "Timely",
    "TimelyParameters",
    "checks",
]
