"""A verbs service that runs in the thread of the test, step by step: waits are counted in steps."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from select import select

from rdmawire.verbs_service.device import numbered
from rdmawire.verbs_service.fabric_network import FabricNetwork, LinkSettings, one_link
from rdmawire.verbs_service.network import DeviceNetwork, DirectNetwork
from rdmawire.verbs_service.server import Client as Served
from rdmawire.verbs_service.server import Server
from tests.verbs_service.client import (
    RC_MASKS,
    SUCCESS,
    WRITE,
    Client,
    CompletionQueue,
    Connection,
    QueuePair,
    Region,
)

RECEIVED = 128
_NEVER_SLEEPS = 1 << 30


def packets() -> DeviceNetwork:
    """A network on which all work is done by packets."""
    return FabricNetwork(one_link(LinkSettings()))


class Stepped:
    """A service that runs while one of its clients waits."""

    def __init__(self, folder: Path, network: DeviceNetwork | None = None) -> None:
        self.server = Server(
            folder / "verbs.sock", numbered(2), network or DirectNetwork(), yields=_NEVER_SLEEPS
        )
        self.connections: list[SteppedConnection] = []

    def step(self) -> None:
        """Run the service until it has taken one step."""
        step, taken = self.server.step, []

        def stop_after() -> bool:
            taken.append(1)
            self.server.loop.stopped = True
            return step()

        self.server.loop.stopped = False
        self.server.step = stop_after  # type: ignore[method-assign]
        try:
            self.server.loop.poll()
            self.server.run()
        finally:
            del self.server.step  # the method of the class again

    def until(self, condition: Callable[[], object], most: int = 2000) -> None:
        """Run until the condition holds; ``AssertionError`` after ``most`` steps."""
        for _ in range(most):
            if condition():
                return
            self.step()
        raise AssertionError(f"what was waited for did not come within {most} steps")

    def connection(self) -> "SteppedConnection":
        """A connection without a device."""
        return SteppedConnection(self)

    def connected(self) -> "tuple[End, End]":
        """Two clients on two devices, connected."""
        one, other = End(self, 0), End(self, 1)
        one.connect(other)
        other.connect(one)
        return one, other


@contextmanager
def stepped(folder: Path, network: DeviceNetwork | None = None) -> Iterator[Stepped]:
    """A service that is closed at the end."""
    service = Stepped(folder, network)
    try:
        yield service
    finally:
        for one in tuple(service.connections):
            one.close()
        service.server.close()


class SteppedConnection(Connection):
    """A connection whose service runs while it waits for a reply."""

    def __init__(self, service: Stepped, *arguments: int) -> None:
        self.service = service
        service.connections.append(self)
        super().__init__(service.server.path, *arguments)

    def close(self) -> None:
        self.service.connections.remove(self)
        super().close()

    def send_message(self, data: bytes, fds: tuple[int, ...] = ()) -> tuple[list[int], list[int]]:
        socket.send_fds(self.socket, [data], list(fds))
        self.service.until(lambda: self.has_reply)
        return self.take_reply()

    @property
    def has_reply(self) -> bool:
        """Whether there is a reply, or the service has closed the connection."""
        return bool(select([self.socket], [], [], 0)[0])

    @property
    def is_closed(self) -> bool:
        """Whether the service has closed the connection."""
        try:
            return self.has_reply and self.socket.recv(1, socket.MSG_PEEK) == b""
        except ConnectionError:
            return True


class SteppedClient(SteppedConnection, Client):
    """Its device is open."""


class End:
    """A client with a queue pair and a buffer, which writes and sends to its peer."""

    peer: "End"

    def __init__(self, service: Stepped, index: int) -> None:
        self.client = SteppedClient(service, index)
        self.cq: CompletionQueue = self.client.create_cq(64)
        self.qp: QueuePair = self.client.create_qp(self.cq)
        self.region: Region = self.client.buffer(4096)
        clients = service.server._clients.values()
        self.served: Served = next(
            one for one in clients if one.context and self.qp.number in one.context.qps
        )
        self.statuses: list[int] = []

    def connect(self, peer: "End") -> None:
        """Bring the queue pair to RTS."""
        self.peer = peer
        self.client.bring_up(self.qp, peer.qp, peer.client.gid(), RC_MASKS)

    def send(self) -> None:
        """Post a WRITE and a SEND to the peer, and a receive there."""
        target = self.peer.region
        self.peer.client.receive(self.peer.qp, target.sge(0, 64))
        place = {"remote_address": target.memory.address, "rkey": target.rkey}
        self.client.send(self.qp, self.region.sge(64, 64), opcode=WRITE, **place)
        self.client.send(self.qp, self.region.sge(64, 64))

    def has_sent(self, count: int) -> bool:
        """Whether the next ``count`` sends are done, successfully."""
        found = [one.status for one in self.cq.poll() if not one.opcode & RECEIVED]
        assert {*found} <= {SUCCESS}
        self.statuses += found
        if len(self.statuses) < count:
            return False
        del self.statuses[:count]
        return True
