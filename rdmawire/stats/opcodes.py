"""What opcodes mean here, for all 256 at once: tables made of the standard's own."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rdmawire.columns.fast_path import HEADERS
from rdmawire.wire.opcode import SHAPES, Opcode, Operation, Part, Service, Shape


def _which(holds: Any) -> NDArray[np.bool_]:
    return np.array([bool(code in SHAPES and holds(SHAPES[code])) for code in range(256)])


def _is(operation: Operation) -> Any:
    return lambda shape: shape.opcode & 0x1F == operation and shape.service is not Service.CNP


def _is_full(shape: Shape) -> bool:
    return shape.part in (Part.FIRST, Part.MIDDLE)


IS_UD = _which(lambda shape: shape.service is Service.UD)
IS_RD = _which(lambda shape: shape.service is Service.RD)
IS_CNP = np.arange(256) == Opcode.CNP
IS_REQUEST = _which(lambda shape: not shape.response and shape.service is not Service.UD)
"""Requests whose PSNs must follow one another; those of UD need not, IBA 9.8.3."""
IS_RESPONSE = _which(lambda shape: shape.response and shape.service is not Service.CNP)
IS_READ = _which(_is(Operation.RDMA_READ_REQUEST))
IS_FULL = _which(_is_full)
"""Packets whose payload is the path MTU: the first and the middle ones. IBA 9.7.2."""
BEGINS = IS_RESPONSE & ~_which(
    lambda shape: (
        shape.opcode & 0x1F
        in (Operation.RDMA_READ_RESPONSE_MIDDLE, Operation.RDMA_READ_RESPONSE_LAST)
    )
)
"""Responses whose PSN is that of a request; others have PSNs inside a READ."""

OVERHEAD = HEADERS.astype(np.int64)
"""Octets from the UDP header to the ICRC that are no payload."""
