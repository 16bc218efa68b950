"""The ends of all captures, and where our NIC is not yet what Linux is."""

from collections.abc import Sequence

import pytest
from _pytest.mark import ParameterSet

from tests.nic.replay import capture
from tests.nic.replay.conversation import CLIENT, SERVER, Side, side
from tests.nic.replay.end import End
from tests.nic.replay.facts import options

ENDS: tuple[Side, ...] = tuple(
    side(capture.read(name), end) for name in capture.names() for end in (CLIENT, SERVER)
)
"""Both ends of every capture."""


def _writes(end: Side) -> bool:
    """Whether the end let its peer write to an address."""
    lines = End(end, options(end)).lines.values()
    done = (message for line in lines for message in line.delivered() if not message.is_read)
    return any(message.range is not None and message.range[2] for message in done)


SENDERS = [end for end in ENDS if any(not seen.shape.response for seen in end.sent)]
"""Those that send requests."""
ANSWERERS = [end for end in ENDS if any(seen.shape.response for seen in end.sent)]
"""Those that send responses."""
RECEIVERS = [end for end in ENDS if any(not seen.shape.response for seen in end.received)]
"""Those that requests were sent to."""
WRITTEN_TO = [end for end in RECEIVERS if _writes(end)]
"""Those whose memory was written, by an address and a key, and not refused."""

_TOO_LONG = "Linux ends a receive that is too short with LOC_QP_OP_ERR; we with LOC_LEN_ERR"

OPEN: dict[tuple[str, str, str], str] = {
    ("received", "rxe61_err_send_too_long", SERVER): _TOO_LONG,
}
"""What is looked at, capture and end, with what we do otherwise. Rows go as it is mended."""


def cases(ends: Sequence[Side], looked_at: str) -> pytest.MarkDecorator:
    """A test for each of these ends, expected to fail where the table says so."""
    return pytest.mark.parametrize("end", [_case(end, looked_at) for end in ends])


def _case(end: Side, looked_at: str) -> ParameterSet:
    name = end.capture.name
    reason = OPEN.get((looked_at, name, end.name))
    marks = () if reason is None else (pytest.mark.xfail(strict=True, reason=reason),)
    return pytest.param(end, id=f"{name}-{end.name}", marks=marks)
