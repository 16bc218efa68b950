"""Test traffic: conversations of two emulated adapters, written as captures.

:class:`~rdmawire.traffic.generate.spec.TrafficSpec` describes the traffic, and
:func:`~rdmawire.traffic.generate.generator.generate` writes it.

Work is posted in rounds; a round starts when the preceding one is completely answered. Without
randomness, rounds differ only in PSNs, MSNs, results of atomics and times, each by a constant step.
The adapters play one round; the other rounds are copies with the steps applied, many at once. If
frames are lost, one round is played for each pattern of losses.
"""

from rdmawire.traffic.generate.endpoints import Unfinished
from rdmawire.traffic.generate.generator import generate
from rdmawire.traffic.generate.spec import CapturePoint, Sizes, SpecError, TrafficSpec, Verb

__all__ = [
    "CapturePoint",
    "Sizes",
    "SpecError",
    "TrafficSpec",
    "Unfinished",
    "Verb",
    "generate",
]
