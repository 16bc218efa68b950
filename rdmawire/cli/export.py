"""Captures as tables for other tools: what `dissect` does with -T csv, parquet and arrow."""

import os
import sys
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from rdmawire.capture.sink import Sink, open_sink
from rdmawire.capture.source import STREAM, shown, write_refusal
from rdmawire.cli.streams import BytesLike, Screen, complain
from rdmawire.dissect.select import Window
from rdmawire.errors import CaptureError

if TYPE_CHECKING:
    from rdmawire.columns import Columns
    from rdmawire.columns.arrow import TableFile
    from rdmawire.columns.read import Request
    from rdmawire.filter import Filter

FORMS = ("csv", "parquet", "arrow")


class _Filler:
    """Writes the rows of captures to a file, at most so many; all for ``None``.

    ``read`` says whether any capture could be read, ``status`` becomes 1 for one that is damaged
    or could not.
    """

    def __init__(self, request: "Request", file: "TableFile", count: int | None) -> None:
        self.status = 0
        self.read = False
        self._request = request
        self._file = file
        self._left = count

    def captures(self, paths: Collection[str]) -> None:
        """One after the other, until there are enough rows."""
        for path in paths:
            if self._left == 0:
                break
            try:
                self._capture(path)
            except CaptureError as error:
                complain(str(error))
                self.status = 1

    def _capture(self, path: str) -> None:
        for block in self._request.blocks(path, self._left):
            self.read = True
            self._write(block)
            if self._left == 0:
                break
        self.read = True

    def _write(self, block: "Columns") -> None:
        if self._left is not None:
            block = block.at(slice(self._left))
            self._left -= block.rows
        self._file.write(block)


@dataclass(frozen=True, slots=True)
class Export:
    """A table of fields: ``names``, or those that are usually asked for; a row is a frame or FPDU.

    ``count`` is how many rows to write at most, of all captures together.
    """

    form: str
    names: tuple[str, ...]
    row: str
    ports: tuple[int, ...]
    window: Window
    where: "Filter | None"
    count: int | None

    def write(self, paths: Collection[str], output: str) -> int:
        """Write one file of all captures; the exit status. What is damaged is complained of.

        Where no capture can be read, a file of this name stays as it was.
        """
        _check_output(paths, output)
        request = self._request()
        sink, name = open_sink(output)
        try:
            filled = self._fill(request, self._way_to(sink, output), paths)
            sink.commit() if filled.read else sink.discard()
        except BaseException as error:
            sink.discard()
            if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
                raise write_refusal(error, name) from error
            raise
        return filled.status

    def _way_to(self, sink: Sink, output: str) -> BytesLike:
        """Where the table is written; a terminal gets control characters escaped."""
        shown_now = self.form == "csv" and output == STREAM and sys.stdout.isatty()
        return Screen(sink) if shown_now else sink

    def _request(self) -> "Request":
        try:
            import rdmawire.columns.arrow  # noqa: F401 - to miss what it needs now
            from rdmawire.columns import DEFAULT_FIELDS, Row
            from rdmawire.columns.query import FrameSelection, Query
            from rdmawire.columns.read import Request
        except ImportError as error:
            raise click.UsageError(f"-T {self.form}: {error}") from None
        choice = FrameSelection(self.window, self.where)
        return Request(Query(self.names or DEFAULT_FIELDS), Row(self.row), self.ports, choice)

    def _fill(self, request: "Request", sink: BytesLike, paths: Collection[str]) -> _Filler:
        from rdmawire.columns.arrow import table_file

        file = table_file(self.form, sink, request.nothing())
        filler = _Filler(request, file, self.count)
        try:
            filler.captures(paths)
            file.close()
        except BaseException:
            file.abandon()
            raise
        return filler


def _check_output(paths: Collection[str], output: str) -> None:
    if output != STREAM and any(_is_same(path, output) for path in paths):
        raise click.UsageError(f"{shown(output)} is a capture to read; name another file with -w")


def _is_same(path: str, output: str) -> bool:
    """Whether writing a file replaces a capture."""
    try:
        return os.path.isfile(output) and os.path.samefile(0 if path == STREAM else path, output)
    except (OSError, ValueError):  # not there, then: reading or writing it says more
        return False
