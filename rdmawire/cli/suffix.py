"""Names of captures to write: their suffixes say in which format."""

import os

import click

from rdmawire.capture.source import STREAM
from rdmawire.capture.writer import format_named
from rdmawire.screen import safe

KNOWN = ".pcap or .pcapng, packed as .gz, .xz, .zst or .lz4 say"


def check_suffix(path: str) -> None:
    """:class:`click.UsageError` for a name that says no format.

    Standard output needs none, and neither does what is there already and no file: a device, or
    a pipe.
    """
    if path == STREAM or format_named(path) or _is_no_file(path):
        return
    raise click.UsageError(f"-w {safe(path)} names no format; end it in {KNOWN}")


def _is_no_file(path: str) -> bool:
    try:
        return os.path.exists(path) and not os.path.isfile(path)
    except ValueError:  # an octet that no name may have
        return False
