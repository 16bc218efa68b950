"""A pack of test vectors in a folder: its manifests, cases and frames, and a search of them.

The folder may be any that a user names, so its files are checked: their size, their structure, and
that they name only files beside them.
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
from rdmawire.dissect.dissection import summary
from rdmawire.errors import CaptureError
from rdmawire.terminal import escape
from rdmawire.vectors.index import TABLES, IndexedFrame, frames

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


class CaptureEntry(NamedTuple):
    """An entry of a manifest: a capture, by its path in the pack, and what it shows."""

    file: str
    shows: str


class Case(NamedTuple):
    """Frames ``first`` to ``last`` of a capture, counted from one, which belong together.

    ``comes_to`` are the outcomes, as words: the fault, statuses of completions, drops.
    """

    name: str
    file: str
    first: int
    last: int
    shows: str
    service: str = ""
    comes_to: tuple[str, ...] = ()


def default_folders() -> tuple[Path, ...]:
    """Return folders that may hold the pack: ``captures``, in the package, beside its source.

    An installed package has it inside, a source checkout beside the package.
    """
    source = Path(__file__).resolve().parents[2]
    return Path(_NAME), Path(str(files("rdmawire") / _INSTALLED)), source / _NAME


def find_pack(folders: Sequence[Path]) -> Path:
    """Return the first folder that has golden vectors; raises :class:`PackError` if none has."""
    for folder in folders:
        if os.path.isfile(folder / GOLDEN / _MANIFEST):
            return folder
    searched = ", nor in ".join(escape(str(folder)) for folder in folders)
    raise PackError(f"no test vectors in {searched}: {GOLDEN}/{_MANIFEST} is not there")


def captures(pack: Path, folder: str) -> list[CaptureEntry]:
    """Return the captures of a folder of the pack, in the order of its manifest."""
    path = pack / folder / _MANIFEST
    try:
        manifest = tomllib.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise PackError(f"{escape(str(path))}: is not TOML: {error}") from None
    entries = manifest.get("capture")
    return [_entry(path, folder, entry) for entry in _list(path, "capture", entries)]


def _entry(path: Path, folder: str, entry: object) -> CaptureEntry:
    match entry:
        case {"file": str(file), "shows": str(shows)} if _is_plain(file):
            return CaptureEntry(f"{folder}/{file}", shows)
    raise PackError(
        f"{escape(str(path))}: a capture needs a file beside the manifest, and what it shows"
    )


def _is_plain(name: str) -> bool:
    """Return whether it is the name of a file, without a path to another folder."""
    return bool(name) and PurePath(name).name == name and name.isprintable()


def cases(pack: Path) -> Iterator[Case]:
    """Yield all golden cases, capture by capture, from the JSON beside each."""
    for capture in captures(pack, GOLDEN):
        path = (pack / capture.file).with_suffix(".json")
        try:
            document = json.loads(_text(path))
        except (ValueError, RecursionError) as error:
            raise PackError(f"{escape(str(path))}: is not JSON: {error}") from None
        entries = document.get("cases") if isinstance(document, dict) else None
        yield from _in_order(path, capture.file, _list(path, "cases", entries))


def _in_order(path: Path, file: str, entries: Iterable[object]) -> Iterator[Case]:
    """Yield the cases of one capture; each begins after the preceding one."""
    last = 0
    for entry in entries:
        case = _case(path, file, entry)
        if not last < case.first <= case.last <= _MAX_FRAMES:
            where = f"{escape(str(path))}: case {escape(case.name)!r}"
            raise PackError(f"{where} has frames {case.first} to {case.last} after {last}")
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


def _outcomes(fields: Mapping[Any, Any]) -> tuple[str, ...]:
    """Return the outcomes of a case as words, each once; fields of other shapes are ignored."""
    words = [fields.get("fault")]
    for end in _objects(fields.get("comes_to")):
        words += [done.get("status") for done in _objects(end.get("completions"))]
        drops = end.get("drops")
        words += drops if isinstance(drops, dict) else ()
    return tuple(dict.fromkeys(word for word in words if isinstance(word, str)))


def _objects(value: object) -> Iterator[dict[str, Any]]:
    """Return the objects among the values of an object or a list."""
    values = value.values() if isinstance(value, dict) else value
    return (
        (one for one in values if isinstance(one, dict))
        if isinstance(values, Iterable)
        else iter(())
    )


def records(pack: Path, wanted: Iterable[Case]) -> Iterator[tuple[Case, list[Record]]]:
    """Yield cases with their frames; the order is that of :func:`by_case`."""
    return by_case(wanted, lambda file: open_capture(pack / file))


def by_case(
    wanted: Iterable[Case], opened: Callable[[str], AbstractContextManager[Iterable[T]]]
) -> Iterator[tuple[Case, list[T]]]:
    """Yield each case with its part of the frames that ``opened`` returns for a capture.

    Cases of one capture must be consecutive and in its order. Raises :class:`PackError` for a
    capture that ends too early.
    """
    for file, of_file in groupby(wanted, attrgetter("file")):
        with opened(file) as capture:
            numbered, last = iter(capture), 0
            for case in of_file:
                own = list(islice(numbered, case.first - last - 1, case.last - last))
                last = case.last
                _check_complete(case, len(own))
                yield case, own


def _check_complete(case: Case, frames: int) -> None:
    """Raise :class:`PackError` for a case whose capture ends before it does."""
    if frames <= case.last - case.first:
        raise PackError(
            f"{case.file}: ends before frame {case.last}, of case {escape(case.name)!r}"
        )


def _list(path: Path, key: str, value: object) -> list[object]:
    if isinstance(value, list):
        return value
    raise PackError(f"{escape(str(path))}: needs a list of {key!r}")


def _text(path: Path) -> str:
    """Return the text of a file; raises :class:`PackError` if it cannot be read or is too long."""
    name = escape(str(path))
    try:
        if not os.path.isfile(path):  # reading a pipe could block
            raise PackError(f"{name}: is not a file")
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PackError(f"{name}: {error.strerror or error}") from None
    if len(data) > MAX_BYTES:
        raise PackError(f"{name}: has more than {MAX_BYTES} bytes")
    return data.decode()


_MARKS = re.compile("[^a-z0-9]+")
_TRIMMED = ".,;:()"
_MAX_WORD = 40
"""Characters of a word that is suggested."""


class Vector(NamedTuple):
    """A case, and what its frames show: rows of the index, and names of headers."""

    case: Case
    rows: tuple[str, ...]
    headers: tuple[str, ...]

    @property
    def texts(self) -> Iterator[str]:
        """The texts in which a search looks for words."""
        case = self.case
        yield from (case.name, case.file, PurePath(case.file).stem, case.service, case.shows)
        yield from case.comes_to
        yield from self.rows
        yield from self.headers


def golden(pack: Path) -> Iterator[Vector]:
    """Yield every golden case."""
    for case, own in by_case(cases(pack), lambda file: closing(frames(pack / file))):
        yield _vector(case, own)


def generated(pack: Path) -> Iterator[Vector]:
    """Yield every frame of the captures that show what the software RNIC does not send."""
    for capture in captures(pack, GENERATED):
        stem = PurePath(capture.file).stem
        for number, frame in enumerate(frames(pack / capture.file), 1):
            shows = f"{capture.shows}: {summary(frame.dissection).info}"
            yield _vector(Case(f"{stem}:{number}", capture.file, number, number, shows), [frame])


def _vector(case: Case, own: Sequence[IndexedFrame]) -> Vector:
    rows = (row for frame in own for table in TABLES.values() for row in table.shows(frame))
    headers = (node.name for frame in own for node in frame.dissection.nodes)
    return Vector(case, tuple(dict.fromkeys(rows)), tuple(dict.fromkeys(headers)))


class VectorSearch:
    """Vectors, prepared for a search by words."""

    def __init__(self, vectors: Iterable[Vector]) -> None:
        self.vectors = tuple(vectors)
        self._texts = [[f" {_plain(text)} " for text in one.texts] for one in self.vectors]
        self._names = {f" {_plain(name)} " for name in set(_full_names(self.vectors))}

    def find(self, words: Iterable[str]) -> list[Vector]:
        """Return the vectors that have each of the words; all of them for no word."""
        wanted = [f" {_plain(word)} " for word in words]
        pairs = zip(self.vectors, self._texts, strict=True)
        return [one for one, texts in pairs if all(self._is_in(word, texts) for word in wanted)]

    def _is_in(self, word: str, texts: Sequence[str]) -> bool:
        if word in self._names:
            return word in texts
        return bool(word.strip()) and any(word in text for text in texts)


def _full_names(vectors: Iterable[Vector]) -> Iterator[str]:
    """Return the names of cases, and of the rows that they show."""
    return chain.from_iterable((one.case.name, *one.rows) for one in vectors)


def row_names() -> Iterator[str]:
    """Return the names of all rows of the index."""
    return (row for table in TABLES.values() for row in table.rows)


def vocabulary(vectors: Iterable[Vector]) -> list[str]:
    """Return the words that find something, each once, to suggest one for a misspelt word."""
    texts = (text for one in vectors for text in (*one.texts, *one.case.shows.split()))
    words = (
        word.strip(_TRIMMED) for text in (*row_names(), *texts) for word in (text, *text.split())
    )
    return list(dict.fromkeys(word for word in words if word and len(word) < _MAX_WORD))


def _plain(text: str) -> str:
    """Normalise a text, so that spellings can be compared."""
    return _MARKS.sub(" ", text.lower()).strip()


def write_excerpt(path: str, records: Sequence[Record]) -> None:
    """Write records with their link types to a file, or to standard output for ``-``.

    Raises :class:`~rdmawire.errors.CaptureError` for frames of several link types in a .pcap.
    """
    link_types = list(dict.fromkeys(record.link_type for record in records))
    form = "pcapng" if path == STREAM and len(link_types) > 1 else None
    with create_capture(
        path, link_type=link_types[0] if link_types else None, format=form
    ) as writer:
        for record in records:
            writer.write(record._replace(interface=link_types.index(record.link_type), options=()))
