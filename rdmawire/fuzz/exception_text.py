"""Exceptions of targets in words: a parser or an adapter may raise any, and each is a finding.

Names and texts are those of someone else: they are shortened and printable.
"""

import traceback
from pathlib import PurePath
from typing import Any, Final, NamedTuple, Self

from rdmawire.errors import Ended
from rdmawire.terminal import escape, shorten

_MAX_WORDS: Final = 200
"""Characters of an exception's text in a report."""
_MAX_NAME: Final = 80
"""Characters of the name of an exception, a file or a function in a report."""
_TRACEBACK: Final[Any] = vars(BaseException)["__traceback__"]
"""Reads the traceback of an exception, also one whose class has an attribute of that name."""


def exception_name(error: BaseException) -> str:
    """Return the name of the class of an exception."""
    return _name(type(error).__name__)


def _name(text: str) -> str:
    return shorten(escape(shorten(text, _MAX_NAME)), _MAX_NAME)


def exception_text(error: BaseException) -> str:
    """Return the name of an exception and the beginning of its text."""
    kind = exception_name(error)
    try:
        text = escape(str(error)[:_MAX_WORDS])
    except (KeyboardInterrupt, Ended):
        raise
    except BaseException:  # its own __str__ raises
        return f"{kind} (its text cannot be read)"
    return f"{kind}: {text}" if text else kind


def raised_in(error: BaseException) -> tuple[str, int]:
    """Return the innermost function of a traceback, as ``file:function``, and its line."""
    frames = traceback.extract_tb(_TRACEBACK.__get__(error))
    last = frames[-1]
    return f"{_name(PurePath(last.filename).stem)}:{_name(last.name)}", last.lineno or 0


class Raised(NamedTuple):
    """An exception in words. ``kind`` is equal for exceptions of one type from one function."""

    text: str
    kind: str

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """Describe an exception that was caught."""
        where, line = raised_in(error)
        text = f"{exception_text(error)} in {where}, line {line}"
        return cls(text, f"{exception_name(error)} {where}")

    def __str__(self) -> str:
        """Return the text."""
        return self.text
