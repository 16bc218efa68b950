"""Services joined by UDP: a wire that loses, repeats and reorders messages, and hostile peers."""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from random import Random
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import FabricError
from rdmawire.fabric import Place
from rdmawire.live import Datagrams
from rdmawire.verbs_service import DeviceSpec, UdpNetwork, UdpSettings
from rdmawire.verbs_service.device import EmulatedDevice
from tests.verbs_service.client import RC_MASKS, READ, SUCCESS, WRITE, Client, Region, wait_until
from tests.verbs_service.raw import GROUP, MACS, UNKNOWN, frame, station
from tests.verbs_service.running import End, Service, running

HELLO, FRAMES, REPORT = 1, 2, 3
RETRY_EXCEEDED, REM_INV_REQ_ERR = 12, 9


def numbered_from(first: int) -> tuple[DeviceSpec, ...]:
    return (DeviceSpec(f"rw{first}", Place.numbered(first)),)


class Wire:
    """Passes messages on between two services, after it has lost, repeated or kept back some.

    ``ports`` are those that the services have as peers.
    """

    def __init__(
        self, seed: int, *, loss: float = 0, duplicate: float = 0, late: float = 0
    ) -> None:
        self._random = Random(seed)
        self._chances = loss, duplicate, late
        self._sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
        for one in self._sockets:
            one.bind(("127.0.0.1", 0))
            one.settimeout(0.01)
        self.ports = [one.getsockname()[1] for one in self._sockets]
        self.services = [0, 0]
        self.passed = 0
        self._ended = False
        self._threads = [Thread(target=self._carry, args=(side,)) for side in range(2)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def _carry(self, side: int) -> None:
        """Carry what the service of a side sends to the other one."""
        kept: list[bytes] = []
        loss, duplicate, late = self._chances
        to = "127.0.0.1", self.services[1 - side]
        while not self._ended:
            try:
                message = self._sockets[side].recv(1 << 16)
            except TimeoutError:
                messages, kept = kept, []
            else:
                if self._random.random() < loss:
                    continue
                if self._random.random() < late:
                    kept.append(message)
                    continue
                messages = [message] * (2 if self._random.random() < duplicate else 1) + kept
                kept = []
            for one in messages:
                self._sockets[1 - side].sendto(one, to)
                self.passed += 1

    def close(self) -> None:
        self._ended = True
        for thread in self._threads:
            thread.join()
        for one in self._sockets:
            one.close()


def networks_of(wire: Wire) -> tuple[UdpNetwork, UdpNetwork]:
    """The networks of the two services that a wire joins."""
    left, right = (UdpNetwork(UdpSettings(0, (("127.0.0.1", port),))) for port in wire.ports)
    wire.services[:] = [left.port, right.port]
    return left, right


def know_each_other(left: UdpNetwork, right: UdpNetwork) -> None:
    """Wait until both networks know the other's device."""
    wait_until(lambda: left.knows(Place.numbered(2).gid))
    wait_until(lambda: right.knows(Place.numbered(1).gid))


@contextmanager
def joined(folder: Path, wire: Wire) -> Iterator[list[Service]]:
    """Two services with a device each, joined by a wire, which know each other."""
    networks = networks_of(wire)
    wire.start()
    with ExitStack() as stack:
        stack.callback(wire.close)
        services = [
            stack.enter_context(running(folder, network, numbered_from(first), f"{first}.sock"))
            for first, network in enumerate(networks, 1)
        ]
        know_each_other(*networks)
        yield services


def connect(clients: list[Client], mtus: tuple[int, int] = (5, 5), **path: int) -> list[End]:
    """A queue pair of each client, connected to the other's."""
    ends = []
    for client in clients:
        cq = client.create_cq(128)
        ends.append(End(client, client.create_qp(cq), cq))
    one, other = ends
    one.client.bring_up(one.qp, other.qp, other.client.gid(), RC_MASKS, path_mtu=mtus[0], **path)
    other.client.bring_up(other.qp, one.qp, one.client.gid(), RC_MASKS, path_mtu=mtus[1], **path)
    return ends


@pytest.mark.parametrize(
    "chances",
    [
        {"loss": 0.02},
        {"duplicate": 0.1},
        {"late": 0.1},
        {"loss": 0.01, "duplicate": 0.03, "late": 0.03},
    ],
)
def test_data_is_right_in_both_directions_on_a_bad_wire(
    tmp_path: Path, chances: dict[str, float]
) -> None:
    size, count = 40_000, 6
    with joined(tmp_path, Wire(1, **chances)) as both:
        clients = [service.connect() for service in both]
        connections = [connect(clients, timeout=16) for _ in range(4)]
        transfers = []
        for one, other in (pair[:: 1 - 2 * turn] for pair in connections for turn in range(2)):
            for number in range(count):
                opcode = READ if number % 2 else WRITE
                source, sink = one.client.buffer(size), other.client.buffer(size)
                data = os.urandom(size)
                (sink if opcode == READ else source).memory[:] = data
                place = {"remote_address": sink.memory.address, "rkey": sink.rkey}
                one.client.send(one.qp, source.sge(), opcode=opcode, **place)
                transfers.append((source, sink, data))
        for pair in connections:
            for end in pair:
                assert {done.status for done in end.cq.wait(count)} == {SUCCESS}
        for source, sink, data in transfers:
            assert source.memory[:] == data == sink.memory[:]


def test_raw_frames_reach_the_devices_of_other_services(tmp_path: Path) -> None:
    """Those to a device's address, to a group, and to an address that no device has."""
    with joined(tmp_path, Wire(1)) as both:
        one, other = (station(service, 0) for service in both)
        other.flow()
        other.expect(3)
        frames = [frame(dst, number) for number, dst in enumerate((MACS[1], GROUP, UNKNOWN))]
        one.post(*frames)
        assert other.received(3) == frames


def test_unequal_mtus_of_a_connection_are_an_error_on_both_sides(tmp_path: Path) -> None:
    with joined(tmp_path, Wire(1)) as both:
        one, other = connect([service.connect() for service in both], mtus=(3, 5))
        source, sink = one.client.buffer(9000), other.client.buffer(9000)
        place = {"remote_address": sink.memory.address, "rkey": sink.rkey}
        one.client.send(one.qp, source.sge(), opcode=WRITE, **place)
        assert one.cq.wait()[0].status == REM_INV_REQ_ERR
        assert sink.memory[:] == bytes(9000)


def test_peer_that_ends_exceeds_retries_and_is_found_again(tmp_path: Path) -> None:
    wire = Wire(1)
    left, right = networks_of(wire)
    port = right.port
    with (
        closing(wire),
        running(tmp_path, left, numbered_from(1), "left.sock") as one_service,
    ):
        wire.start()
        first = one_service.connect()
        source = first.buffer(64)
        with running(tmp_path, right, numbered_from(2), "right.sock") as other_service:
            know_each_other(left, right)
            second = other_service.connect()
            sink = second.buffer(64)
            assert write(connect([first, second])[0], source, sink) == SUCCESS
            one, _ = connect([first, second], timeout=2, retry_cnt=2)
        assert write(one, source, sink) == RETRY_EXCEEDED
        again = UdpNetwork(UdpSettings(port, (("127.0.0.1", wire.ports[1]),)))
        with running(tmp_path, again, numbered_from(2), "again.sock") as other_service:
            know_each_other(left, again)
            third = other_service.connect()
            sink = third.buffer(64)
            assert write(connect([first, third])[0], source, sink) == SUCCESS


def write(one: End, source: Region, sink: Region) -> int:
    """Write some bytes; return the status. They arrive if it is success."""
    source.memory[:] = data = os.urandom(64)
    place = {"remote_address": sink.memory.address, "rkey": sink.rkey}
    one.client.send(one.qp, source.sge(), opcode=WRITE, **place)
    status = one.cq.wait()[0].status
    assert (sink.memory[:] == data) == (status == SUCCESS)
    return status


def test_port_in_use_is_named() -> None:
    with closing(Datagrams(0)) as used:
        port = used.address[1]
        with pytest.raises(FabricError, match=f"udp={port}.*in use: name another port"):
            UdpNetwork(UdpSettings(port, ()))
    with pytest.raises(FabricError, match=r"no\.such\.host\.invalid:1': [^[]*: give the name"):
        UdpNetwork(UdpSettings(0, (("no.such.host.invalid", 1),)))


# A peer that sends nonsense.


@contextmanager
def greeted() -> Iterator[tuple[UdpNetwork, Datagrams, int]]:
    """A network, and a peer of it whose session it knows."""
    network = UdpNetwork(UdpSettings(0, ()))
    with closing(network), closing(Datagrams(0, "127.0.0.1")) as peer:
        network.attach([EmulatedDevice(numbered_from(1)[0], network.resolve, None)])
        network.add_peer(peer.address, UdpSettings(0, ()))
        peer.send(struct.pack("!BIBH", HELLO, 77, 0, 0), ("127.0.0.1", network.port))
        wait_until(lambda: network.move(0))
        yield network, peer, network._session


HEADERS = st.one_of(
    st.tuples(st.just(FRAMES), st.integers(0, (1 << 64) - 1)).map(
        lambda pair: struct.pack("!BIQ", pair[0], 77, pair[1])
    ),
    st.sampled_from([struct.pack("!BI", kind, 77) for kind in (HELLO, FRAMES, REPORT)]),
)


@given(HEADERS, st.binary(max_size=200))
def test_messages_of_a_known_peer_may_have_any_bytes(head: bytes, data: bytes) -> None:
    with greeted() as (network, peer, _):
        assert peer.send(head + data, ("127.0.0.1", network.port))
        wait_until(lambda: network.move(0))


@pytest.mark.parametrize("offset", [0, 1 << 63, (1 << 64) - 1])
@pytest.mark.parametrize("frame", [b"", b"x", bytes(5), bytes(6), b"\xff" * 14, bytes(5000)])
def test_frames_of_any_length_are_taken(offset: int, frame: bytes) -> None:
    with greeted() as (network, peer, _):
        head = struct.pack("!BIQH", FRAMES, 77, offset, len(frame))
        assert peer.send(head + frame, ("127.0.0.1", network.port))
        wait_until(lambda: network.move(0))


def test_peer_with_an_address_of_a_device_here_does_not_get_its_frames(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with greeted() as (network, peer, _):
        own = network.devices[0]
        for mac in (own.mac, bytes(6)):
            port = struct.pack("!6sH", mac, 1) + own.gids[0]
            head = struct.pack("!BIBH", HELLO, 77, 0, 1)
            assert peer.send(head + port, ("127.0.0.1", network.port))
            wait_until(lambda: network.move(0))
        assert network.resolve(own.gids[0]) == own.mac
        said = capfd.readouterr().err
        assert said.count("\n") == 1
        assert "has the address 10.0.0.1 of a device here: start it with --first-address" in said


def test_peers_that_do_not_answer_and_strangers_that_greet_are_named(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with closing(Datagrams(0, "127.0.0.1")) as stranger, closing(Datagrams(0)) as silent:
        port = stranger.address[1]
        peer = "127.0.0.1", silent.address[1]
        with closing(UdpNetwork(UdpSettings(0, (peer,)))) as network:
            network.attach([EmulatedDevice(numbered_from(1)[0], network.resolve, None)])
            for _ in range(2):
                hello = struct.pack("!BIBH", HELLO, 77, 0, 0)
                assert stranger.send(hello, ("127.0.0.1", network.port))
                wait_until(lambda: network.move(0))
            start = network._hello_at
            for second in range(60):
                network.move(start + second * 1_000_000_000)
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 2
    assert f"127.0.0.1:{port} is no peer of this one: add peer=127.0.0.1:{port}" in said[0]
    assert f"peer 127.0.0.1:{peer[1]} has not answered" in said[1]
