"""A pack of test vectors as it lies in a folder: its manifests, its cases, their frames.

Any folder may be named as one, so nothing in it is believed before it was looked at: a file has
so many bytes at most, names no file but its neighbours, and has the shape that is needed.
"""

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from importlib.resources import files
from itertools import chain, groupby, islice
from operator import attrgetter
from pathlib import Path, PurePath
from typing import Any, Final, NamedTuple, TypeVar

from rdmawire.capture import Record, create_capture, open_capture
from rdmawire.capture.io import STREAM
from rdmawire.dissect.summary import summary
from rdmawire.errors import CaptureError
from rdmawire.terminal import escape
from rdmawire.vectors.index import TABLES, Seen, frames

GOLDEN: Final = "golden"
GENERATED: Final = "generated"
MAX_BYTES: Final = 8 << 20
"""Of a manifest, or of what is said of a capture: a hundred times what those shipped have."""

_NAME: Final = "captures"
_INSTALLED: Final = "vectors"
_MANIFEST: Final = "manifest.toml"
_MAX_FRAMES: Final = 1 << 40

T = TypeVar("T")


class PackError(CaptureError):
    """A folder that is no pack of vectors, or one that contradicts itself."""


class Listed(NamedTuple):
    """A capture, by its name from the pack on, and what the manifest says that it shows."""

    file: str
    shows: str


class Case(NamedTuple):
    """Frames ``first`` to ``last`` of a capture, which belong together.

    ``comes_to`` are words of what becomes of it: the fault, statuses of completions, drops.
    """

    name: str
    file: str
    first: int
    last: int
    shows: str
    service: str = ""
    comes_to: tuple[str, ...] = ()


def places() -> tuple[Path, ...]:
    """Folders that may hold the pack: in the working directory, in the package, beside its source.

    An installed package has it inside, a source checkout beside the package.
    """
    source = Path(__file__).resolve().parents[2]
    return Path(_NAME), Path(str(files("rdmawire") / _INSTALLED)), source / _NAME


def found(folders: Sequence[Path]) -> Path:
    """The first of these folders that has golden vectors; :class:`PackError` if none has."""
    for folder in folders:
        if os.path.isfile(folder / GOLDEN / _MANIFEST):
            return folder
    looked = ", nor in ".join(escape(str(folder)) for folder in folders)
    raise PackError(f"no test vectors in {looked}: {GOLDEN}/{_MANIFEST} is not there")


def listed(pack: Path, folder: str) -> list[Listed]:
    """The captures of a folder of the pack, in the order of its manifest."""
    path = pack / folder / _MANIFEST
    try:
        told = tomllib.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise PackError(f"{escape(str(path))}: is no TOML: {error}") from None
    entries = told.get("capture")
    return [_listed(path, folder, entry) for entry in _list(path, "capture", entries)]


def _listed(path: Path, folder: str, entry: object) -> Listed:
    match entry:
        case {"file": str(file), "shows": str(shows)} if _is_plain(file):
            return Listed(f"{folder}/{file}", shows)
    raise PackError(f"{escape(str(path))}: a capture needs a file beside it, and what that shows")


def _is_plain(name: str) -> bool:
    """Whether it is the name of a file, and no way to another folder."""
    return bool(name) and PurePath(name).name == name and name.isprintable()


def cases(pack: Path) -> Iterator[Case]:
    """All golden cases, capture by capture, from the JSON beside each."""
    for capture in listed(pack, GOLDEN):
        path = (pack / capture.file).with_suffix(".json")
        try:
            told = json.loads(_text(path))
        except (ValueError, RecursionError) as error:
            raise PackError(f"{escape(str(path))}: is no JSON: {error}") from None
        entries = told.get("cases") if isinstance(told, dict) else None
        yield from _in_order(path, capture.file, _list(path, "cases", entries))


def _in_order(path: Path, file: str, entries: Iterable[object]) -> Iterator[Case]:
    """The cases of one capture; each begins behind the one before it."""
    last = 0
    for entry in entries:
        case = _case(path, file, entry)
        if not last < case.first <= case.last <= _MAX_FRAMES:
            where = f"{escape(str(path))}: case {escape(case.name)!r}"
            raise PackError(f"{where} has frames {case.first} to {case.last} behind {last}")
        last = case.last
        yield case


def _case(path: Path, file: str, entry: object) -> Case:
    match entry:
        case {
            "name": str(name), "shows": str(shows), "service": str(service),
            "frames": [int(first), int(last)], **rest
        }:  # fmt: skip
            return Case(name, file, first, last, shows, service, _outcomes(rest))
    raise PackError(f"{escape(str(path))}: a case needs a name, shows, service and two frames")


def _outcomes(told: Mapping[Any, Any]) -> tuple[str, ...]:
    """Words of what a case comes to, each once; what has no such shape has none."""
    words = [told.get("fault")]
    for end in _objects(told.get("comes_to")):
        words += [done.get("status") for done in _objects(end.get("completions"))]
        drops = end.get("drops")
        words += drops if isinstance(drops, dict) else ()
    return tuple(dict.fromkeys(word for word in words if isinstance(word, str)))


def _objects(value: object) -> Iterator[dict[str, Any]]:
    """The objects among an object's values, or a list's."""
    values = value.values() if isinstance(value, dict) else value
    return (
        (one for one in values if isinstance(one, dict))
        if isinstance(values, Iterable)
        else iter(())
    )


def records(pack: Path, wanted: Iterable[Case]) -> Iterator[tuple[Case, list[Record]]]:
    """The frames of cases, in the order that :func:`by_case` needs."""
    return by_case(wanted, lambda file: open_capture(pack / file))


