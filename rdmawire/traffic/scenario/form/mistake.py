"""Mistakes of a scenario: where, what was found, what was expected, what may have been meant."""

from collections.abc import Collection, Iterable
from itertools import islice
from typing import Final, NamedTuple

from rdmawire.errors import Copyable, RdmaError
from rdmawire.nearest import nearest
from rdmawire.screen import safe
from rdmawire.traffic.scenario.model import Mark

MOST_MISTAKES: Final = 20
"""Mistakes of one file that are told; the others are counted."""
_MOST_LISTED: Final = 25
"""Words that a message lists."""
_MOST_COMPARED: Final = 400
"""Known words that a strange one is compared with."""


class Mistake(NamedTuple):
    """One of them. No ``mark``: it is about the file as a whole."""

    source: str
    mark: Mark | None
    found: str
    expected: str
    meant: str = ""

    def __str__(self) -> str:
        place = "" if self.mark is None else f":{self.mark.line}:{self.mark.column}"
        meant = f"; did you mean {self.meant!r}?" if self.meant else ""
        return safe(f"{self.source}{place}: found {self.found}; expected {self.expected}{meant}")


class ScenarioError(RdmaError):
    """A scenario that cannot be run. ``mistakes`` are the first of them, in the file's order.

    ``more`` counts the others; ``lines`` tell all that.
    """

    def __init__(self, mistakes: Iterable[Mistake], more: int = 0) -> None:
        self.mistakes = tuple(mistakes)
        self.more = more
        self.lines = (*map(str, self.mistakes), *((f"and {more} more",) if more else ()))
        super().__init__("\n".join(self.lines))


class Unread(Copyable, Exception):
    """Something could not be read, and that was told."""


class Misread(Unread):
    """Something could not be read, which nobody told yet.

    ``word`` is what ``known`` words are compared with, to say what may have been meant.
    """

    def __init__(
        self,
        mark: Mark,
        found: str,
        expected: str,
        *,
        word: str = "",
        known: Collection[str] = (),
    ) -> None:
        super().__init__(found, expected)
        self.mark = mark
        self.found = found
        self.expected = expected
        self.word = word
        self.known = tuple(known)


class Unfit(Copyable, ValueError):
    """A text that is not what it should be.

    ``expected`` says what it should be, if that is not what is always said; ``word`` and ``known``
    are as for :class:`Misread`.
    """

    def __init__(self, expected: str = "", *, word: str = "", known: Collection[str] = ()) -> None:
        super().__init__(expected)
        self.expected = expected
        self.word = word
        self.known = tuple(known)


class Mistakes:
    """All mistakes of one file, as they are found."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._told: list[Mistake] = []
        self._more = 0

    def __bool__(self) -> bool:
        return bool(self._told)

    def tell(self, error: Unread) -> None:
        """Keep one, unless it was told: what comes again by a name of YAML is amiss once."""
        if not isinstance(error, Misread):
            return
        meant = meant_by(error.word, error.known)
        mistake = Mistake(self.source, error.mark, error.found, error.expected, meant)
        if len(self._told) < MOST_MISTAKES and mistake not in self._told:
            self._told.append(mistake)
        elif mistake not in self._told:
            self._more += 1

    def error(self) -> ScenarioError:
        """All of them."""
        return ScenarioError(sorted(self._told, key=lambda one: one.mark or ()), self._more)


def meant_by(word: str, known: Collection[str]) -> str:
    """The known word that was meant, if one is alike."""
    if not word:
        return ""
    same = (each for each in known if each.casefold() == word.casefold())
    return next(same, "") or next(iter(nearest(word, islice(known, _MOST_COMPARED))), "")


def listed(words: Iterable[str]) -> str:
    """Words one after the other; of many, the first ones."""
    every = words if isinstance(words, Collection) else tuple(words)
    first = ", ".join(islice(every, _MOST_LISTED))
    return f"{first} and {len(every) - _MOST_LISTED} more" if len(every) > _MOST_LISTED else first
