"""Traffic through a verbs service: every operation between two clients."""

import errno
import os
from errno import EINVAL, ENODATA
from pathlib import Path
from threading import Thread

import pytest

from rdmawire.errors import VerbsError
from rdmawire.verbs_service import read_counters
from rdmawire.verbs_service.attributes import gid_words
from rdmawire.verbs_service.capture import Capture
from rdmawire.verbs_service.device import gid_table, link_local
from rdmawire.verbs_service.network import DirectNetwork
from rdmawire.verbs_service.protocol import (
    COPY_READ,
    COPY_REQUEST,
    MEMORY_OF_GPU,
    WORK_RING_BYTES,
)
from tests.verbs_service.client import (
    ALL,
    BIND_MW,
    CAS,
    FAA,
    FLUSHED,
    LOC_PROT_ERR,
    LOC_QP_OP_ERR,
    LOCAL_WRITE,
    RC,
    READ,
    REM_ACCESS_ERR,
    REM_OP_ERR,
    REMOTE_WRITE,
    SEND_IMM,
    SEND_INV,
    SIGNALED,
    SUCCESS,
    UD,
    WRITE,
    WRITE_IMM,
    XRC_INI,
    XRC_TGT,
    Client,
    CompletionQueue,
    Memory,
    QueuePair,
    wait_until,
)
from tests.verbs_service.running import Service, connected, loopback, running

MTU = 4096
LENGTHS = (0, 1, 7, 8, 4095, MTU, MTU + 1, 3 * MTU, 65536, 100_001)


@pytest.fixture(scope="module")
def service(direct_service: Service) -> Service:
    return direct_service


def test_sends_of_all_lengths_arrive(service: Service) -> None:
    one, other = connected(service)
    source, sink = one.client.buffer(1 << 17), other.client.buffer(1 << 17)
    source.memory[:] = data = os.urandom(1 << 17)
    for number, length in enumerate(LENGTHS):
        sink.memory[:length] = bytes(length)
        other.client.receive(other.qp, sink.sge(), wr_id=number)
        one.client.send(one.qp, source.sge(5, length), wr_id=number)
        (sent,), (received,) = one.cq.wait(), other.cq.wait()
        assert (sent.wr_id, sent.status, sent.opcode) == (number, SUCCESS, 0)
        assert (received.wr_id, received.byte_len, received.opcode) == (number, length, 128)
        assert sink.memory[:length] == data[5 : 5 + length]


@pytest.mark.parametrize("opcode", [WRITE, READ])
def test_writes_and_reads_of_all_lengths(service: Service, opcode: int) -> None:
    one, other = connected(service)
    near, far = one.client.buffer(1 << 17), other.client.buffer(1 << 17)
    source, sink = (near, far) if opcode == WRITE else (far, near)
    source.memory[:] = data = os.urandom(1 << 17)
    for length in LENGTHS:
        sink.memory[: length + 9] = bytes(length + 9)
        one.client.send(
            one.qp,
            near.sge(0, length),
            opcode=opcode,
            remote_address=far.memory.address,
            rkey=far.rkey,
        )
        (done,) = one.cq.wait()
        assert (done.status, done.opcode) == (SUCCESS, 1 if opcode == WRITE else 2)
        assert sink.memory[: length + 9] == data[:length] + bytes(9)


def test_many_small_writes_in_one_batch(service: Service) -> None:
    one, other = connected(service)
    source, sink = one.client.buffer(4096), other.client.buffer(4096)
    source.memory[:] = data = os.urandom(4096)
    for number in range(64):
        one.client.send(
            one.qp,
            source.sge(number * 8, 8),
            opcode=WRITE,
            wr_id=number,
            flags=SIGNALED if number == 63 else 0,
            remote_address=sink.memory.address + number * 8,
            rkey=sink.rkey,
        )
    (done,) = one.cq.wait()
    assert (done.wr_id, done.status) == (63, SUCCESS)
    assert sink.memory[:512] == data[:512]


