"""Clients that send nonsense: they are refused or lose their context, and harm no other."""

import os
from array import array
from errno import EINVAL

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.errors import VerbsError
from rdmawire.verbs_service import protocol
from rdmawire.verbs_service.protocol import (
    CALLS,
    MAX_WORDS,
    PAD,
    POST_RECV,
    POST_SEND,
    POST_SRQ_RECV,
    RING_HEADER,
    WORK_REQUEST,
)
from tests.effort import examples
from tests.verbs_service.client import (
    SUCCESS,
    WRITE,
    Connection,
    is_reply,
    reason_of,
    record,
    wait_until,
)
from tests.verbs_service.running import End, Service, running

NUMBERS = st.one_of(
    st.integers(0, 12),
    st.sampled_from([1 << 12, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 63]),
    st.just((1 << 64) - 1),
    st.integers(0, (1 << 64) - 1),
)
MEMORY_HUNGRY = {"create_cq", "resize_cq"}
"""Calls whose sizes are bounded, but may be large: not with any number, as tests share memory."""


def works(pair: tuple[End, End]) -> bool:
    """Whether other clients are still served."""
    one, other = pair
    sink = other.client.buffer(4096)
    place = {"remote_address": sink.memory.address, "rkey": sink.rkey}
    one.client.send_inline(one.qp, b"fine", opcode=WRITE, **place)
    done = one.cq.wait()[0]
    other.client.call("dereg_mr", sink.handle)
    return done.status == SUCCESS and sink.memory[:4] == b"fine"


def ended(client: Connection) -> bool:
    """Wait until the service has closed a connection."""
    try:
        return client.socket.recv(1) == b""
    except ConnectionError:
        return True


@settings(max_examples=examples(60))
@given(st.data())
def test_any_call_with_any_arguments_is_answered(
    service: Service, pair: tuple[End, End], data: st.DataObject
) -> None:
    client = service.connect()
    cq = client.create_cq(4)
    client.create_qp(cq, depth=4)
    calls = [call for call in CALLS if call.name not in MEMORY_HUNGRY and not call.request_fds]
    for _ in range(data.draw(st.integers(1, 6))):
        call = data.draw(st.sampled_from(calls))
        arguments = [data.draw(NUMBERS) for _ in call.request]
        reply, fds = client.send_message(array("Q", (call.number, *arguments)).tobytes())
        for fd in fds:
            os.close(fd)
        assert is_reply(reply, call)
    client.close()
    assert works(pair)


@pytest.mark.parametrize(
    "message",
    [
        b"x",
        bytes(7),
        bytes(8),
        array("Q", [999]).tobytes(),
        array("Q", [1, 2, 3]).tobytes(),
        array("Q", [1] * (MAX_WORDS + 1)).tobytes(),
        array("Q", [7, 1]).tobytes(),
        bytes(4000),
    ],
)
def test_message_that_is_no_call_is_refused(service: Service, message: bytes) -> None:
    client = service.connect()
    reply, _ = client.send_message(message)
    assert (reply[0], reason_of(reply)[:13]) == (EINVAL, "not a request")
    reply, _ = client.send_message(array("Q", [7]).tobytes(), fds=(0, 0))
    assert reply[0] == EINVAL
    assert client.call("alloc_pd")
    client.close()


def test_calls_before_hello_and_of_another_version_are_refused(service: Service) -> None:
    client = Connection(service.path, greet=False)
    for name, arguments in (("get_device", (0,)), ("hello", (protocol.version() ^ 1,))):
        with pytest.raises(VerbsError) as refused:
            client.call(name, *arguments)
        assert refused.value.errno == 71  # EPROTO
    assert client.call("hello", protocol.version()) == [2]
    with pytest.raises(VerbsError):
        client.call("alloc_pd")
    with pytest.raises(VerbsError):
        client.call("get_device", 2)
    client.close()


def test_device_is_opened_once_on_a_connection(service: Service) -> None:
    client = service.connect()
    with pytest.raises(VerbsError):
        client.call_for_fds("open_device", 0)
    client.close()


HEADS = st.one_of(
    st.integers(0, (1 << 64) - 1),
    st.integers(0, 40).map(lambda words: words * 8),
)


@settings(max_examples=examples(60))
@given(st.binary(max_size=400), HEADS)
def test_any_bytes_in_the_work_ring_harm_only_their_writer(
    service: Service, pair: tuple[End, End], data: bytes, head: int
) -> None:
    client = service.connect()
    client.ring[RING_HEADER : RING_HEADER + len(data)] = data
    client.words[0] = head
    os.eventfd_write(client.doorbell, 1)
    assert works(pair)
    client.close()


