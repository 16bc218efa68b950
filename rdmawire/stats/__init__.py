"""Capture statistics: opcodes, endpoints, queue pairs, throughput; :class:`Statistics`."""

import rdmawire.capture.record_finder  # noqa: F401 - to say what is missing without NumPy
from rdmawire.stats.collector import Statistics, report_of
from rdmawire.stats.report import Report
from rdmawire.stats.throughput import IntervalError

__all__ = ["IntervalError", "Report", "Statistics", "report_of"]