def test_several_sges_inline_and_immediate(service: Service) -> None:
    one, other = connected(service)
    source, sink = one.client.buffer(4096), other.client.buffer(4096)
    source.memory[:4] = b"abcd"
    other.client.receive(other.qp, sink.sge(0, 3), sink.sge(8, 100))
    one.client.send(one.qp, source.sge(2, 2), source.sge(0, 2), opcode=SEND_IMM, imm=0x01020304)
    (received,) = other.cq.wait()
    assert sink.memory[:9] == b"cda\0\0\0\0\0b"
    assert received.imm_data.to_bytes(4, "little") == bytes((1, 2, 3, 4))
    other.client.receive(other.qp, sink.sge())
    one.client.send_inline(one.qp, b"inline data")
    other.cq.wait()
    assert sink.memory[:11] == b"inline data"
    other.client.receive(other.qp)
    one.client.send_inline(
        one.qp,
        b"xyz",
        opcode=WRITE_IMM,
        imm=5,
        remote_address=sink.memory.address + 1,
        rkey=sink.rkey,
    )
    (received,) = other.cq.wait()
    assert (received.opcode, received.byte_len, sink.memory[:5]) == (129, 3, b"ixyzn")


def test_atomics_return_the_original_value(service: Service) -> None:
    one, other = connected(service)
    result, target = one.client.buffer(4096), other.client.buffer(4096)
    target.memory[:8] = (40).to_bytes(8, "little")
    where = {"remote_address": target.memory.address, "rkey": target.rkey}
    one.client.send(one.qp, result.sge(0, 8), opcode=FAA, compare_add=2, **where)
    one.client.send(one.qp, result.sge(8, 8), opcode=CAS, compare_add=42, swap=7, **where)
    assert [done.opcode for done in one.cq.wait(2)] == [4, 3]
    values = [int.from_bytes(result.memory[at : at + 8], "little") for at in (0, 8)]
    assert (values, target.memory[:8]) == ([40, 42], (7).to_bytes(8, "little"))


def test_datagrams_have_a_grh_and_their_sender(service: Service) -> None:
    clients = (service.connect(0), service.connect(1))
    cqs = [client.create_cq() for client in clients]
    qps = [client.create_qp(cq, kind=UD) for client, cq in zip(clients, cqs, strict=True)]
    for client, qp in zip(clients, qps, strict=True):
        client.bring_up_ud(qp, qkey=0x11)
    one, other = clients
    source, sink = one.buffer(4096), other.buffer(4096)
    source.memory[:5] = b"hello"
    other.receive(qps[1], sink.sge())
    path = one.create_ah(other.gid())
    one.send(qps[0], source.sge(0, 5), ah=path, remote_qpn=qps[1].number, remote_qkey=0x11)
    (received,) = cqs[1].wait()
    assert (received.byte_len, received.src_qp, received.wc_flags & 1) == (45, qps[0].number, 1)
    assert received.sl == 0b1010  # in UDP over IPv4, as mlx5 says it
    assert sink.memory[40:45] == b"hello"
    one.call("destroy_ah", path)
    with pytest.raises(VerbsError):
        one.call("destroy_ah", path)


def test_multicast_reaches_members_on_both_devices(service: Service) -> None:
    group = (
        int.from_bytes(b"\xff\x0e" + bytes(6), "little"),
        int.from_bytes(bytes(7) + b"\1", "little"),
    )
    clients = (service.connect(0), service.connect(1))
    cqs = [client.create_cq() for client in clients]
    qps = [client.create_qp(cq, kind=UD) for client, cq in zip(clients, cqs, strict=True)]
    sinks = [client.buffer(4096) for client in clients]
    for client, qp, sink in zip(clients, qps, sinks, strict=True):
        client.bring_up_ud(qp, qkey=3)
        client.call("attach_mcast", qp.handle, *group, 0)
        client.receive(qp, sink.sge())
    path = clients[0].create_ah(group, sgid_index=1)
    clients[0].send_inline(qps[0], b"all", ah=path, remote_qpn=0xFFFFFF, remote_qkey=3)
    assert cqs[1].wait()[0].byte_len == 43
    assert {done.opcode for done in cqs[0].wait(2)} == {0, 128}
    clients[1].call("detach_mcast", qps[1].handle, *group, 0)


def test_shared_receive_queue_serves_two_queue_pairs(service: Service) -> None:
    one, other = service.connect(0), service.connect(1)
    srq, _, _, _ = other.call("create_srq", other.pd, 0, 16, 1, 2, 0, 0)
    cq, shared = one.create_cq(), other.create_cq()
    sink = other.buffer(4096)
    for number in range(3):
        other.receive_shared(srq, sink.sge(number * 8, 8), wr_id=number)
    for number in range(2):
        qp, peer = one.create_qp(cq), other.create_qp(shared, srq=srq)
        one.bring_up(qp, peer, other.gid())
        other.bring_up(peer, qp, one.gid())
        one.send_inline(qp, bytes((65 + number,)) * 8)
        (received,) = shared.wait()
        assert (received.wr_id, received.srq, received.qp_num) == (number, srq, peer.number)
    assert sink.memory[:16] == b"A" * 8 + b"B" * 8
    assert other.async_event() == (15, srq)  # fewer receives than srq_limit
    with pytest.raises(VerbsError):
        other.call("destroy_srq", srq)


