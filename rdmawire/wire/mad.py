"""Management datagrams: the common header and the data of each class. IBA 13.4.

:func:`layout` parses a complete datagram. The classes are rows of :data:`CLASSES`; other modules
declare their data.
"""

from collections.abc import Callable, Iterator

from rdmawire.errors import WireError
from rdmawire.wire import cm, perf, sa, smp
from rdmawire.wire.cm import CMAttribute
from rdmawire.wire.header import Header, Meaning, bits, choice, group
from rdmawire.wire.layout import Piece, Placed, area, joined, plain, size, tables
from rdmawire.wire.management import (
    VENDOR_OUI_CLASSES,
    CommonAttribute,
    ManagementClass,
    Method,
    class_word,
    sa_status_words,
    status_words,
)
from rdmawire.wire.perf import PerfAttribute
from rdmawire.wire.rmpp import OUI, RMPP
from rdmawire.wire.sa import SAAttribute
from rdmawire.wire.show import HEX
from rdmawire.wire.smp import SMAttribute

SIZE = 256
"""Bytes of a management datagram. IBA 13.4.1."""

MANAGEMENT_QPS = (0, 1)
"""The queue pairs of subnet management and of general services. IBA 3.9."""

BASE_VERSION = 1
"""The only supported base version. IBA 13.4.2."""

_CLASS = "infiniband.mad.mgmtclass"
_DIRECTED = ManagementClass.SUBN_DIRECTED_ROUTE
_STATUS = "infiniband.mad.status"
_SPECIFIC = "infiniband.mad.classspecific"
_ATTRIBUTE = "infiniband.mad.attributeid"

_STATUSES: dict[int, Meaning] = {
    **{number: Meaning(_STATUS, HEX, words=status_words) for number in ManagementClass},
    ManagementClass.SUBN_ADM: Meaning(_STATUS, HEX, words=sa_status_words),
}

_ATTRIBUTES: dict[int, Meaning] = {
    ManagementClass.SUBN_LID_ROUTED: Meaning(_ATTRIBUTE, HEX, SMAttribute),
    ManagementClass.SUBN_ADM: Meaning(_ATTRIBUTE, HEX, SAAttribute),
    ManagementClass.PERF_MGT: Meaning(_ATTRIBUTE, HEX, PerfAttribute),
    ManagementClass.BM: Meaning(_ATTRIBUTE, HEX, CommonAttribute),
    ManagementClass.DEV_MGT: Meaning(_ATTRIBUTE, HEX, CommonAttribute),
    ManagementClass.COM_MGT: Meaning(_ATTRIBUTE, HEX, CMAttribute),
    ManagementClass.SNMP: Meaning(_ATTRIBUTE, HEX, CommonAttribute),
}


class MAD(Header, clause="IBA 13.4.2", label="mad"):
    """Common header of a management datagram."""

    base_version: int = bits(8, "infiniband.mad.baseversion", HEX, default=BASE_VERSION)
    mgmt_class: int = bits(8, _CLASS, HEX, words=class_word)
    class_version: int = bits(8, "infiniband.mad.classversion", HEX, default=1)
    method: int = bits(8, "infiniband.mad.method", HEX, enum=Method)
    status: int = choice(16, "mgmt_class", _STATUSES, _STATUS, HEX)
    class_specific: int = bits(16, _SPECIFIC, HEX)
    transaction_id: int = bits(64, "infiniband.mad.transactionid", HEX)
    attribute_id: int = choice(16, "mgmt_class", _ATTRIBUTES, _ATTRIBUTE, HEX)
    resv16: int = bits(16)
    attribute_modifier: int = bits(32, "infiniband.mad.attributemodifier", HEX)


