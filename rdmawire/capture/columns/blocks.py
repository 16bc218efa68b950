"""A pcap file read in blocks of whole records, into a buffer that is used again.

The file is read, not mapped: a file that another program shortens is then an error like any
other, where a map of it would end the process with SIGBUS.
"""

import mmap
import os
from collections.abc import Iterator
from contextlib import closing
from struct import unpack_from
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmawire.capture import pcap
from rdmawire.capture.columns.lanes import Lanes, RecordForm
from rdmawire.capture.linktype import longest_record
from rdmawire.capture.source import STREAM, Source, open_source
from rdmawire.errors import CaptureError

_BLOCK = 8 << 20
"""Bytes of a block: enough for lanes to pay, few enough to stay in a processor's cache."""


class Block(NamedTuple):
    """Whole records, one behind the other, in a buffer that the next block overwrites.

    ``places`` are where their headers begin in ``octets``; ``first`` is the frame number of the
    first record, counted from one.
    """

    octets: memoryview
    places: NDArray[np.int64]
    first: int


class PcapFile:
    """A pcap file, from its first record on. ``form`` says how its record headers are written."""

    def __init__(self, source: Source, form: RecordForm, link_type: int) -> None:
        self.name = source.name
        self.form = form
        self.link_type = link_type
        self._source = source

    def blocks(self, size: int = _BLOCK) -> Iterator[Block]:
        """Read all whole records, about ``size`` bytes at a time; can be called once.

        :class:`CaptureError` if the file does not end with the last record, or became shorter.
        """
        # The space before a block takes the start of a record that the block before has cut. Each
        # byte has the same place in its page as in the file: copying is two to five times as fast.
        pages = -(-(pcap.RECORD + self.form.longest) // mmap.PAGESIZE)
        room = pages * mmap.PAGESIZE + pcap.HEADER
        memory = mmap.mmap(-1, room + size)  # anonymous: pages not written use no memory
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        octets = memoryview(memory)
        start, offset, number, filled = room, pcap.HEADER - room, 1, size
        with closing(self._source):
            while filled == size:
                filled = self._source.fill(octets[room:])
                end = room + filled
                # A record that begins before this is whole, unless the file ends in it.
                stop = end if filled < size else end - room
                places, place = Lanes(memory, self.form, end).walk(start, stop)
                if len(places):
                    yield Block(octets[:end], places, number)
                if place < stop:
                    raise self._damage(octets[place:end], offset + place)
                start = room - (end - place)
                memory.move(start, place, end - place)
                offset, number = offset + filled, number + len(places)
            self._source.check_end()

    def _damage(self, octets: memoryview, offset: int) -> CaptureError:
        """What is wrong with the record that should begin with these bytes."""
        is_head = len(octets) >= pcap.RECORD
        captured = unpack_from(f"{self.form.order}8xI", octets)[0] if is_head else 0
        if captured <= self.form.longest:
            self._source.check_end()
        reason = pcap.misfit(captured, len(octets), self.form.longest)
        return CaptureError(f"{self.name}: {reason}", offset)

    def close(self) -> None:
        """Read no more."""
        self._source.close()


def open_pcap(path: str | os.PathLike[str]) -> PcapFile | None:
    """The pcap file of this name; ``None`` for whatever else is to be read another way.

    That is standard input, pipes, compressed files, pcapng, and what is no capture at all.
    """
    name = os.fsdecode(path)
    try:
        if name == STREAM or not os.path.isfile(name):
            return None
        source = open_source(name)
    except (CaptureError, ValueError):  # reported when the file is read the other way
        return None
    return _of_source(source)


def _of_source(source: Source) -> PcapFile | None:
    head = bytearray(pcap.HEADER)
    try:
        is_pcap = source.fill(memoryview(head)) == len(head) and _is_known(head)
    except CaptureError:
        is_pcap = False
    if not is_pcap:
        source.close()
        return None
    order, resolution = pcap.MAGICS[bytes(head[:4])]
    link_type = unpack_from(f"{order}I", head, 20)[0] & 0xFFFF
    return PcapFile(source, RecordForm(order, resolution, longest_record(link_type)), link_type)


def _is_known(head: bytearray) -> bool:
    """Whether a file that begins like this is a pcap of version 2."""
    magic = bytes(head[:4])
    if magic not in pcap.MAGICS:
        return False
    order, _ = pcap.MAGICS[magic]
    return bool(unpack_from(f"{order}H", head, 4)[0] == 2)
