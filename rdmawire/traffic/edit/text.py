"""Rules as text: ``10.0.0.1=192.168.7.1``, ``0x11@10.0.0.1=0x1234``, ``ip.ttl=3``.

Each function takes the texts of one type of rule, and raises :class:`EditError` for an invalid one,
with the text, what was found in it and what is expected.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from ipaddress import (
    AddressValueError,
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from pathlib import Path
from typing import Final

from rdmawire.capture.io import display_path
from rdmawire.decode import host as host_of
from rdmawire.terminal import closest_names, quote, shorten
from rdmawire.traffic.edit.copy import Change, tagged
from rdmawire.traffic.edit.mapping import (
    Added,
    AddressRule,
    Mapped,
    MapRule,
    Merged,
    NumberPrefix,
    PsnRule,
)
from rdmawire.traffic.edit.rules import (
    CHECKSUMS,
    IPS,
    LIDS,
    MACS,
    MAX_NAMED,
    PKEYS,
    QPNS,
    RKEYS,
    VLANS,
    AssignRule,
    EditError,
    EditField,
    Target,
    Unused,
    field,
)
from rdmawire.wire import show
from rdmawire.wire.field_registry import HeaderField, both, find, unknown
from rdmawire.wire.header import Row
from rdmawire.wire.ib import GRH
from rdmawire.wire.inet import ECN, UDP, IPv4, IPv6, mac_bytes
from rdmawire.wire.show import Kind

_LISTED = 20
"""Maximum number of a field's words that a message lists."""


def fields_named(name: str) -> Sequence[HeaderField]:
    """Return the fields of all headers with this name; :class:`EditError` if there is none.

    Names of two fields in one header, such as ``ip.addr``, cannot be set.
    """
    found = find(name)
    if not found:
        raise EditError(unknown(name))
    if several := both(found):
        raise EditError(f"{quote(name)} is {several}: name one of them")
    return found


def _listed(names: Sequence[str]) -> str:
    """Join names, or the first ones of many."""
    more = [f"and {len(names) - _LISTED} more"] * (len(names) > _LISTED)
    return ", ".join([*names[:_LISTED], *more])


def number(text: str, bits: int) -> int:
    """Parse a number of at most ``bits`` bits; :class:`EditError` for any other text."""
    try:
        value = int(text, 0)
    except ValueError:
        raise EditError(f"{quote(text)} is no number, such as 17 or 0x11") from None
    if not 0 <= value < 1 << bits:
        raise EditError(f"{shorten(text)} does not fit {bits} bits (0 to {(1 << bits) - 1:#x})")
    return value


def mac(text: str) -> int:
    """Parse a MAC address."""
    try:
        return int.from_bytes(mac_bytes(text))
    except ValueError:
        raise EditError(
            f"{quote(text)} is no Ethernet address, such as 52:54:00:00:00:01"
        ) from None


def ipv4(text: str) -> int:
    """Parse an IPv4 address."""
    try:
        return int(IPv4Address(text))
    except AddressValueError:
        raise EditError(f"{quote(text)} is no IPv4 address") from None


def check_no_zone(text: str) -> None:
    """:class:`EditError` for an address with a zone; packets have none. RFC 4007, 11."""
    address, sign, zone = text.partition("%")
    if sign:
        raise EditError(f"{quote(address)} is to have no zone: {quote(zone)} is not in packets")


def ipv6(text: str) -> int:
    """Parse an IPv6 address or GID."""
    check_no_zone(text)
    try:
        return int(IPv6Address(text))
    except AddressValueError:
        raise EditError(f"{quote(text)} is no IPv6 address") from None


