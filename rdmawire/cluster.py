"""A Dask cluster whose workers do the work of a campaign or a sweep.

What is submitted must depend on its arguments alone: Dask runs it again elsewhere when a worker
dies. The workers need rdmawire of the same version. Needs distributed:
``pip install "rdmawire[cluster]"``.
"""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Final, NamedTuple

from rdmawire import __version__
from rdmawire.errors import ClusterError
from rdmawire.terminal import shorten

_TIMEOUT: Final = 10.0
"""Seconds to connect to the scheduler, and for its first answer."""


_EXAMPLE: Final = "tcp://10.0.0.1:8786"
_MAX_ADDRESS: Final = 200
"""Characters of an address in a message."""


class Cluster(NamedTuple):
    """A connected cluster: where work is submitted, and how many workers there are.

    ``killed`` is the error of work that ended several workers, one after the other.
    """

    executor: Executor
    workers: int
    killed: type[Exception]


@contextmanager
def cluster(address: str) -> Iterator[Cluster]:
    """Connect to the Dask scheduler at ``address``, such as ``tcp://10.0.0.1:8786``.

    Raises :class:`ClusterError` if distributed is missing, if the address is not one of TCP, if
    nothing answers there, if there are no workers, and if a worker has another version of rdmawire.
    """
    name = shorten(address, _MAX_ADDRESS)
    scheme, separator, _ = address.rpartition("://")
    if separator and scheme != "tcp":
        raise ClusterError(f"no Dask scheduler at {name}: use an address such as {_EXAMPLE}")
    try:
        from distributed import Client, KilledWorker
    except ModuleNotFoundError as error:
        if error.name != "distributed":
            raise
        raise ClusterError('a cluster needs Dask: pip install "rdmawire[cluster]"') from None
    try:
        asyncio.run(_ask(address))
        client = Client(address, timeout=_TIMEOUT)
    except (OSError, ValueError, OverflowError) as error:
        reason = shorten(str(error) or "no answer", _MAX_ADDRESS)
        raise ClusterError(f"no Dask scheduler at {name}: {reason}") from error
    with client:
        versions = client.run(_version)
        _check_workers(name, versions)
        yield Cluster(client.get_executor(), len(versions), KilledWorker)


async def _ask(address: str) -> None:
    """Wait for the first answer of a scheduler: a client waits without limit for that of another.

    Raises ``OSError``, such as ``TimeoutError``, and ``ValueError`` for an invalid address.
    """
    from distributed.core import rpc

    async with rpc(address, timeout=_TIMEOUT) as scheduler:
        await asyncio.wait_for(scheduler.identity(), _TIMEOUT)


def _version() -> str:
    """Return the version of rdmawire on a worker; empty if there is none."""
    try:
        from rdmawire import __version__ as version
    except ImportError:
        return ""
    return version


def _check_workers(address: str, versions: dict[str, str]) -> None:
    if not versions:
        raise ClusterError(f"the Dask scheduler at {address} has no workers: start dask worker")
    for worker, version in versions.items():
        if version != __version__:
            found = f"rdmawire {version}" if version else "no rdmawire"
            raise ClusterError(f"worker {worker} has {found}, not {__version__}: install it there")
