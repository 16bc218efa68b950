"""Warnings of the fuzzer: a line each on standard error."""

import logging

from rdmawire.cli.streams import complain


class _Lines(logging.Handler):
    """Writes warnings as the other lines of the command."""

    def emit(self, record: logging.LogRecord) -> None:
        complain(f"warning: {record.getMessage()}")


def show_warnings() -> None:
    """Write warnings to standard error from now on."""
    logging.getLogger("rdmawire").addHandler(_Lines(logging.WARNING))
