"""What tshark shows of a capture, through pyshark: per frame, each field's values as text."""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from shutil import which
from tempfile import TemporaryFile
from threading import Timer
from typing import IO, Any, Final

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
_MAX_SECONDS: Final = 300
"""Seconds after which tshark is ended."""
_MAX_ERRORS: Final = 1 << 16
"""Bytes of tshark's messages that are read."""
_START: Final = b"<packet>"
_END: Final = b"</packet>"


def shared_fields() -> list[FieldInfo]:
    """Return the fields of rdmawire that have a Wireshark name."""
    return [info for info in fields() if not info.name.startswith("rdmawire.")]


def tshark_values(path: Path, infos: Sequence[FieldInfo]) -> Iterator[Values]:
    """Yield what tshark shows of each frame of a capture, for these fields.

    Raises :class:`FuzzError` if pyshark or tshark is not installed, or tshark ends with an error.
    """
    packet_of = _parser()
    data = {info.name for info in infos if info.type == "FT_BYTES"}
    presences = {info.name for info in infos if info.type == "FT_NONE"}
    names = {info.name for info in infos}
    for text in _packets(path):
        packet = packet_of(text)
        found: Values = {}
        for layer in [packet.frame_info, *packet.layers]:
            for name, field in layer._all_fields.items():
                if name in names:
                    shown = ["1" if name in presences else each.show for each in field.fields]
                    found.setdefault(name, []).extend(
                        text.replace(":", "") if name in data else text for text in shown
                    )
        yield found


def _parser() -> Callable[[bytes], Any]:
    """Return pyshark's parser of a packet in PDML. Raises :class:`FuzzError` if it is missing."""
    if which("tshark") is None:
        raise FuzzError("comparing with tshark needs tshark: install Wireshark's command line")
    try:
        parser: Callable[[bytes], Any]
        parser = import_module("pyshark.tshark.output_parser.tshark_xml").packet_from_xml_packet
    except ImportError:
        raise FuzzError(
            "comparing with tshark needs pyshark: pip install 'rdmawire[tshark]'"
        ) from None
    return parser


def _packets(path: Path) -> Iterator[bytes]:
    """Yield the packets of a capture as tshark writes them in PDML.

    pyshark's own reader is not used: its event loop takes signals, such as Ctrl-C, from the caller.
    """
    command = ["tshark", "-n", "-r", str(path), "-T", "pdml", *_SETTINGS]
    with TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)  # noqa: S603
        timer = Timer(_MAX_SECONDS, process.kill)
        timer.start()
        try:
            assert process.stdout is not None
            yield from _split(process.stdout)
            status = process.wait()
        finally:
            timer.cancel()
            process.kill()
            process.communicate()
        errors.seek(0)
        if status:
            last = errors.read(_MAX_ERRORS).decode(errors="replace").strip().splitlines()[-1:]
            raise FuzzError(f"tshark ended with status {status}: {''.join(last)}")


def _split(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the elements ``packet`` of a document."""
    rest = b""
    while block := stream.read(1 << 18):
        *whole, rest = (rest + block).split(_END)
        for text in whole:
            yield text[text.index(_START) :] + _END


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
