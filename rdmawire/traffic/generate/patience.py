"""How long requesters wait for answers: as long as one may take, and little longer.

What is lost and no NAK tells of (the last frame of a message, an ACK, a NAK) is sent again when
the Local ACK Timeout is over, and until then the link is silent. Any request is answered when all
of its round was on the link, and when all queue pairs had their turns up to where each asks for an
ACK. So the measure is the time that these frames take. Where a switch joins many hosts, they may
all wait for one host's link there as well.
"""

from collections.abc import Iterable
from typing import Final

from rdmawire.fabric.line import SECOND, bits
from rdmawire.ib.congestion.dcqcn import DcqcnParameters
from rdmawire.ib.engine import BURST
from rdmawire.ib.retransmit_timer import ACK_TIMEOUT_UNIT
from rdmawire.traffic.generate.blend import WITHOUT_DATA, Message
from rdmawire.traffic.generate.order import LAST_TIMEOUT, Order
from rdmawire.verbs.profile import IBTA

_HEADERS: Final = 128
"""Octets of a frame beside its payload, at most."""
_TURN: Final = IBTA.packets_per_ack + BURST
"""Frames that a queue pair sends until it asked for an ACK."""
_BOTH: Final = 2
"""There and back."""


def exponent(order: Order, messages: Iterable[Message]) -> int:
    """That of the Local ACK Timeout (IBA 9.7.6.1.3): what is asked for, or what fits."""
    if order.timeout is not None:
        return order.timeout
    units = _longest(order, list(messages)) // ACK_TIMEOUT_UNIT
    return min(units.bit_length() + 1, LAST_TIMEOUT)


def _longest(order: Order, messages: list[Message]) -> int:
    """Nanoseconds after which any request is answered, however the queue pairs take turns."""
    frames = sum(_frames(message.length, order.mtu) for message in messages)
    queued = _time(order, min(frames, order.lanes * _TURN), order.rate)
    time = _BOTH * order.links * (queued + order.latency)
    return time if order.marks is None else time + _slowed_down(order, messages)


def _slowed_down(order: Order, messages: list[Message]) -> int:
    """Nanoseconds that a sender takes until it asks for an ACK, where nobody is slower."""
    sent = [0 if message.kind.opcode in WITHOUT_DATA else message.length for message in messages]
    frames = min(_frames(max(sent), order.mtu), IBTA.packets_per_ack) + 1
    return _time(order, frames, min(order.rate, int(DcqcnParameters().min_rate)))


def _frames(length: int, mtu: int) -> int:
    return max(-(-length // mtu), 1)


def _time(order: Order, frames: int, rate: int) -> int:
    """Nanoseconds that so many frames take at most."""
    return frames * bits(min(order.mtu, order.lengths.largest) + _HEADERS) * SECOND // rate
