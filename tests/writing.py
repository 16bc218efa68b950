"""Files that are being written, with a name or without one."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def unfinished(folder: Path, pid: int | str = "self") -> list[os.stat_result]:
    """The files that a process is writing in a folder: unnamed ones, and those called ``.part``."""
    parts = (path.stat() for path in folder.glob(".rdmawire-*.part"))
    return [*parts, *_unnamed(folder, pid)]


def _unnamed(folder: Path, pid: int | str) -> Iterator[os.stat_result]:
    for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(FileNotFoundError):  # closed in between
            found = descriptor.stat()
            if str(descriptor.readlink()).startswith(f"{folder}/") and found.st_nlink == 0:
                yield found


def has_unnamed_files(folder: Path) -> bool:
    """Whether files can be begun there without a name."""
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_WRONLY))
    except OSError:
        return False
    return True