def value(named: HeaderField, text: str) -> int:
    """Parse a value for a field; :class:`EditError` if the field cannot hold it."""
    row, kind = named.row, named.meaning.show.kind
    if kind in _ADDRESSES:
        return _ADDRESSES[kind](text)
    if isinstance(row, Row) and row.is_bytes:
        return _bytes(text, row.size // 8)
    words = _words(named)
    if text.upper() in words:
        return words[text.upper()]
    if words and text[:1].isalpha():
        raise EditError(_no_word(text, list(words)))
    bits = EditField(named.table, row).width + named.scale.bit_length() - 1
    units, rest = divmod(number(text, bits), named.scale)
    if rest:
        raise EditError(f"{shorten(text)} is no multiple of {named.scale}")
    return units


_ADDRESSES = {Kind.MAC: mac, Kind.IPV4: ipv4, Kind.IPV6: ipv6}


def _bytes(text: str, length: int) -> int:
    try:
        data = bytes.fromhex(text.replace(":", ""))
    except ValueError:
        raise EditError(f"{quote(text)} is no row of hexadecimal digits") from None
    if len(data) != length:
        raise EditError(f"{length} bytes are needed, {len(data)} were given")
    return int.from_bytes(data, "big")


def _words(named: HeaderField) -> dict[str, int]:
    """Return the standard's words for values, in capitals, with their numbers."""
    enums = (meaning.enum or () for meaning in named.meanings())
    return {member.name.upper(): int(member.value) for enum in enums for member in enum}


def _no_word(text: str, words: Sequence[str]) -> str:
    """List a field's words and the closest match; of many words, only the match."""
    near = closest_names(text.upper(), words)
    hint = f"; did you mean {near[0]}?" if near else ""
    known = f"{len(words)} words" if near and len(words) > _LISTED else f"words {_listed(words)}"
    return f"{quote(text)} is no number, and none of the {known}{hint}"


_LONGEST: Final = 120
"""Maximum characters of a rule that an error repeats: two IPv6 prefixes fit."""
_MAPPED: Final = 0xFFFF << 32
"""Prefix of an IPv4-mapped IPv6 address. RFC 4291, 2.5.5.2."""
_ASSIGNMENT = re.compile(r"([A-Za-z][\w.]*)(\+=|-=|=)(.*)")
_AMOUNT = re.compile(r"([-+]?)(\w+)", re.ASCII)
_ECNS = {"not": ECN.NOT_ECT, "ect0": ECN.ECT_0, "ect1": ECN.ECT_1, "ce": ECN.CE}

_Ranges = Sequence[tuple[NumberPrefix, int]]


def macs(texts: Sequence[str]) -> MapRule:
    """Map MAC addresses in all headers."""
    return _map(
        MACS, texts, lambda old, new: [(NumberPrefix(48, mac(old)), mac(new))], written=_address
    )


def ips(texts: Sequence[str]) -> MapRule:
    """Map IP addresses and GIDs, one by one or by prefixes of the same length."""
    return _map(IPS, texts, _ip_ranges, written=_address)


def lids(texts: Sequence[str]) -> MapRule:
    """Map LIDs."""
    return _map(LIDS, texts, _numbers(16), written=_address)


def pkeys(texts: Sequence[str]) -> MapRule:
    """Map P_Keys."""
    return _map(PKEYS, texts, _numbers(16))


def vlans(texts: Sequence[str]) -> MapRule:
    """Map VLAN ids."""
    return _map(VLANS, texts, _numbers(12))


def qpns(texts: Sequence[str]) -> MapRule:
    """Map queue pair numbers, of all hosts or of one."""
    return _map(QPNS, texts, _numbers(24), hosts=True, written=_hex)


def rkeys(texts: Sequence[str]) -> MapRule:
    """Map R_Keys and STags, of all hosts or of one."""
    return _map(RKEYS, texts, _numbers(32), hosts=True, written=_hex)


def psn_offsets(texts: Sequence[str]) -> PsnRule:
    """Add to PSNs, of all flows or of those to one queue pair."""
    return PsnRule(_offsets(texts, 24, 24))


def va_offsets(texts: Sequence[str]) -> AddressRule:
    """Add to addresses in remote memory, of all keys or of one."""
    return AddressRule(_offsets(texts, 32, 64))


def tag(text: str) -> Change:
    """Parse ``VID`` or ``VID:PCP``: a VLAN tag for untagged frames."""
    with _naming(text):
        vlan, _, priority = text.partition(":")
        return tagged(number(vlan, 12), number(priority or "0", 3))


def ecn(text: str) -> AssignRule:
    """Set the ECN field of IP."""
    with _naming(text):
        if text not in _ECNS:
            raise EditError(f"one of {', '.join(_ECNS)} is expected")
    return AssignRule(text, [field(IPv4, "ecn"), field(IPv6, "ecn")], _ECNS[text])


def dscp(text: str) -> AssignRule:
    """Set the DSCP of IP."""
    return _assign(text, [field(IPv4, "dscp"), field(IPv6, "dscp")])


def ttl(text: str) -> AssignRule:
    """Set the time to live of IPv4, or the hop limit of IPv6 or of a GRH."""
    return _assign(text, [field(IPv4, "ttl"), field(IPv6, "hop_limit"), field(GRH, "hoplmt")])


def udp_source(text: str) -> AssignRule:
    """Set the source port of UDP."""
    return _assign(text, [field(UDP, "srcport")])


def _assign(text: str, fields: Sequence[EditField]) -> AssignRule:
    with _naming(text):
        return AssignRule(text, fields, number(text, fields[0].width))


def assignment(text: str) -> AssignRule:
    """Parse ``FIELD=VALUE``, ``FIELD+=N`` or ``FIELD-=N`` with table or Wireshark names."""
    with _naming(text):
        found = _ASSIGNMENT.fullmatch(text)
        if found is None:
            raise EditError("FIELD=VALUE or FIELD+=N is expected, such as bth.ackreq=1")
        name, sign, said = found.groups()
        return _assigned(text, name, sign, said)


def _assigned(text: str, name: str, sign: str, said: str) -> AssignRule:
    named = fields_named(name)
    fields = [EditField(each.table, each.row) for each in named]
    if sign == "=":
        return AssignRule(text, fields, value(named[0], said))
    if any(CHECKSUMS.get(each.table) == each.row.name for each in fields):
        raise EditError("a checksum can be set, not added to")
    amount = number(said, fields[0].width)
    return AssignRule(text, fields, amount if sign == "+=" else -amount, adds=True)


def _map(
    target: Target,
    texts: Sequence[str],
    ranges: Callable[[str, str], _Ranges],
    *,
    hosts: bool = False,
    written: Callable[[bytes], str] | None = None,
) -> MapRule:
    """Return a map; ``written`` formats numbers that were mapped to the same one."""
    entries = [_mapped(text, ranges, hosts=hosts) for text in texts]
    _check_distinct(entries)
    if written is None:
        return MapRule(target, entries)
    return MapRule(target, entries, partial(_merged, written))


def missed(unused: Unused) -> str:
    """Describe a number that no frame had, and the hosts that have it, if any."""
    named = [_address(host) for host in unused.owners[:MAX_NAMED]]
    if not named:
        return "no frame has it"
    if len(unused.owners) > MAX_NAMED:
        named.append("others")
    *before, last = named
    hosts = f"{', '.join(before)} and {last}" if before else last
    return f"no frame has it; {hosts} {'have' if before else 'has'} that number"


def _merged(written: Callable[[bytes], str], merged: Merged) -> str:
    """Describe two numbers mapped to the same one, and their host."""
    size = -(-merged.width // 8)
    numbers = (*sorted(merged.numbers), merged.new)
    one, other, new = (written(each.to_bytes(size, "big")) for each in numbers)
    host = f" of {_address(merged.host)}" if merged.host else ""
    return f"{one} and {other}{host} are both {new} now"


def _address(data: bytes) -> str:
    """Format an address of any type as rules do."""
    return _WRITTEN[len(data)](data)


def _hex(data: bytes) -> str:
    return hex(int.from_bytes(data, "big"))


_WRITTEN: Final[Mapping[int, Callable[[bytes], str]]] = {
    2: lambda data: f"lid:{int.from_bytes(data, 'big')}",
    4: show.ipv4,
    6: show.mac,
    16: show.ipv6,
}
"""Format of addresses by their length (bytes)."""


def _mapped(text: str, ranges: Callable[[str, str], _Ranges], *, hosts: bool) -> Mapped:
    with _naming(text):
        old, sign, new = text.partition("=")
        if not sign:
            raise EditError("OLD=NEW is expected")
        old, host = _at_host(old) if hosts else (old, None)
        return Mapped(text, ranges(old, new), host)


def _check_distinct(entries: Sequence[Mapped]) -> None:
    known: dict[tuple[NumberPrefix, bytes | None], str] = {}
    for entry in entries:
        for old, _ in entry.ranges:
            other = known.setdefault((old, entry.host), entry.text)
            if other is not entry.text:
                raise EditError(f"{quote(other)} and {quote(entry.text)} map the same")


def _numbers(bits: int) -> Callable[[str, str], _Ranges]:
    return lambda old, new: [(NumberPrefix(bits, number(old, bits)), number(new, bits))]


def _ip_ranges(old: str, new: str) -> _Ranges:
    here, there = _network(old), _network(new)
    if here.version != there.version:
        raise EditError(
            f"{shorten(old)} is IPv{here.version} and {shorten(new)} is IPv{there.version}"
        )
    if here.prefixlen != there.prefixlen:
        raise EditError(f"{shorten(old)} and {shorten(new)} are not of the same length")
    bits = here.max_prefixlen
    first, target = int(here.network_address), int(there.network_address)
    free = bits - here.prefixlen
    plain = NumberPrefix(bits, first, free), target
    if here.version == 6:
        return [plain]
    return [plain, (NumberPrefix(128, _MAPPED | first, free), _MAPPED | target)]


def _network(text: str) -> IPv4Network | IPv6Network:
    """Parse an address, or a prefix."""
    check_no_zone(text)
    try:
        return ip_network(text)
    except ValueError as error:
        if "host bits" in str(error):
            raise EditError(shorten(str(error))) from None
        raise EditError(f"{quote(text)} is no IP address or prefix") from None


def _offsets(texts: Sequence[str], key_bits: int, bits: int) -> list[Added]:
    entries = [_added(text, key_bits, bits) for text in texts]
    known: dict[tuple[int | None, bytes | None], str] = {}
    for entry in entries:
        other = known.setdefault((entry.key, entry.host), entry.text)
        if other is not entry.text:
            raise EditError(f"{quote(other)} and {quote(entry.text)} are about the same")
    return entries


def _added(text: str, key_bits: int, bits: int) -> Added:
    with _naming(text):
        key, sign, amount = text.rpartition("=")
        if not sign:
            return Added(text, _amount(amount, bits))
        name, host = _at_host(key)
        return Added(text, _amount(amount, bits), number(name, key_bits), host)


def _amount(text: str, bits: int) -> int:
    """Parse a number to add, with or without a sign."""
    found = _AMOUNT.fullmatch(text)
    if found is None:
        raise EditError(f"{quote(text)} is no number to add, such as 5 or -0x10")
    amount = number(found[2], bits)
    return -amount if found[1] == "-" else amount


def _at_host(text: str) -> tuple[str, bytes | None]:
    """Return the text before an ``@``, and the address of the host after it."""
    name, sign, host = text.partition("@")
    if not sign:
        return name, None
    if host.startswith("lid:"):
        return name, number(host[4:], 16).to_bytes(2, "big")
    check_no_zone(host)
    try:
        return name, host_of(ip_address(host).packed)
    except ValueError:
        raise EditError(f"{quote(host)} is no address of a host: an IP address, or lid:7") from None


@contextmanager
def _naming(text: str) -> Iterator[None]:
    """Add the text of a rule to an error."""
    try:
        yield
    except EditError as error:
        raise EditError(f"{quote(text, _LONGEST)}: {error}") from None


MAX_BYTES: Final = 8 << 20
"""Maximum bytes of a file: some hundred thousand lines."""
SECTIONS: Final[Mapping[str, Callable[[Sequence[str]], MapRule]]] = {
    "mac": macs,
    "ip": ips,
    "lid": lids,
    "vlan": vlans,
    "pkey": pkeys,
    "qpn": qpns,
    "rkey": rkeys,
}
"""Functions that make a rule from lines, by the section of the lines."""

_HEADING = re.compile(r"\[\s*(.*?)\s*\]")

_Source = tuple[NumberPrefix, bytes | None]
"""A mapped range, and its host."""
Maps = dict[str, list[str]]
"""The maps of each section, as :mod:`rdmawire.traffic.edit.text` takes them."""


def read_maps(path: Path) -> Maps:
    """Read the maps of a file; :class:`EditError` naming the line of the first error."""
    maps: Maps = {name: [] for name in SECTIONS}
    lines: dict[tuple[str, _Source], int] = {}
    section = ""
    for line_number, line in _lines(path):
        heading = _HEADING.fullmatch(line)
        try:
            if heading:
                section = _section(heading[1])
                continue
            said, sources = _map_value(_section(section), line)
            for source in sources:
                if lines.setdefault((section, source), line_number) != line_number:
                    raise EditError(f"line {lines[section, source]} maps the same")
            maps[section].append(said)
        except EditError as error:
            raise EditError(f"{display_path(str(path))}, line {line_number}: {error}") from None
    return maps


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines with content, with their numbers."""
    for line_number, line in enumerate(_text(path).split("\n"), 1):
        said = line.partition("#")[0].strip()
        if said:
            yield line_number, said


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise EditError(f"{display_path(str(path))}: more than {MAX_BYTES} bytes")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise EditError(f"{display_path(str(path))}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise EditError(f"{display_path(str(path))}, line {line}: no UTF-8") from None


def _section(name: str) -> str:
    """Check the name of a section."""
    if name in SECTIONS:
        return name
    known = ", ".join(f"[{each}]" for each in SECTIONS)
    raise EditError(
        f"{quote(f'[{name}]')} is none of {known}" if name else f"one of {known} comes first"
    )


def _map_value(section: str, line: str) -> tuple[str, Iterator[_Source]]:
    """Return a map without blanks around its numbers, and what it maps."""
    said = "=".join(part.strip() for part in line.split("="))
    (entry,) = SECTIONS[section]([said]).entries
    return said, ((old, entry.host) for old, _ in entry.ranges)
