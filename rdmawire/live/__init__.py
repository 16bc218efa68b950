"""Real time: the loop, the clock and the sockets of devices that real programs use."""

from rdmawire.live.clock import entropy, epoch, now
from rdmawire.live.datagrams import Address, Datagrams
from rdmawire.live.loop import Driver, Loop
from rdmawire.live.transmit_queue import SendWindow, TokenBucket, TransmitQueue

__all__ = [
    "Address",
    "Datagrams",
    "Driver",
    "Loop",
    "SendWindow",
    "TokenBucket",
    "TransmitQueue",
    "entropy",
    "epoch",
    "now",
]
