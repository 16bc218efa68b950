"""Fields by name, and values as text."""

from collections.abc import Sequence
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from rdmawire.terminal import closest_names, quote, shorten
from rdmawire.traffic.edit.rules import EditError, EditField
from rdmawire.wire.field_registry import HeaderField, both, find, unknown
from rdmawire.wire.header import Row
from rdmawire.wire.inet import mac_bytes
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