def by_case(
    wanted: Iterable[Case], opened: Callable[[str], AbstractContextManager[Iterable[T]]]
) -> Iterator[tuple[Case, list[T]]]:
    """What each case has of its capture, which ``opened`` gives frame by frame.

    Cases of one capture are to come together, in its order. :class:`PackError` for a capture that
    ends too early.
    """
    for file, of_file in groupby(wanted, attrgetter("file")):
        with opened(file) as capture:
            numbered, behind = iter(capture), 0
            for case in of_file:
                own = list(islice(numbered, case.first - behind - 1, case.last - behind))
                behind = case.last
                _check_whole(case, len(own))
                yield case, own


def _check_whole(case: Case, frames: int) -> None:
    """:class:`PackError` for a case whose capture ends before it does."""
    if frames <= case.last - case.first:
        raise PackError(
            f"{case.file}: ends before frame {case.last}, of case {escape(case.name)!r}"
        )


def _list(path: Path, key: str, value: object) -> list[object]:
    if isinstance(value, list):
        return value
    raise PackError(f"{escape(str(path))}: needs a list of {key!r}")


def _text(path: Path) -> str:
    """What stands in a file; :class:`PackError` for one that cannot be read, or is too long."""
    name = escape(str(path))
    try:
        if not os.path.isfile(path):  # a pipe would have us wait
            raise PackError(f"{name}: is no file")
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PackError(f"{name}: {error.strerror or error}") from None
    if len(data) > MAX_BYTES:
        raise PackError(f"{name}: has more than {MAX_BYTES} bytes")
    return data.decode()


_MARKS = re.compile("[^a-z0-9]+")
_TRIMMED = ".,;:()"
_LONGEST = 40
"""Characters of a word that may have been meant."""


class Vector(NamedTuple):
    """A case, and what its frames show: rows of the index, and the kinds of headers."""

    case: Case
    rows: tuple[str, ...]
    headers: tuple[str, ...]

    @property
    def texts(self) -> Iterator[str]:
        """All that words are looked for in."""
        case = self.case
        yield from (case.name, case.file, PurePath(case.file).stem, case.service, case.shows)
        yield from case.comes_to
        yield from self.rows
        yield from self.headers


def golden(pack: Path) -> Iterator[Vector]:
    """Every golden case."""
    for case, own in by_case(cases(pack), lambda file: closing(frames(pack / file))):
        yield _vector(case, own)


def generated(pack: Path) -> Iterator[Vector]:
    """Every frame of the captures that show what the software RNIC does not speak."""
    for capture in listed(pack, GENERATED):
        stem = PurePath(capture.file).stem
        for number, seen in enumerate(frames(pack / capture.file), 1):
            shows = f"{capture.shows}: {summary(seen.dissection).info}"
            yield _vector(Case(f"{stem}:{number}", capture.file, number, number, shows), [seen])


def _vector(case: Case, own: Sequence[Seen]) -> Vector:
    rows = (row for seen in own for table in TABLES.values() for row in table.shows(seen))
    headers = (node.name for seen in own for node in seen.dissection.nodes)
    return Vector(case, tuple(dict.fromkeys(rows)), tuple(dict.fromkeys(headers)))


class Search:
    """Vectors, ready to be asked for by words."""

    def __init__(self, vectors: Iterable[Vector]) -> None:
        self.vectors = tuple(vectors)
        self._spelled = [[f" {_plain(text)} " for text in one.texts] for one in self.vectors]
        self._names = {f" {_plain(name)} " for name in set(_full_names(self.vectors))}

    def having(self, words: Iterable[str]) -> list[Vector]:
        """Those in which each of the words is found; all of them for no word."""
        asked = [f" {_plain(word)} " for word in words]
        spelled = zip(self.vectors, self._spelled, strict=True)
        return [one for one, texts in spelled if all(self._is_in(word, texts) for word in asked)]

    def _is_in(self, word: str, texts: Sequence[str]) -> bool:
        if word in self._names:
            return word in texts
        return bool(word.strip()) and any(word in text for text in texts)


def _full_names(vectors: Iterable[Vector]) -> Iterator[str]:
    """Names of cases, and of the rows that they show."""
    return chain.from_iterable((one.case.name, *one.rows) for one in vectors)


def row_names() -> Iterator[str]:
    """What the index calls all that a frame may show."""
    return (row for table in TABLES.values() for row in table.rows)


def vocabulary(vectors: Iterable[Vector]) -> list[str]:
    """The words that find something, for whoever misspelled one; each once."""
    texts = (text for one in vectors for text in (*one.texts, *one.case.shows.split()))
    said = (
        word.strip(_TRIMMED) for text in (*row_names(), *texts) for word in (text, *text.split())
    )
    return list(dict.fromkeys(word for word in said if word and len(word) < _LONGEST))


def _plain(text: str) -> str:
    """A text by which spellings are compared."""
    return _MARKS.sub(" ", text.lower()).strip()


def write_excerpt(path: str, records: Sequence[Record]) -> None:
    """Write records, each with the link type that it has, to a file or to standard output.

    ``CaptureError`` where that cannot be: a .pcap holds frames of one link type.
    """
    kinds = list(dict.fromkeys(record.link_type for record in records))
    form = "pcapng" if path == STREAM and len(kinds) > 1 else None
    with create_capture(path, link_type=kinds[0] if kinds else None, format=form) as writer:
        for record in records:
            writer.write(record._replace(interface=kinds.index(record.link_type), options=()))