def xrc_pair(
    one: Client, cq: CompletionQueue, other: Client, shared: CompletionQueue, domain: int
) -> tuple[QueuePair, QueuePair]:
    """An XRC initiator of ``one``, and its target of ``other`` in a domain, connected."""
    target = other.create_qp(shared, kind=XRC_TGT, xrcd=domain)
    sender = one.create_qp(cq, kind=XRC_INI)
    one.bring_up(sender, target, other.gid(), masks=(0x39, 0x101181, 0x12E01))
    other.bring_up(target, sender, one.gid(), masks=(0x39, 0x129181, 0x10201))
    return sender, target


def test_xrc_delivers_to_the_srq_that_a_message_names(service: Service) -> None:
    one, other = service.connect(0), service.connect(1)
    (domain,) = other.call("open_xrcd", 1, 77, os.O_CREAT)
    (sender_domain,) = one.call("open_xrcd", 0, 0, 0)
    cq, shared = one.create_cq(), other.create_cq()
    srq, number, _, _ = other.call("create_srq", other.pd, 1, 16, 1, 0, domain, shared.handle)
    sink = other.buffer(4096)
    other.receive_shared(srq, sink.sge(), wr_id=9)
    sender, target = xrc_pair(one, cq, other, shared, domain)
    one.send_inline(sender, b"to the SRQ", remote_srqn=number)
    (received,) = shared.wait()
    assert (received.wr_id, received.srq, sink.memory[:10]) == (9, srq, b"to the SRQ")
    third = service.connect(1)
    (same,) = third.call("open_xrcd", 1, 77, 0)
    opened, opened_number = third.call("open_qp", same, target.number, XRC_TGT)
    assert opened_number == target.number
    third.call("destroy_qp", opened)
    other.call("destroy_qp", target.handle)
    other.call("destroy_srq", srq)
    other.call("close_xrcd", domain)
    third.call("close_xrcd", same)
    one.call("close_xrcd", sender_domain)


@pytest.mark.parametrize("opcode", [WRITE, READ, FAA])
@pytest.mark.parametrize("place", ["same domain", "another domain", "another context"])
def test_xrc_reaches_the_memory_of_the_domain_of_the_named_srq(
    service: Service, opcode: int, place: str
) -> None:
    one, other, third = service.connect(0), service.connect(1), service.connect(1)
    (domain,) = other.call("open_xrcd", 1, 78, os.O_CREAT)
    cq, shared = one.create_cq(), other.create_cq()
    _, number, _, _ = other.call("create_srq", other.pd, 1, 16, 1, 0, domain, shared.handle)
    sender, _ = xrc_pair(one, cq, other, shared, domain)
    if place == "another domain":
        (other.pd,) = other.call("alloc_pd")
    sink = (third if place == "another context" else other).buffer(64)
    source = one.buffer(8)
    where = {"remote_address": sink.memory.address, "rkey": sink.rkey}
    one.send(sender, source.sge(), opcode=opcode, remote_srqn=number, **where)
    assert cq.wait()[0].status == (SUCCESS if place == "same domain" else REM_ACCESS_ERR)
    for client in (one, other, third):
        client.close()


def test_xrc_receives_into_the_memory_of_the_domain_of_the_srq(service: Service) -> None:
    one, other = service.connect(0), service.connect(1)
    (domain,) = other.call("open_xrcd", 1, 79, os.O_CREAT)
    cq, shared = one.create_cq(), other.create_cq()
    srq, number, _, _ = other.call("create_srq", other.pd, 1, 16, 1, 0, domain, shared.handle)
    sender, _ = xrc_pair(one, cq, other, shared, domain)
    (other.pd,) = other.call("alloc_pd")
    other.receive_shared(srq, other.buffer(64).sge())
    one.send_inline(sender, b"to another domain", remote_srqn=number)
    assert shared.wait()[0].status == LOC_PROT_ERR
    assert cq.wait()[0].status == REM_OP_ERR
    one.close()
    other.close()


