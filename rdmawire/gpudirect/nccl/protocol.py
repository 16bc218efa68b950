"""NCCL's protocols: how values are put into messages, and the buffers of a connection.

LL and LL128 send flags with the values, so that a receiver sees what has arrived without waiting
for the end of a message. Facts: ``device.h`` and ``prims_ll128.h`` of NCCL 2.28.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.errors import CollectiveError

Values = NDArray[Any]
_WORD: Final = 4
_MAX_FLAG: Final = (1 << 32) - 1


class MessageProtocol(NamedTuple):
    """How NCCL puts values into messages, and the buffers of a connection.

    A connection has ``slots`` buffers of ``slot_size`` bytes. ``chunk`` is the maximum number of
    bytes of values in a chunk, which is sent in ``slices`` messages. Of each ``line`` bytes of a
    message the last ``flag`` bytes are a flag; with ``line`` 0 there are none.
    """

    name: str
    slots: int
    slot_size: int
    chunk: int
    slices: int
    line: int = 0
    flag: int = 0

    @property
    def values_per_line(self) -> int:
        """The bytes of values in a line."""
        return self.line - self.flag

    def wire_size(self, size: int) -> int:
        """Return the bytes of a message with ``size`` bytes of values."""
        if not self.line:
            return size
        return -(-size // self.values_per_line) * self.line

    def encoded(self, values: Values, number: int) -> bytes:
        """Return the message of these values; ``number`` is its number, which is in the flags."""
        if not self.line:
            return values.tobytes()
        words, columns = values.view(np.uint32), self.values_per_line // _WORD
        lines = np.zeros((-(-len(words) // columns), self.line // _WORD), np.uint32)
        whole, rest = divmod(len(words), columns)
        lines[:whole, :columns] = words[: whole * columns].reshape(whole, columns)
        lines[whole:, :rest] = words[whole * columns :]
        lines[:, columns] = number & _MAX_FLAG
        return lines.tobytes()

    def decoded(self, data: bytes, number: int, dtype: np.dtype[Any]) -> Values:
        """Return the values of a message, with what pads its last line.

        :class:`~rdmawire.errors.CollectiveError` if a line has another flag than ``number``.
        """
        if not self.line:
            return np.frombuffer(data, dtype)
        lines = np.frombuffer(data, np.uint32).reshape(-1, self.line // _WORD)
        columns = self.values_per_line // _WORD
        if (lines[:, columns] != number & _MAX_FLAG).any():
            raise CollectiveError(f"a message without the flag {number}")
        return np.ascontiguousarray(lines[:, :columns]).reshape(-1).view(dtype)


LL: Final = MessageProtocol(
    "ll", slots=8, slot_size=1 << 16, chunk=1 << 14, slices=1, line=8, flag=4
)
"""Low latency: four bytes of values, four of a flag; half of the bytes are flags."""
LL128: Final = MessageProtocol(
    "ll128", slots=8, slot_size=614_400, chunk=576_000, slices=1, line=128, flag=8
)
"""Lines of 128 bytes, of which the last eight are a flag: GPUs write a line at once to NVLink."""
SIMPLE: Final = MessageProtocol("simple", slots=4, slot_size=1 << 20, chunk=1 << 21, slices=2)
"""Values alone, in large messages."""
PROTOCOLS: Final = {protocol.name: protocol for protocol in (LL, LL128, SIMPLE)}
SIMPLE_STEP: Final = SIMPLE._replace(slots=8, slot_size=1 << 19, chunk=1 << 19, slices=1)
"""Values alone where a chunk is one step of the buffer: in trees, and from or to a root."""
