"""Real time: the loop, the clock and the sockets of devices that real programs use."""

from rdmawire.live.clock import entropy, epoch, now
from rdmawire.live.loop import Driver, Loop

__all__ = ["Driver", "Loop", "entropy", "epoch", "now"]
