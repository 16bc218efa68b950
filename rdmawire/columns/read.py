"""Whole captures as columns: :func:`read_columns` and :func:`iter_columns`."""

import os
from collections.abc import Iterable, Iterator

from rdmawire.columns.asked import Query
from rdmawire.columns.choice import choice_of
from rdmawire.columns.column import Columns, joined
from rdmawire.columns.request import Request, Row
from rdmawire.filter import Filter
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


def iter_columns(
    path: str | os.PathLike[str],
    fields: Iterable[str] = DEFAULT_FIELDS,
    *,
    row: Row = Row.FRAME,
    ports: Iterable[int] = (ROCE_PORT,),
    where: str | Filter | None = None,
) -> Iterator[Columns]:
    """Columns of a capture in blocks, in bounded memory, whatever its size.

    ``fields`` go by the names that ``rdmawire fields`` lists; ``row`` is a frame, or an FPDU of
    iWARP with the fields of its own headers; ``ports`` are the UDP ports of RoCEv2; ``where`` is
    a display filter that frames must pass.

    :class:`~rdmawire.dissect.select.FieldError` names an unknown field at once, and
    :class:`~rdmawire.filter.FilterError` what is wrong with a filter;
    :class:`~rdmawire.errors.CaptureError` comes for damage, after all that stands before it.
    """
    return Request(Query(fields), row, ports, choice_of(where)).blocks(path)


def read_columns(
    path: str | os.PathLike[str],
    fields: Iterable[str] = DEFAULT_FIELDS,
    *,
    row: Row = Row.FRAME,
    ports: Iterable[int] = (ROCE_PORT,),
    where: str | Filter | None = None,
) -> Columns:
    """Columns of a whole capture; arguments and errors as for :func:`iter_columns`.

    Of a damaged file this raises :class:`~rdmawire.errors.CaptureError` and gives nothing:
    :func:`iter_columns` gives what stands before the damage.
    """
    request = Request(Query(fields), row, ports, choice_of(where))
    blocks = list(request.blocks(path))
    return joined(blocks) if blocks else request.nothing()
