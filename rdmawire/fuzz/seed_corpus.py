"""Seed corpora: frames of captures, by kind, so that rare kinds are drawn as often as common ones.

The kind of a frame is its headers and the opcode of its BTH. By default the corpus is made of the
shipped test vectors.
"""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Final, NoReturn

from rdmawire.capture import open_capture
from rdmawire.errors import CaptureError, FuzzError
from rdmawire.fuzz.frame_map import FrameMap, map_frame
from rdmawire.fuzz.frame_mutation import MAX_MUTANT, SeedFrame
from rdmawire.terminal import shorten
from rdmawire.vectors import default_folders, find_pack
from rdmawire.vectors.cases import PackError
from rdmawire.wire.ib import BTH

MAX_OF_KIND: Final = 4
"""Frames of a kind that are kept."""
MAX_FRAMES_OF_CAPTURE: Final = 20_000
"""Frames of a capture that are read, and their bytes: it may be compressed."""
MAX_BYTES_OF_CAPTURE: Final = 16 << 20
MAX_FRAMES: Final = 100_000
"""Frames of all captures that are read, and their bytes."""
MAX_BYTES: Final = 64 << 20
_LOG: Final = logging.getLogger(__name__)
_SUFFIXES: Final = (".pcap", ".pcapng")
Kind = tuple[str | int, ...]


def kind_of(frame: SeedFrame) -> Kind:
    """Return the kind of a frame: link type, labels of its headers, opcode."""
    return (int(frame.link_type), *_names(map_frame(frame.data, frame.link_type)))


def _names(found: FrameMap) -> Iterator[str | int]:
    for _, header in found.headers:
        yield type(header).label
        if isinstance(header, BTH):
            yield header.opcode


class SeedCorpus:
    """Frames by kind, and captures as sequences. Raises :class:`FuzzError` without frames."""

    def __init__(self, captures: Sequence[Sequence[SeedFrame]]) -> None:
        self.captures = [tuple(frames) for frames in captures if frames]
        if not self.captures:
            raise FuzzError("a seed corpus needs at least one frame")
        kinds: dict[Kind, list[SeedFrame]] = {}
        for frame in (frame for frames in self.captures for frame in frames):
            kept = kinds.setdefault(kind_of(frame), [])
            if len(kept) < MAX_OF_KIND:
                kept.append(frame)
        self.kinds = list(kinds.values())

    def draw(self, random: Random) -> SeedFrame:
        """Return a frame of a random kind."""
        return random.choice(random.choice(self.kinds))

    def draw_sequence(self, random: Random, length: int) -> Sequence[SeedFrame]:
        """Return up to ``length`` consecutive frames of a random capture."""
        frames = random.choice(self.captures)
        start = random.randrange(max(len(frames) - length, 0) + 1)
        return frames[start : start + length]

    def only(self, wanted: Callable[[SeedFrame], bool]) -> "SeedCorpus":
        """Return a corpus of the frames for which ``wanted`` is true."""
        return SeedCorpus([[one for one in frames if wanted(one)] for frames in self.captures])

    def with_header(self, label: str) -> "SeedCorpus":
        """Return a corpus of the frames that have a header; of all frames for ``""``."""
        if not label:
            return self
        return self.only(
            lambda frame: map_frame(frame.data, frame.link_type).find(label) is not None
        )

    def frames(self) -> Iterator[SeedFrame]:
        """Yield the frames of every kind."""
        for frames in self.kinds:
            yield from frames


@cache
def corpus_of(folder: Path | None = None) -> SeedCorpus:
    """Return the corpus of the captures below ``folder``, by default the shipped test vectors.

    Of many frames the first ones are read (:data:`MAX_FRAMES`, :data:`MAX_BYTES`), which is logged.
    Raises :class:`FuzzError` if there are none, or one cannot be read.
    """
    try:
        root = find_pack(default_folders()) if folder is None else folder
        paths = _captures(root)
        if not paths:
            raise FuzzError(_without_captures(root))
        return SeedCorpus(_read(paths))
    except (CaptureError, PackError) as error:
        raise FuzzError(f"seed corpus: {error}") from error
    except OSError as error:
        reason = error.strerror or error
        raise FuzzError(f"seed corpus: {_named(error.filename or folder)}: {reason}") from error


def _named(path: object) -> str:
    return shorten(str(path), 200)


def _captures(root: Path) -> list[Path]:
    """Return the paths of captures below a folder, or of one file. Raises ``OSError``."""
    if root.is_file():
        return [root]
    if not root.exists():
        return []
    folders = os.walk(root, onerror=_fail)
    every = (Path(folder, name) for folder, _, names in folders for name in names)
    return sorted(path for path in every if path.suffix in _SUFFIXES and path.is_file())


def _fail(error: OSError) -> NoReturn:
    """Raise the error of a folder that cannot be read."""
    raise error


def _without_captures(folder: Path) -> str:
    if not folder.exists():
        return f"seed corpus: {_named(folder)}: there is no such folder"
    return f"seed corpus: {_named(folder)}: no file ends with {', '.join(sorted(_SUFFIXES))}"


def _read(paths: Sequence[Path]) -> list[list[SeedFrame]]:
    """Read captures, up to the limits of one and of all."""
    captures: list[list[SeedFrame]] = []
    left = _Limit(MAX_FRAMES, MAX_BYTES)
    for number, path in enumerate(paths):
        if left.is_used_up:
            _LOG.warning("seed corpus: %s: not read, nor %d others", path, len(paths) - number - 1)
            break
        captures.append(_first_frames(path, left))
    return captures


def _first_frames(path: Path, left: "_Limit") -> list[SeedFrame]:
    """Read a capture, up to its own limits and what is left of those of all captures."""
    own, frames = _Limit(MAX_FRAMES_OF_CAPTURE, MAX_BYTES_OF_CAPTURE), list[SeedFrame]()
    for frame in _frames(path):
        if own.is_used_up or left.is_used_up:
            _LOG.warning("seed corpus: %s: the first %d frames are used", path, len(frames))
            break
        frames.append(frame)
        own.take(frame)
        left.take(frame)
    return frames


class _Limit:
    """How many frames, and bytes of them, are still read."""

    def __init__(self, frames: int, size: int) -> None:
        self._frames = frames
        self._size = size

    @property
    def is_used_up(self) -> bool:
        return self._frames <= 0 or self._size <= 0

    def take(self, frame: SeedFrame) -> None:
        """Count a frame."""
        self._frames -= 1
        self._size -= len(frame.data)


def _frames(path: Path) -> Iterator[SeedFrame]:
    with open_capture(path) as reader:
        for number, record in enumerate(reader, 1):
            name = f"{path.parent.name}/{path.name} {number}"
            yield SeedFrame(record.data[:MAX_MUTANT], record.link_type, name)
