"""Whole captures as arrays: the records of a pcap file, many at once.

What the octets of records mean is not asked here; :mod:`rdmawire.analysis.columns` does. NumPy
is an extra: ``pip install "rdmawire[columns]"``.
"""

try:
    import numpy as _numpy  # noqa: F401 - only to say what is missing
except ImportError as error:
    raise ImportError("columns need NumPy: pip install 'rdmawire[columns]'") from error
