"""The transport packets of a block, as arrays of their own."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from rdmawire.columns.column import Columns
from rdmawire.stats.address import Addresses
from rdmawire.stats.circle import Numbers
from rdmawire.stats.opcodes import IS_RD, IS_UD, OVERHEAD
from rdmawire.stats.question import FACTS
from rdmawire.wire.inet import ECN, UDP

EE_CONTEXT = 1 << 24
"""Set in the number that a packet is for where it is an end-to-end context of RD, no QP."""


@dataclass(frozen=True, slots=True, eq=False)
class Packets:
    """Packets in the order of the capture.

    ``destination`` is the QP that a packet is for, of RD the EE context; ``source`` the QP that
    sent it, 0 where only the sender knows. ``syndrome`` is -1 without AETH, ``read`` the octets
    that a RETH asks for.
    """

    times: Numbers
    octets: Numbers
    payload: Numbers
    opcode: NDArray[np.uint8]
    psn: Numbers
    pair: Numbers
    destination: Numbers
    source: Numbers
    read: Numbers
    syndrome: NDArray[np.int16]
    marked: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.psn)

    def at(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> "Packets":
        """Some of the packets."""
        return Packets(*(getattr(self, field.name)[rows] for field in fields(self)))


def packets(block: Columns, addresses: Addresses) -> Packets:
    """The packets of a block."""
    rows = np.flatnonzero(block["infiniband.bth.opcode"].valid)
    opcode = block["infiniband.bth.opcode"].values[rows]
    lengths, marked = _carried(block, rows)
    syndrome = _numbers(block, "infiniband.aeth.syndrome", rows)
    syndrome[~block["infiniband.aeth.syndrome"].valid[rows]] = -1
    padcnt = _numbers(block, "infiniband.bth.padcnt", rows)
    return Packets(
        times=_numbers(block, "frame.time_epoch", rows),
        octets=_numbers(block, "frame.len", rows),
        payload=np.maximum(lengths - OVERHEAD[opcode] - padcnt, 0),
        opcode=opcode,
        psn=_numbers(block, "infiniband.bth.psn", rows),
        pair=addresses.of_rows(block, rows),
        destination=_destinations(block, rows, opcode),
        source=np.where(IS_UD[opcode], _numbers(block, "infiniband.deth.srcqp", rows), 0),
        read=_numbers(block, "infiniband.reth.dmalen", rows),
        syndrome=syndrome.astype(np.int16),
        marked=marked,
    )


def _numbers(block: Columns, name: str, rows: Numbers) -> Numbers:
    """Values as 64 bits; zero where a row has none."""
    column = block[name]
    found = column.values[rows].astype(np.int64)
    if not column.valid.all():
        found *= column.valid[rows]
    return found


def _carried(block: Columns, rows: Numbers) -> tuple[Numbers, NDArray[np.bool_]]:
    """What the carrier says: octets from the UDP header to the ICRC, and whether ECN is CE."""
    lengths = _numbers(block, "udp.length", rows)
    marks = [
        _numbers(block, name, rows) == ECN.CE for name in ("ip.dsfield.ecn", "ipv6.tclass.ecn")
    ]
    marked = marks[0] | marks[1]
    facts = block[FACTS]
    for at in np.flatnonzero(facts.valid[rows]):
        fact = facts.values[rows[at]]
        lengths[at], marked[at] = fact.length + UDP.SIZE, fact.ecn == ECN.CE
    return lengths, marked


def _destinations(block: Columns, rows: Numbers, opcode: NDArray[np.uint8]) -> Numbers:
    qp = _numbers(block, "infiniband.bth.destqp", rows)
    if not IS_RD[opcode].any():
        return qp
    contexts = _numbers(block, "infiniband.rdeth.eecnxt", rows)
    return np.where(IS_RD[opcode], contexts | EE_CONTEXT, qp)
