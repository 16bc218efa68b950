"""Captures edited: new addresses, queue pairs, PSNs and keys, with updated checksums.

::

    from rdmawire.traffic.edit import Editor, edit_capture, text

    editor = Editor([text.ips(["10.77.0.0/24=192.168.7.0/24"]), text.psn_offsets(["100"])])
    edit_capture("cluster.pcapng", "mine.pcapng", editor)
"""

from rdmawire.traffic.edit import text
from rdmawire.traffic.edit.copy import RecordAction, edit_capture
from rdmawire.traffic.edit.editor import ChecksumMode, EditCounts, Editor
from rdmawire.traffic.edit.rules import EditError

__all__ = [
    "ChecksumMode",
    "EditCounts",
    "EditError",
    "Editor",
    "RecordAction",
    "edit_capture",
    "text",
]
