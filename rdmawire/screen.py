"""Text from files and the wire, made fit for a screen."""


def safe(text: str) -> str:
    """Text that harms no terminal and no table: what is not printable becomes an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
