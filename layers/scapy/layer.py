# SPDX-License-Identifier: GPL-2.0-only
"""Header tables as layers of Scapy.

A layer's fields are its table's rows. The *plan* of a layer is the tables of the bytes after it,
found once at the start of a message and passed from layer to layer. Without a plan, Scapy's own
bindings select the next layer.
"""

from collections.abc import Callable
from types import new_class
from typing import Any, ClassVar, NamedTuple

from scapy.config import conf
from scapy.fields import StrLenField
from scapy.layers.inet import TCP, UDP
from scapy.packet import Packet

from rdmawire.layers.scapy.field import FIELDS, field, grouped, ungrouped
from rdmawire.wire import ib, mad, mpa
from rdmawire.wire.header import Header
from rdmawire.wire.rdmap import (
    RDMAPControl,
    RDMAPControlInvalidate,
    RDMAPControlReserved,
    TaggedHeader,
    UntaggedHeader,
)
from rdmawire.wire.tables import check_order, tables

_OPCODE = "RDMAP %opcode%"

SUMMARIES: dict[type[Header], str] = {
    ib.LRH: "LRH %slid% > %dlid%",
    ib.GRH: "GRH %sgid% > %dgid%",
    ib.BTH: "BTH %opcode% qp %destqp% psn %psn%",
    ib.RETH: "RETH va %va% rkey %rkey% dmalen %dmalen%",
    ib.AETH: "AETH %ack% %value% msn %msn%",
    ib.DETH: "DETH srcqp %srcqp%",
    mad.MAD: "MAD class %mgmt_class% %method% %attribute_id%",
    mpa.FPDULength: "FPDU %ulpdu_length% bytes",
    RDMAPControl: _OPCODE,
    RDMAPControlReserved: _OPCODE,
    RDMAPControlInvalidate: _OPCODE,
    TaggedHeader: "stag %stag% offset %to%",
    UntaggedHeader: "queue %qn% msn %msn% offset %mo%",
}


class Step(NamedTuple):
    """A step of a plan: a header, or ``None`` for ``size`` bytes without a table."""

    table: type[Header] | None
    size: int


Plan = tuple[Step, ...]


class PlannedLayer(Packet):
    """A layer with a plan of what follows it."""

    __slots__ = ["plan"]
    name = "Planned"
    fields_desc: ClassVar[list[Any]] = []

    def do_dissect(self, s: bytes) -> bytes:
        """Dissect the header, after the plan is known."""
        before = _plan(self.underlayer)
        self.plan = before[1:] if before else self.planned(s)
        return super().do_dissect(s)

    def planned(self, data: bytes) -> Plan:  # noqa: ARG002 - for layers that begin a message
        """The plan if the layer received none: empty, except for layers that begin a message."""
        return ()

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        """The next layer of the plan; after its end, the bound layer."""
        plan = _plan(self)
        if not plan:
            return super().guess_payload_class(payload)
        table = plan[0].table
        if table is not None:
            return layer(table)
        return conf.raw_layer if len(plan) == 1 else Bytes


def _plan(pkt: Packet | None) -> Plan:
    """The plan of a layer; empty for layers that were not dissected, or are of other packages."""
    return getattr(pkt, "plan", ()) if isinstance(pkt, PlannedLayer) else ()


def _planned_size(pkt: Packet) -> int:
    """Bytes that the layer below planned for this one; a single layer takes all."""
    plan = _plan(pkt.underlayer)
    return plan[0].size if plan else len(pkt.original)


class Bytes(PlannedLayer):
    """Bytes between headers that no table describes."""

    name = "Bytes"
    fields_desc: ClassVar[list[Any]] = [StrLenField("load", b"", length_from=_planned_size)]


class TableLayer(PlannedLayer):
    """A header of the wire tables. Groups of its rows can be read and set as one number."""

    name = "Table"
    table: ClassVar[type[Header]]
    rows: ClassVar[tuple[Any, ...]]
    summary_format: ClassVar[str] = ""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **ungrouped(self.table, fields))

    def delfieldval(self, attr: str) -> None:
        """Unset a field, by its deprecated name too, which Scapy does not resolve here."""
        super().delfieldval(self.deprecated_fields.get(attr, (attr,))[0])

    def header(self) -> Header:
        """The header as a :mod:`rdmawire.wire` table."""
        return self.table.parse(self.self_build())

    def behind(self, name: str, worked_out: Callable[[], Any]) -> bytes:
        """The bytes of a field after the payload: the given ones, otherwise computed."""
        given = self.getfieldval(name)
        data: bytes = self.get_field(name).data(worked_out() if given is None else given)
        return data

    def mysummary(self) -> Any:
        """The summary of the layer, with those of the layers below that have one."""
        return (self.sprintf(self.summary_format), _SUMMED_UP) if self.summary_format else ""


class LengthLayer(TableLayer):
    """A header with a length of what follows it; an omitted one is computed."""

    length_row: ClassVar[str]

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes]:
        """Split what follows from the bytes after it."""
        length = self.getfieldval(self.length_row)
        return s[:length], s[length:]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Set the length of what follows."""
        if self.getfieldval(self.length_row) is None:
            pkt = self.table.parse(pkt).replace(**{self.length_row: len(pay)}).build()
        return pkt + pay


_BUILT: dict[type[Header], type[TableLayer]] = {}
_SUMMED_UP: list[type[Packet]] = [UDP, TCP]
"""Layers that a summary keeps, even if a layer above them has one too."""


def define(
    table: type[Header],
    base: type[TableLayer] = TableLayer,
    more: tuple[Any, ...] = (),
    computed: tuple[str, ...] = (),
    name: str = "",
) -> type[TableLayer]:
    """Make the layer of a table; omitted ``computed`` rows are computed when a packet is built.

    ``more`` fields follow the rows, ``name`` is for layers that hold more than the header.
    """
    body = _body(table, more, computed) | {"name": name or table.__name__}
    made: type[TableLayer] = new_class(
        name or table.__name__, (base,), exec_body=lambda space: space.update(body)
    )
    _BUILT[table] = made
    if made.summary_format:
        _SUMMED_UP.append(made)
    return made


def _body(table: type[Header], more: tuple[Any, ...], computed: tuple[str, ...]) -> dict[str, Any]:
    """The class body of a layer."""
    fields = [
        field(table.__name__, row, None if row.name in computed else row.default)
        for row in table.rows
    ]
    return {
        **{group.name: grouped(group) for group in table.groups},
        "table": table,
        "rows": table.rows,
        "fields_desc": [*fields, *more],
        "deprecated_fields": FIELDS.get(table, {}),
        "dispatch_hook": classmethod(_layer_or_raw),
        "summary_format": SUMMARIES.get(table, ""),
        "__doc__": table.__doc__,
        "__module__": "rdmawire.layers.scapy",
    }


def _layer_or_raw(cls: type[TableLayer], _pkt: bytes = b"", *_: Any, **__: Any) -> type[Packet]:
    """Make the layer, or ``Raw`` if the bytes end inside the header."""
    whole = not _pkt or len(_pkt) >= cls.table.SIZE
    return cls if whole else conf.raw_layer


def layer(table: type[Header]) -> type[TableLayer]:
    """The layer of a table, made at first use; ``TypeError`` for a little-endian one."""
    check_order(table)
    return _BUILT.get(table) or define(table)


def layers(without: tuple[str, ...] = ()) -> dict[str, type[TableLayer]]:
    """The layers of all tables by name, except those of the modules ``without``."""
    found = (
        layer(table) for table in tables() if table.__module__.rpartition(".")[2] not in without
    )
    return {each.__name__: each for each in found}
