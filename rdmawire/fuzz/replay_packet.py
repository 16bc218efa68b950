"""Packet inputs as steps of a scenario: the keys of ``inject`` that make the same packet."""

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from typing import Final, NamedTuple

from rdmawire.fuzz.exchange import Numbers
from rdmawire.fuzz.frames import FrameBuilder, payload_bytes, srq_of
from rdmawire.fuzz.inputs import ChecksumState, PacketInput
from rdmawire.fuzz.setup import AREAS
from rdmawire.wire.field_registry import find
from rdmawire.wire.header import Header, Row
from rdmawire.wire.ib import BTH, DETH, IETH, RETH, XRCETH, AtomicETH
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.show import Kind

REGIONS: Final = ("server.all", "server.readable", "server.writable", "server.window")
"""Names of the regions, and of the window after them."""
_OF_MEMORY: Final = (RETH, AtomicETH, IETH)
"""Headers that the key ``to`` fills."""
QUEUES: Final = ("pool0", "pool1", "pool2", "pool3")
"""Names of the server's shared receive queues."""
_BITS_64: Final = 1 << 64
_MAX_SPAN: Final = 1 << 40
ATOMIC: Final = 8
BYTES_OF_LINE: Final = 32
"""Bytes of hexadecimal digits in one line of a file."""


class Key(NamedTuple):
    """A key of a step with its value as YAML; ``digits`` are bytes that may take several lines."""

    name: str
    value: str
    digits: bytes = b""


class InjectedPacket:
    """A packet input with its PSN; ``builder`` makes its frame for the fuzzer's target."""

    def __init__(self, one: PacketInput, psn: int, builder: FrameBuilder) -> None:
        self._one = one
        self._psn = psn
        self._builder = builder
        self._named, self._raw = self._headers()
        self._tables: tuple[type[Header], ...] = tuple(map(type, self._named))

    def step_keys(self) -> Iterator[Key]:
        """Yield the keys of the step, after ``on``."""
        yield Key("opcode", _opcode(self._one.opcode))
        yield Key("psn", str(self._psn))
        if self._tables != self._builder.tables(self._one):
            yield Key("headers", f"[{', '.join(table.label for table in self._tables)}]")
        fields = self._own_fields()
        if any(table in _OF_MEMORY for table in self._tables):
            yield from self._memory(fields)
        if self._one.srq and self._names_queue:
            yield Key("queue", QUEUES[self._one.srq])
        yield from self._payload()
        fields |= self._input_fields()
        if fields:
            pairs = ", ".join(f"{name}: {value}" for name, value in fields.items())
            yield Key("fields", f"{{{pairs}}}")
        if not self._icrc_is_good():
            yield Key("icrc", "bad")

    # Headers.

    def _headers(self) -> tuple[tuple[Header, ...], tuple[Header, ...]]:
        """Return the headers that a scenario names, and added ones that are bytes of payload.

        A header that is there twice, or that a scenario would fill, has other values than the
        scenario's: its bytes are written before the payload.
        """
        left = [name[1:] for name in self._one.extra if name.startswith("-")]
        own = sum(table.label not in left for table in self._builder.tables(self._one))
        every = self._builder.extended(self._one)
        twice = len({*map(type, every)}) < len(every)
        if twice or any(isinstance(header, _OF_MEMORY) for header in every[own:]):
            return every[:own], every[own:]
        return every, ()

    def _own_fields(self) -> dict[str, str]:
        """Return the fields of the input's own values: AckReq, operands, immediate."""
        fields = {"bth.ackreq": "1"} if self._one.ackreq else {}
        for header in self._named:
            if isinstance(header, AtomicETH):
                fields |= _different(header, ("swapdt", "cmpdt"))
            elif isinstance(header, DETH):
                fields |= header_values(header)
            elif isinstance(header, XRCETH) and self._names_queue:
                fields |= _different(header, ("resv8",))
            elif isinstance(header, XRCETH):
                fields |= header_values(header)
            elif not isinstance(header, _OF_MEMORY):
                fields |= _different(header)
        return fields

    def _input_fields(self) -> dict[str, str]:
        """Return the further fields of the input, of headers that a scenario fills."""
        filled = {*self._tables} & {*_OF_MEMORY}
        tables = {*map(type, self._builder.headers), BTH, *filled}
        return {
            field.name: _written(field.row, value)
            for name, value in self._one.fields
            for field in find(name)
            if isinstance(field.row, Row) and field.table in tables
        }

    @property
    def _names_queue(self) -> bool:
        """Whether an XRCETH has the number of the input's queue, which a scenario names."""
        number = srq_of(self._one, self._builder.numbers)
        return any(isinstance(one, XRCETH) and one.xrcsrq == number for one in self._named)

    # Memory.

    def _memory(self, fields: dict[str, str]) -> Iterator[Key]:
        """Yield the keys for address, R_Key and length."""
        one, numbers = self._one, self._builder.numbers
        region, key = _region(one, numbers)
        va = (numbers.vas[one.region] + one.offset) % _BITS_64
        offset = _signed(va - numbers.vas[region])
        dmalen = one.length if one.dmalen is None else one.dmalen
        length = dmalen if RETH in self._tables else ATOMIC
        if length and 0 <= offset <= _MAX_SPAN:
            yield Key("to", f'"{REGIONS[region]}[{offset}:{offset + length}]"')
        else:
            yield Key("to", REGIONS[region])
            if offset:
                yield Key("va_offset", str(offset))
            if RETH in self._tables:
                fields["reth.dmalen"] = str(dmalen)
        if key:
            yield Key("rkey_offset", str(key))

    # Payload and ICRC.

    def _payload(self) -> Iterator[Key]:
        one = self._one
        payload = payload_bytes(one.seed, one.length)[: max(one.length - one.cut, 0)]
        payload = b"".join(header.build() for header in self._raw) + payload
        pad = -one.length % 4
        if payload:
            yield Key("payload", "", payload)
        if pad != -len(payload) % 4:
            yield Key("pad", str(pad))

    def _icrc_is_good(self) -> bool:
        """Whether the frame has the ICRC of its bytes, whatever the input says about it."""
        if self._one.checksum == ChecksumState.GOOD.name:
            return True
        good = self._builder.frame(replace(self._one, checksum=ChecksumState.GOOD.name), self._psn)
        return good == self._builder.frame(self._one, self._psn)


