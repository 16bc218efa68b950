"""What stands from the BTH to the ICRC, for every opcode at once: tables by opcode."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.columns.bits import Matrix
from rdmawire.columns.path import UDP_LENGTH, Path, row_bits
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH, ICRC
from rdmawire.wire.inet import UDP
from rdmawire.wire.mad import MANAGEMENT_QPS
from rdmawire.wire.opcode import Payload, Service
from rdmawire.wire.packet import LAYOUTS

_OPCODE, _PADCNT, _DESTQP = (row_bits(BTH, name) for name in ("opcode", "padcnt", "destqp"))
_NEVER = 1 << 20
"""More octets than any datagram has: what stands for opcodes that are dissected one by one."""

HEADERS = np.full(256, _NEVER, np.int32)
"""Octets from the UDP header to the ICRC that are no payload, by opcode."""
_EXACTLY = np.full(256, -1, np.int32)
"""The octets of payload that an opcode must have; -1 for any number."""
_DATAGRAMS = np.zeros(256, np.bool_)
"""Opcodes of unreliable datagrams, which may be management."""

_PAYLOADS = {Payload.NONE: 0, Payload.EIGHT: 8, Payload.ANY: -1}

for _opcode, _layout in LAYOUTS.items():
    if _layout.shape is not None:
        HEADERS[_opcode] = UDP.SIZE + BTH.SIZE + _layout.size + ICRC.SIZE
        _EXACTLY[_opcode] = _PAYLOADS[_layout.shape.payload]
        _DATAGRAMS[_opcode] = _layout.shape.service is Service.UD


def places(table: type[Header]) -> NDArray[np.int16]:
    """Where a header stands behind the BTH's first octet, by opcode; -1 where it does not."""
    found = np.full(256, -1, np.int16)
    for opcode, layout in LAYOUTS.items():
        at = BTH.SIZE
        for header in layout.headers:
            if header is table:
                found[opcode] = at
            at += header.SIZE
    return found


class Packets(NamedTuple):
    """Transport packets of frames on a path: opcodes, and octets from UDP header to ICRC."""

    opcodes: NDArray[np.uint8]
    lengths: NDArray[np.int32]

    @property
    def present(self) -> NDArray[np.int64]:
        """The opcodes that there are, each once."""
        return np.flatnonzero(np.bincount(self.opcodes, minlength=256))


def packets(frames: Matrix, path: Path) -> Packets:
    """The packets of all frames, whether they make sense or not."""
    lengths = UDP_LENGTH.read(frames, path.bases[UDP]).astype(np.int32)
    return Packets(_OPCODE.read(frames, path.bth), lengths)


def make_sense(
    frames: Matrix, path: Path, found: Packets, captured: NDArray[Any]
) -> NDArray[np.bool_]:
    """The packets that parse to their end, and that are no management datagrams."""
    opcodes, lengths = found
    payload = lengths - HEADERS[opcodes]
    padcnt = _PADCNT.read(frames, path.bth)
    exactly = _EXACTLY[opcodes]
    sense: NDArray[np.bool_] = np.where(
        exactly < 0,
        (payload >= padcnt) & (payload & 3 == 0),
        (payload == exactly) & (padcnt == 0),
    )
    sense &= path.bases[UDP] + lengths <= captured
    managed = _DATAGRAMS[opcodes]
    if managed.any():
        sense &= ~(managed & (_DESTQP.read(frames, path.bth) <= MANAGEMENT_QPS[-1]))
    return sense
