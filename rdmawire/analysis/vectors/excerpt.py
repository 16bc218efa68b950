"""Frames of some vectors as a capture of their own."""

from collections.abc import Sequence

from rdmawire.capture import Record, create_capture
from rdmawire.capture.source import STREAM


def write_excerpt(path: str, records: Sequence[Record]) -> None:
    """Write records, each with the link type that it has, to a file or to standard output.

    ``CaptureError`` where that cannot be: a .pcap holds frames of one link type.
    """
    kinds = list(dict.fromkeys(record.link_type for record in records))
    form = "pcapng" if path == STREAM and len(kinds) > 1 else None
    with create_capture(path, link_type=kinds[0] if kinds else None, format=form) as writer:
        for record in records:
            writer.write(record._replace(interface=kinds.index(record.link_type), options=()))
