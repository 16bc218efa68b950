"""Unreliable connections: what is lost is lost, with the rest of its message. IBA 9.8.2."""

from collections.abc import Callable

import pytest

from rdmawire.fabric.host import Buffer
from rdmawire.fabric.link import Link
from rdmawire.fabric.pair import ATTRIBUTES, CAP, Pair, connect
from rdmawire.ib.qp import QPInit
from rdmawire.ib.rx_parser import Drop
from rdmawire.memory.key import Access
from rdmawire.verbs.enums import QPState, QPType, WCStatus
from rdmawire.verbs.wr import RecvWR, Sge
from rdmawire.wire.header import Header
from rdmawire.wire.ib import RETH
from rdmawire.wire.opcode import Opcode
from tests.ib.stage import Stage, events, key_of, outcomes, statuses

FULL = bytes(range(256)) * 4
FIRST, MIDDLE, LAST = Opcode.UC_SEND_FIRST, Opcode.UC_SEND_MIDDLE, Opcode.UC_SEND_LAST


def stage_of(*drop: int, access: int = ATTRIBUTES.qp_access_flags) -> Stage:
    attributes = ATTRIBUTES._replace(qp_access_flags=access)
    return Stage(Pair(Link(drop=drop), kind=QPType.UC, attributes=attributes))


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_message_that_lost_a_packet_leaves_its_receive_for_the_next(lost: int) -> None:
    stage = stage_of(lost)
    got = stage.server.receive(3000)
    stage.client.send(FULL + FULL + b"torn")
    stage.client.send(b"whole")
    stage.drive()
    assert outcomes(stage.server) == [(1, WCStatus.SUCCESS)]
    assert got.buffer.read(5) == b"whole"
    assert statuses(stage.client) == [WCStatus.SUCCESS] * 2
    assert len(stage.by(stage.server)) == 0


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_so_does_one_whose_receive_is_of_a_shared_queue(lost: int) -> None:
    stage = stage_of()
    client, server = stage.client, stage.server
    srq = server.nic.create_srq(server.pd, 4)
    init = QPInit(server.pd, server.cq, server.cq, CAP)
    client.qp = client.nic.create_qp(QPType.UC, QPInit(client.pd, client.cq, client.cq, CAP))
    server.qp = server.nic.create_qp(QPType.UC, init._replace(srq=srq))
    connect(client, client.qp, server, server.qp)
    sinks = [server.buffer(3000) for _ in range(2)]
    server.nic.post_srq_recv(srq, [RecvWR((sink.sge(),), n) for n, sink in enumerate(sinks)])
    stage.pair.link.drop = frozenset({lost})
    client.send(FULL + FULL + b"torn")
    client.send(b"whole")
    stage.drive()
    assert outcomes(server) == [(0, WCStatus.SUCCESS)]
    assert (sinks[0].read(5), len(srq)) == (b"whole", 1)


def test_each_packet_of_a_torn_message_is_counted() -> None:
    stage = stage_of(1)
    stage.server.receive(3000)
    stage.client.send(FULL + FULL + b"torn")
    stage.drive()
    assert stage.server.nic.drops[Drop.SEQUENCE] == 2


def test_a_message_that_begins_ends_one_that_did_not() -> None:
    stage = stage_of()
    stage.server.receive(3000)
    stage.request(FIRST, payload=FULL, psn=100)
    stage.request(FIRST, payload=FULL, psn=101)
    stage.request(LAST, payload=b"end.", psn=102)
    (done,) = stage.server.poll()
    assert done.byte_len == 1028


def test_a_gap_between_messages_does_not_matter() -> None:
    stage = stage_of()
    for psn in (500, 3, 4, 2**24 - 1, 0):
        stage.server.receive(4)
        stage.request(Opcode.UC_SEND_ONLY, payload=b"1234", psn=psn)
    assert statuses(stage.server) == [WCStatus.SUCCESS] * 5