class DirectedMAD(Header, clause="IBA 14.2.1.2", label="directed_mad"):
    """Common header of a directed route datagram: ``d`` is set on the way back."""

    base_version: int = bits(8, "infiniband.mad.baseversion", HEX, default=BASE_VERSION)
    mgmt_class: int = bits(8, _CLASS, HEX, words=class_word, default=_DIRECTED)
    class_version: int = bits(8, "infiniband.mad.classversion", HEX, default=1)
    method: int = bits(8, "infiniband.mad.method", HEX, enum=Method)
    d_and_status: int = group("infiniband.smpdirected.smpstatus", "d", "status", show=HEX)
    mad_status: int = group(_STATUS, "d", "status", show=HEX)
    d: int = bits(1, "infiniband.smpdirected.d", HEX)
    status: int = bits(15, "", HEX, words=status_words)
    class_specific: int = group(_SPECIFIC, "hop_pointer", "hop_count", show=HEX)
    hop_pointer: int = bits(8, "infiniband.smpdirected.hoppointer", HEX)
    hop_count: int = bits(8, "infiniband.smpdirected.hopcount", HEX)
    transaction_id: int = bits(64, "infiniband.mad.transactionid", HEX)
    attribute_id: int = bits(16, _ATTRIBUTE, HEX, enum=SMAttribute)
    resv16: int = bits(16)
    attribute_modifier: int = bits(32, "infiniband.mad.attributemodifier", HEX)


DATA = SIZE - MAD.SIZE
"""Bytes after the common header."""

Body = Callable[[bytes, int, int, int], Iterator[Placed]]
"""Yields the pieces after the common header: buffer, offset, method, attribute id."""


def _vendor(buffer: bytes, offset: int, _: int, __: int) -> Iterator[Placed]:
    """Yield RMPP header and OUI, then the vendor's data. IBA 16.5."""
    return area(buffer, offset, DATA, tables(RMPP, OUI))


CLASSES: dict[int, Body] = {
    ManagementClass.SUBN_LID_ROUTED: smp.lid_routed,
    ManagementClass.SUBN_DIRECTED_ROUTE: smp.directed,
    ManagementClass.SUBN_ADM: sa.body,
    ManagementClass.PERF_MGT: perf.body,
    ManagementClass.COM_MGT: cm.body,
    **dict.fromkeys(VENDOR_OUI_CLASSES, _vendor),
}
"""Management class to the reader after the common header; other classes have plain bytes."""


def header(buffer: bytes, start: int = 0) -> MAD | DirectedMAD:
    """Parse the common header at ``start`` bytes."""
    found = MAD.parse(buffer, start)
    directed = found.mgmt_class == ManagementClass.SUBN_DIRECTED_ROUTE
    return DirectedMAD.parse(buffer, start) if directed else found


def layout(buffer: bytes, start: int = 0, end: int | None = None) -> Iterator[Placed]:
    """Yield each piece of the datagram from ``start`` to ``end`` (bytes) with its offset.

    Reserved tails, and attributes and classes without a table, are plain ``bytes``. Raises
    :class:`WireError`, after the pieces found, where the datagram is invalid.
    """
    data = buffer if end is None else buffer[:end]
    at = start
    for offset, piece in _pieces(data, start):
        yield offset, piece
        at = offset + size(piece)
    if at < len(data):
        yield at, bytes(data[at:])


def _pieces(buffer: bytes, start: int) -> Iterator[Placed]:
    head = header(buffer, start)
    yield start, head
    offset = start + head.SIZE
    if head.base_version == BASE_VERSION and head.mgmt_class in CLASSES:
        yield from CLASSES[head.mgmt_class](buffer, offset, head.method, head.attribute_id)
    else:
        yield from area(buffer, offset, DATA, plain)


def build(*pieces: Piece) -> bytes:
    """Build a datagram of these pieces, padded with zeros; ``WireError`` if they are too long."""
    data = joined(*pieces)
    if len(data) > SIZE:
        raise WireError(f"a MAD has {SIZE} bytes (IBA 13.4.1), these pieces take {len(data)}")
    return data.ljust(SIZE, b"\0")
