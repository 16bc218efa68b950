"""Worker processes that end with the process that started them, and leave Ctrl-C to it."""

import os
import signal
from multiprocessing import parent_process
from threading import Thread


def begin_worker() -> None:
    """Prepare this worker process; call it before its work.

    Ctrl-C is for the main process, SIGTERM ends the worker at once, and so does the end of the main
    process, whatever its reason.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
