"""Captures made for tests, and what stands in them."""

import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import pytest

from rdmawire.capture import LinkType, Record, Writer, create_capture, open_capture
from rdmawire.traffic.generate import endpoints as blend
from rdmawire.traffic.generate.generator import generate
from rdmawire.traffic.generate.spec import TrafficSpec
from rdmawire.traffic.summary import TrafficSummary
from rdmawire.wire import roce
from rdmawire.wire.ib import BTH
from rdmawire.wire.roce import Frame


def short_rounds(patch: pytest.MonkeyPatch, frames: int = 48, messages: int = 24) -> None:
    """Rounds that are played in no time."""
    patch.setattr(blend, "FRAMES", frames)
    patch.setattr(blend, "VARIED", messages)
    patch.setattr(blend, "LOSSY", min(messages, 16))


class Made(NamedTuple):
    """A capture that was made: its frames, its bytes' hash, and what was said of it."""

    records: list[Record]
    sha256: str
    summary: TrafficSummary

    @property
    def frames(self) -> list[Frame]:
        return [roce.parse(record.data) for record in self.records]

    @property
    def bths(self) -> list[BTH]:
        return [frame.packet.bth for frame in self.frames]

    def of(self, *opcodes: int) -> Iterator[Frame]:
        """The frames with these opcodes."""
        return (frame for frame in self.frames if frame.packet.bth.opcode in opcodes)


def made(spec: TrafficSpec, *, name: str = "x.pcap", at_once: bool = True) -> Made:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        with writing(path) as writer:
            summary = generate(spec, writer, at_once=at_once)
        return read(path, summary)


def writing(path: Path) -> Writer:
    return create_capture(path, link_type=LinkType.ETHERNET)


def read(path: Path, summary: TrafficSummary) -> Made:
    with open_capture(path) as reader:
        return Made(list(reader), sha256(path.read_bytes()).hexdigest(), summary)
