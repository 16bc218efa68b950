"""The order in which a queue pair sends its responses and its requests.

While both are pending, they are sent in turns of :data:`TURN` frames, and the side that has sent
fewer bytes has the next turn. So each side gets about half of the bytes, and waits for one turn of
the other at most. The standard leaves this order to the adapter: IBA 9.7.5 orders responses, 9.7.2
requests.
"""

from collections.abc import Callable
from itertools import islice

from rdmawire.ib.qp import QueuePair
from rdmawire.ib.requester import send
from rdmawire.ib.responses import answer

TURN = 8
"""Frames of one turn: enough to send runs of middle packets together."""

Side = Callable[[QueuePair, list[bytes], int], None]
"""Appends frames of a queue pair to a list, until it has that many frames or nothing is pending."""


def transmit(qp: QueuePair, frames: list[bytes], room: int, send: Side = send) -> None:
    """Append a queue pair's pending frames to ``frames``, until that has ``room`` frames.

    ``send`` appends its requests.
    """
    if not qp.sends or qp.retry_state.in_rnr_wait:
        answer(qp, frames, room)
    elif qp.inbound.pending and qp.sq.posted:
        _share(qp, frames, room, (answer, send))
    else:
        qp.responses_in_a_row = 0
        answer(qp, frames, room)
        send(qp, frames, room)


def _share(qp: QueuePair, frames: list[bytes], room: int, sides: tuple[Side, Side]) -> None:
    """Send both sides in turn; when one has nothing pending, the other gets the rest."""
    while len(frames) < room:
        requests = qp.responses_in_a_row > 0
        before, end = len(frames), min(room, len(frames) + TURN)
        sides[requests](qp, frames, end)
        if len(frames) < end:
            qp.responses_in_a_row = 0
            sides[not requests](qp, frames, room)
            return
        sent = sum(map(len, islice(frames, before, None)))
        qp.responses_in_a_row += -sent if requests else sent
