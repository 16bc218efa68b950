"""Specifications of flows, from the bytes of ``ibv_flow_spec`` structures. ibv_create_flow(3).

The layouts are those of <infiniband/verbs.h> on 64-bit machines: type (32 bits), size (16), then
the values and the masks of the same fields. What is refused, and with which errno, follows Linux's
uverbs and mlx5.
"""

from collections.abc import Callable, Iterator
from errno import EINVAL, EOPNOTSUPP
from struct import Struct
from typing import Any, Final, NamedTuple

from rdmawire.errors import VerbsError
from rdmawire.ib.flow_steering import FlowCounter, HeaderMatch, Part
from rdmawire.wire.inet import TCP, UDP, VLAN, VXLAN, Ethernet, EtherType, IPv4, IPv6


class _Field(NamedTuple):
    """``size`` bytes of a filter, whose last bit is ``end`` bits behind the start of a header.

    Values have at most ``bits`` bits.
    """

    part: Part
    size: int
    end: int
    bits: int = 128


class _Layout(NamedTuple):
    """The offset of the values, their size with padding (bytes), and the fields.

    A frame must have the header of the first field.
    """

    start: int
    size: int
    fields: tuple[_Field, ...]


def _fields(part: Part, *places: tuple[int, int] | tuple[int, int, int]) -> tuple[_Field, ...]:
    return tuple(_Field(part, *place) for place in places)


_LINK: Final = _fields(EtherType, (2, 16)) + _fields(VLAN, (2, 16))
_IPV6: Final = _fields(IPv6, (16, 192), (16, 320), (4, 32, 20), (1, 56), (1, 12), (1, 64))
_LAYOUTS: Final = {
    0x20: _Layout(6, 16, _fields(Ethernet, (6, 48), (6, 96)) + _LINK),
    0x30: _Layout(8, 8, _fields(IPv4, (4, 128), (4, 160))),
    0x31: _Layout(8, 40, _IPV6),
    # The last field is of fragments: mlx5 supports no mask of it.
    0x32: _Layout(8, 12, _fields(IPv4, (4, 128), (4, 160), (1, 80), (1, 16), (1, 72), (1, 0, 0))),
    0x40: _Layout(6, 4, _fields(TCP, (2, 32), (2, 16))),
    0x41: _Layout(6, 4, _fields(UDP, (2, 32), (2, 16))),
    0x50: _Layout(8, 4, _fields(VXLAN, (4, 56, 24))),
}
"""By type: IBV_FLOW_SPEC_ETH, IPV4, IPV6, IPV4_EXT, TCP, UDP and VXLAN_TUNNEL."""
_INNER: Final = 0x100
_ACTIONS: Final = {0x1000: Struct("=8xI"), 0x1001: Struct("=6x"), 0x1003: Struct("=8xQ")}
_TAG, _DROP, _ = _ACTIONS
_HEAD: Final = Struct("=IH")
_ETHERTYPES: Final[dict[Part, int]] = {IPv4: EtherType.IPV4, IPv6: EtherType.IPV6}
_EXACT: Final = 0xFFFF


def parse_specs(data: bytes, count: int, counter: Callable[[int], FlowCounter]) -> dict[str, Any]:
    """The fields of a :class:`~rdmawire.ib.FlowRule` that ``count`` specifications set.

    ``counter`` finds a counter by its handle. ``VerbsError`` EINVAL or EOPNOTSUPP.
    """
    headers: list[HeaderMatch] = []
    rule: dict[str, Any] = {}
    at = 0
    for _ in range(count):
        kind, size = _HEAD.unpack_from(data.ljust(at + _HEAD.size, b"\0"), at)
        if size < _needed(kind) or at + size > len(data):
            raise VerbsError(f"a flow specification of type {kind:#x} with {size} bytes", EINVAL)
        if kind == _DROP:
            rule["drops"] = True
        elif kind in _ACTIONS:
            (value,) = _ACTIONS[kind].unpack_from(data, at)
            rule |= {"tag": value} if kind == _TAG else {"counter": counter(value)}
        else:
            headers += _matches(kind, data[at : at + size])
        at += size
    _check_types(headers)
    return rule | {"headers": tuple(headers)}


def _needed(kind: int) -> int:
    """Bytes of a specification. ``VerbsError`` EOPNOTSUPP for an unknown type."""
    if kind in _ACTIONS:
        return _ACTIONS[kind].size
    layout = _LAYOUTS.get(kind & ~_INNER)
    if layout is None or (kind & _INNER and layout.fields[0].part is VXLAN):
        raise VerbsError(f"flow specifications of type {kind:#x} are not supported", EOPNOTSUPP)
    return layout.start + 2 * layout.size


def _matches(kind: int, spec: bytes) -> Iterator[HeaderMatch]:
    """What a specification compares: of each header, the bits of all fields."""
    layout = _LAYOUTS[kind & ~_INNER]
    found: dict[Part, HeaderMatch] = {}
    at = layout.start
    for index, (part, size, end, bits) in enumerate(layout.fields):
        value, mask = (
            int.from_bytes(spec[place : place + size], "big") for place in (at, at + layout.size)
        )
        at += size
        if max(mask, value & mask) >> bits:
            text = f"mask {mask:#x} of field {index + 1} of flow type {kind:#x}"
            raise VerbsError(f"{text} has over {bits} bits", EINVAL if bits else EOPNOTSUPP)
        if mask or not index:
            match = found.get(part) or HeaderMatch(part, inner=bool(kind & _INNER))
            shift = 8 * match.size - end
            value, mask = match.value | (value & mask) << shift, match.mask | mask << shift
            found[part] = match._replace(value=value, mask=mask)
    yield from found.values()


def _check_types(headers: list[HeaderMatch]) -> None:
    """``VerbsError`` EINVAL for an EtherType of another protocol than a later header."""
    for inner in (False, True):
        here = [match for match in headers if match.inner is inner]
        types = {match.value for match in here if match.part is EtherType and match.mask == _EXACT}
        ip = {_ETHERTYPES[match.part] for match in here if match.part in _ETHERTYPES}
        if types and ip and types != ip:
            raise VerbsError("the EtherType and the IP version of the flow differ", EINVAL)
