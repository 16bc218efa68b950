"""Captures of Linux's soft-RoCE, read frame by frame: who sent what, and what the programs said."""

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from rdmawire.capture.reader import open_capture
from rdmawire.errors import WireError
from rdmawire.ib.encapsulation import gids_of
from rdmawire.wire import mad, roce
from rdmawire.wire.cm import PrimaryPathIPv4
from rdmawire.wire.header import Header
from rdmawire.wire.opcode import SHAPES, Part, Shape
from rdmawire.wire.roce import Frame

LINUX = Path(__file__).parents[3] / "captures" / "linux"
MANAGEMENT_QPN = 1

_H = TypeVar("_H", bound=Header)


class Seen(NamedTuple):
    """A RoCEv2 frame of a capture; ``number`` is Wireshark's, ``time`` ns since the first frame."""

    number: int
    time: int
    data: bytes
    frame: Frame

    @property
    def source(self) -> bytes:
        return gids_of(self.frame.headers)[0]

    @property
    def destination(self) -> bytes:
        return gids_of(self.frame.headers)[1]

    @property
    def shape(self) -> Shape:
        return SHAPES[self.frame.packet.bth.opcode]

    @property
    def qpn(self) -> int:
        """The queue pair that it goes to."""
        return self.frame.packet.bth.destqp

    @property
    def psn(self) -> int:
        return self.frame.packet.bth.psn

    @property
    def payload(self) -> bytes:
        return self.frame.packet.payload

    @property
    def begins(self) -> bool:
        return self.shape.part in (Part.FIRST, Part.ONLY)

    @property
    def ends(self) -> bool:
        return self.shape.part in (Part.LAST, Part.ONLY)

    def header(self, table: type[_H]) -> _H | None:
        """The header of this table, of those before and behind the BTH."""
        pieces = (*self.frame.headers, *self.frame.packet.extended)
        return next((piece for piece in pieces if isinstance(piece, table)), None)


class Greeting(NamedTuple):
    """The line in which ``vt`` tells its peer what it may reach."""

    rkey: int
    address: int
    length: int


_GREETING = re.compile(rb"[0-9a-f]+ [0-9a-f]+ ([0-9a-f]+) ([0-9a-f]+) ([0-9a-f]+) ([0-9a-f]{32})\n")


class Capture(NamedTuple):
    """What a capture holds: RoCEv2 frames but those to the management queue pair, and greetings.

    ``management`` are the frames left out. ``greetings`` are by the GID of who said them.
    """

    name: str
    server: str
    client: str
    frames: tuple[Seen, ...]
    management: tuple[Seen, ...]
    greetings: dict[bytes, Greeting]

    @property
    def flow_label(self) -> int:
        """The one that rdma_cm chose for its connection: over IPv4, REQ alone tells of it."""
        pieces = (piece for seen in self.management for _, piece in mad.layout(seen.payload))
        paths = (piece for piece in pieces if isinstance(piece, PrimaryPathIPv4))
        return next((path.flow_label for path in paths), 0)


def names() -> list[str]:
    """All captures of soft-RoCE, without their suffix."""
    return sorted(path.stem for path in LINUX.glob("rxe*.pcap"))


@cache
def read(name: str) -> Capture:
    """The capture of this name."""
    greetings: dict[bytes, Greeting] = {}
    frames: list[Seen] = []
    with open_capture(LINUX / f"{name}.pcap") as records:
        start = None
        for number, record in enumerate(records, 1):
            start = record.time_ns if start is None else start
            greetings.update(_greetings(record.data))
            frames.extend(_seen(number, record.time_ns - start, record.data))
    kept = tuple(seen for seen in frames if seen.qpn != MANAGEMENT_QPN)
    others = tuple(seen for seen in frames if seen.qpn == MANAGEMENT_QPN)
    return Capture(name, *_commands()[name], kept, others, greetings)


def _greetings(data: bytes) -> dict[bytes, Greeting]:
    found = _GREETING.search(data)
    if found is None:
        return {}
    rkey, address, length, gid = (int(digits, 16) for digits in found.groups())
    return {gid.to_bytes(16, "big"): Greeting(rkey, address, length)}


def _seen(number: int, time: int, data: bytes) -> Iterator[Seen]:
    try:
        yield Seen(number, time, data, roce.parse(data))
    except WireError:
        return  # TCP, ARP and what else there is


@cache
def _commands() -> dict[str, tuple[str, str]]:
    """What ran on the server and on the client, by the capture's name."""
    manifest = tomllib.loads((LINUX / "manifest.toml").read_text())
    return {
        row["file"].removesuffix(".pcap"): (row["server"], row["client"])
        for row in manifest["capture"]
    }
