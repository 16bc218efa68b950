"""What captures amount to: opcodes, endpoints, queue pairs, throughput; :class:`Statistics`."""

import rdmawire.capture.record_index  # noqa: F401 - to say what is missing without NumPy
from rdmawire.stats.statistics import Statistics

__all__ = ["Statistics"]
