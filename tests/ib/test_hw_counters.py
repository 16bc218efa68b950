"""Counters as drivers name them, for an adapter and for each queue pair."""

from collections.abc import Callable
from dataclasses import fields

import pytest

from rdmawire.fabric.link import Link
from rdmawire.fabric.pair import ATTRIBUTES, Pair
from rdmawire.ib.congestion.dcqcn import Dcqcn
from rdmawire.ib.hw_counters import (
    ADAPTER_COUNTERS,
    BY_FAULT,
    BY_SEND_STATUS,
    DRIVERS,
    MEANINGS,
    NOT_COUNTED,
    QP_COUNTERS,
    AdapterCounters,
    QPCounters,
)
from rdmawire.ib.qp import QPInit
from rdmawire.ib.retransmit import timed_out
from rdmawire.ib.rx_parser import Drop
from rdmawire.ib.service import Fault
from rdmawire.units import ms
from rdmawire.verbs.enums import QPState, QPType, WCStatus
from rdmawire.verbs.wr import SendOpcode, SendWR
from rdmawire.wire.header import Header
from rdmawire.wire.ib import AETH, CNP, RETH, Ack, Nak
from rdmawire.wire.inet import ECN, IPv4
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from tests.ib.stage import FIRST_PSN, PATIENT, Stage, go, key_of, lossy, to_remote

KILO = 1024


def counted(counters: QPCounters) -> dict[str, int]:
    """The counters that are not 0."""
    return {name: value for name in ADAPTER_COUNTERS if (value := getattr(counters, name, 0))}


def requester(stage: Stage) -> dict[str, int]:
    return counted(stage.client.qp.counters)


def responder(stage: Stage) -> dict[str, int]:
    return counted(stage.server.qp.counters)


def sends(stage: Stage, messages: int, size: int = 4) -> None:
    """Have the client send messages for which there are receives, and wait."""
    for _ in range(messages):
        stage.server.receive(size)
        stage.client.send(bytes(size))
    stage.drive()


# The table.


def test_each_counter_of_linux_is_counted_or_said_not_to_be() -> None:
    counters = AdapterCounters()
    mlx5 = {
        *("rx_write_requests", "rx_read_requests", "rx_atomic_requests", "rx_dct_connect"),
        *("out_of_buffer", "out_of_sequence", "duplicate_request", "rnr_nak_retry_err"),
        *("packet_seq_err", "implied_nak_seq_err", "local_ack_timeout_err"),
        *("resp_local_length_error", "resp_cqe_error", "req_cqe_error"),
        *("req_remote_invalid_request", "req_remote_access_errors", "resp_remote_access_errors"),
        *("resp_cqe_flush_error", "req_cqe_flush_error", "req_transport_retries_exceeded"),
        *("req_rnr_retries_exceeded", "roce_adp_retrans", "roce_adp_retrans_to"),
        *("roce_slow_restart", "roce_slow_restart_cnps", "roce_slow_restart_trans"),
        *("rp_cnp_ignored", "rp_cnp_handled", "np_ecn_marked_roce_packets", "np_cnp_sent"),
        "rx_icrc_encapsulated",
    }
    rxe = {
        *("sent_pkts", "rcvd_pkts", "duplicate_request", "out_of_seq_request", "rcvd_rnr_err"),
        *("send_rnr_err", "rcvd_seq_err", "ack_deferred", "retry_exceeded_err"),
        *("retry_rnr_exceeded_err", "completer_retry_err", "send_err", "link_downed"),
        *("rdma_sends", "rdma_recvs"),
    }
    assert counters.named("mlx5").keys() == mlx5
    assert counters.named("rxe").keys() == rxe
    assert {"port_xmit_data", "port_rcv_packets", "port_xmit_wait"} < counters.named("port").keys()


def test_each_row_has_a_meaning_and_a_name_of_some_driver() -> None:
    rows = {row.name: row.metadata for row in fields(AdapterCounters)}
    assert tuple(rows) == ADAPTER_COUNTERS
    assert ADAPTER_COUNTERS[: len(QP_COUNTERS)] == QP_COUNTERS
    assert all(meaning.endswith(".") for meaning in MEANINGS.values())
    assert all(any(names[driver] for driver in DRIVERS) for names in rows.values())
    assert not any(rows.keys() & NOT_COUNTED[driver].keys() for driver in DRIVERS)


