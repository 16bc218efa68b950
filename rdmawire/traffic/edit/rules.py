"""Rules: what an edit does to the fields of a frame."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from itertools import product
from typing import Final, NamedTuple, TypeVar

from rdmawire.decode import FrameLayout
from rdmawire.errors import RdmaError
from rdmawire.wire import cm, cm_request, rdmap, terminate
from rdmawire.wire.ddp import TaggedHeader
from rdmawire.wire.header import Group, Header, Row
from rdmawire.wire.ib import BTH, DETH, ICRC, IETH, LRH, RETH, VCRC, AtomicETH, FlowControl
from rdmawire.wire.inet import TCP, UDP, VLAN, IPv4, ServiceVLAN
from rdmawire.wire.mpa import FPDUCRC
from rdmawire.wire.show import Kind
from rdmawire.wire.tables import tables


class EditError(RdmaError):
    """An edit is asked for what makes no sense: a field, a value, a map.

    The message has what was found, and what is allowed.
    """


class Cut(NamedTuple):
    """Bytes ``start`` to ``end`` as a number, without its last ``shift`` bits, under ``mask``."""

    start: int
    end: int
    shift: int
    mask: int

    def read(self, data: bytes | bytearray) -> int:
        """The number in these bytes."""
        return int.from_bytes(data[self.start : self.end], "big") >> self.shift & self.mask

    def write(self, data: bytearray, value: int) -> None:
        """Put a number there; the bits around it stay. The number must fit."""
        start, end, shift, mask = self
        around = int.from_bytes(data[start:end], "big") & ~(mask << shift)
        data[start:end] = (around | value << shift).to_bytes(end - start, "big")


class Field(NamedTuple):
    """A row of a header, or a group of rows."""

    table: type[Header]
    row: Row | Group

    @property
    def name(self) -> str:
        """The name by the tables, such as ``bth.psn``."""
        return f"{self.table.label}.{self.row.name}"

    @property
    def width(self) -> int:
        """Bits."""
        return self.row.size if isinstance(self.row, Row) else self.row.width

    def overlaps(self, other: "Field") -> bool:
        """Whether some bits are of both."""
        first, last = max(self.row.bit, other.row.bit), min(self._end, other._end)
        return self.table is other.table and first < last

    @property
    def _end(self) -> int:
        return self.row.bit + self.width

    def at(self, offset: int) -> Cut:
        """The bits of the field where the header begins at byte ``offset``."""
        first = offset * 8 + self.row.bit
        last = first + self.width
        end = -(-last // 8)
        return Cut(first // 8, end, end * 8 - last, (1 << self.width) - 1)


def fields_of(table: type[Header]) -> Iterator[Field]:
    """All rows and groups of a header."""
    for row in table.rows:
        yield Field(table, row)
    for group in table.groups:
        yield Field(table, group)


def field(table: type[Header], name: str) -> Field:
    """The row or group of this name."""
    return next(each for each in fields_of(table) if each.row.name == name)


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
    """The rows that are written in this notation, or that are bytes with such a name."""

    @cache
    def sites(table: type[Header]) -> Sequence[Site]:
        return [
            Site(Field(table, row))
            for row in table.rows
            if row.meaning.show.kind in kinds
            or (ending and row.is_bytes and row.name.endswith(ending))
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
    # A Terminate quotes what its receiver sent.
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


MAX_NAMED: Final = 3
"""Hosts that a message names at most as having a number."""


class Owners:
    """The hosts that were met with any of these numbers, the first few of each."""

    def __init__(self, numbers: Iterable[int | None] = ()) -> None:
        self._hosts: dict[int, list[bytes]] = {each: [] for each in numbers if each is not None}

    def __bool__(self) -> bool:
        """Whether any number is of interest."""
        return bool(self._hosts)

    def note(self, number: int, host: bytes) -> None:
        """Note that a host has this number; an empty ``host`` is one that no header names."""
        hosts = self._hosts.get(number)
        if hosts is not None and host and host not in hosts and len(hosts) <= MAX_NAMED:
            hosts.append(host)

    def noting(self, cut: Cut, host: bytes) -> Callable[[bytes, bytearray], None]:
        """An operation that notes the number in a frame, and changes nothing."""
        return lambda old, _: self.note(cut.read(old), host)

    def of(self, number: int | None) -> tuple[bytes, ...]:
        """The hosts that have it; one more than :data:`MAX_NAMED` means that there are others."""
        return () if number is None else tuple(self._hosts.get(number, ()))


class Op(NamedTuple):
    """What is done to one field of a frame.

    ``run`` reads the frame as it was and writes into what it becomes.
    """

    cut: Cut
    run: Callable[[bytes, bytearray], None]


class Unused(NamedTuple):
    """A part of a rule, by its ``text``, that no frame had, and the hosts that have the number."""

    text: str
    owners: tuple[bytes, ...] = ()


class Entry:
    """A part of a rule, as it was asked for in ``text``. ``used`` once a frame had what it names.

    ``host`` is whose numbers it is about; ``None`` for everybody's.
    """

    __slots__ = ("host", "text", "used")

    def __init__(self, text: str, host: bytes | None = None) -> None:
        self.text = text
        self.host = host
        self.used = False

    @property
    def owned(self) -> int | None:
        """The number that it is about, if it is about that of one host."""
        return None


class Rule(ABC):
    """One kind of change, with all that is asked for of it."""

    entries: Sequence[Entry]
    owners: Owners = Owners()
    """Who has the numbers of entries that are about one host."""

    @abstractmethod
    def ops(self, layout: FrameLayout) -> Iterator[Op]:
        """What is to be done to frames of this layout."""

    @abstractmethod
    def fields(self, table: type[Header]) -> Sequence[Field]:
        """The fields of a header that it may change."""

    def concerns(self, table: type[Header]) -> bool:
        """Whether it has anything to do with a header."""
        return bool(self.fields(table))

    def overrides(self) -> Mapping[type[Header], int]:
        """Checksums that are to be certain numbers."""
        return {}

    def merged(self) -> Iterator[str]:
        """Numbers that were two before, and are one now: hardly what was meant."""
        return iter(())

    def unused(self) -> Iterator[Unused]:
        """What was asked for, and no frame had."""
        unused = (each for each in self.entries if not each.used)
        return (Unused(each.text, self.owners.of(each.owned)) for each in unused)


def sites(layout: FrameLayout, target: Target) -> Iterator[tuple[int, Site, bytes]]:
    """The fields of a frame that a rule is about: where their header begins, and their host."""
    source, destination = layout.hosts
    hosts = {Whose.ANYONE: b"", Whose.SOURCE: source, Whose.DESTINATION: destination}
    for offset, header in layout.headers:
        for site in target(type(header)):
            yield offset, site, hosts[site.whose]


_E = TypeVar("_E", bound=Entry)


def of_host(entries: Iterable[_E], host: bytes) -> list[_E]:
    """The entries that hold at a host: those about it alone come last, so that they count."""
    return sorted(
        (entry for entry in entries if entry.host in (None, host)),
        key=lambda entry: entry.host is not None,
    )


Touched = Mapping[type[Header], Sequence[Field]]
"""The fields that a rule may change, by their header."""


def touched(rule: Rule) -> Touched:
    """What a rule may change, of all headers that there are."""
    found = ((table, rule.fields(table)) for table in tables())
    return {table: fields for table, fields in found if fields}


def shared(one: Touched, other: Touched) -> Field | None:
    """A field of one that the other sets too, or of which it sets a part."""
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
"""Rows that are checksums: a value that they are set to is final."""


class AssignRule(Rule):
    """Sets a field in the innermost header that has it.

    ``fields`` are the same thing in various headers, such as the TTL of IPv4 and the hop limit of
    IPv6. With ``adds``, the value is added to the one in the frame.
    """

    def __init__(
        self, text: str, fields: Sequence[Field], value: int, *, adds: bool = False
    ) -> None:
        self._entry = Entry(text)
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

    def fields(self, table: type[Header]) -> Sequence[Field]:
        return [each for each in self._all if each.table is table]

    def _op(self, cut: Cut) -> Op:
        def run(old: bytes, new: bytearray) -> None:
            self._entry.used = True
            value = self._value + cut.read(old) if self._adds else self._value
            cut.write(new, value & cut.mask)

        return Op(cut, run)


def _is_checksum(each: Field) -> bool:
    return CHECKSUMS.get(each.table) == each.row.name
