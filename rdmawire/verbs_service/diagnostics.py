"""Lines of a service on standard error."""

import sys


def warn(text: str) -> None:
    """Print one line to standard error."""
    print(f"rdmawire verbs: {text}", file=sys.stderr, flush=True)
