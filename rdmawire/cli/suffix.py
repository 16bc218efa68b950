"""Names of captures to write: their suffixes say in which format."""

import os
import stat
from contextlib import suppress

import click

from rdmawire.capture.source import STREAM
from rdmawire.capture.writer import format_named
from rdmawire.screen import safe

_STANDARD_OUTPUT = 1
"""Its number, in every process."""
KNOWN = ".pcap or .pcapng, packed as .gz, .xz, .zst or .lz4 say"


def check_suffix(path: str) -> None:
    """:class:`click.UsageError` for a name that says no format.

    Standard output needs none, and neither does what is there already and no file: a device, or
    a pipe.
    """
    if path == STREAM or format_named(path) or _is_no_file(path):
        return
    raise click.UsageError(f"-w {safe(path)} names no format; end it in {KNOWN}")


def by_own_name(path: str) -> str:
    """The path, or ``-`` where it is another name of the pipe that standard output is.

    ``/dev/stdout`` is one: what else is said must not go there either.
    """
    with suppress(OSError, ValueError):  # nothing is there, or no name may be so, or it is closed
        found, output = os.stat(path), os.fstat(_STANDARD_OUTPUT)
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISCHR(found.st_mode):
            return STREAM if os.path.samestat(found, output) else path
    return path


def _is_no_file(path: str) -> bool:
    try:
        return os.path.exists(path) and not os.path.isfile(path)
    except ValueError:  # an octet that no name may have
        return False
