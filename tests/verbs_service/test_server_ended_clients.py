"""Clients that end in the middle of something, and what the service keeps of them: nothing."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rdmawire.verbs_service import Server
from rdmawire.verbs_service.events import EventPipe
from tests.verbs_service.client import (
    FAA,
    READ,
    SUCCESS,
    UD,
    WRITE,
    XRC_TGT,
    Client,
    QueuePair,
    wait_until,
)
from tests.verbs_service.running import Service, descriptors

ROOT = Path(__file__).parents[2]
RETRY_EXCEEDED = 12


def _counts(server: Server) -> list[int]:
    """How many descriptors this process has, and objects the engines and devices."""
    counts = [descriptors()]
    for device in server.devices:
        made = device.nic.device
        counts += [len(made.qps), len(made.cqs), len(made.srqs), made.memory.region_count]
        counts += [len(made.async_channels), len(device.openers), len(device.xrc_files)]
    return counts


@contextmanager
def nothing_left(service: Service) -> Iterator[None]:
    """Check that what clients made inside is gone after they are.

    What earlier clients had may go meanwhile: the service notices their end a little later.
    """
    gc.collect()  # descriptors of earlier tests are not to be closed meanwhile
    before = _counts(service.server)
    yield
    wait_until(
        lambda: all(
            count <= count_before
            for count, count_before in zip(_counts(service.server), before, strict=True)
        )
    )


def _make_everything(client: Client) -> None:
    """Make objects of every kind, that use each other."""
    channel, events = client.channel()
    cq = client.create_cq(16, channel)
    region = client.buffer(4096)
    srq, _, _, _ = client.call("create_srq", client.pd, 0, 16, 1, 0, 0, 0)
    (domain,) = client.call("open_xrcd", 5, 5, os.O_CREAT)
    client.call("create_srq", client.pd, 1, 16, 1, 0, domain, cq.handle)
    client.create_qp(cq, kind=XRC_TGT, xrcd=domain)
    client.call("alloc_mw", client.pd, 1)
    datagrams = client.create_qp(cq, kind=UD, srq=srq)
    client.bring_up_ud(datagrams, 1)
    client.call("attach_mcast", datagrams.handle, 0xFF, 1, 0)
    qp = client.create_qp(cq, srq=srq)
    client.bring_up(qp, qp, client.gid())
    client.receive_shared(srq, region.sge())
    for opcode in (WRITE, READ):
        place = {"remote_address": region.memory.address, "rkey": region.rkey}
        client.send(qp, region.sge(), opcode=opcode, **place)
    cq.arm()
    client.create_ah(client.gid())
    os.close(events)


def test_nothing_is_left_of_a_client_that_closes(service: Service) -> None:
    with nothing_left(service):
        for _ in range(3):
            client = service.connect()
            _make_everything(client)
            client.close()


def test_nothing_is_left_of_objects_that_are_destroyed(service: Service) -> None:
    client = service.connect()
    with nothing_left(service):
        _make_and_destroy(client)
    client.close()


def _make_and_destroy(client: Client) -> None:
    channel, events = client.channel()
    cq = client.create_cq(16, channel)
    qp = client.create_qp(cq)
    region = client.buffer(4096)
    window, _ = client.call("alloc_mw", client.pd, 2)
    client.call("dealloc_mw", window)
    client.call("dereg_mr", region.handle)
    client.call("destroy_qp", qp.handle)
    client.call("destroy_cq", cq.handle)
    client.call("destroy_comp_channel", channel)
    os.close(events)


CHILD = """
import os
import signal
import sys
from pathlib import Path
from rdmawire.verbs_service.events import EventPipe
from tests.verbs_service.client import WRITE, Client, QueuePair

client = Client(Path(sys.argv[1]), 1)
cq = client.create_cq()
qp = client.create_qp(cq)
print(qp.number, *client.gid(), flush=True)
number, first, second = map(int, input().split())
client.bring_up(qp, QueuePair(0, number), (first, second))
region = client.buffer(1 << 16)
print(region.memory.address, region.rkey, flush=True)
if input() == "keep the connection" and not os.fork():
    print(os.getpid(), flush=True)
    signal.pause()
input()
"""


@contextmanager
def child_of(service: Service) -> Iterator["subprocess.Popen[str]"]:
    """A process that runs :data:`CHILD`."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(service.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    ) as child:
        yield child


def say(child: "subprocess.Popen[str]", text: str) -> None:
    """Write a line to a process."""
    assert child.stdin is not None
    print(text, file=child.stdin, flush=True)


def hear(child: "subprocess.Popen[str]") -> list[int]:
    """The numbers of the next line of a process."""
    assert child.stdout is not None
    return [int(word) for word in child.stdout.readline().split()]


def test_peer_of_a_killed_process_exceeds_its_retries(service: Service) -> None:
    one = service.connect()
    cq = one.create_cq()
    qp = one.create_qp(cq)
    source = one.buffer(1 << 16)
    with nothing_left(service), child_of(service) as child:
        number, first, second = hear(child)
        say(child, " ".join(map(str, (qp.number, *one.gid()))))
        one.bring_up(qp, QueuePair(0, number), (first, second), timeout=2, retry_cnt=2)
        address, rkey = hear(child)
        place = {"remote_address": address, "rkey": rkey}
        for _ in range(8):
            one.send(qp, source.sge(), opcode=WRITE, **place)
        assert {done.status for done in cq.wait(8)} == {SUCCESS}
        child.kill()
        child.wait()
        wait_until(lambda: number not in service.server.devices[1].nic.device.qps)
        one.send(qp, source.sge(), opcode=WRITE, **place)
        assert cq.wait()[0].status == RETRY_EXCEEDED
    one.close()


@pytest.mark.parametrize("opcode", [WRITE, READ, FAA])
def test_memory_of_a_process_that_has_ended_gives_no_answer(service: Service, opcode: int) -> None:
    """Its connection is still open: with Linux its queue pairs would end before its memory."""
    one = service.connect()
    cq = one.create_cq()
    qp = one.create_qp(cq)
    near = one.buffer(8)
    with nothing_left(service), child_of(service) as child:
        number, first, second = hear(child)
        say(child, " ".join(map(str, (qp.number, *one.gid()))))
        one.bring_up(qp, QueuePair(0, number), (first, second), timeout=2, retry_cnt=2)
        address, rkey = hear(child)
        say(child, "keep the connection")
        (other,) = hear(child)
        child.kill()
        child.wait()
        one.send(qp, near.sge(), opcode=opcode, remote_address=address, rkey=rkey)
        assert cq.wait()[0].status == RETRY_EXCEEDED
        assert number in service.server.devices[1].nic.device.qps
        os.kill(other, signal.SIGKILL)
        wait_until(lambda: number not in service.server.devices[1].nic.device.qps)
    one.close()


def test_events_wait_for_room_in_a_full_pipe() -> None:
    pipe = EventPipe()
    end = pipe.take_read_end()
    count = 10_000  # a pipe of 64 KiB has room for 8192
    for number in range(count):
        pipe.put(number.to_bytes(8, "little"))
    assert pipe.is_full
    received = os.read(end, 1 << 16)
    pipe.flush()
    assert not pipe.is_full
    received += os.read(end, 1 << 16)
    assert received == b"".join(number.to_bytes(8, "little") for number in range(count))
    os.close(end)
    pipe.put(bytes(8))  # nothing reads it
    pipe.close()
