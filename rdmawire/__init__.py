"""rdmawire: a packet-level RDMA toolkit: wire formats, captures, dissection.

Importing this package is cheap on purpose: nothing heavy is loaded until it is used.
"""

__version__ = "0.1.0"
