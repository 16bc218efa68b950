"""Exceptions of targets in words: a parser or an adapter may raise any, and each is a finding."""

import traceback
from pathlib import PurePath
from typing import Final, NamedTuple, Self

from rdmawire.terminal import escape

_MAX_WORDS: Final = 200
"""Characters of an exception's text in a report."""


def exception_text(error: BaseException) -> str:
    """Return the name of an exception and the beginning of its text, printable."""
    kind = type(error).__name__
    try:
        text = escape(str(error)[:_MAX_WORDS])
    except Exception:  # its own __str__ raises
        return f"{kind} (its text cannot be read)"
    return f"{kind}: {text}" if text else kind


def raised_in(error: BaseException) -> tuple[str, int]:
    """Return the innermost function of a traceback, as ``file:function``, and its line."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1]
    return f"{PurePath(last.filename).stem}:{last.name}", last.lineno or 0


class Raised(NamedTuple):
    """An exception in words. ``kind`` is equal for exceptions of one type from one function."""

    text: str
    kind: str

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """Describe an exception that was caught."""
        where, line = raised_in(error)
        text = f"{exception_text(error)} in {where}, line {line}"
        return cls(text, f"{type(error).__name__} {where}")

    def __str__(self) -> str:
        """Return the text."""
        return self.text
