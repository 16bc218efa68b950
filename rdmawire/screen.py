"""Text from files, the wire, callers and command lines, made fit for a screen."""

from reprlib import Repr
from typing import Final

LONGEST: Final = 60
"""Characters of a text from outside that a message repeats."""
_MAX_BITS = 128
"""Of a number that is shown: a text about a longer one would be longer than anybody reads."""
_brief = Repr().repr


def safe(text: str) -> str:
    """Text that harms no terminal and no table: what is not printable becomes an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def safe_lines(text: str) -> str:
    """Text for a terminal: all but line feeds and tabs that is not printable is escaped."""
    kept = text.replace("\r\n", "\n")
    return "".join(c if c in "\n\t" or c.isprintable() else repr(c)[1:-1] for c in kept)


def shortened(text: str, most: int = LONGEST) -> str:
    """A text, or the beginning of one that is too long for a message."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def quoted(text: str, most: int = LONGEST) -> str:
    """A text in quotes, on one line; the beginning of one that is too long for a message."""
    return repr(shortened(text, most))


def counted(count: int, name: str) -> str:
    """A number of things: ``1 frame``, ``2 frames``."""
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def record(value: object, *always: str) -> str:
    """Text for ``repr`` of a named tuple: fields in ``always``, and those not at their defaults.

    Members of enumerations are shown by name.
    """
    defaults = getattr(type(value), "_field_defaults", {})
    words = []
    for name in getattr(type(value), "_fields", ()):
        field = getattr(value, name)
        if name in always or name not in defaults or field != defaults[name]:
            words.append(f"{name}={getattr(field, 'name', None) or repr(field)}")
    return f"{type(value).__name__}({', '.join(words)})"


def shown(value: object) -> str:
    """What a caller gave, in few words."""
    if isinstance(value, int):
        bits = value.bit_length()
        return str(value) if bits <= _MAX_BITS else f"a number of {bits} bits"
    return f"{_brief(value)} ({type(value).__name__})"
