"""Which rows of the wire's tables hold what an edit maps: addresses, queue pairs, keys.

Numbers of queue pairs and keys mean something at one host only: ``whose`` says at which end of the
frame that is.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Final, NamedTuple

from rdmawire.traffic.edit.cut import Field, field
from rdmawire.wire import cm, cm_request, rdmap, terminate
from rdmawire.wire.ddp import TaggedHeader
from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH, DETH, IETH, LRH, RETH, AtomicETH
from rdmawire.wire.inet import VLAN, ServiceVLAN
from rdmawire.wire.show import Kind


class Whose(Enum):
    """At which host a number means something."""

    ANYONE = "anyone"
    SOURCE = "source"
    DESTINATION = "destination"


class Site(NamedTuple):
    """A field, and whose it is. ``key``: the field whose key says where the address is valid."""

    field: Field
    whose: Whose = Whose.ANYONE
    key: Field | None = None


Target = Callable[[type[Header]], Sequence[Site]]
"""The sites in a header."""

_Rows = Mapping[type[Header], Sequence[tuple[str, Whose]]]
_FROM, _TO, _ANY = Whose.SOURCE, Whose.DESTINATION, Whose.ANYONE


def _listed(rows: _Rows) -> Target:
    sites = {
        table: [Site(field(table, name), whose) for name, whose in named]
        for table, named in rows.items()
    }
    return lambda table: sites.get(table, ())


def _written_as(*kinds: Kind, ending: str = "") -> Target:
    """The rows that are written in this notation, or that are octets with such a name."""

    @cache
    def sites(table: type[Header]) -> Sequence[Site]:
        return [
            Site(Field(table, row))
            for row in table.rows
            if row.meaning.show.kind in kinds
            or (ending and row.octets and row.name.endswith(ending))
        ]

    return sites


MACS: Final = _written_as(Kind.MAC)
IPS: Final = _written_as(Kind.IPV4, Kind.IPV6, ending="_gid")
"""IP addresses and GIDs, of headers and of management datagrams."""

_PATHS = (cm_request.PrimaryPath, cm_request.PrimaryPathIPv4, cm_request.AlternatePath)
LIDS: Final = _listed(
    {
        LRH: (("slid", _ANY), ("dlid", _ANY)),
        **dict.fromkeys(_PATHS, (("local_lid", _ANY), ("remote_lid", _ANY))),
        cm.LAP: (("alternate_local_lid", _ANY), ("alternate_remote_lid", _ANY)),
    }
)
QPNS: Final = _listed(
    {
        BTH: (("destqp", _TO),),
        DETH: (("srcqp", _FROM),),
        cm_request.REQ: (("local_qpn", _FROM),),
        cm.REP: (("local_qpn", _FROM),),
        cm.DREQ: (("remote_qpn_eecn", _TO),),
        cm.LAP: (("remote_qpn_eecn", _TO),),
        cm.SIDRREP: (("qpn", _FROM),),
    }
)
PKEYS: Final = _listed(
    {
        BTH: (("pkey", _ANY),),
        cm_request.REQ: (("p_key", _ANY),),
        cm_request.SIDRREQ: (("p_key", _ANY),),
    }
)
VLANS: Final = _listed({VLAN: (("id", _ANY),), ServiceVLAN: (("id", _ANY),)})

_KEYED: Final[Mapping[type[Header], Sequence[tuple[str, str, Whose]]]] = {
    RETH: (("va", "rkey", _TO),),
    AtomicETH: (("va", "rkey", _TO),),
    TaggedHeader: (("to", "stag", _TO),),
    rdmap.ReadRequestHeader: (
        ("sink_to", "sink_stag", _FROM),
        ("source_to", "source_stag", _TO),
    ),
    rdmap.AtomicRequestHeader: (("remote_to", "remote_stag", _TO),),
    # A Terminate quotes what came the other way.
    terminate.TerminatedTagged: (("to", "stag", _FROM),),
    terminate.TerminatedReadRequest: (
        ("sink_to", "sink_stag", _TO),
        ("source_to", "source_stag", _FROM),
    ),
    terminate.TerminatedAtomicRequest: (("remote_to", "remote_stag", _FROM),),
}
"""Addresses in remote memory, with the keys that they are valid with."""
RKEYS: Final = _listed(
    {
        **{table: [(key, whose) for _, key, whose in rows] for table, rows in _KEYED.items()},
        IETH: (("rkey", _TO),),
        rdmap.RDMAPControlInvalidate: (("invalidate_stag", _TO),),
        terminate.TerminatedUntagged: (("invalidate_stag", _FROM),),
    }
)
"""R_Keys, and STags that peers name."""


def _vas() -> Target:
    sites = {
        table: [Site(field(table, va), whose, field(table, key)) for va, key, whose in rows]
        for table, rows in _KEYED.items()
    }
    return lambda table: sites.get(table, ())


VAS: Final = _vas()
