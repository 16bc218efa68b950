"""A library that is slow to copy: its own work waits, and no other client does."""

import os
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest

from rdmawire.live import now
from rdmawire.units import seconds
from rdmawire.verbs_service import process_memory
from rdmawire.verbs_service.network import DeviceNetwork, DirectNetwork
from rdmawire.verbs_service.protocol import (
    CALLS,
    COPY_READ,
    COPY_REQUEST,
    COPY_WRITE,
    MEMORY_OF_GPU,
)
from tests.verbs_service.client import ALL, FAA, READ, SEND, SUCCESS, WRITE, Memory, Sge
from tests.verbs_service.stepped import End, Stepped, packets, stepped

MOST = 1_000_000
"""Maximum steps until work that is tried again is done: within 20 ms of the copy."""
OTHERS = 32
"""Maximum steps until work of other clients is done."""
REM_OP_ERR, RECEIVED = 11, 128
DEREG_MR = next(call.number for call in CALLS if call.name == "dereg_mr")


class Library:
    """The thread of an end's library, which copies memory of a GPU while its ``gate`` is open.

    ``held`` are the directions of copies that wait for it, ``waiting`` counts those that did.
    """

    def __init__(self, end: End) -> None:
        self.memory = Memory(8192)
        self.gate = Event()
        self.held = [COPY_READ, COPY_WRITE]
        self.requests = self.waiting = 0
        self.end = end
        values = (end.client.pd, 0, 8192, 0, ALL, MEMORY_OF_GPU)
        self.handle, self.lkey, self.rkey = end.client.call("reg_mr", *values)
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        layout = COPY_REQUEST.struct
        with suppress(ConnectionError):
            while data := self.end.client.copy_socket.recv(layout.size):
                self._copy(*layout.unpack(data))

    def _copy(self, direction: int, _memory: int, _handle: int, address: int, length: int) -> None:
        buffer = self.end.client.copy_buffer
        self.requests += 1
        if direction in self.held:
            self.waiting += not self.gate.is_set()
            self.gate.wait()
        if direction == COPY_READ:
            buffer[:length] = self.memory[address : address + length]
        else:
            self.memory[address : address + length] = buffer[:length]
        self.end.client.copy_socket.send(bytes(4))

    def sge(self, offset: int, length: int) -> Sge:
        """An SGE of its memory."""
        return offset, length, self.lkey

    def close(self) -> None:
        """End the connection, and then the thread."""
        self.gate.set()
        client, clients = self.end.client, self.end.client.service.server._clients
        client.socket.close()
        client.service.until(lambda: self.end.served not in clients.values())
        self._thread.join()


@pytest.fixture(params=[DirectNetwork, packets])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stepped]:
    make: Callable[[], DeviceNetwork] = request.param
    with stepped(tmp_path, make()) as found:
        yield found


def write_to(slow: Library, peer: End) -> bytes:
    peer.client.send(peer.qp, peer.region.sge(0, 4096), opcode=WRITE, **place(slow))
    return peer.region.memory[:4096]


def read_from(slow: Library, peer: End) -> bytes:
    peer.client.send(peer.qp, peer.region.sge(0, 4096), opcode=READ, **place(slow))
    return slow.memory[:4096]


def send_to(slow: Library, peer: End) -> bytes:
    slow.end.client.receive(slow.end.qp, slow.sge(0, 4096))
    peer.client.send(peer.qp, peer.region.sge(0, 4096), opcode=SEND)
    return peer.region.memory[:4096]


def write_from(slow: Library, peer: End) -> bytes:
    target = {"remote_address": peer.region.memory.address, "rkey": peer.region.rkey}
    slow.end.client.send(slow.end.qp, slow.sge(0, 4096), opcode=WRITE, **target)
    return slow.memory[:4096]


def read_to(slow: Library, peer: End) -> bytes:
    target = {"remote_address": peer.region.memory.address, "rkey": peer.region.rkey}
    slow.end.client.send(slow.end.qp, slow.sge(0, 4096), opcode=READ, **target)
    return peer.region.memory[:4096]


def place(slow: Library) -> dict[str, int]:
    """The remote memory of a work request."""
    return {"remote_address": 0, "rkey": slow.rkey}


def served(service: Stepped, ends: tuple[End, End]) -> None:
    """Check that work and calls of other clients are done at once."""
    for end in ends:
        end.send()
        service.until(partial(end.has_sent, 2), OTHERS)
        assert end.client.call("query_port", 1)


@pytest.mark.parametrize("act", [write_to, read_from, send_to, write_from, read_to])
def test_work_waits_for_a_late_copy_and_others_do_not(
    service: Stepped, act: Callable[[Library, End], bytes]
) -> None:
    (one, peer), others = service.connected(), service.connected()
    slow = Library(one)
    for memory in (slow.memory, peer.region.memory):
        memory[:4096] = os.urandom(4096)
    data = act(slow, peer)
    service.until(lambda: slow.requests)
    waits: list[int] = []
    for _ in range(3):
        served(service, others)
        waits.append(slow.requests)
    assert waits == [1, 1, 1]
    slow.gate.set()
    done: list[int] = []

    def is_done() -> bool:
        for end in (one, peer):
            done.extend(found.status for found in end.cq.poll() if not found.opcode & RECEIVED)
        return bool(done)

    service.until(is_done, MOST)
    assert done == [SUCCESS]
    assert slow.memory[:4096] == data == peer.region.memory[:4096]
    slow.close()


@pytest.mark.parametrize("direction", [COPY_READ, COPY_WRITE])
def test_atomic_with_a_late_copy_is_done_once(service: Stepped, direction: int) -> None:
    one, peer = service.connected()
    slow = Library(one)
    slow.held = [direction]
    for number in range(4):
        slow.gate.clear()
        peer.client.send(peer.qp, peer.region.sge(0, 8), opcode=FAA, compare_add=1, **place(slow))
        service.until(lambda: slow.waiting, MOST)
        for _ in range(10):
            service.step()
        slow.waiting = 0
        slow.gate.set()
        service.until(partial(peer.has_sent, 1), MOST)
        assert int.from_bytes(peer.region.memory[:8], "little") == number
    service.until(lambda: slow.memory[:8] == (4).to_bytes(8, "little"), MOST)
    slow.close()


def test_calls_of_a_client_wait_for_its_late_copy(service: Stepped) -> None:
    one, peer = service.connected()
    slow = Library(one)
    write_to(slow, peer)
    service.until(lambda: slow.requests)
    call = array("Q", (DEREG_MR, slow.handle)).tobytes()
    one.client.socket.send(call)
    for _ in range(20):
        service.step()
    assert not one.client.has_reply
    slow.gate.set()
    service.until(lambda: one.client.has_reply, MOST)
    assert one.client.take_reply() == ([0], [])
    slow.close()


def test_library_that_never_copies_fails_its_work_only(
    service: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one, peer), others = service.connected(), service.connected()
    slow = Library(one)
    write_to(slow, peer)
    service.until(lambda: slow.requests)
    served(service, others)
    later = now() + seconds(3)
    monkeypatch.setattr(process_memory, "now", lambda: later)
    done: list[int] = []

    def is_done() -> bool:
        done.extend(found.status for found in peer.cq.poll())
        return bool(done)

    service.until(is_done, MOST)
    assert done == [REM_OP_ERR]
    served(service, others)
    assert one.client.call("query_port", 1)
    slow.close()
