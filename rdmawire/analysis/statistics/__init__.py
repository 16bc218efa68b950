"""What captures amount to: opcodes, endpoints, queue pairs, throughput; :class:`Statistics`."""

from rdmawire.analysis.statistics.statistics import Statistics

__all__ = ["Statistics"]
