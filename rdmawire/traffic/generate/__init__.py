"""Test traffic: conversations of two emulated adapters, written as captures.

:class:`~rdmawire.traffic.generate.spec.Order` says what is wanted, and
:func:`~rdmawire.traffic.generate.generator.generate` writes it.

Work is posted in rounds, each when all of the one before is answered. So where nothing is random,
a conversation repeats itself: a round differs from the next in PSNs, MSNs, what atomics return,
and times, and each of those moves on by the same step. What a round looks like, the adapters say;
the rest is that round with the steps applied, many rounds at once. Where frames are lost, a round
is played for each pattern of losses.
"""

from rdmawire.traffic.generate.generator import generate
from rdmawire.traffic.generate.spec import CapturePoint, Order, Sizes, Verb

__all__ = [
    "CapturePoint",
    "Order",
    "Sizes",
    "Verb",
    "generate",
]
