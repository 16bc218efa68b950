"""Find test vectors by words: whatever spelling somebody knows what they look for by.

A word is looked for in what is said of a case and in what its frames show: ``RNR_NAK`` of the
index, ``"RNR Nak"`` of a filter and ``NAK: RNR, receiver not ready`` of a case are the same.
Neither capitals nor marks count; a name in full is that alone, so ``RC_SEND_ONLY`` is not
``RC_SEND_ONLY_WITH_IMMEDIATE``.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path, PurePath
from typing import NamedTuple

from rdmawire.analysis.summary import summary
from rdmawire.analysis.vectors.pack import GENERATED, Case, by_case, cases, listed
from rdmawire.analysis.vectors.rows import TABLES, Seen, frames

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
