"""What is fuzzed: the parsers of :mod:`rdmawire.fuzz.parsers`, the editor of captures, a responder.

A target takes any bytes. It may meet the errors of :mod:`rdmawire.errors`; whatever else comes out
of it is a finding, and so is an assertion that does not hold.
"""

from collections.abc import Callable

from rdmawire.cli.edit import fpdu_finder
from rdmawire.fuzz.parsers import PARSERS, OwnParser, frames_of_stream
from rdmawire.traffic.edit import Editor, text
from rdmawire.traffic.edit.iwarp import StreamEditor
from tools.fuzz.responder import responder

_RULES = (
    text.macs(["52:54:00:00:00:01=02:00:00:00:00:07"]),
    text.ips(["::/1=8000::/1", "8000::/1=::/1", "0.0.0.0/1=128.0.0.0/1"]),
    text.qpns(["17=0x1234"]),
    text.rkeys(["0x1201=7", "0=5"]),
    text.psn_offsets(["0x7fffff"]),
    text.va_offsets(["-1"]),
)


def edits(data: bytes) -> None:
    """Several frames of a capture: each becomes what it becomes by itself, and stays as long."""
    editor, streams = Editor(_RULES), StreamEditor[int](Editor(_RULES), fpdu_finder())
    frames = list(frames_of_stream(data))
    done: list[tuple[int, bytes]] = []
    for number, frame in enumerate(frames):
        assert editor.edit(frame) == Editor(_RULES).edit(frame)
        done += streams.take(number, frame, 1)
    done += streams.rest()
    assert [number for number, _ in done] == [*range(len(frames))]
    assert [len(frame) for _, frame in done] == [len(frame) for frame in frames]


PARSER_TARGETS: dict[str, OwnParser] = {**PARSERS, "edits": OwnParser(edits, "stream")}
"""The targets with the form of their input and their seed corpora."""
TARGETS: dict[str, Callable[[bytes], None]] = {
    **{name: one.function for name, one in PARSER_TARGETS.items()},
    "responder": responder,
}
"""The functions that take bytes, by name."""
