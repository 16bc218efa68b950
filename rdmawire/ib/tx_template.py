"""Frames from templates: the headers of a path up to the PSN, and the CRC up to there.

All packets of one path, opcode and length begin with the same bytes, up to the PSN: Ethernet, IP
with its lengths and checksum, UDP, and eight bytes of the BTH. A :class:`TxTemplate` keeps these
heads, each with the state of the ICRC after it, so that a packet costs one ``join`` and one run of
the CRC over the new bytes. CRCs are linear, so the state continues where the head ended, and no
copy with ones over the variant fields is ever made (IBA 7.8.1).
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from isal.isal_zlib import crc32

from rdmawire.wire.header import Header
from rdmawire.wire.ib import BTH, GRH, HEAD_OF_BTH, ICRC, LNH, LRH
from rdmawire.wire.icrc import ONES_FOR_LRH, icrc_headers_twice, mask
from rdmawire.wire.inet import UDP, VLAN, Ethernet, EtherType, IPv4, IPv6
from rdmawire.wire.layout import Piece, size
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from rdmawire.wire.roce import Frame, Medium

MAX_HEADS: Final = 1024
"""Maximum number of heads kept by one port, or for one path; then all are discarded."""

MAX_SEEN: Final = 1 << 14
"""Maximum number of heads kept by a tap, which sees all of a network; then all are discarded."""

HEAD_SIZES: Final = {
    int(ethertype).to_bytes(2, "big"): sum(header.SIZE for header in headers) + HEAD_OF_BTH
    for ethertype, headers in (
        (EtherType.IPV4, (Ethernet, IPv4, UDP)),
        (EtherType.IPV6, (Ethernet, IPv6, UDP)),
        (EtherType.ROCE, (Ethernet, GRH)),
    )
}
"""Head sizes of frames without tags, by the two bytes of the EtherType."""

_TAG: Final = EtherType.VLAN.to_bytes(2, "big")


def head_size(frame: bytes) -> int:
    """The size of a frame's head, with one tag or none; 0 for other EtherTypes."""
    return HEAD_SIZES.get(frame[12:14]) or tagged_size(frame)


def tagged_size(frame: bytes) -> int:
    """As :func:`head_size`, for a frame with one tag."""
    behind_tag = HEAD_SIZES.get(frame[16:18])
    return behind_tag + VLAN.SIZE if behind_tag and frame[12:14] == _TAG else 0


IP_HEAD_SIZES: Final = {
    bytes((first,)): size.SIZE + UDP.SIZE + HEAD_OF_BTH
    for size, firsts in ((IPv4, range(0x45, 0x46)), (IPv6, range(0x60, 0x70)))
    for first in firsts
}
"""Head sizes of IP packets, by the first byte: the version, and for IPv4 no options."""


NATIVE_HEAD_SIZES: Final = {
    bytes((sl << 4 | lnh,)): size + HEAD_OF_BTH
    for lnh, size in ((LNH.IBA_LOCAL, LRH.SIZE), (LNH.IBA_GLOBAL, LRH.SIZE + GRH.SIZE))
    for sl in range(16)
}
"""Head sizes of native packets, by the second byte of the LRH: service level and next header."""


class HeadSizes(NamedTuple):
    """How to find the size of a frame's head: in ``sizes`` by the bytes at ``key``.

    For other bytes, ``other`` is called with the frame; it returns 0 for an unknown format.
    """

    key: slice
    sizes: Mapping[bytes, int]
    other: Callable[[bytes], int]


HEADS: Final = {
    Medium.ETHERNET: HeadSizes(slice(12, 14), HEAD_SIZES, tagged_size),
    Medium.IP: HeadSizes(slice(0, 1), IP_HEAD_SIZES, lambda _: 0),
    Medium.INFINIBAND: HeadSizes(slice(1, 2), NATIVE_HEAD_SIZES, lambda _: 0),
}
"""How to find head sizes, by medium."""


def word_offset(headers: Iterable[Piece]) -> int:
    """The offset of the word with AckReq and PSN after these headers; the head ends there."""
    return sum(map(size, headers)) + HEAD_OF_BTH


ACKREQ = 1 << 31
"""The AckReq bit in the word that ends with the PSN. IBA 9.2.8."""

pack_word = Struct(">I").pack
BytesLike: TypeAlias = bytes | memoryview
_NETWORK = (IPv4, IPv6, GRH)


class HeaderTemplate(NamedTuple):
    """The frame up to byte eight of the BTH, and the ICRC's state after it."""

    data: bytes
    crc: int


