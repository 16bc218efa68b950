"""How much all work of a scenario comes to: what a run takes of time and memory is bounded."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from rdmawire.traffic.scenario.context import ParseContext
from rdmawire.traffic.scenario.document import NodeError
from rdmawire.traffic.scenario.model import End, Fill, LinkPlan, Mark, Span, StepPlan
from rdmawire.traffic.scenario.model.host import MAX_FILLED
from rdmawire.traffic.scenario.references import length_of
from rdmawire.traffic.scenario.tables import QUEUE
from rdmawire.traffic.scenario.verbs import VERBS
from rdmawire.units import SIZES, format_exactly

MAX_FILLED_TOGETHER: Final = 1 << 30
MAX_MESSAGES: Final = 10**7
MAX_SENT: Final = 1 << 34
MAX_POSTED: Final = 1 << 30
"""Bytes that may be posted at once. Links without a rate take all of them at once, and a frame
in flight is in memory."""


class Amount(NamedTuple):
    """What a part of a scenario adds up to. ``posted`` are bytes that may be posted at once."""

    mark: Mark
    messages: int = 0
    bytes: int = 0
    posted: int = 0
    filled: int = 0


class _Bound(NamedTuple):
    """What may not be more, all together, and what to do where it is."""

    of: str
    most: int
    said: str
    instead: str

    def wrong(self, mark: Mark, total: int) -> NodeError:
        most = self._text(self.most)
        found = f"{self._text(total)} {self.said}, all together up to here"
        return NodeError(mark, found, f"{most} at most: {self.instead}")

    def _text(self, value: int) -> str:
        if self.of == "messages":
            return str(value)
        text = format_exactly(value, SIZES)
        return f"{text} bytes" if text.isdigit() else text


_POSTED: Final = _Bound(
    "posted", MAX_POSTED, "to send at once", "less at a time, or a rate of each link"
)
_BOUNDS: Final = (
    _Bound("messages", MAX_MESSAGES, "messages", "fewer times, or fewer queue pairs"),
    _Bound("bytes", MAX_SENT, "to send", "fewer times, or shorter messages"),
    _Bound("filled", MAX_FILLED_TOGETHER, "to fill", "zeros, or less memory"),
)


def check_amounts(context: ParseContext, links: Sequence[LinkPlan]) -> Iterator[NodeError]:
    """Of each bound, where it is first not kept."""
    amounts = [*_amounts(context)]
    unpaced = any(link.rate is None for link in links)
    for bound in (*_BOUNDS, *((_POSTED,) if unpaced else ())):
        total = 0
        for amount in amounts:
            total += getattr(amount, bound.of)
            if total > bound.most:
                yield bound.wrong(amount.mark, total)
                break


def _amounts(context: ParseContext) -> Iterator[Amount]:
    """All that comes to something, as far as it can be read."""
    for memory in context.memory.values():
        if memory.content.fill is not Fill.ZEROS:
            yield Amount(memory.mark, filled=memory.size)
    for plan in context.connections.values():
        for receive in plan.receives:
            yield Amount(receive.mark, messages=receive.count * plan.count)
    for step in context.steps:
        yield _of_step(step, context)


def _of_step(step: StepPlan, context: ParseContext) -> Amount:
    if step.verb == "fill":
        span = step.values.get("what")
        length = length_of(span, context) if isinstance(span, Span) else None
        return Amount(step.mark, filled=min(length or 0, MAX_FILLED))
    times = step.times * _pairs(step.end, context)
    if VERBS[step.verb].work is None:
        return Amount(step.mark, messages=times)
    data = message_size(step, context) or 0
    at_once = min(step.times, step.depth or QUEUE) * _pairs(step.end, context)
    return Amount(step.mark, messages=times, bytes=times * data, posted=at_once * data)


def _pairs(end: End | None, context: ParseContext) -> int:
    """The queue pairs that an end names."""
    plan = None if end is None else context.connections.get(end.connection)
    return 1 if plan is None or end is None or end.number is not None else plan.count


def message_size(plan: StepPlan, context: ParseContext) -> int | None:
    """The bytes of local memory, or inline, if all of that is known."""
    if plan.inline is not None:
        return len(plan.inline)
    total = 0
    for span in plan.local:
        length = length_of(span, context)
        if length is None:
            return None
        total += length
    return total
