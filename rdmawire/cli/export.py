"""Captures as tables for other tools: what `dissect` does with -T csv, parquet and arrow."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from rdmawire.analysis.window import Window
from rdmawire.capture.refusal import write_refusal
from rdmawire.capture.sink import Sink, open_sink
from rdmawire.cli.streams import complain
from rdmawire.errors import CaptureError

if TYPE_CHECKING:
    from rdmawire.analysis.columns import Columns
    from rdmawire.analysis.columns.request import Request
    from rdmawire.analysis.filter import Filter

FORMS = ("csv", "parquet", "arrow")


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

    def write(self, paths: Iterable[str], output: str) -> int:
        """Write one file of all captures; the exit status. What is damaged is complained of."""
        request = self._request()
        sink, name = open_sink(output)
        try:
            status = self._fill(request, sink, paths)
            sink.commit()
        except BaseException as error:
            sink.discard()
            if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
                raise write_refusal(error, name) from error
            raise
        return status

    def _request(self) -> "Request":
        try:
            import rdmawire.analysis.columns.arrow  # noqa: F401 - to miss what it needs now
            from rdmawire.analysis.columns import DEFAULT_FIELDS, Row
            from rdmawire.analysis.columns.asked import Query
            from rdmawire.analysis.columns.choice import Choice
            from rdmawire.analysis.columns.request import Request
        except ImportError as error:
            raise click.UsageError(f"-T {self.form}: {error}") from None
        choice = Choice(self.window, self.where)
        return Request(Query(self.names or DEFAULT_FIELDS), Row(self.row), self.ports, choice)

    def _fill(self, request: "Request", sink: Sink, paths: Iterable[str]) -> int:
        from rdmawire.analysis.columns.table_file import table_file

        file = table_file(self.form, sink, request.nothing())
        status, left = 0, self.count
        for path in paths:
            try:
                for block in _first(request.blocks(path), left):
                    file.write(block)
                    left = None if left is None else left - block.rows
            except CaptureError as error:
                complain(str(error))
                status = 1
        file.close()
        return status


def _first(blocks: Iterator["Columns"], count: int | None) -> Iterator["Columns"]:
    """So many rows of blocks; all for ``None``."""
    for block in blocks:
        if count is None:
            yield block
        elif count <= 0:
            return
        else:
            yield block.at(slice(count))
            count -= min(count, block.rows)