def test_windows_are_bound_and_invalidated(service: Service) -> None:
    one, other = connected(service)
    region = other.client.buffer(4096)
    window, key = other.client.call("alloc_mw", other.client.pd, 2)
    bound = key & ~0xFF | (key + 1) & 0xFF
    other.client.send(
        other.qp,
        opcode=BIND_MW,
        mw=window,
        mr=region.handle,
        mw_access=REMOTE_WRITE | LOCAL_WRITE,
        bind_address=region.memory.address + 100,
        bind_length=10,
        rkey=bound,
    )
    assert other.cq.wait()[0].status == SUCCESS
    place = {"remote_address": region.memory.address + 100, "rkey": bound}
    one.client.send_inline(one.qp, b"0123456789", opcode=WRITE, **place)
    assert one.cq.wait()[0].status == SUCCESS
    assert region.memory[100:110] == b"0123456789"
    other.client.receive(other.qp, region.sge(0, 50))
    one.client.send_inline(one.qp, b"bye", opcode=SEND_INV, imm=bound)
    (received,) = other.cq.wait()
    assert (received.imm_data, received.wc_flags & 8) == (bound, 8)
    one.cq.wait()
    one.client.send_inline(one.qp, b"0", opcode=WRITE, **place)
    assert one.cq.wait()[0].status == 10  # remote access error
    other.client.call("dealloc_mw", window)


def test_reregistered_region_has_other_memory(service: Service) -> None:
    one, other = connected(service)
    region, elsewhere = other.client.buffer(4096), other.client.buffer(8192)
    arguments = (0, elsewhere.memory.address, 8192, ALL)
    _, rkey = other.client.call("rereg_mr", region.handle, 1, *arguments)
    place = {"remote_address": elsewhere.memory.address + 5000, "rkey": rkey}
    one.client.send_inline(one.qp, b"there", opcode=WRITE, **place)
    assert one.cq.wait()[0].status == SUCCESS
    assert elsewhere.memory[5000:5005] == b"there"


def test_advice_for_a_region_on_demand_is_checked(service: Service) -> None:
    one, _ = connected(service)
    client, pinned = one.client, one.client.buffer(4096)
    address, pd = pinned.memory.address, client.pd
    (other,) = client.call("alloc_pd")
    _, lkey, _ = client.call("reg_mr", pd, address, 4096, address, 1 << 6 | ALL, 0)
    client.call("advise_mr", pd, 1, 1, address, 4096, lkey)
    for arguments, error in {
        (pd, 3, 1, address, 4096, lkey): errno.EOPNOTSUPP,
        (pd, 0, 2, address, 4096, lkey): errno.EINVAL,
        (pd, 0, 1, address, 4097, lkey): errno.EFAULT,
        (pd, 0, 1, address, 4096, pinned.lkey): errno.ENOENT,
        (other, 0, 1, address, 4096, lkey): errno.EPERM,
    }.items():
        with pytest.raises(VerbsError) as refused:
            client.call("advise_mr", *arguments)
        assert refused.value.errno == error


def test_resized_cq_keeps_its_completions(service: Service) -> None:
    client = service.connect()
    cq = client.create_cq(4)
    qp = client.create_qp(cq, depth=64)
    client.bring_up(qp, qp, client.gid())
    region = client.buffer(4096)
    place = {"remote_address": region.memory.address, "rkey": region.rkey}

    def write(number: int) -> None:
        client.send_inline(qp, b"x", opcode=WRITE, wr_id=number, **place)

    for number in range(3):
        write(number)
    wait_until(lambda: cq.words[0] == 3)
    with pytest.raises(VerbsError):
        client.resize_cq(cq, 2)
    larger = client.resize_cq(cq, 40)
    for number in range(3, 40):
        write(number)
    assert [done.wr_id for done in larger.wait(40)] == list(range(40))


def test_invalid_work_completes_with_an_error_in_order(service: Service) -> None:
    one, other = connected(service)
    region = other.client.buffer(4096)
    place = {"remote_address": region.memory.address, "rkey": region.rkey}
    one.client.send_inline(one.qp, b"x", opcode=WRITE, wr_id=1, **place)
    one.client.send(one.qp, opcode=99, wr_id=2)
    one.client.send_inline(one.qp, b"x", opcode=WRITE, wr_id=3, **place)
    found = [(done.wr_id, done.status) for done in one.cq.wait(3)]
    assert found == [(1, SUCCESS), (2, LOC_QP_OP_ERR), (3, FLUSHED)]