def test_names_of_another_driver_are_refused() -> None:
    with pytest.raises(KeyError):
        QPCounters().named("mlx4")


# What the responder counts.


def test_requests_are_counted_by_kind_once_each() -> None:
    stage = Stage()
    client, there = stage.client, stage.server.region
    client.write(bytes(5 * KILO), to=there)
    client.read(5 * KILO, of=there)
    client.fetch_add(1, of=there)
    stage.drive()
    assert responder(stage) == {
        "rx_write_requests": 1,
        "rx_read_requests": 1,
        "rx_atomic_requests": 1,
    }
    assert requester(stage) == {}


def test_sends_and_receives_are_counted_that_completed() -> None:
    stage = Stage()
    sends(stage, 3, 5 * KILO)
    assert requester(stage) == {"rdma_sends": 3}
    assert responder(stage) == {"rdma_recvs": 3}


def test_a_lost_packet_is_out_of_sequence_at_one_end_and_a_nak_at_the_other() -> None:
    stage = lossy(1)  # the first of four packets
    sends(stage, 4)
    assert responder(stage) == {"out_of_sequence": 3, "out_of_seq_request": 1, "rdma_recvs": 4}
    assert requester(stage) == {
        "packet_seq_err": 1,
        "rcvd_seq_err": 1,
        "completer_retry_err": 1,
        "rdma_sends": 4,
    }


def test_a_gap_of_an_unreliable_connection_is_out_of_sequence() -> None:
    stage = Stage(Pair(Link(drop={1}), kind=QPType.UC))
    sends(stage, 3)
    assert responder(stage) == {"out_of_sequence": 1, "rdma_recvs": 2}


def test_a_lost_acknowledge_is_a_timeout_at_one_end_and_a_duplicate_at_the_other() -> None:
    stage = lossy(2, timeout=3)
    sends(stage, 1)
    assert responder(stage) == {"duplicate_request": 1, "rdma_recvs": 1}
    assert requester(stage) == {
        "local_ack_timeout_err": 1,
        "completer_retry_err": 1,
        "rdma_sends": 1,
    }


def test_a_lost_read_response_is_an_implied_nak() -> None:
    stage = lossy(3)  # READ, SEND, the response, the ACK
    stage.server.receive(4)
    stage.client.read(4, of=stage.server.region)
    stage.client.send(b"1234")
    stage.drive()
    assert requester(stage) == {
        "implied_nak_seq_err": 1,
        "completer_retry_err": 1,
        "rdma_sends": 1,
    }
    assert stage.server.qp.counters.duplicate_request > 0


def test_an_rnr_nak_is_counted_and_the_request_retransmitted() -> None:
    stage = lossy(rnr_retry=2)
    stage.client.send(b"1234")
    stage.drive()
    assert responder(stage) == {"out_of_buffer": 3, "send_rnr_err": 3}
    assert requester(stage) == {
        "rcvd_rnr_err": 3,
        "rnr_nak_retry_err": 2,
        "req_rnr_retries_exceeded": 1,
        "req_cqe_error": 1,
        "rdma_sends": 1,
    }


def test_retries_that_run_out_are_counted_with_the_timeouts_before() -> None:
    stage = lossy(*range(1, 99), retry_cnt=3, timeout=1)
    stage.client.send(b"1234")
    stage.client.send(b"1234")
    stage.drive()
    assert requester(stage) == {
        "local_ack_timeout_err": 3,
        "completer_retry_err": 3,
        "req_transport_retries_exceeded": 1,
        "req_cqe_error": 2,
        "req_cqe_flush_error": 1,
        "rdma_sends": 1,
    }


def test_a_datagram_without_a_receive_is_out_of_buffer() -> None:
    stage = Stage(Pair(kind=QPType.UD))
    stage.client.send(b"1234")
    stage.drive()
    assert responder(stage) == {"out_of_buffer": 1}


def _wrong_key(stage: Stage) -> None:
    region = stage.server.region
    wr = SendWR(
        SendOpcode.RDMA_WRITE,
        (stage.client.region.sge(8),),
        remote_address=region.address,
        rkey=region.rkey ^ 1,
    )
    stage.client.post(wr)


