"""Traffic into a capture: many rounds at once where that can be done, frame by frame elsewhere.

Both ways write the same bytes.
"""

from collections.abc import Callable
from typing import Final

from rdmawire.capture import Writer
from rdmawire.traffic.generate import endpoints as blend
from rdmawire.traffic.generate.cm import connect
from rdmawire.traffic.generate.rounds import Progress, Taker, Told, play
from rdmawire.traffic.generate.spec import Order, Verb
from rdmawire.traffic.summary import Summary

LARGEST_ROUND: Final = 32 << 20
"""Bytes of messages in a round that is kept as it was played."""
MAX_LOST: Final = 1.5
"""Frames lost in a round: where there are more, hardly two rounds are alike."""


def generate(
    order: Order, writer: Taker, told: Told = lambda *_: None, *, at_once: bool = True
) -> Summary:
    """Write what is asked for, and say what it amounts to, but for the time that it took.

    ``writer`` is a capture's, or whatever else has a method ``write`` that takes a record.
    ``told`` hears how much is done, and of how much. Without ``at_once`` or NumPy, each frame is
    made by itself.
    """
    progress = Progress(order, told)
    repeat = _repeater(order) if at_once else None
    if repeat is not None and isinstance(writer, Writer):
        summary = repeat(order, writer, progress)
    else:
        summary = (connect if order.verb is Verb.CM else play)(order, writer, progress)
    progress.end()
    return summary


def _repeater(order: Order) -> Callable[[Order, Writer, Progress], Summary] | None:
    """What makes many rounds at once, where that can be done."""
    if order.verb is Verb.CM or not _repeats(order):
        return None
    try:
        from rdmawire.traffic.generate.replicate import repeat
    except ImportError:
        return None
    return repeat


def _repeats(order: Order) -> bool:
    """Whether there are rounds that are alike, enough of them, and of a size to be kept."""
    if order.marks is not None:
        return False
    lengths = [message.length for message in blend.messages(order)]
    frames = sum(max(-(-length // order.mtu), 1) + 1 for length in lengths)
    enough = (order.frames or 0) >= 2 * frames or (order.messages or 0) >= 2 * len(lengths)
    return enough and sum(lengths) <= LARGEST_ROUND and order.loss * frames <= MAX_LOST
