"""Progress on standard error, for what takes long."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(name: str, size: int) -> Iterator[Callable[[int], object]]:
    """A bar of so many octets under a name, and what to tell how many of them are done."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(console=Console(file=sys.stderr), transient=True) as drawn:
        task = drawn.add_task(escape(name), total=size)
        yield lambda octets: drawn.update(task, completed=octets)