def _no_right(stage: Stage) -> None:
    go(stage.server, QPState.RESET)
    there = ATTRIBUTES._replace(
        qp_access_flags=0,
        ah=stage.server.path_to(stage.client),
        dest_qp_num=stage.client.qp.qp_num,
    )
    stage.server.bring_up(stage.server.qp, there)
    stage.client.post(
        to_remote(SendOpcode.RDMA_WRITE, stage.server.region, stage.client.region.sge(8))
    )


def _too_long(stage: Stage) -> None:
    stage.server.receive(4)
    stage.client.send(bytes(8))


REFUSED: dict[str, tuple[Callable[[Stage], None], dict[str, int], dict[str, int]]] = {
    "a wrong key": (
        _wrong_key,
        {"resp_remote_access_errors": 1},
        {"req_remote_access_errors": 1, "req_cqe_error": 1},
    ),
    "an operation that the queue pair does not allow": (
        _no_right,
        {},
        {"req_remote_invalid_request": 1, "req_cqe_error": 1},
    ),
    "a message too long": (
        _too_long,
        {"resp_local_length_error": 1, "resp_cqe_error": 1},
        {"req_remote_invalid_request": 1, "req_cqe_error": 1, "rdma_sends": 1},
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_counted_at_both_ends(name: str) -> None:
    offend, at_responder, at_requester = REFUSED[name]
    stage = Stage(Pair(attributes=PATIENT))
    offend(stage)
    stage.drive()
    assert responder(stage) == at_responder
    assert requester(stage) == at_requester


def test_receives_that_are_flushed_are_errors_too() -> None:
    stage = Stage()
    stage.server.receive(4)
    stage.server.receive(4)
    go(stage.server, QPState.ERR)
    assert responder(stage) == {"resp_cqe_error": 2, "resp_cqe_flush_error": 2}


def test_an_atomic_write_is_an_atomic_request() -> None:
    stage = Stage()
    stage.client.atomic_write(bytes(8), to=stage.server.region)
    stage.drive()
    assert responder(stage) == {"rx_atomic_requests": 1}


def test_faults_and_statuses_lead_to_counters_that_there_are() -> None:
    assert {*BY_FAULT.values(), *BY_SEND_STATUS.values()} <= {*QP_COUNTERS}
    assert BY_FAULT.keys() <= {*Fault}
    assert BY_SEND_STATUS.keys() <= {*WCStatus}


# Congestion.


def _marked(stage: Stage, psn: int = FIRST_PSN) -> bytes:
    frame = stage.frame_of(Packet.make(Opcode.RC_RDMA_WRITE_ONLY, RETH(), payload=b"", psn=psn))
    ethernet, ip, udp = frame.headers
    assert isinstance(ip, IPv4)
    return frame.replace(headers=(ethernet, ip.replace(ecn=ECN.CE), udp)).seal().build()


@pytest.mark.parametrize("told", [False, True])
def test_marks_are_counted_and_the_cnps_that_follow(told: bool) -> None:
    stage = Stage()
    server = stage.server
    if told:
        server.nic.notify_congestion(server.qp, ms(1))
    for psn in range(FIRST_PSN, FIRST_PSN + 3):
        server.nic.receive(_marked(stage, psn), 0)
    server.nic.transmit(0)
    expected = {"rx_write_requests": 3, "np_ecn_marked_roce_packets": 3}
    assert responder(stage) == expected | ({"np_cnp_sent": 1} if told else {})


@pytest.mark.parametrize("controlled", [False, True])
def test_cnps_are_handled_by_a_queue_pair_whose_rate_is_controlled(controlled: bool) -> None:
    stage = Stage()
    client = stage.client
    if controlled:
        client.nic.control_congestion(client.qp, Dcqcn())
    stage.deliver(Packet.make(Opcode.CNP, CNP(), becn=1), by=stage.server)
    assert requester(stage) == {"rp_cnp_handled" if controlled else "rp_cnp_ignored": 1}
    assert client.qp.cnps == 1


# The adapter.


def test_an_adapter_sums_up_its_queue_pairs_and_those_destroyed() -> None:
    stage = lossy(1)
    sends(stage, 4)
    server = stage.server
    other = server.nic.create_qp(QPType.RC, QPInit(server.pd, server.cq, server.cq))
    before = server.nic.counters
    assert all(
        getattr(before, name) == getattr(server.qp.counters, name) + getattr(other.counters, name)
        for name in QP_COUNTERS
    )
    server.nic.destroy_qp(server.qp)
    assert server.nic.counters == before
    assert before.out_of_sequence == 3


def test_counters_go_on_through_reset() -> None:
    stage = Stage()
    sends(stage, 2)
    go(stage.server, QPState.RESET)
    assert stage.server.qp.counters.rdma_recvs == 2


def test_the_counters_of_an_adapter_are_a_copy() -> None:
    stage = Stage()
    before = stage.server.nic.counters
    sends(stage, 1)
    assert (before.rdma_recvs, stage.server.nic.counters.rdma_recvs) == (0, 1)


@pytest.mark.parametrize("burst", [False, True])
def test_a_port_counts_frames_and_their_bytes(burst: bool) -> None:
    stage = Stage(Pair(attributes=PATIENT))
    client, server = stage.client.nic, stage.server.nic
    stage.client.write(bytes(5 * KILO), to=stage.server.region)
    frames = client.transmit(0)
    if burst:
        server.receive_all(frames, 0)
    else:
        for frame in frames:
            server.receive(frame, 0)
    server.receive(frames[0][:-1] + bytes((frames[0][-1] ^ 1,)), 0)
    assert counted(client.counters) == {
        "port_xmit_packets": 5,
        "port_xmit_data": sum(map(len, frames)) // 4,
    }
    assert counted(server.counters) == {
        "rx_write_requests": 1,
        "rx_icrc_encapsulated": 1,
        "rcvd_pkts": 5,
        "port_rcv_packets": 6,
        "port_rcv_data": (sum(map(len, frames)) + len(frames[0])) // 4,
        "port_rcv_errors": 1,
    }


def test_frames_before_one_that_is_no_frame_are_counted() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    stage.client.write(bytes(8), to=stage.server.region)
    (frame,) = stage.client.nic.transmit(0)
    with pytest.raises(Exception, match="frame"):
        stage.server.nic.receive_all([frame, 5, frame], 0)  # type: ignore[list-item]
    assert stage.server.nic.counters.port_rcv_packets == 1


def test_a_link_that_is_down_discards_what_is_sent() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    stage.client.nic.up = False
    stage.client.write(bytes(5 * KILO), to=stage.server.region)
    assert stage.client.nic.transmit(0) == []
    assert counted(stage.client.nic.counters) == {"port_xmit_discards": 5, "link_downed": 1}
    stage.client.nic.up = True
    assert stage.client.nic.counters.link_downed == 1


def test_what_drivers_show_are_the_same_numbers_by_their_names() -> None:
    stage = lossy(1)
    sends(stage, 4)
    mlx5, rxe = (stage.server.nic.counters.named(driver) for driver in ("mlx5", "rxe"))
    assert (mlx5["out_of_sequence"], rxe["out_of_seq_request"]) == (3, 1)
    assert rxe["rcvd_pkts"] == stage.server.nic.counters.port_rcv_packets
    assert mlx5["roce_slow_restart"] == rxe["ack_deferred"] == 0


def test_a_sequence_nak_that_comes_again_counts_and_sends_nothing_again() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    stage.client.write(bytes(5 * KILO), to=stage.server.region)
    stage.client.nic.transmit(0)
    nak: tuple[Header, ...] = (AETH(ack=Ack.NAK, value=Nak.PSN_SEQUENCE_ERROR),)
    for _ in range(2):
        stage.deliver(Packet.make(Opcode.RC_ACKNOWLEDGE, *nak, psn=FIRST_PSN), by=stage.server)
    assert requester(stage) == {"rcvd_seq_err": 2, "packet_seq_err": 2, "completer_retry_err": 1}
    assert Drop.STALE not in stage.client.nic.drops


def test_a_write_of_no_bytes_is_a_write_request() -> None:
    stage = Stage(Pair(attributes=PATIENT))
    stage.request(Opcode.RC_RDMA_WRITE_ONLY, key_of(stage.server.region, 0), psn=FIRST_PSN)
    assert responder(stage) == {"rx_write_requests": 1}


def test_a_timer_without_outstanding_requests_counts_no_time_out() -> None:
    qp = Stage(Pair(attributes=PATIENT)).client.qp
    timed_out(qp)
    assert qp.counters.local_ack_timeout_err == 0
    assert qp.state is QPState.RTS
