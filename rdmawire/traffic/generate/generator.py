"""Write traffic to a capture: many rounds at once if possible, otherwise frame by frame.

Both write the same bytes.
"""

from collections.abc import Callable
from typing import Final

from rdmawire.capture import Writer
from rdmawire.traffic.generate import endpoints as blend
from rdmawire.traffic.generate.cm import connect
from rdmawire.traffic.generate.rounds import OnProgress, Progress, Taker, play
from rdmawire.traffic.generate.spec import TrafficSpec, Verb
from rdmawire.traffic.summary import TrafficSummary

LARGEST_ROUND: Final = 32 << 20
"""Maximum message bytes in a round that is recorded."""
MAX_LOST: Final = 1.5
"""Frames lost in a round; with more, few rounds are equal."""


def generate(
    spec: TrafficSpec,
    writer: Taker,
    on_progress: OnProgress = lambda *_: None,
    *,
    at_once: bool = True,
) -> TrafficSummary:
    """Write the traffic of ``spec``, and return its summary, without the wall time.

    ``writer`` is a capture writer, or any object with a method ``write`` that takes a record.
    ``on_progress`` is called with the finished amount and the total. Without ``at_once`` or NumPy,
    each frame is made separately.
    """
    progress = Progress(spec, on_progress)
    repeat = _repeater(spec) if at_once else None
    if repeat is not None and isinstance(writer, Writer):
        summary = repeat(spec, writer, progress)
    else:
        summary = (connect if spec.verb is Verb.CM else play)(spec, writer, progress)
    progress.end()
    return summary


def _repeater(
    spec: TrafficSpec,
) -> Callable[[TrafficSpec, Writer, Progress], TrafficSummary] | None:
    """Return the function that makes many rounds at once, if that is possible."""
    if spec.verb is Verb.CM or not _repeats(spec):
        return None
    from rdmawire.traffic.generate.replicate import repeat

    return repeat


def _repeats(spec: TrafficSpec) -> bool:
    """Whether there are enough equal rounds, of a size that can be kept."""
    if spec.marks is not None:
        return False
    lengths = [message.length for message in blend.messages(spec)]
    frames = sum(max(-(-length // spec.mtu), 1) + 1 for length in lengths)
    enough = (spec.frames or 0) >= 2 * frames or (spec.messages or 0) >= 2 * len(lengths)
    return enough and sum(lengths) <= LARGEST_ROUND and spec.loss * frames <= MAX_LOST
