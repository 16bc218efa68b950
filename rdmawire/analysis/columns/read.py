"""Whole captures as columns: :func:`read_columns` and :func:`iter_columns`."""

import os
from collections.abc import Iterable, Iterator
from enum import Enum

import numpy as np

from rdmawire.analysis.columns.asked import Query
from rdmawire.analysis.columns.column import Columns, joined
from rdmawire.analysis.columns.filling import Filling
from rdmawire.analysis.columns.fpdu import of_fpdus
from rdmawire.analysis.columns.mixed import MixedReader
from rdmawire.analysis.columns.path import LINK_TYPES
from rdmawire.analysis.columns.walked import of_frame, walked
from rdmawire.capture.columns.mapped import mapped
from rdmawire.wire.inet import ROCE_PORT

DEFAULT_FIELDS = (
    *("frame.number", "frame.time_epoch", "frame.len", "frame.cap_len"),
    *("ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "ip.dsfield.ecn", "udp.srcport", "udp.dstport"),
    *("infiniband.bth.opcode", "infiniband.bth.se", "infiniband.bth.m", "infiniband.bth.padcnt"),
    *("infiniband.bth.tver", "infiniband.bth.p_key", "rdmawire.bth.fecn", "rdmawire.bth.becn"),
    *("infiniband.bth.destqp", "infiniband.bth.a", "infiniband.bth.psn"),
    *("infiniband.reth.va", "infiniband.reth.r_key", "infiniband.reth.dmalen"),
    *("infiniband.aeth.syndrome", "infiniband.aeth.msn"),
    *("infiniband.deth.q_key", "infiniband.deth.srcqp"),
    *("infiniband.atomiceth.swapdt", "infiniband.atomiceth.cmpdt"),
    *("infiniband.immdt", "rdmawire.icrc.status"),
)
"""What is read where no fields are named: what RoCE traffic is usually asked for."""


class Row(Enum):
    """What a row of columns is."""

    FRAME = "frame"
    FPDU = "FPDU"


def iter_columns(
    path: str | os.PathLike[str],
    fields: Iterable[str] = DEFAULT_FIELDS,
    *,
    row: Row = Row.FRAME,
    ports: Iterable[int] = (ROCE_PORT,),
) -> Iterator[Columns]:
    """Columns of a capture in blocks, in bounded memory, whatever its size.

    ``fields`` go by the names that ``rdmawire fields`` lists; ``row`` is a frame, or an FPDU of
    iWARP with the fields of its own headers; ``ports`` are the UDP ports of RoCEv2.
    :class:`~rdmawire.analysis.selection.FieldError` names an unknown field at once;
    :class:`~rdmawire.errors.CaptureError` comes for damage, after all that stands before it.
    """
    query = Query(fields)
    return _blocks(path, query, row, tuple(ports))


def _blocks(
    path: str | os.PathLike[str], query: Query, row: Row, ports: tuple[int, ...]
) -> Iterator[Columns]:
    if row is Row.FPDU or not query.is_plain:
        yield from walked(path, query, ports, _ROWS[row])
        return
    with mapped(path) as pcap:
        if pcap is None or pcap.link_type not in LINK_TYPES:
            yield from walked(path, query, ports, of_frame)
        else:
            yield from MixedReader(pcap, query, np.array(ports, np.uint16)).blocks()


_ROWS = {Row.FRAME: of_frame, Row.FPDU: of_fpdus}


def read_columns(
    path: str | os.PathLike[str],
    fields: Iterable[str] = DEFAULT_FIELDS,
    *,
    row: Row = Row.FRAME,
    ports: Iterable[int] = (ROCE_PORT,),
) -> Columns:
    """Columns of a whole capture; arguments and errors as for :func:`iter_columns`.

    Of a damaged file this raises :class:`~rdmawire.errors.CaptureError` and gives nothing:
    :func:`iter_columns` gives what stands before the damage.
    """
    query = Query(fields)
    blocks = list(_blocks(path, query, row, tuple(ports)))
    return joined(blocks) if blocks else Filling(query.fields, 0).columns()
