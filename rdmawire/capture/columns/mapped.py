"""A pcap file mapped into memory, and its records block by block."""

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from struct import unpack_from
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.capture import pcap
from rdmawire.capture.columns.lanes import Lanes, RecordForm
from rdmawire.capture.linktype import longest_record
from rdmawire.capture.refusal import shown
from rdmawire.capture.source import STREAM
from rdmawire.errors import CaptureError

_BLOCK = 32 << 20
"""Octets of the file that a block takes: what is mapped of it is given back after it."""


class Block(NamedTuple):
    """Records that stand one behind the other.

    ``places`` are those of their headers in the file; ``first`` is the number of the first one,
    counted from one.
    """

    places: NDArray[np.int64]
    first: int


class MappedPcap:
    """A pcap file in memory.

    ``octets`` is the whole file; how its record headers are written is ``form``.
    """

    def __init__(self, name: str, octets: mmap.mmap, form: RecordForm, link_type: int) -> None:
        self.name = name
        self.octets = octets
        self.form = form
        self.link_type = link_type

    def blocks(self, size: int = _BLOCK) -> Iterator[Block]:
        """All whole records; then :class:`CaptureError` if the file does not end with the last."""
        lanes = Lanes(self.octets, self.form)
        place, number, end = pcap.HEADER, 1, len(self.octets)
        while place < end:
            stretch = lanes.walk(place, min(place + size, end))
            if len(stretch.places):
                yield Block(stretch.places, number)
            if stretch.end < min(place + size, end):
                raise self._damage(stretch.end)
            number += len(stretch.places)
            self._give_back(place, stretch.end)
            place = stretch.end

    def _give_back(self, start: int, end: int) -> None:
        """Tell the system that these octets need not stay in memory."""
        page = mmap.PAGESIZE
        first = -(-start // page) * page
        if length := (end - first) // page * page if end > first else 0:
            self.octets.madvise(mmap.MADV_DONTNEED, first, length)

    def _damage(self, place: int) -> CaptureError:
        """What is wrong with the record at a place."""
        left = len(self.octets) - place
        head = self.octets[place : place + pcap.RECORD]
        captured = unpack_from(f"{self.form.order}8xI", head)[0] if left >= pcap.RECORD else 0
        return CaptureError(f"{self.name}: {pcap.misfit(captured, left, self.form.longest)}", place)


@contextmanager
def mapped(path: str | os.PathLike[str]) -> Iterator[MappedPcap | None]:
    """The pcap file of this name in memory; ``None`` for whatever else is to be read another way.

    That is standard input, pipes, compressed files, pcapng, and what is no capture at all.
    """
    name = os.fsdecode(path)
    try:
        pcap_file = _of_file(name) if name != STREAM and os.path.isfile(name) else None
    except OSError:  # there, what is wrong with it is said
        pcap_file = None
    yield pcap_file


def _of_file(name: str) -> MappedPcap | None:
    with open(name, "rb") as file:
        head = file.read(pcap.HEADER)
        if len(head) < pcap.HEADER or head[:4] not in pcap.MAGICS or not _is_version_2(head):
            return None
        # Arrays look into the map: it goes when the last of them goes, and is not closed here.
        octets = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return _of_header(shown(name), octets, head)


def _is_version_2(head: bytes) -> bool:
    order, _ = pcap.MAGICS[head[:4]]
    return bool(unpack_from(f"{order}H", head, 4)[0] == 2)


def _of_header(name: str, octets: mmap.mmap, head: bytes) -> MappedPcap:
    order, resolution = pcap.MAGICS[head[:4]]
    link_type = unpack_from(f"{order}I", head, 20)[0] & 0xFFFF
    return MappedPcap(
        name, octets, RecordForm(order, resolution, longest_record(link_type)), link_type
    )
