"""Text from files, the wire and command lines, made fit for a screen."""

from typing import Final

LONGEST: Final = 60
"""Characters of a text from outside that a message repeats."""


def safe(text: str) -> str:
    """Text that harms no terminal and no table: what is not printable becomes an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shortened(text: str, most: int = LONGEST) -> str:
    """A text, or the beginning of one that is too long for a message."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def quoted(text: str, most: int = LONGEST) -> str:
    """A text in quotes, on one line; the beginning of one that is too long for a message."""
    return repr(shortened(text, most))