def test_receive_with_too_many_sges_completes_with_an_error(service: Service) -> None:
    one, _ = connected(service)
    region = one.client.buffer(4096)
    one.client.receive(one.qp, region.sge(), wr_id=1)
    one.client.receive(one.qp, *[region.sge(0, 1)] * 5, wr_id=2)
    found = [(done.wr_id, done.status) for done in one.cq.wait(2)]
    assert found == [(1, FLUSHED), (2, LOC_QP_OP_ERR)]


def test_unmapped_memory_is_refused_at_registration_and_fails_later(service: Service) -> None:
    one, other = connected(service)
    with pytest.raises(VerbsError) as refused:
        one.client.call("reg_mr", one.client.pd, 4096, 100, 4096, LOCAL_WRITE, 0)
    assert refused.value.errno == 14  # EFAULT
    with pytest.raises(VerbsError):
        one.client.call("reg_mr", one.client.pd, 1 << 63, 100, 1 << 63, LOCAL_WRITE, 0)
    region = other.client.buffer(1 << 16)
    address = region.memory.address
    region.memory.unmap()
    place = {"remote_address": address, "rkey": region.rkey}
    one.client.send_inline(one.qp, b"x", opcode=WRITE, **place)
    assert one.cq.wait()[0].status == 11  # remote operation error


def test_queue_pair_attributes_are_those_that_were_set(service: Service) -> None:
    one, other = connected(service)
    found = one.client.query(one.qp)
    assert found["qp_state"] == found["cur_qp_state"] == 3
    assert (found["dest_qp_num"], found["path_mtu"]) == (other.qp.number, 5)
    assert (found["dgid0"], found["dgid1"]) == other.client.gid()
    assert (found["timeout"], found["retry_cnt"], found["is_global"]) == (14, 7, 1)
    one.client.modify(one.qp, 1, qp_state=6)
    assert one.client.query(one.qp)["qp_state"] == 6
    with pytest.raises(VerbsError):
        one.client.modify(one.qp, 1 << 19)


def test_gid_table_has_further_addresses_behind_the_first() -> None:
    first, second, third, local = (bytes((number,)) * 16 for number in range(1, 5))
    free = bytes(16)
    expected = (first, local, free, first, second, third, free, local)
    assert gid_table((first, second, third, local)) == expected
    many = [bytes((number,)) * 16 for number in range(5, 15)]
    table = gid_table((first, *many, local))
    assert table == (first, local, free, first, *many, local)


def test_gid_table_is_laid_out_as_that_of_mlx5(service: Service) -> None:
    client, qp, cq = loopback(service)
    assert client.gid(3) == client.gid(0) != (0, 0)
    assert client.gid(1) == client.gid(7) == gid_words(link_local(service.server.devices[0].mac))
    assert [client.gid(index) for index in (2, 4, 5, 6)] == [(0, 0)] * 4
    with pytest.raises(VerbsError) as refused:
        client.gid(8)
    assert refused.value.errno == EINVAL
    with pytest.raises(VerbsError) as refused:
        client.create_ah(client.gid(), sgid_index=2)
    assert refused.value.errno == ENODATA
    with pytest.raises(VerbsError) as refused:
        client.bring_up(client.create_qp(cq), qp, client.gid(), sgid_index=4)
    assert refused.value.errno == ENODATA
    other = client.create_qp(cq)
    client.bring_up(other, other, client.gid(), sgid_index=3)
    assert client.query(other)["sgid_index"] == 3
    region = client.buffer(4096)
    place = {"remote_address": region.memory.address, "rkey": region.rkey}
    client.send_inline(other, b"x", opcode=WRITE, **place)
    assert cq.wait()[0].status == SUCCESS


def test_peer_that_is_gone_exceeds_the_retries(service: Service) -> None:
    one, other = connected(service)
    one.client.modify(one.qp, 1, qp_state=0)
    one.client.bring_up(one.qp, other.qp, other.client.gid(), timeout=1, retry_cnt=1)
    other.client.close()
    source = one.client.buffer(4096)
    one.client.send(one.qp, source.sge(0, 1))
    assert one.cq.wait()[0].status == 12  # retry counter exceeded


def test_records_go_round_the_end_of_the_ring(service: Service) -> None:
    one, other = connected(service)
    sink = other.client.buffer(4096)
    place = {"remote_address": sink.memory.address, "rkey": sink.rkey}
    for gap in (8, 120, 136, 504):
        one.client.skip_to(WORK_RING_BYTES - gap)
        for number in range(20):
            data = bytes((number,)) * (gap % 60 + 1)
            one.client.send_inline(one.qp, data, opcode=WRITE, **place)
            assert one.cq.wait()[0].status == SUCCESS
            assert sink.memory[: len(data)] == data


