# SPDX-License-Identifier: GPL-2.0-only
"""Header tables as layers.

A layer's fields are its table's rows. What follows a layer is its *plan*: the tables that the
octets behind it hold, found once where a message begins and handed on from layer to layer. Where
no plan says what follows, Scapy's own bindings do.
"""

from collections.abc import Callable
from types import new_class
from typing import Any, ClassVar, NamedTuple

from scapy.config import conf
from scapy.fields import StrLenField
from scapy.packet import Packet

from rdmawire.layers.scapy.field import field
from rdmawire.wire.header import Header
from rdmawire.wire.tables import tables


class Step(NamedTuple):
    """A piece of a plan: a header, or ``None`` for so many octets that no table describes."""

    table: type[Header] | None
    size: int


Plan = tuple[Step, ...]
Planner = Callable[[Packet, bytes], Plan]
"""What the octets of a message hold behind its first header; they begin with that header."""


class PlannedLayer(Packet):
    """A layer that knows what follows it."""

    __slots__ = ["plan"]
    name = "Planned"
    fields_desc: ClassVar[list[Any]] = []

    def do_dissect(self, s: bytes) -> bytes:
        """Take the header off, once what follows it is known."""
        before = getattr(self.underlayer, "plan", ())
        self.plan = before[1:] if before else self.planned(s)
        return super().do_dissect(s)

    def planned(self, octets: bytes) -> Plan:  # noqa: ARG002 - for layers that begin a message
        """What follows, where no plan was handed down: nothing, but for layers that begin one."""
        return ()

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        """The next layer of the plan; behind its end, what is bound."""
        plan = getattr(self, "plan", ())
        if not plan:
            return super().guess_payload_class(payload)
        table = plan[0].table
        if table is not None:
            return layer(table)
        return conf.raw_layer if len(plan) == 1 else Octets


class Octets(PlannedLayer):
    """Octets between headers that no table describes."""

    name = "Octets"
    fields_desc: ClassVar[list[Any]] = [
        StrLenField("load", b"", length_from=lambda pkt: pkt.underlayer.plan[0].size)
    ]


class TableLayer(PlannedLayer):
    """A header of the wire tables."""

    name = "Table"
    table: ClassVar[type[Header]]

    def header(self) -> Header:
        """The header itself, as :mod:`rdmawire.wire` has it."""
        return self.table.parse(self.self_build())


_BUILT: dict[type[Header], type[TableLayer]] = {}


def define(
    table: type[Header],
    base: type[TableLayer] = TableLayer,
    more: tuple[Any, ...] = (),
    computed: tuple[str, ...] = (),
) -> type[TableLayer]:
    """The layer of a table; ``computed`` rows are worked out when a packet is built."""
    fields = [
        field(table.__name__, row, None if row.name in computed else row.default)
        for row in table.rows
    ]
    body = {
        "name": table.__name__,
        "table": table,
        "fields_desc": [*fields, *more],
        "__doc__": table.__doc__,
        "__module__": "rdmawire.layers.scapy",
    }
    made: type[TableLayer] = new_class(
        table.__name__, (base,), exec_body=lambda space: space.update(body)
    )
    _BUILT[table] = made
    return made


def layer(table: type[Header]) -> type[TableLayer]:
    """The layer of a table, made when it is first asked for."""
    return _BUILT.get(table) or define(table)


def layers(without: tuple[str, ...] = ()) -> dict[str, type[TableLayer]]:
    """The layers of all tables by name, but for those of some modules of the wire."""
    return {
        table.__name__: layer(table)
        for table in tables()
        if table.__module__.rpartition(".")[2] not in without
    }