FIELDS = [field.name for field in WORK_REQUEST.fields if field.name not in {"size", "kind"}]
BITS = {field.name: field.bits for field in WORK_REQUEST.fields}


@settings(max_examples=examples(60))
@given(
    st.sampled_from([POST_SEND, POST_RECV, POST_SRQ_RECV]),
    st.dictionaries(st.sampled_from(FIELDS), NUMBERS, max_size=8),
    st.integers(0, 14),
    st.integers(0, 3),
    st.booleans(),
)
def test_records_with_any_fields_harm_only_their_writer(
    service: Service,
    pair: tuple[End, End],
    kind: int,
    fields: dict[str, int],
    opcode: int,
    sges: int,
    is_mine: bool,
) -> None:
    client = service.connect()
    cq = client.create_cq(16)
    qp = client.create_qp(cq)
    client.bring_up(qp, qp, client.gid())
    region = client.buffer(4096)
    values = {"opcode": opcode, "flags": 2, "remote_address": region.memory.address}
    values |= {"rkey": region.rkey} | fields
    if is_mine:
        values["queue"] = qp.number
    values = {name: value & ((1 << BITS[name]) - 1) for name, value in values.items()}
    queue = values.pop("queue", qp.number)
    client.write(record(kind, queue, *[region.sge(0, 64)] * sges, data=b"", **values))
    assert works(pair)
    client.close()


@pytest.mark.parametrize("size", [0, 4, 12, 8, 112 + 8, 1 << 20])
def test_record_of_an_impossible_size_closes_the_context(
    service: Service, pair: tuple[End, End], size: int, capfd: pytest.CaptureFixture[str]
) -> None:
    client = service.connect()
    qp = client.create_qp(client.create_cq(4))
    client.write(record(POST_SEND, qp.number, size=size))
    assert ended(client)
    assert works(pair)
    assert capfd.readouterr().err.count("\n") == 1


def test_work_for_a_queue_pair_of_another_context_closes_the_context(
    service: Service, pair: tuple[End, End]
) -> None:
    client = service.connect()
    client.write(record(POST_SEND, pair[0].qp.number))
    assert ended(client)
    assert works(pair)


def test_receives_for_a_queue_pair_with_an_srq_make_no_room_in_it(
    service: Service, pair: tuple[End, End]
) -> None:
    client = service.connect()
    srq, _, room, _ = client.call("create_srq", client.pd, 0, 4, 1, 0, 0, 0)
    cq = client.create_cq(64)
    qp = client.create_qp(cq, srq=srq)
    client.bring_up(qp, qp, client.gid())
    for _ in range(room):
        client.receive_shared(srq)
    for _ in range(room):
        client.receive(qp)
    assert len(cq.wait(room)) == room
    client.call("modify_srq", srq, 2, 0, 1)  # which counts what is free
    client.receive_shared(srq)
    assert ended(client)
    assert works(pair)


def test_handles_of_another_kind_are_refused(service: Service) -> None:
    client = service.connect()
    cq = client.create_cq(4)
    for call, arguments in (
        ("dealloc_pd", (cq.handle,)),
        ("destroy_cq", (client.pd,)),
        ("dereg_mr", (cq.handle,)),
        ("destroy_qp", (0,)),
        ("destroy_srq", (99,)),
    ):
        with pytest.raises(VerbsError) as refused:
            client.call(call, *arguments)
        assert refused.value.errno == 22
    with pytest.raises(VerbsError):
        client.create_cq(1 << 40)
    client.close()


def test_client_that_pads_the_ring_for_ever_holds_up_no_other(
    service: Service, pair: tuple[End, End]
) -> None:
    client = service.connect()
    for _ in range(64):
        client.write((64).to_bytes(4, "little") + PAD.to_bytes(4, "little") + bytes(56))
    wait_until(lambda: client.words[8] == client.head)
    assert works(pair)
    client.close()


def test_second_service_on_a_socket_is_refused(service: Service) -> None:
    with (
        pytest.raises(VerbsError, match="a service is running there"),
        running(service.path.parent),
    ):
        pass


def test_client_with_a_negative_consumer_overruns_only_its_own_queue(
    service: Service, pair: tuple[End, End]
) -> None:
    client = service.connect()
    cq = client.create_cq(2)
    qp = client.create_qp(cq)
    client.bring_up(qp, qp, client.gid())
    region = client.buffer(4096)
    cq.words[8] = (1 << 64) - 1
    place = {"remote_address": region.memory.address, "rkey": region.rkey}
    for _ in range(6):
        client.send_inline(qp, b"x", opcode=WRITE, **place)
    assert works(pair)
    client.close()