def test_kinds_of_queue_pairs_that_there_are(service: Service) -> None:
    client = service.connect()
    cq = client.create_cq()
    for kind in (RC, 3, UD, XRC_INI):
        client.create_qp(cq, kind=kind)
    for kind in (0, 1, 255, 1 << 40):
        with pytest.raises(VerbsError):
            client.create_qp(cq, kind=kind)


@pytest.mark.parametrize("kind", ["pcap", "pcapng"])
def test_capture_has_every_frame_once(tmp_path: Path, kind: str) -> None:
    from rdmawire.capture import open_capture

    file = tmp_path / f"live.{kind}"
    with running(tmp_path, network=DirectNetwork(Capture(file))) as service:
        one, other = connected(service)
        sink = other.client.buffer(4096)
        place = {"remote_address": sink.memory.address, "rkey": sink.rkey}
        one.client.send_inline(one.qp, b"captured", opcode=WRITE, **place)
        one.cq.wait()
        wait_until(lambda: file.stat().st_size > 150)
    with open_capture(file) as reader:
        assert reader.format == kind
        frames = [record.data for record in reader]
    assert len(frames) == 2
    assert b"captured" in frames[0]


def test_counters_are_read_by_another_connection(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        one, other = connected(service)
        source, sink = one.client.buffer(8192), other.client.buffer(8192)
        place = {"remote_address": sink.memory.address, "rkey": sink.rkey}
        one.client.send(one.qp, source.sge(), opcode=WRITE, **place)
        assert one.cq.wait()[0].status == SUCCESS
        found = read_counters(service.path)
        assert list(found) == ["rw0", "rw1"]
        assert found["rw1"]["rcv_packets"] == found["rw0"]["xmit_packets"] == 2
        assert found["rw0"]["xmit_bytes"] > 8192
        for counters in found.values():
            objects = [counters[name] for name in ("qps", "cqs", "mrs", "contexts", "drops")]
            assert objects == [1, 1, 1, 1, 0]
    with pytest.raises(FileNotFoundError):
        read_counters(service.path)


class CopyThread:
    """The thread of a library that copies for the service, as for memory of a GPU."""

    def __init__(self, client: Client, regions: dict[int, Memory]) -> None:
        self.client = client
        self.regions = regions
        self.requests: list[tuple[int, ...]] = []
        self.thread = Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        sock, buffer, layout = self.client.copy_socket, self.client.copy_buffer, COPY_REQUEST.struct
        while data := sock.recv(layout.size):
            direction, _, mr, address, length = request = layout.unpack(data)
            self.requests.append(request)
            memory = self.regions[mr]
            if address + length > memory.size:
                sock.send((14).to_bytes(4, "little"))
                continue
            if direction == COPY_READ:
                buffer[:length] = memory[address : address + length]
            else:
                memory[address : address + length] = buffer[:length]
            sock.send(bytes(4))


def test_memory_of_a_gpu_is_copied_by_the_library(service: Service) -> None:
    one, other = connected(service)
    memory = Memory(1 << 16)
    values = (other.client.pd, 0, 1 << 17, 0, ALL, MEMORY_OF_GPU)  # longer than it is
    handle, lkey, rkey = other.client.call("reg_mr", *values)
    copies = CopyThread(other.client, {handle: memory})
    source = one.client.buffer(1 << 16)
    source.memory[:] = data = os.urandom(1 << 16)
    place = {"remote_address": 100, "rkey": rkey}
    one.client.send(one.qp, source.sge(0, 60_000), opcode=WRITE, **place)
    assert one.cq.wait()[0].status == SUCCESS
    assert memory[100:60_100] == data[:60_000]
    other.client.receive(other.qp, (0, 8, lkey))
    one.client.send_inline(one.qp, b"received")
    assert other.cq.wait()[0].status == SUCCESS
    assert memory[:8] == b"received"
    assert one.cq.wait()[0].status == SUCCESS
    one.client.send(one.qp, source.sge(0, 100), opcode=READ, **place)
    assert one.cq.wait()[0].status == SUCCESS
    assert {request[1:3] for request in copies.requests} == {(MEMORY_OF_GPU, handle)}
    one.client.send(one.qp, source.sge(0, 8), opcode=WRITE, remote_address=1 << 16, rkey=rkey)
    assert one.cq.wait()[0].status == 11  # the library answered EFAULT
    other.client.socket.close()
    copies.thread.join()
