"""Congestion control: the rate of a queue pair, from events of the network.

A scheme is notified of sent bytes, acknowledgements and CNPs, and returns a rate. It has no
clock and sends nothing: time (ns) is an argument, and the engine paces by the rate.
"""

from rdmawire.ib.congestion.base import CongestionController, Unscheduled
from rdmawire.ib.congestion.dcqcn import CNP_INTERVAL, Dcqcn, DcqcnParameters
from rdmawire.ib.congestion.timely import Timely, TimelyParameters

__all__ = [
    "CNP_INTERVAL",
    "CongestionController",
    "Dcqcn",
    "DcqcnParameters",
    "Timely",
    "TimelyParameters",
    "Unscheduled",
]
