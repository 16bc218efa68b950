"""A verbs service in a thread of the test, and connected clients of it."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from rdmawire.ib.cm import CMSettings
from rdmawire.verbs_service.device import DeviceSpec, numbered
from rdmawire.verbs_service.network import DeviceNetwork, DirectNetwork
from rdmawire.verbs_service.server import Server
from tests.verbs_service.client import RC_MASKS, Client, CompletionQueue, QueuePair


class Service:
    """A running service: the path of its socket, and the server itself."""

    def __init__(self, path: Path, server: Server) -> None:
        self.path = path
        self.server = server
        self._thread = Thread(target=server.run)
        self._thread.start()

    def connect(self, index: int = 0) -> Client:
        """A client with device ``index`` open."""
        return Client(self.path, index)

    @property
    def is_running(self) -> bool:
        """Whether it still serves."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Stop it."""
        self.server.stop()
        self._thread.join()
        self.server.close()


@contextmanager
def running(
    folder: Path,
    network: DeviceNetwork | None = None,
    specs: Sequence[DeviceSpec] = numbered(2),
    name: str = "verbs.sock",
    cm_settings: CMSettings | None = None,
) -> Iterator[Service]:
    """A service in a thread. At its end it must still run."""
    path = folder / name
    service = Service(path, Server(path, specs, network or DirectNetwork(), cm_settings))
    try:
        yield service
        assert service.is_running
    finally:
        service.close()


class End(NamedTuple):
    """One end of a connection: a client, its queue pair and its CQ."""

    client: Client
    qp: QueuePair
    cq: CompletionQueue


def connected(
    service: Service, *, depth: int = 64, cqe: int = 128, **attributes: int
) -> tuple[End, End]:
    """Two clients on two devices, with an RC queue pair each."""
    first, second = service.connect(0), service.connect(1)
    ends = []
    for client in (first, second):
        cq = client.create_cq(cqe)
        ends.append(End(client, client.create_qp(cq, depth=depth), cq))
    one, other = ends
    first.bring_up(one.qp, other.qp, second.gid(), RC_MASKS, **attributes)
    second.bring_up(other.qp, one.qp, first.gid(), RC_MASKS, **attributes)
    return one, other


def descriptors() -> int:
    """How many descriptors this process has."""
    return len(os.listdir("/proc/self/fd"))


def loopback(service: Service, cqe: int = 64) -> End:
    """A client with a queue pair that is connected to itself."""
    client = service.connect()
    cq = client.create_cq(cqe)
    qp = client.create_qp(cq)
    client.bring_up(qp, qp, client.gid())
    return End(client, qp, cq)