class TxTemplate:
    """Makes the frames of one path.

    ``headers`` precede the BTH, from the first byte of a frame on. ``bth`` has the fields that all
    packets share: the P_Key and the destination QP. With ``flush_twice`` the ICRC of a FLUSH covers
    its headers twice.
    """

    __slots__ = ("_heads", "bth", "flush_twice", "headers")

    def __init__(self, headers: tuple[Header, ...], bth: BTH, *, flush_twice: bool = False) -> None:
        self.flush_twice = flush_twice
        self.headers = headers
        self.bth = bth
        self._heads: dict[int, HeaderTemplate] = {}  # by length, SE and opcode in one number

    def head(self, opcode: int, length: int, se: int = 0) -> HeaderTemplate:
        """The head of packets with ``length`` bytes between PSN and pad."""
        key = length << 9 | se << 8 | opcode
        return self._heads.get(key) or self._made(key, opcode, length, se)

    def _made(self, key: int, opcode: int, length: int, se: int) -> HeaderTemplate:
        if len(self._heads) >= MAX_HEADS:
            self._heads.clear()
        bth = self.bth.replace(opcode=opcode, se=se, padcnt=-length % 4)
        self._heads[key] = head = head_of(self.headers, bth, length)
        return head

    def frame(
        self, opcode: int, word: int, extended: bytes, payload: BytesLike, se: int = 0
    ) -> bytes:
        """Build one frame; ``word`` is the PSN, with :data:`ACKREQ` to request an ACK."""
        length = len(extended) + len(payload)
        key = length << 9 | se << 8 | opcode
        try:
            head, crc = self._heads[key]
        except KeyError:
            head, crc = self._made(key, opcode, length, se)
        tail = b"".join((pack_word(word), extended, payload, PADS[length & 3]))
        return b"".join((head, tail, crc32(tail, crc).to_bytes(4, "little")))

    def request(self, opcode: int, word: int, extended: bytes, payload: BytesLike) -> bytes:
        """Build a one-packet request; the arguments are those of :meth:`frame`."""
        frame = self.frame(opcode, word, extended, payload)
        if self.flush_twice and opcode == Opcode.RC_FLUSH:
            return _covered_twice(frame, len(frame) - len(extended) - BTH.SIZE - ICRC.SIZE)
        return frame


def append_middles(
    frames: list[bytes],
    head: HeaderTemplate,
    psns: Iterable[int],
    payloads: Iterable[BytesLike],
) -> None:
    """Append packets with these PSNs and payloads, without AckReq and extended headers.

    ``MemoryFault`` if ``payloads`` raises it; the frames before are appended.
    """
    data, crc = head
    append = frames.append
    for psn, payload in zip(psns, payloads, strict=False):
        word = pack_word(psn)
        icrc = crc32(payload, crc32(word, crc)).to_bytes(4, "little")
        append(b"".join((data, word, payload, icrc)))


def _covered_twice(frame: bytes, bth: int) -> bytes:
    """Put Linux's ICRC of a FLUSH into a frame without payload; ``bth`` is an offset."""
    end = len(frame) - ICRC.SIZE
    icrc = icrc_headers_twice(int.from_bytes(frame[end:], "big"), frame[bth:end])
    return frame[:end] + icrc.to_bytes(ICRC.SIZE, "big")


PADS = (b"", b"\0\0\0", b"\0\0", b"\0")
"""The pad after a payload, by the two lower bits of its length. IBA 9.2.5."""


@lru_cache(maxsize=4096)
def head_of(headers: tuple[Header, ...], bth: BTH, length: int) -> HeaderTemplate:
    """The head of packets with ``length`` bytes between PSN and pad.

    Queue pairs that are made again for the same path and peer share heads.
    """
    frame = Frame(headers, Packet(bth, (), bytes(length + bth.padcnt))).seal().build()
    data = frame[: word_offset(headers)]
    return HeaderTemplate(data, state_behind(data, headers))


@lru_cache(maxsize=64)
def _ones_of(*headers: type[Header] | int) -> bytes:
    """The mask of a head, from the network header on: ones in fields that may change.

    Without a network header, from the LRH on.
    """
    first = next((at for at, header in enumerate(headers) if header in _NETWORK), 0)
    return mask(*headers[first:], BTH)[: HEAD_OF_BTH - BTH.SIZE]


def state_behind(head: bytes, headers: tuple[Piece, ...]) -> int:
    """The ICRC's state after a head that begins with these headers."""
    covered = [len(piece) if isinstance(piece, bytes) else type(piece) for piece in headers]
    ones = _ones_of(*covered)
    invariant = int.from_bytes(head[-len(ones) :], "big") | int.from_bytes(ones, "big")
    before = 0 if covered == [LRH] else ONES_FOR_LRH
    return crc32(invariant.to_bytes(len(ones), "big"), before)
