"""Checksums of plain frames, many at once."""

from typing import Any

import numpy as np
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from rdmawire.columns.bits import LEAD, bits
from rdmawire.columns.path import Path
from rdmawire.columns.plain import Plain
from rdmawire.columns.source import Found
from rdmawire.dissect import generated
from rdmawire.wire.ib import BTH
from rdmawire.wire.icrc import ONES_FOR_LRH, icrc_headers_twice, mask
from rdmawire.wire.inet import UDP, IPv4, IPv6
from rdmawire.wire.opcode import Opcode


def expected_icrc(plain: Plain) -> NDArray[np.uint32]:
    """What the ICRC of each frame must be: one CRC over the masked headers, one over the rest."""
    path = plain.path
    start, end = LEAD + path.network_base, LEAD + path.width
    ones = np.frombuffer(mask(path.network, UDP, BTH), np.uint8)
    heads = (plain.frames[:, start:end] | ones).view(f"V{len(ones)}").ravel().tolist()
    octets = plain.records.octets
    begins = (plain.records.places + end).tolist()
    ends = (plain.records.places + plain.icrc).tolist()
    crcs = [
        crc32(octets[begin:end], crc32(head, ONES_FOR_LRH))
        for head, begin, end in zip(heads, begins, ends, strict=True)
    ]
    return np.array(crcs, np.uint32).byteswap()


def _icrc_is_good(plain: Plain) -> tuple[NDArray[np.bool_], NDArray[np.uint32]]:
    expected = expected_icrc(plain)
    found = plain.records.numbers(plain.icrc, ">u4")
    good = expected == found
    for row in np.flatnonzero(~good & (plain.packets.opcodes == Opcode.RC_FLUSH)).tolist():
        good[row] = found[row] == _icrc_of_linux(plain, row, int(expected[row]))
    return good, expected


def _icrc_of_linux(plain: Plain, row: int, standard: int) -> int:
    """The ICRC that Linux's soft-RoCE gives a FLUSH whose ICRC by IBA 7.8.1 is ``standard``."""
    place = int(plain.records.places[row])
    bth = place + LEAD + plain.path.width - BTH.SIZE
    return icrc_headers_twice(standard, plain.records.octets[bth : place + int(plain.icrc[row])])


class ICRCStatus:
    """Whether the ICRC holds."""

    def width(self, path: Path) -> int:
        return path.width

    def read(self, plain: Plain) -> Found | None:
        good, _ = _icrc_is_good(plain)
        return Found(_WORDS[good.astype(np.uint8)])


class ICRCExpected:
    """What an ICRC that does not hold should have been."""

    def width(self, path: Path) -> int:
        return path.width

    def read(self, plain: Plain) -> Found | None:
        good, expected = _icrc_is_good(plain)
        return Found(expected, ~good)


_WORDS: NDArray[Any] = np.array(["bad", "good"], object)


class IPChecksumStatus:
    """Whether the checksum of the IPv4 header holds."""

    def width(self, path: Path) -> int:
        return path.width

    def read(self, plain: Plain) -> Found | None:
        if plain.path.network is IPv6:
            return None
        base = plain.path.network_base
        total = np.zeros(len(plain.frames), np.uint32)
        for word in range(IPv4.SIZE // 2):
            total += bits(16 * word, 16).read(plain.frames, base)
        total = (total & 0xFFFF) + (total >> 16)
        # RFC 791: summed up with the checksum in it, a header gives ones.
        good = (total & 0xFFFF) + (total >> 16) == 0xFFFF
        return Found(np.where(good, generated.GOOD, generated.BAD))
