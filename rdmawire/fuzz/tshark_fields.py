"""What tshark shows of a capture, through pyshark: per frame, each field's values as text."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from shutil import which
from typing import Any

from rdmawire.capture import open_capture
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.dissector import Dissector
from rdmawire.dissect.fields import FieldInfo, fields
from rdmawire.dissect.select import Selection
from rdmawire.errors import FuzzError
from rdmawire.fuzz.tshark_process import DEFAULT_SECONDS, TsharkError, pdml_packets

Values = dict[str, list[str]]
"""The values of a frame's fields as text, by name."""


def shared_fields() -> list[FieldInfo]:
    """Return the fields of rdmawire that have a Wireshark name."""
    return [info for info in fields() if not info.name.startswith("rdmawire.")]


def tshark_values(
    path: Path, infos: Sequence[FieldInfo], seconds: float = DEFAULT_SECONDS
) -> Iterator[Values]:
    """Yield what tshark shows of each frame of a capture, for these fields.

    Raises :class:`FuzzError` if pyshark or tshark is not installed, and
    :class:`~rdmawire.fuzz.tshark_process.TsharkError` if tshark fails, or is waited for longer than
    ``seconds``.
    """
    if which("tshark") is None:
        raise FuzzError("comparing with tshark needs tshark: install Wireshark's command line")
    return pdml_values(pdml_packets(path, seconds), infos)


def pdml_values(texts: Iterable[bytes], infos: Sequence[FieldInfo]) -> Iterator[Values]:
    """Yield the values of these fields in each ``packet`` of PDML.

    Raises :class:`FuzzError` if pyshark is not installed.
    """
    packet_of = _parser()
    data = {info.name for info in infos if info.type == "FT_BYTES"}
    presences = {info.name for info in infos if info.type == "FT_NONE"}
    names = {info.name for info in infos}
    for text in texts:
        found: Values = {}
        for name, field in _fields_of(packet_of, text):
            if name in names:
                shown = ["1" if name in presences else each.show for each in field.fields]
                found.setdefault(name, []).extend(
                    text.replace(":", "") if name in data else text for text in shown
                )
        yield found


def _fields_of(packet_of: Callable[[bytes], Any], text: bytes) -> list[tuple[str, Any]]:
    """Return the fields of a packet, and their names. Raises :class:`TsharkError` without any."""
    try:
        packet = packet_of(text)
        layers = [packet.frame_info, *packet.layers]
    except (AttributeError, LookupError, SyntaxError, ValueError) as error:
        raise TsharkError("writes no PDML", str(error)) from error
    return [pair for layer in layers for pair in layer._all_fields.items()]


def _parser() -> Callable[[bytes], Any]:
    """Return pyshark's parser of a packet in PDML. Raises :class:`FuzzError` if it is missing."""
    try:
        parser: Callable[[bytes], Any]
        parser = import_module("pyshark.tshark.output_parser.tshark_xml").packet_from_xml_packet
    except ImportError:
        raise FuzzError(
            "comparing with tshark needs pyshark: pip install 'rdmawire[tshark]'"
        ) from None
    return parser


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
