"""Counters of completions: ibv_create_comp_cntr(3)."""

import subprocess
import sys
from collections.abc import Iterator
from errno import EBUSY, EINVAL, EOPNOTSUPP
from pathlib import Path

import pytest

from rdmawire.errors import VerbsError
from tests.verbs_service.c_programs import environment, library
from tests.verbs_service.client import INLINE, READ, SIGNALED, SUCCESS, WRITE
from tests.verbs_service.running import Service, connected, running

SENDS, RECEIVES, READS, REMOTE_READS, WRITES = (1 << bit for bit in range(5))
WORK_REQUESTS, BYTES = 0, 1
IN_C = """
import ctypes
verbs = ctypes.CDLL("libibverbs.so.1", use_errno=True)
pointer = ctypes.c_void_p
for name in ("get_device_list", "open_device", "create_comp_cntr"):
    getattr(verbs, "ibv_" + name).restype = pointer
devices = ctypes.cast(verbs.ibv_get_device_list(None), ctypes.POINTER(pointer))
context = pointer(verbs.ibv_open_device(pointer(devices[0])))
caps = (ctypes.c_uint32 * 4)()
assert not verbs._ibv_query_comp_cntr_caps(context, caps, ctypes.c_size_t(16))
assert caps[3] == 0b010111 and caps[2] and (caps[0], caps[1]) == (2**32 - 1, 2**32 - 1)
assert not verbs.ibv_create_comp_cntr(context, (ctypes.c_uint32 * 3)(1, 0, 0))
assert not verbs.ibv_create_comp_cntr(context, (ctypes.c_uint32 * 3)(0, 2, 0))
counter = pointer(verbs.ibv_create_comp_cntr(context, (ctypes.c_uint32 * 3)(0, 0, 0)))
assert counter
number, found = ctypes.c_uint64, ctypes.c_uint64()
def read(name):
    assert not getattr(verbs, f"ibv_read_{name}")(counter, ctypes.byref(found))
    return found.value
assert not verbs.ibv_set_comp_cntr(counter, number(2**64 - 1))
assert not verbs.ibv_inc_comp_cntr(counter, number(3))
assert not verbs.ibv_set_err_comp_cntr(counter, number(5))
assert not verbs.ibv_inc_err_comp_cntr(counter, number(6))
assert (read("comp_cntr"), read("err_comp_cntr")) == (2, 11)
assert not verbs.ibv_destroy_comp_cntr(counter)
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with running(tmp_path) as one:
        yield one


def test_completions_are_counted_by_operation(service: Service) -> None:
    one, other = connected(service)
    counters = {}
    for end, name, kind, operations in (
        (one, "sent", BYTES, SENDS),
        (one, "moved", WORK_REQUESTS, READS | WRITES),
        (other, "received", BYTES, RECEIVES),
    ):
        end.client.modify(end.qp, 1, qp_state=0)
        (counter,) = end.client.call("create_comp_cntr", kind)
        end.client.call("attach_comp_cntr", end.qp.handle, counter, operations)
        counters[name] = end.client, counter

    def read(name: str) -> tuple[int, ...]:
        client, counter = counters[name]
        return tuple(client.call("read_comp_cntr", counter))

    one.client.bring_up(one.qp, other.qp, other.client.gid())
    other.client.bring_up(other.qp, one.qp, one.client.gid())
    region = other.client.buffer(4096)
    place = {"remote_address": region.memory.address, "rkey": region.rkey}
    for number in range(20):  # more than one, and some of them are not signaled
        other.client.receive(other.qp, region.sge(100, 100))
        one.client.send_inline(one.qp, b"12345", flags=INLINE | SIGNALED * (number % 2))
        one.client.send_inline(one.qp, b"123", opcode=WRITE, flags=INLINE, **place)
    sink = one.client.buffer(64)
    one.client.send(one.qp, sink.sge(0, 8), opcode=READ, **place)
    assert one.cq.wait(11)[-1].status == SUCCESS
    assert len(other.cq.wait(20)) == 20
    assert (read("sent"), read("moved"), read("received")) == ((100, 0), (21, 0), (100, 0))
    one.client.send_inline(one.qp, b"1", opcode=WRITE, remote_address=0, rkey=0)
    assert one.cq.wait()[0].status != SUCCESS
    assert read("moved") == (21, 1)


def test_operations_have_one_counter_until_the_queue_pair_is_destroyed(service: Service) -> None:
    client = service.connect()
    cq = client.create_cq()
    qp = client.create_qp(cq)
    first, second = (client.call("create_comp_cntr", WORK_REQUESTS)[0] for _ in range(2))
    client.call("attach_comp_cntr", qp.handle, first, SENDS | READS)

    def refusal(name: str, *words: int) -> int:
        with pytest.raises(VerbsError) as refused:
            client.call(name, *words)
        return refused.value.errno

    assert refusal("attach_comp_cntr", qp.handle, second, READS | WRITES) == EINVAL
    assert refusal("attach_comp_cntr", qp.handle, second, REMOTE_READS) == EOPNOTSUPP
    assert refusal("attach_comp_cntr", qp.handle, second, 0) == EOPNOTSUPP
    assert refusal("create_comp_cntr", 2) == EINVAL
    assert refusal("destroy_comp_cntr", first) == EBUSY
    client.bring_up(qp, qp, client.gid())
    assert refusal("attach_comp_cntr", qp.handle, second, WRITES) == EINVAL
    client.call("destroy_qp", qp.handle)
    client.call("destroy_comp_cntr", first)
    client.call("destroy_comp_cntr", second)


def test_functions_of_the_library(service: Service) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_C],
        env=environment(library(), service.path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
