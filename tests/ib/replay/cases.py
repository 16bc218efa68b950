"""The ends of all captures, by what they do."""

from collections.abc import Sequence

import pytest

from tests.ib.replay import capture
from tests.ib.replay.conversation import CLIENT, SERVER, Side, side
from tests.ib.replay.end import End
from tests.ib.replay.facts import options

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


def cases(ends: Sequence[Side]) -> pytest.MarkDecorator:
    """A test for each of these ends."""
    return pytest.mark.parametrize(
        "end", [pytest.param(end, id=f"{end.capture.name}-{end.name}") for end in ends]
    )
