"""Write traffic to a capture: many rounds at once if possible, otherwise frame by frame.

Both write the same bytes.
"""

from collections.abc import Callable
from typing import Final

from rdmawire.capture import Writer
from rdmawire.traffic.generate import endpoints as blend
from rdmawire.traffic.generate.cm import connect
from rdmawire.traffic.generate.rounds import OnProgress, Progress, Taker, play
from rdmawire.traffic.generate.spec import Order, Verb
from rdmawire.traffic.summary import Summary

LARGEST_ROUND: Final = 32 << 20
"""Maximum message bytes in a round that is recorded."""
MAX_LOST: Final = 1.5
"""Frames lost in a round; with more, few rounds are equal."""


def generate(
    order: Order, writer: Taker, on_progress: OnProgress = lambda *_: None, *, at_once: bool = True
) -> Summary:
    """Write the traffic of an order, and return its summary, without the wall time.

    ``writer`` is a capture writer, or any object with a method ``write`` that takes a record.
    ``on_progress`` is called with the finished amount and the total. Without ``at_once`` or NumPy,
    each frame is made separately.
    """
    progress = Progress(order, on_progress)
    repeat = _repeater(order) if at_once else None
    if repeat is not None and isinstance(writer, Writer):
        summary = repeat(order, writer, progress)
    else:
        summary = (connect if order.verb is Verb.CM else play)(order, writer, progress)
    progress.end()
    return summary


def _repeater(order: Order) -> Callable[[Order, Writer, Progress], Summary] | None:
    """Return the function that makes many rounds at once, if that is possible."""
    if order.verb is Verb.CM or not _repeats(order):
        return None
    try:
        from rdmawire.traffic.generate.replicate import repeat
    except ImportError:
        return None
    return repeat


def _repeats(order: Order) -> bool:
    """Whether there are enough equal rounds, of a size that can be kept."""
    if order.marks is not None:
        return False
    lengths = [message.length for message in blend.messages(order)]
    frames = sum(max(-(-length // order.mtu), 1) + 1 for length in lengths)
    enough = (order.frames or 0) >= 2 * frames or (order.messages or 0) >= 2 * len(lengths)
    return enough and sum(lengths) <= LARGEST_ROUND and order.loss * frames <= MAX_LOST
