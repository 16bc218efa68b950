"""Frame by frame: all that is asked for is played by the adapters, and written as it is seen."""

from collections.abc import Callable
from random import Random

from rdmawire.capture import Writer
from rdmawire.traffic.generate.conversation import Conversation
from rdmawire.traffic.generate.losses import Chance
from rdmawire.traffic.generate.order import Order
from rdmawire.traffic.generate.output import Output
from rdmawire.traffic.summary import Summary, summarise

Told = Callable[[int], object]
"""Who is told how much is done: messages, or frames where the order counts those."""


def chance(order: Order) -> Chance:
    """Which frames are lost."""
    return Chance(order.loss, Random(f"{order.seed}/losses"))  # noqa: S311 - must be repeatable


def play(order: Order, writer: Writer, told: Told) -> Summary:
    """Round after round."""
    conversation, losses = Conversation(order), chance(order)
    output = Output(writer, order.frames)
    whole, done = len(conversation.messages), 0
    while not output.full and done != order.messages:
        count = whole if order.messages is None else min(whole, order.messages - done)
        conversation.play(count, losses, output)
        done += count
        told(done if order.frames is None else output.counter.frames)
    now = conversation.world.now
    return summarise(output.counter, conversation.nics, now, 0.0, lost=output.losses)
