"""Where the process begins: until all is loaded, an interrupt ends it without a word.

It imports as little as it can, for only then it can say so.
"""

import os
import signal
import sys


def main() -> None:
    """Run the command line, with an exit status: see :mod:`rdmawire.cli.program`."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # NumPy starts a thread of OpenBLAS per core when it is imported, which takes up to 0.1 s of
    # processor time. The matrices of commands are small.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from rdmawire.cli.program import run

    sys.exit(run())
