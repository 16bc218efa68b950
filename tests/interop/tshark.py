"""What tshark finds in a capture, through pyshark: per frame, each field's values as text."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pyshark

from rdmawire.capture import open_capture
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.dissector import Dissector
from rdmawire.dissect.fields import FieldInfo, fields
from rdmawire.dissect.select import Selection

Values = dict[str, list[str]]

# tshark verifies these checksums, and puts segments in order, only when asked to.
PREFERENCES = (
    "ip.check_checksum:TRUE",
    "udp.check_checksum:TRUE",
    "tcp.check_checksum:TRUE",
    "tcp.reassemble_out_of_order:TRUE",
)
_SETTINGS = [word for preference in PREFERENCES for word in ("-o", preference)]


def shared_fields() -> list[FieldInfo]:
    """Our fields that have a Wireshark name."""
    return [info for info in fields() if not info.name.startswith("rdmawire.")]


def theirs(path: Path, infos: list[FieldInfo]) -> Iterator[Values]:
    """What tshark says of each frame, for these fields."""
    data = {info.name for info in infos if info.type == "FT_BYTES"}
    presences = {info.name for info in infos if info.type == "FT_NONE"}
    names = {info.name for info in infos}
    # pyshark wants the thread's event loop, which an earlier run may have removed.
    asyncio.set_event_loop(asyncio.new_event_loop())
    packets = pyshark.FileCapture(str(path), keep_packets=False, custom_parameters=_SETTINGS)
    try:
        for packet in packets:
            found: Values = {}
            for layer in [packet.frame_info, *packet.layers]:
                for name, field in layer._all_fields.items():
                    if name in names:
                        shown = ["1" if name in presences else each.show for each in field.fields]
                        found.setdefault(name, []).extend(
                            text.replace(":", "") if name in data else text for text in shown
                        )
            yield found
    finally:
        packets.close()
        packets.eventloop.close()


def ours(path: Path, infos: list[FieldInfo]) -> Iterator[tuple[Dissection, Values]]:
    """Each frame's dissection, and what we say of these fields."""
    selection = Selection(info.name for info in infos)
    dissector = Dissector()
    with open_capture(path) as capture:
        for frame in dissector.capture(capture):
            values = dict(zip(selection.names, selection.values(frame), strict=True))
            yield frame, {name: found for name, found in values.items() if found}
