"""Capture files: records read from and written to pcap and pcapng.

::

    with open_capture("in.pcapng.zst") as reader, create_capture("out.pcap") as writer:
        for record in reader:
            writer.write(record._replace(options=()))

Files of any size stream through in constant memory. Any damage raises
:class:`~rdmawire.errors.CaptureError` after the last complete record before it.
"""

from rdmawire.capture.reader import Reader, open_capture
from rdmawire.capture.record import COMMENT, MAX_RECORD, Interface, LinkType, Record, RecordSpan
from rdmawire.capture.writer import Writer, create_capture

__all__ = [
    "COMMENT",
    "MAX_RECORD",
    "Interface",
    "LinkType",
    "Reader",
    "Record",
    "RecordSpan",
    "Writer",
    "create_capture",
    "open_capture",
]
