"""Text for terminals and messages: escaped, shortened, and with suggested names."""

from collections.abc import Iterable, Sequence
from itertools import takewhile
from reprlib import Repr
from typing import Final

MAX_TEXT: Final = 60
"""Maximum characters of external text that a message repeats."""
_MAX_BITS: Final = 128
"""Maximum bits of a number that a message repeats."""
_brief = Repr().repr


def escape(text: str) -> str:
    """Replace unprintable characters by escapes, so that the text is safe for a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def escape_lines(text: str) -> str:
    """Replace unprintable characters by escapes, except line feeds and tabs."""
    kept = text.replace("\r\n", "\n")
    return "".join(c if c in "\n\t" or c.isprintable() else repr(c)[1:-1] for c in kept)


def shorten(text: str, length: int = MAX_TEXT) -> str:
    """Return a text, or the beginning of one with more than ``length`` characters."""
    return text if len(text) <= length else f"{text[: length - 3]}..."


def quote(text: str, length: int = MAX_TEXT) -> str:
    """Return a text in quotes on one line, shortened to ``length`` characters."""
    return repr(shorten(text, length))


def quote_value(value: object) -> str:
    """Return any value on one line: a text in quotes, others as in Python, shortened."""
    return quote(value) if isinstance(value, str) else shorten(_brief(value))


def plural(count: int, name: str) -> str:
    """Write a count: ``1 frame``, ``2 frames``."""
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def describe(value: object) -> str:
    """Write any value in few words, with its type unless it is an ``int``."""
    if isinstance(value, int):
        bits = value.bit_length()
        return str(value) if bits <= _MAX_BITS else f"a number of {bits} bits"
    return f"{_brief(value)} ({type(value).__name__})"


def describe_fields(value: object, *always: str) -> str:
    """Write a named tuple for ``repr``: fields in ``always``, and those not at their defaults.

    Members of enumerations are shown by name.
    """
    defaults = getattr(type(value), "_field_defaults", {})
    words = []
    for name in getattr(type(value), "_fields", ()):
        field = getattr(value, name)
        if name in always or name not in defaults or field != defaults[name]:
            words.append(f"{name}={getattr(field, 'name', None) or repr(field)}")
    return f"{type(value).__name__}({', '.join(words)})"


# Suggested names.

MAX_SUGGESTIONS: Final = 3
_ALIKE: Final = 0.6
_MAX_NAME: Final = 100
"""Maximum characters of a name that is compared: no known name is as long."""


def closest_names(name: str, known: Iterable[str]) -> list[str]:
    """Return up to three known names: those that end like ``bth.psn`` first, then by spelling."""
    if len(name) > _MAX_NAME:
        return []
    from difflib import SequenceMatcher

    likeness = {each: SequenceMatcher(None, each, name).ratio() for each in known}
    shared = {each: _shared_parts(each, name) for each in likeness}
    near = [each for each in likeness if shared[each] or likeness[each] >= _ALIKE]
    return sorted(near, key=lambda each: (-shared[each], -likeness[each]))[:MAX_SUGGESTIONS]


def suggest(name: str, known: Iterable[str]) -> str:
    """Write the end of a sentence that offers the closest names; empty if none is near."""
    return suggestion(closest_names(name, known))


def suggestion(near: Sequence[str]) -> str:
    """Write the end of a sentence that offers these names; empty if there are none."""
    verb = "is" if len(near) == 1 else "are"
    return f"; the nearest {verb} {', '.join(near)}" if near else ""


def _shared_parts(one: str, other: str) -> int:
    """Count the parts between dots that are the same, from the end."""
    parts = zip(reversed(one.split(".")), reversed(other.split(".")), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], parts))
