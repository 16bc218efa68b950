"""The descriptor of NCCL's GIN proxy (GFD): what a kernel asks a thread of the host to do.

It is eight words of eight bytes, little-endian. The lowest bit of each is a flag: the words may
become visible in any order, and the thread takes the descriptor when all flags are set. The layout
is that of NCCL 2.28 and 2.29 (``nccl_device/gin/proxy/gin_proxy_device_host_common.h``); since 2.30
a descriptor has 128 bytes, and the operation is in the last of these eight words.
"""

from collections.abc import Mapping
from enum import IntFlag
from struct import Struct
from typing import Final, NamedTuple, Self

_WORDS: Final = Struct("<8Q")
GFD_SIZE: Final = _WORDS.size
"""Bytes of a descriptor."""


class GfdOp(IntFlag):
    """What a descriptor asks for."""

    PUT = 1
    WITH_INLINE = 2
    WITH_COUNTER = 4
    WITH_SIGNAL_INC = 8
    WITH_SIGNAL_ADD = 16


class _Bits(NamedTuple):
    """A part of a field: bits of a word, from ``shift`` on, and the field's bits ``above`` it."""

    word: int
    shift: int
    width: int
    above: int = 0

    @property
    def mask(self) -> int:
        return (1 << self.width) - 1


_FIELDS: Final[Mapping[str, tuple[_Bits, ...]]] = {
    "op": (_Bits(0, 1, 6),),
    "size": (_Bits(0, 7, 57),),
    "source_offset": (_Bits(1, 1, 63),),
    "source_window": (_Bits(2, 1, 63),),
    "target_offset": (_Bits(3, 1, 63),),
    "target_window": (_Bits(4, 1, 63),),
    "counter": (_Bits(5, 8, 16),),
    "signal": (_Bits(5, 24, 16),),
    "signal_value": (_Bits(5, 40, 16), _Bits(6, 8, 16, 16), _Bits(6, 24, 32, 32)),
    "value": (_Bits(1, 8, 48), _Bits(2, 8, 16, 48)),
}
"""The fields. A value shares its words with the source, which is not there then."""
_SOURCE: Final = ("source_offset", "source_window")


class Gfd(NamedTuple):
    """A descriptor: ``size`` bytes from a source to a target, both as window and offset.

    With ``WITH_INLINE`` the bytes are those of ``value``. Windows are numbers here, and handles of
    registered memory in NCCL.
    """

    op: GfdOp
    size: int = 0
    source_offset: int = 0
    source_window: int = 0
    target_offset: int = 0
    target_window: int = 0
    counter: int = 0
    signal: int = 0
    signal_value: int = 0
    value: int = 0

    def build(self) -> bytes:
        """Return the bytes, with all flags set."""
        words = [1] * 8
        for name in _used(self.op):
            field = getattr(self, name)
            for part in _FIELDS[name]:
                words[part.word] |= (field >> part.above & part.mask) << part.shift
        return _WORDS.pack(*words)

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Return the descriptor that these bytes are."""
        words = _WORDS.unpack(data)

        def field(name: str) -> int:
            parts = _FIELDS[name]
            return sum((words[part.word] >> part.shift & part.mask) << part.above for part in parts)

        op = GfdOp(field("op"))
        return cls(op, **{name: field(name) for name in _used(op) if name != "op"})


def _used(op: GfdOp) -> list[str]:
    """Return the names of the fields of a descriptor: with a source or with a value."""
    unused = _SOURCE if op & GfdOp.WITH_INLINE else ("value",)
    return [name for name in _FIELDS if name not in unused]


def is_complete(data: bytes) -> bool:
    """Return whether the flags of all words are set."""
    return all(word & 1 for word in _WORDS.unpack(data))
