"""Frame by frame: all that is asked for is played by the adapters, and written as it is seen."""

from collections.abc import Iterator
from contextlib import suppress
from random import Random

from rdmawire.traffic.generate.conversation import Conversation
from rdmawire.traffic.generate.losses import Chance
from rdmawire.traffic.generate.order import Order, Tap
from rdmawire.traffic.generate.output import Enough, Output, Taker
from rdmawire.traffic.generate.progress import Progress
from rdmawire.traffic.summary import Summary, summarise


def chance(order: Order) -> Chance:
    """Which frames are lost."""
    return Chance(order.loss, Random(f"{order.seed}/losses"))  # noqa: S311 - must be repeatable


def play(order: Order, writer: Taker, progress: Progress) -> Summary:
    """Round after round."""
    conversation, losses = Conversation(order), chance(order)
    output = Output(writer, order.frames, progress)
    with suppress(Enough):
        for count in rounds(order, len(conversation.messages)):
            conversation.play(count, losses, output)
    now = conversation.world.now
    summary = summarise(output.counter, conversation.nics, now, lost=output.losses)
    if order.tap is Tap.ARRIVED:
        return summary
    return summary._replace(marks=conversation.marked)  # they come behind the tap


def rounds(order: Order, whole: int) -> Iterator[int]:
    """How much each round has of what is asked for; without end, where frames are."""
    left = order.messages
    while left is None or left > 0:
        yield whole if left is None else min(whole, left)
        left = None if left is None else left - whole