def uses_window(one: PacketInput, numbers: Numbers) -> bool:
    """Whether the packet has the key of the window, or one that is relative to it."""
    return len(AREAS) in (one.region, _region(one, numbers)[0])


def _region(one: PacketInput, numbers: Numbers) -> tuple[int, int]:
    """Return the region that a packet's R_Key names, and how far the R_Key is from the region's."""
    rkey = (numbers.rkeys[one.region] + one.key) % (1 << 32)
    if rkey in numbers.rkeys:
        return numbers.rkeys.index(rkey), 0
    return one.region, one.key


def _signed(number: int) -> int:
    """Return the number from -2**63 to 2**63 - 1 that is the same in 64 bits."""
    return (number + _BITS_64 // 2) % _BITS_64 - _BITS_64 // 2


def _opcode(opcode: int) -> str:
    return Opcode(opcode).name if opcode in {*Opcode} else f"{opcode:#04x}"


def header_values(header: Header) -> dict[str, str]:
    """Return the fields of a header."""
    table = type(header)
    return {f"{table.label}.{row.name}": str(getattr(header, row.name)) for row in table.rows}


def _different(header: Header, names: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the fields of a header that differ from its default, or those of ``names``."""
    table = type(header)
    found, usual = header_values(header), header_values(table())
    wanted = {f"{table.label}.{name}" for name in names} or found.keys()
    return {name: found[name] for name in found if name in wanted and found[name] != usual[name]}


def _written(row: Row, value: int) -> str:
    """Write the value of a field in the field's notation, reduced to its width."""
    value &= (1 << row.width) - 1
    if not row.is_bytes:
        return str(value)
    data = value.to_bytes(row.width // 8, "big")
    if row.meaning.show.kind is Kind.IPV4:
        return str(IPv4Address(data))
    if row.meaning.show.kind is Kind.IPV6:
        return f'"{IPv6Address(data)}"'
    return f'"{data.hex(":")}"' if row.meaning.show.kind is Kind.MAC else f'"{data.hex()}"'
