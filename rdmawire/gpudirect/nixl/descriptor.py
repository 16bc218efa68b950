"""Descriptors of memory, and the strings of NIXL's notifications.

Facts are those of NIXL (``src/core/nixl_agent.cpp``, ``src/utils/serdes/serdes.cpp``).
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

from rdmawire.errors import WireError


class Descriptor(NamedTuple):
    """``length`` bytes of memory at ``address``, in a tensor of this number."""

    address: int
    length: int
    tensor: int = 0


class DescriptorPair(NamedTuple):
    """Memory of the initiator, and memory of the same length of the target."""

    local: Descriptor
    remote: Descriptor


def merged(pairs: Sequence[DescriptorPair]) -> list[DescriptorPair]:
    """Join pairs that follow each other at both ends, as ``makeXferReq`` does."""
    found: list[DescriptorPair] = []
    for pair in pairs:
        if (
            found
            and _follows(found[-1].local, pair.local)
            and _follows(found[-1].remote, pair.remote)
        ):
            found[-1] = DescriptorPair(
                *(_joined(one, two) for one, two in zip(found[-1], pair, strict=True))
            )
        else:
            found.append(pair)
    return found


def _follows(one: Descriptor, other: Descriptor) -> bool:
    return one.tensor == other.tensor and one.address + one.length == other.address


def _joined(one: Descriptor, other: Descriptor) -> Descriptor:
    return one._replace(length=one.length + other.length)


_MAGIC: Final = b"nixlSerDes|"
_LENGTH: Final = Struct("<Q")
_END: Final = b"|"


def serialize(fields: Mapping[str, bytes]) -> bytes:
    """Return fields as ``nixlSerDes`` writes them: name, length in eight bytes, value and ``|``."""
    parts = [
        name.encode() + _LENGTH.pack(len(value)) + value + _END for name, value in fields.items()
    ]
    return _MAGIC + b"".join(parts)


def deserialize(data: bytes, names: Sequence[str]) -> dict[str, bytes]:
    """Read the fields of these names, in order; :class:`WireError` if they are not there."""
    if not data.startswith(_MAGIC):
        raise WireError(f"{data[:16]!r} does not begin with {_MAGIC.decode()}")
    at, found = len(_MAGIC), {}
    for name in names:
        start = at + len(name.encode()) + _LENGTH.size
        if data[at : start - _LENGTH.size] != name.encode() or start > len(data):
            raise WireError(f"no field {name} at byte {at}")
        end = start + _LENGTH.unpack_from(data, start - _LENGTH.size)[0]
        if data[end : end + 1] != _END:
            raise WireError(f"field {name} does not end at byte {end}")
        found[name] = data[start:end]
        at = end + 1
    return found
