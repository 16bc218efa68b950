"""The frames of a capture file in blocks, and the dissection of those that are not read at once."""

import os
from collections.abc import Iterable, Iterator

from rdmawire.capture.pcap_blocks import PcapFile, open_pcap
from rdmawire.capture.pcapng_blocks import PcapngFile, open_pcapng
from rdmawire.columns.extract import Frames
from rdmawire.columns.fast_path import LEAD, LINK_TYPES, Records
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.dissector import Dissector

CaptureFile = PcapFile | PcapngFile


class FrameSource:
    """The frames of a capture file; ``ports`` are the UDP ports of RoCEv2."""

    def __init__(self, file: CaptureFile, ports: Iterable[int]) -> None:
        self.file = file
        self.dissector = Dissector(ports)

    def blocks(self) -> Iterator[Frames]:
        """Yield all complete frames, some MiB at a time, in memory that the next ones overwrite.

        Raises :class:`CaptureError` where the file is damaged, and at the end if it has link types
        that are not known.
        """
        file, form = self.file, self.file.form
        first_ns: int | None = None
        previous_ns = 0
        for block in file.blocks():
            records = Records(block.data, block.offsets, form.order, times=block.times)
            first, last = (
                records.time_ns(row, form.resolution) for row in (0, len(block.offsets) - 1)
            )
            if first_ns is None:
                first_ns = previous_ns = first
            times = first_ns, previous_ns, form.resolution
            yield Frames(records, block.first, *times, file.name)
            previous_ns = last
        self.dissector.check_link_types(file.name, file.link_types)

    def dissect(self, frames: Frames, row: int) -> Dissection:
        """Dissect one frame; called once for each that is dissected, in the order of the file."""
        number = frames.first + row
        if isinstance(self.file, PcapngFile) and (other := self.file.others.pop(number, None)):
            frame = self.dissector.record(other.record, self.file.reader)
            frame.first_ns, frame.previous_ns = other.first_ns, other.previous_ns
        else:
            frame = self._dissect(frames, row)
        frame.number = number
        return frame

    def _dissect(self, frames: Frames, row: int) -> Dissection:
        record = frames.records.at(slice(row, row + 1))
        offset, captured = int(record.offsets[0]) + LEAD, int(record.heads["captured"][0])
        frame = self.dissector.dissect(
            bytes(record.data[offset : offset + captured]),
            link_type=self.file.link_type,
            time_ns=record.time_ns(0, frames.resolution),
            length=int(record.heads["length"][0]),
        )
        frame.file = self.file.name
        frame.first_ns, frame.previous_ns = frames.first_ns, frames.before(row)
        return frame


def open_fast_path(path: str | os.PathLike[str]) -> CaptureFile | None:
    """Open a capture file whose link type has fast paths; ``None`` for any other file."""
    file = open_pcap(path) or open_pcapng(path)
    if file is None or file.link_type in LINK_TYPES:
        return file
    file.close()
    return None
