"""What tshark shows of a capture, through pyshark: per frame, each field's values as text."""

import asyncio
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from shutil import which
from typing import Any, Final

from rdmawire.capture import open_capture
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.dissector import Dissector
from rdmawire.dissect.fields import FieldInfo, fields
from rdmawire.dissect.select import Selection
from rdmawire.errors import FuzzError

Values = dict[str, list[str]]
"""The values of a frame's fields as text, by name."""

PREFERENCES: Final = (
    "ip.check_checksum:TRUE",
    "udp.check_checksum:TRUE",
    "tcp.check_checksum:TRUE",
    "tcp.reassemble_out_of_order:TRUE",
)
"""tshark verifies these checksums, and puts segments in order, only when it is asked to."""
_SETTINGS: Final = [word for preference in PREFERENCES for word in ("-o", preference)]


def shared_fields() -> list[FieldInfo]:
    """Return the fields of rdmawire that have a Wireshark name."""
    return [info for info in fields() if not info.name.startswith("rdmawire.")]


def _pyshark() -> Any:
    """Return pyshark. Raises :class:`FuzzError` if it or tshark is not installed."""
    if which("tshark") is None:
        raise FuzzError("comparing with tshark needs tshark: install Wireshark's command line")
    try:
        return import_module("pyshark")
    except ImportError:
        raise FuzzError(
            "comparing with tshark needs pyshark: pip install 'rdmawire[tshark]'"
        ) from None


def tshark_values(path: Path, infos: Sequence[FieldInfo]) -> Iterator[Values]:
    """Yield what tshark shows of each frame of a capture, for these fields.

    Raises :class:`FuzzError` if pyshark or tshark is not installed.
    """
    pyshark = _pyshark()
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


def own_values(path: Path, infos: Sequence[FieldInfo]) -> Iterator[tuple[Dissection, Values]]:
    """Yield each frame's dissection, and what it shows of these fields."""
    selection = Selection(info.name for info in infos)
    dissector = Dissector()
    with open_capture(path) as capture:
        for frame in dissector.capture(capture):
            values = dict(zip(selection.names, selection.values(frame), strict=True))
            yield frame, {name: found for name, found in values.items() if found}


def differing(one: Values, other: Values) -> set[str]:
    """Return the names of the fields whose values differ."""
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}
