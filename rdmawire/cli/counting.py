"""Captures counted for `rdmawire stats`, with progress on standard error where it takes long."""

import sys
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from rdmawire.capture.refusal import shown
from rdmawire.capture.source import STANDARD_INPUT, STREAM
from rdmawire.cli.progress import file_bar
from rdmawire.cli.streams import complain
from rdmawire.errors import CaptureError

if TYPE_CHECKING:
    from rdmawire.analysis.filter import Filter
    from rdmawire.analysis.statistics import Statistics
    from rdmawire.analysis.statistics.report import Report, Throughput

_LONG = 64 << 20
"""Octets of a file that are worth a progress bar."""


@dataclass(frozen=True)
class Counted:
    """What was counted of captures with these names."""

    statistics: "Statistics"
    names: list[str]

    @cached_property
    def report(self) -> "Report":
        """All that is said of them."""
        from rdmawire.analysis.statistics.concluding import report_of

        return report_of(self.statistics, self.names)

    def throughput(self, most: int) -> "Throughput":
        """Throughput in at most so many stretches."""
        from rdmawire.analysis.statistics.concluding import throughput_of

        return throughput_of(self.statistics, most)


class Counting:
    """Counts groups of captures; ``status`` becomes 1 where one is damaged or cannot be read."""

    def __init__(
        self,
        interval: int | None,
        ports: Collection[int],
        wanted: "Filter | None",
        *,
        points: bool,
        progress: bool,
    ) -> None:
        self.status = 0
        self._interval = interval
        self._ports = ports
        self._wanted = wanted
        self._points = points
        self._progress = progress

    def group(self, files: Collection[str]) -> Counted | None:
        """Captures that are counted together; ``None`` if nothing is to be said of them."""
        from rdmawire.analysis.statistics import Statistics
        from rdmawire.analysis.statistics.bins import IntervalError

        statistics = Statistics(interval=self._interval, points=self._points)
        try:
            read = [_name(file) for file in files if self._is_counted(file, statistics)]
        except IntervalError as error:
            self._complain(f"{', '.join(map(_name, files))}: {error}")
            return None
        return Counted(statistics, read) if read else None

    def _is_counted(self, file: str, statistics: "Statistics") -> bool:
        """Count a capture; whether there was any of it, damaged or not."""
        before = statistics.frames
        try:
            with file_bar(file, _LONG, wanted=self._progress) as progress:
                statistics.read(file, ports=self._ports, where=self._wanted, progress=progress)
        except CaptureError as error:
            self._complain(str(error))
            return statistics.frames > before
        return True

    def _complain(self, text: str) -> None:
        self.status = 1
        sys.stdout.flush()
        complain(text)


def _name(file: str) -> str:
    return STANDARD_INPUT if file == STREAM else shown(file)
