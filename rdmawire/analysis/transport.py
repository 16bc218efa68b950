"""Steps of the IBA transport: the BTH, what its opcode calls for, the ICRC, and MADs inside."""

from rdmawire.analysis import checksum, derived
from rdmawire.analysis.walk import By, Following, Walk
from rdmawire.errors import WireError
from rdmawire.wire.ib import BTH, ICRC
from rdmawire.wire.icrc import icrc_headers_twice
from rdmawire.wire.mad import MANAGEMENT_QPS
from rdmawire.wire.opcode import SHAPES, Opcode, Service
from rdmawire.wire.packet import check_payload, layout


def transport(walk: Walk) -> Following:
    """One transport packet, from the BTH to the ICRC."""
    start = walk.offset
    bth = walk.take(BTH)
    _expect_icrc(walk, start, bth.opcode)
    tables, _, shape = layout(bth.opcode)
    for table in tables:
        walk.take(table)
    if shape is None:
        walk.take_octets("vendor", walk.left, derived.VENDOR)
        return None
    if not walk.short:
        check_payload(bth, walk.left, walk.offset)
    return _payload(walk, bth)


def _expect_icrc(walk: Walk, bth: int, opcode: int) -> None:
    """The ICRC is checked last, and also where the headers do not parse."""
    if walk.short:
        walk.leave(checksum.ICRC, walk.nodes[-1])
        return
    if walk.left < ICRC.SIZE:
        raise WireError(f"no room for the ICRC: {walk.left} octets follow the BTH")
    walk.end -= ICRC.SIZE
    end, icrc = walk.end, walk.icrc
    if opcode == Opcode.RC_FLUSH:
        walk.owe_crc(
            ICRC, end, checksum.ICRC, lambda: _icrc_of_flush(walk, bth, end, icrc(bth, end))
        )
    else:
        walk.owe_crc(ICRC, end, checksum.ICRC, lambda: icrc(bth, end))


def _icrc_of_flush(walk: Walk, bth: int, end: int, standard: int) -> int:
    """The ICRC that a FLUSH should have: the ``standard`` one, or Linux's if that is there."""
    linux = icrc_headers_twice(standard, walk.data[bth:end])
    if ICRC.parse(walk.data, end).crc != linux:
        return standard
    walk.nodes[-1].add(derived.ICRC_NOTE, "good by rxe's rule for FLUSH")
    return linux


def _payload(walk: Walk, bth: BTH) -> Following:
    service = SHAPES[bth.opcode].service
    if walk.short or service is not Service.UD or bth.destqp not in MANAGEMENT_QPS:
        walk.take_data(0 if walk.short else bth.padcnt)
        return None
    if bth.padcnt:
        walk.owe("pad", walk.end - bth.padcnt, walk.end, derived.PAD)
        walk.end -= bth.padcnt
    return By.MAD, 0