Forgery = Callable[[Buffer], tuple[Opcode, tuple[Header, ...], bytes]]
DROPS: dict[str, tuple[Drop, Forgery]] = {
    "a middle of nothing": (Drop.SEQUENCE, lambda _: (MIDDLE, (), FULL)),
    "no receive": (Drop.NO_WQE, lambda _: (Opcode.UC_SEND_ONLY, (), b"1234")),
    "a first that is not full": (
        Drop.LENGTH,
        lambda there: (Opcode.UC_RDMA_WRITE_FIRST, (key_of(there, 2000),), FULL[:-4]),
    ),
    "beyond the path MTU": (
        Drop.LENGTH,
        lambda there: (Opcode.UC_RDMA_WRITE_ONLY, (key_of(there, 1028),), FULL + b"more"),
    ),
    "another length than RETH.dmalen": (
        Drop.LENGTH,
        lambda there: (Opcode.UC_RDMA_WRITE_ONLY, (key_of(there, 8),), b"1234"),
    ),
    "a bad key": (
        Drop.ACCESS,
        lambda there: (Opcode.UC_RDMA_WRITE_ONLY, (RETH(there.address, 0xBAD, 4),), b"1234"),
    ),
    "out of range": (
        Drop.ACCESS,
        lambda there: (
            Opcode.UC_RDMA_WRITE_ONLY,
            (RETH(there.address + 65533, there.rkey, 4),),
            b"1234",
        ),
    ),
}


@pytest.mark.parametrize("name", DROPS)
def test_a_wrong_packet_is_dropped_and_counted_and_the_next_is_received(name: str) -> None:
    reason, forgery = DROPS[name]
    stage = stage_of()
    opcode, headers, payload = forgery(stage.server.region)
    stage.request(opcode, *headers, payload=payload, psn=100)
    assert stage.server.nic.drops == {reason: 1}
    assert stage.server.region.read() == bytes(65536)
    assert stage.server.qp.state is QPState.RTS
    assert events(stage.server) == []
    ok = key_of(stage.server.region, 4)
    stage.request(Opcode.UC_RDMA_WRITE_ONLY, ok, payload=b"good", psn=101)
    assert stage.server.region.read(4) == b"good"
    stage.drive()
    assert stage.sent == []


def test_a_queue_pair_that_allows_no_writes_drops_them() -> None:
    stage = stage_of(access=Access.REMOTE_READ)
    stage.client.write(b"hello", to=stage.server.region)
    stage.drive()
    assert stage.server.nic.drops == {Drop.OPCODE: 1}
    assert stage.server.region.read(5) == bytes(5)


@pytest.mark.parametrize("length", [9, 2000])
def test_a_message_longer_than_its_receive_ends_the_receiver(length: int) -> None:
    stage = stage_of()
    stage.server.receive(8)
    stage.server.receive(8)
    stage.client.send(bytes(length))
    stage.drive()
    assert outcomes(stage.server) == [(1, WCStatus.LOC_LEN_ERR), (2, WCStatus.WR_FLUSH_ERR)]
    assert stage.server.qp.state is QPState.ERR
    assert statuses(stage.client) == [WCStatus.SUCCESS]


def test_a_receive_whose_memory_is_not_the_adapters_ends_the_receiver() -> None:
    stage = stage_of()
    stage.server.nic.post_recv(stage.server.qp, (RecvWR((Sge(1, 8, 0xBAD),), 7),))
    stage.client.send(b"hello")
    stage.drive()
    assert outcomes(stage.server) == [(7, WCStatus.LOC_PROT_ERR)]
    assert stage.server.qp.state is QPState.ERR
    assert statuses(stage.client) == [WCStatus.SUCCESS]


def test_a_write_that_lost_its_end_leaves_what_came() -> None:
    stage = stage_of(3)
    stage.server.receive()
    stage.client.write(FULL + FULL + b"end", to=stage.server.region, imm=1)
    stage.drive()
    assert stage.server.region.read(2048) == FULL + FULL
    assert stage.server.region.read(3, 2048) == bytes(3)
    assert statuses(stage.server) == []


def test_what_is_dropped_is_no_gap() -> None:
    stage = stage_of()
    there = stage.server.region
    write = Opcode.UC_RDMA_WRITE_ONLY
    stage.request(write, RETH(there.address, 0xBAD, 4), payload=b"lost", psn=100)
    stage.request(write, key_of(there, 4), payload=b"data", psn=101)
    assert stage.server.nic.drops == {Drop.ACCESS: 1}
    assert stage.server.qp.counters.out_of_sequence == 0
    assert there.read(4) == b"data"
