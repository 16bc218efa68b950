"""perftest on the devices of `rdmawire verbs`, beside TCP over loopback: no frames are captured."""

import multiprocessing
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import click

from tools.acceptance.perftest import run
from tools.acceptance.processes import Program
from tools.acceptance.reports import last_row, reason
from tools.acceptance.service import Service
from tools.bench.rate import Figure

_SIZE = 65536
_BYTES = 1 << 30
_ROUND_TRIPS = 20_000
_SECONDS = 300
_MIB = 1 << 20
_STREAM = "TCP over loopback, 64 KiB writes"
_PING_PONG = "TCP over loopback, 2 bytes"


class Job(NamedTuple):
    """A run of perftest: program, options, size of a message."""

    program: str
    options: str
    size: int


WRITES = Job("ib_write_bw", f"-s {_SIZE} -n 10000", _SIZE)
SMALL_WRITES = Job("ib_write_bw", "-s 8 -n 300000", 8)
SENDS = Job("ib_send_lat", "-s 2 -n 20000", 2)


def measure() -> Iterator[Figure]:
    """All figures, printed as they come; none where perftest is not installed."""
    if not shutil.which(WRITES.program):
        click.echo("verbs: perftest is not installed: sudo apt-get install perftest")
        return
    stream, ping_pong = _tcp(_sink, _send_all), _tcp(_echo, _ping_all)
    yield Figure(_STREAM, stream / _SIZE, None, "", stream / 1e9, "messages/s").shown()
    yield Figure(_PING_PONG, ping_pong, unit="round trips/s").shown()
    writes = _row(WRITES)[3] * _MIB  # the average, in MiB/s
    rate, ratio = writes / _SIZE, writes / stream
    name = "verbs: ib_write_bw, 64 KiB"
    yield Figure(name, rate, ratio, _STREAM, writes / 1e9, "messages/s").shown()
    small = _row(SMALL_WRITES)[4] * 1e6
    yield Figure("verbs: ib_write_bw, 8 B", small, unit="messages/s").shown()
    trips = 1e6 / (2 * _row(SENDS)[4])  # the typical latency in microseconds, of one way
    name = "verbs: ib_send_lat, 2 B"
    yield Figure(name, trips, trips / ping_pong, _PING_PONG, unit="round trips/s").shown()


def _row(job: Job) -> list[float]:
    """Run a server and a client, and return the row that the client prints."""
    case = run(job.program, "RC", job.options)
    with tempfile.TemporaryDirectory() as name, Service(Path(name), capture=False) as service:
        environment = service.variables({})
        devices = {"server": "rw0", "client": "rw1"}
        server = Program(case.server.format(**devices), environment, Path(name, "server"))
        try:
            server.wait_until_ready(case.port)
            client = Program(case.client.format(**devices), environment, Path(name, "client"))
            client.wait(_SECONDS)
            client.end()
        finally:
            server.end()
        _, values = last_row(client.output)
        if client.status or len(values) < 5:
            raise AssertionError(f"{job.program} {job.options}: {reason(client.output)}")
        return values


def _tcp(serve: Callable[[socket.socket], None], work: Callable[[socket.socket], float]) -> float:
    """Return the rate that ``work`` measures, with a peer in another process."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = multiprocessing.get_context("fork").Process(target=serve, args=(listener,))
        peer.start()
        with socket.create_connection(listener.getsockname()) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            rate = work(connection)
        peer.join()
    return rate


def _sink(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    into = bytearray(_SIZE)
    left = _BYTES
    while left:
        left -= connection.recv_into(into)
    connection.sendall(b"!")


def _send_all(connection: socket.socket) -> float:
    data = bytes(_SIZE)
    start = time.perf_counter()
    for _ in range(_BYTES // _SIZE):
        connection.sendall(data)
    connection.recv(1)
    return _BYTES / (time.perf_counter() - start)


def _echo(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := connection.recv(64):
        connection.sendall(data)


def _ping_all(connection: socket.socket) -> float:
    start = time.perf_counter()
    for _ in range(_ROUND_TRIPS):
        connection.sendall(b"ab")
        connection.recv(64)
    return _ROUND_TRIPS / (time.perf_counter() - start)
