"""Where the process begins: until all is loaded, an interrupt ends it without a word.

It imports as little as it can, for only then it can say so.
"""

import signal
import sys


def main() -> None:
    """Run the command line, with an exit status: see :mod:`rdmawire.cli.program`."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from rdmawire.cli.program import run

    sys.exit(run())
