"""Steps of the IBA transport: the BTH, what its opcode calls for, the ICRC, and MADs inside."""

from rdmawire.decode.checksum import NOWHERE, InvariantCRC
from rdmawire.decode.walk import By, Following, Walk
from rdmawire.errors import WireError
from rdmawire.wire import mad
from rdmawire.wire.ib import BTH, ICRC
from rdmawire.wire.opcode import Service, service_of
from rdmawire.wire.packet import LAYOUTS, OpcodeTable, check_payload

_ICRC_SIZE = ICRC.SIZE


def transport(walk: Walk, opcodes: OpcodeTable = LAYOUTS) -> Following:
    """One transport packet, from the BTH to the ICRC; its layout is one of ``opcodes``."""
    start = walk.offset
    walk.bth = bth = walk.take(BTH)
    _cover_icrc(walk, start)
    tables, _, shape = opcodes.layout(bth.opcode)
    if opcodes is not LAYOUTS and shape is not None:
        walk.name_opcode(shape.name)
    for table in tables:
        walk.take(table)
    if not walk.short and shape is not None:
        check_payload(bth, walk.left, walk.offset, opcodes)
    if not walk.short:
        walk.packet = range(start, walk.end)
    if shape is None:
        walk.take_bytes("vendor", walk.left)
        return None
    if walk.short:
        walk.take_payload()
        return None
    payload = By.QP, bth.destqp
    if payload in walk.protocols:
        return payload
    walk.take_payload(bth.padcnt)
    return None


def _cover_icrc(walk: Walk, bth: int) -> None:
    """The ICRC is covered also where the headers do not parse."""
    if walk.icrc is None:
        raise WireError("no header before the BTH that an ICRC begins with", bth)
    if walk.short:
        walk.cover(InvariantCRC(walk.icrc, bth, NOWHERE))
        return
    end = walk.end
    if end - walk.offset < _ICRC_SIZE:
        raise WireError(f"no room for the ICRC: {walk.left} bytes follow the BTH")
    walk.end = end - _ICRC_SIZE
    walk.cover(InvariantCRC(walk.icrc, bth, end))


def management(walk: Walk) -> Following:
    """A management datagram, in packets of the UD service. IBA 13.4."""
    bth = walk.bth
    if service_of(bth.opcode) is not Service.UD:
        walk.take_payload(bth.padcnt)
        return None
    if bth.padcnt:
        walk.trail("pad", walk.end - bth.padcnt)
    start = walk.offset
    pieces = walk.take_pieces(mad.layout(walk.data, start, walk.end))
    walk.enter_management(start, pieces)
    return None
