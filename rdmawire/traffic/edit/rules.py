"""Rules: the changes of an edit to the fields of a frame."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from itertools import product
from typing import Final, NamedTuple, TypeVar

from rdmawire.decode import FrameLayout
from rdmawire.errors import RdmaError
from rdmawire.wire import cm, rdmap, terminate
from rdmawire.wire.header import Group, Header, Row
from rdmawire.wire.ib import BTH, DETH, ICRC, IETH, LRH, RETH, VCRC, AtomicETH, FlowControl
from rdmawire.wire.inet import TCP, UDP, VLAN, IPv4, ServiceVLAN
from rdmawire.wire.mpa import FPDUCRC
from rdmawire.wire.rdmap import TaggedHeader
from rdmawire.wire.show import Kind
from rdmawire.wire.tables import tables


class EditError(RdmaError):
    """Raised for an invalid field, value or map.

    The message has what was found, and what is allowed.
    """


class Cut(NamedTuple):
    """Bytes ``start`` to ``end`` as a number, without its last ``shift`` bits, under ``mask``."""

    start: int
    end: int
    shift: int
    mask: int

    def read(self, data: bytes | bytearray) -> int:
        """Return the number in these bytes."""
        return int.from_bytes(data[self.start : self.end], "big") >> self.shift & self.mask

    def write(self, data: bytearray, value: int) -> None:
        """Write a number that fits, and leave the surrounding bits unchanged."""
        start, end, shift, mask = self
        around = int.from_bytes(data[start:end], "big") & ~(mask << shift)
        data[start:end] = (around | value << shift).to_bytes(end - start, "big")


class EditField(NamedTuple):
    """A row of a header, or a group of rows."""

    table: type[Header]
    row: Row | Group

    @property
    def name(self) -> str:
        """Its name in the tables, such as ``bth.psn``."""
        return f"{self.table.label}.{self.row.name}"

    @property
    def width(self) -> int:
        """Width in bits."""
        return self.row.size if isinstance(self.row, Row) else self.row.width

    def overlaps(self, other: "EditField") -> bool:
        """Whether two fields have bits in common."""
        first, last = max(self.row.bit, other.row.bit), min(self._end, other._end)
        return self.table is other.table and first < last

    @property
    def _end(self) -> int:
        return self.row.bit + self.width

    def at(self, offset: int) -> Cut:
        """Return the bits of the field in a header that begins at byte ``offset``."""
        first = offset * 8 + self.row.bit
        last = first + self.width
        end = -(-last // 8)
        return Cut(first // 8, end, end * 8 - last, (1 << self.width) - 1)


def fields_of(table: type[Header]) -> Iterator[EditField]:
    """Yield all rows and groups of a header."""
    for row in table.rows:
        yield EditField(table, row)
    for group in table.groups:
        yield EditField(table, group)


def field(table: type[Header], name: str) -> EditField:
    """Return the row or group of this name."""
    return next(each for each in fields_of(table) if each.row.name == name)


class Whose(Enum):
    """The host at which a number is valid."""

    ANYONE = "anyone"
    SOURCE = "source"
    DESTINATION = "destination"


class Site(NamedTuple):
    """A field, and its owner. ``key``: the field with the memory key of an address."""

    field: EditField
    whose: Whose = Whose.ANYONE
    key: EditField | None = None


Target = Callable[[type[Header]], Sequence[Site]]
"""Returns the sites in a header."""

_Rows = Mapping[type[Header], Sequence[tuple[str, Whose]]]
_FROM, _TO, _ANY = Whose.SOURCE, Whose.DESTINATION, Whose.ANYONE


def _listed(rows: _Rows) -> Target:
    sites = {
        table: [Site(field(table, name), whose) for name, whose in named]
        for table, named in rows.items()
    }
    return lambda table: sites.get(table, ())


def _written_as(*kinds: Kind, ending: str = "") -> Target:
    """Return the rows with this notation, or bytes with such a name."""

    @cache
    def sites(table: type[Header]) -> Sequence[Site]:
        return [
            Site(EditField(table, row))
            for row in table.rows
            if row.meaning.show.kind in kinds
            or (ending and row.is_bytes and row.name.endswith(ending))
        ]

    return sites


MACS: Final = _written_as(Kind.MAC)
IPS: Final = _written_as(Kind.IPV4, Kind.IPV6, ending="_gid")
"""IP addresses and GIDs, of headers and of management datagrams."""

_PATHS = (cm.PrimaryPath, cm.PrimaryPathIPv4, cm.AlternatePath)
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
        cm.REQ: (("local_qpn", _FROM),),
        cm.REP: (("local_qpn", _FROM),),
        cm.DREQ: (("remote_qpn_eecn", _TO),),
        cm.LAP: (("remote_qpn_eecn", _TO),),
        cm.SIDRREP: (("qpn", _FROM),),
    }
)
PKEYS: Final = _listed(
    {
        BTH: (("pkey", _ANY),),
        cm.REQ: (("p_key", _ANY),),
        cm.SIDRREQ: (("p_key", _ANY),),
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
    # A Terminate quotes what its receiver sent.
    terminate.TerminatedTagged: (("to", "stag", _FROM),),
    terminate.TerminatedReadRequest: (
        ("sink_to", "sink_stag", _TO),
        ("source_to", "source_stag", _FROM),
    ),
    terminate.TerminatedAtomicRequest: (("remote_to", "remote_stag", _FROM),),
}
"""Addresses in remote memory, with their keys."""
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


MAX_NAMED: Final = 3
"""Maximum hosts that a message names as owners of a number."""


class Owners:
    """The first few hosts at which each of these numbers was found."""

    def __init__(self, numbers: Iterable[int | None] = ()) -> None:
        self._hosts: dict[int, list[bytes]] = {each: [] for each in numbers if each is not None}

    def __bool__(self) -> bool:
        """Whether any number is searched."""
        return bool(self._hosts)

    def note(self, number: int, host: bytes) -> None:
        """Record that a host has this number; an empty ``host`` is one that no header names."""
        hosts = self._hosts.get(number)
        if hosts is not None and host and host not in hosts and len(hosts) <= MAX_NAMED:
            hosts.append(host)

    def noting(self, cut: Cut, host: bytes) -> Callable[[bytes, bytearray], None]:
        """Return an operation that records the number in a frame, and changes nothing."""
        return lambda old, _: self.note(cut.read(old), host)

    def of(self, number: int | None) -> tuple[bytes, ...]:
        """Return the hosts with a number; more than :data:`MAX_NAMED` if there are others."""
        return () if number is None else tuple(self._hosts.get(number, ()))


class Op(NamedTuple):
    """A change of one field of a frame.

    ``run`` reads the original frame and writes into the edited one.
    """

    cut: Cut
    run: Callable[[bytes, bytearray], None]


class Unused(NamedTuple):
    """An unmatched part of a rule, by its ``text``, and the hosts that have the number."""

    text: str
    owners: tuple[bytes, ...] = ()


class RuleEntry:
    """A part of a rule, given as ``text``. ``used`` is set when a frame matches.

    ``host`` is the host whose numbers it changes; ``None`` for all hosts.
    """

    __slots__ = ("host", "text", "used")

    def __init__(self, text: str, host: bytes | None = None) -> None:
        self.text = text
        self.host = host
        self.used = False

    @property
    def owned(self) -> int | None:
        """The number that it changes, if that of one host only."""
        return None


class EditRule(ABC):
    """A type of change, with all its entries."""

    entries: Sequence[RuleEntry]
    owners: Owners = Owners()
    """Owners of the numbers of entries for one host."""

    @abstractmethod
    def ops(self, layout: FrameLayout) -> Iterator[Op]:
        """Yield the operations for frames of this layout."""

    @abstractmethod
    def fields(self, table: type[Header]) -> Sequence[EditField]:
        """Return the fields of a header that it may change."""

    def concerns(self, table: type[Header]) -> bool:
        """Whether it reads or changes a header."""
        return bool(self.fields(table))

    def overrides(self) -> Mapping[type[Header], int]:
        """Checksums with a given value."""
        return {}

    def merged(self) -> Iterator[str]:
        """Yield a message for each two numbers mapped to the same one, probably by mistake."""
        return iter(())

    def unused(self) -> Iterator[Unused]:
        """Yield the entries that no frame matched."""
        unused = (each for each in self.entries if not each.used)
        return (Unused(each.text, self.owners.of(each.owned)) for each in unused)


def sites(layout: FrameLayout, target: Target) -> Iterator[tuple[int, Site, bytes]]:
    """Yield the fields of a frame for a target: offset of the header, field, and its host."""
    source, destination = layout.hosts
    hosts = {Whose.ANYONE: b"", Whose.SOURCE: source, Whose.DESTINATION: destination}
    for offset, header in layout.headers:
        for site in target(type(header)):
            yield offset, site, hosts[site.whose]


_E = TypeVar("_E", bound=RuleEntry)


def of_host(entries: Iterable[_E], host: bytes) -> list[_E]:
    """Return the entries valid at a host: those for this host last, so that they win."""
    return sorted(
        (entry for entry in entries if entry.host in (None, host)),
        key=lambda entry: entry.host is not None,
    )


Touched = Mapping[type[Header], Sequence[EditField]]
"""The fields that a rule may change, by their header."""


def touched(rule: EditRule) -> Touched:
    """Return the fields that a rule may change, of all headers."""
    found = ((table, rule.fields(table)) for table in tables())
    return {table: fields for table, fields in found if fields}


def shared(one: Touched, other: Touched) -> EditField | None:
    """Return a field that both rules set, completely or in part."""
    pairs = (pair for table in one if table in other for pair in product(one[table], other[table]))
    return next((field for field, another in pairs if field.overlaps(another)), None)


CHECKSUMS: Final[Mapping[type[Header], str]] = {
    IPv4: "checksum",
    UDP: "checksum",
    TCP: "checksum",
    ICRC: "crc",
    VCRC: "crc",
    FlowControl: "lpcrc",
    FPDUCRC: "crc",
}
"""Checksum rows: a value that a rule sets is not recomputed."""


class AssignRule(EditRule):
    """Sets a field in the innermost header that has it.

    ``fields`` are equivalent fields of several headers, such as the TTL of IPv4 and the hop limit
    of IPv6. With ``adds``, the value is added to the one in the frame.
    """

    def __init__(
        self, text: str, fields: Sequence[EditField], value: int, *, adds: bool = False
    ) -> None:
        self._entry = RuleEntry(text)
        self.entries = (self._entry,)
        self._all = tuple(fields)
        self._value = value
        self._adds = adds
        self._fields = {each.table: each for each in fields if not _is_checksum(each)}
        self._checksums = {each.table: value for each in fields if _is_checksum(each)}

    def overrides(self) -> Mapping[type[Header], int]:
        return self._checksums

    def ops(self, layout: FrameLayout) -> Iterator[Op]:
        if any(each.table in self._checksums for each in layout.checksums):
            self._entry.used = True
        for offset, header in reversed(layout.headers):
            found = self._fields.get(type(header))
            if found is not None:
                yield self._op(found.at(offset))
                return

    def fields(self, table: type[Header]) -> Sequence[EditField]:
        return [each for each in self._all if each.table is table]

    def _op(self, cut: Cut) -> Op:
        def run(old: bytes, new: bytearray) -> None:
            self._entry.used = True
            value = self._value + cut.read(old) if self._adds else self._value
            cut.write(new, value & cut.mask)

        return Op(cut, run)


def _is_checksum(each: EditField) -> bool:
    return CHECKSUMS.get(each.table) == each.row.name
