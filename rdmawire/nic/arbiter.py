"""Which of a queue pair's frames go first: answers of its responder, or requests of its own.

Both share what the port has room for. While both have something to send, they take turns of
:data:`TURN` frames, and who is behind in bytes has the next one: so each gets about half of the
bytes, whatever the other has to say, and waits for one turn of the other at most. The standard
leaves the order between both to the adapter (IBA 9.7.5 orders answers, 9.7.2 requests).
"""

from collections.abc import Callable
from itertools import islice

from rdmawire.nic.answer import answer
from rdmawire.nic.qp import QueuePair
from rdmawire.nic.requester import send

TURN = 8
"""Frames of one side before the other has its turn: enough for runs of them, and soon over."""

Side = Callable[[QueuePair, list[bytes], int], None]
"""Appends frames of a queue pair, until there are so many of them or it has no more."""


def transmit(qp: QueuePair, frames: list[bytes], room: int, send: Side = send) -> None:
    """Append what a queue pair has to send, until there are ``room`` frames.

    ``send`` appends its requests.
    """
    if not qp.sends or qp.patience.resting:
        answer(qp, frames, room)
    elif qp.inbound.owed and qp.sq.posted:
        _share(qp, frames, room, (answer, send))
    else:
        qp.answers_ahead = 0
        answer(qp, frames, room)
        send(qp, frames, room)


def _share(qp: QueuePair, frames: list[bytes], room: int, sides: tuple[Side, Side]) -> None:
    """Both sides in turn; when one has no more, the other has what is left, and no debts."""
    while len(frames) < room:
        requests = qp.answers_ahead > 0
        before, end = len(frames), min(room, len(frames) + TURN)
        sides[requests](qp, frames, end)
        if len(frames) < end:
            qp.answers_ahead = 0
            sides[not requests](qp, frames, room)
            return
        sent = sum(map(len, islice(frames, before, None)))
        qp.answers_ahead += -sent if requests else sent
