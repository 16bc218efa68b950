"""The flow back is the one that acknowledges."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdmawire.stats import Statistics
from rdmawire.stats.collector import report_of
from rdmawire.stats.flows import CmPairs
from rdmawire.stats.iwarp import AddressPair, CmQueuePair, FrameFacts
from rdmawire.stats.report import Report
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.serial import add
from tests.captures import CAPTURES
from tests.stats.samples import Sent, ack, read, write


def report(path: Path) -> Report:
    statistics = Statistics()
    statistics.read(path)
    return report_of(statistics, [])


def backs(found: Report) -> dict[int | None, int | None]:
    """For each queue pair of host 2 the one of host 1 that it belongs to."""
    return {flow.qp: flow.source_qp for flow in found.flows if flow.source == "10.0.0.1"}


def conversation(chance: random.Random, psns: dict[int, int], steps: int) -> Iterator[Sent]:
    """Requests to queue pairs of host 2; host 1's, which get the acknowledges, are 1000 more."""
    waiting: list[tuple[int, int]] = []
    for _ in range(steps):
        qp = chance.choice(list(psns))
        yield Sent(Opcode.RC_SEND_ONLY, psns[qp], qp)
        waiting.append((qp, psns[qp]))
        psns[qp] = add(psns[qp], 1)
        while len(waiting) > 5 or (waiting and chance.random() < 0.5):
            of, psn = waiting.pop(0)
            yield ack(psn, qp=of + 1000, source=2, destination=1)


@pytest.mark.parametrize("apart", [0, 1, 3, 1 << 20])
def test_queue_pairs_with_psns_near_to_each_other(tmp_path: Path, apart: int) -> None:
    chance = random.Random(apart)
    psns = {qp: add(0xFFFFF0, qp * apart) for qp in range(1, 5)}
    write(tmp_path / "x.pcap", conversation(chance, psns, 400))
    assert backs(report(tmp_path / "x.pcap")) == {qp: qp + 1000 for qp in range(1, 5)}


def test_a_reused_queue_pair_goes_with_what_acknowledges_it_most(tmp_path: Path) -> None:
    old = [Sent(Opcode.RC_SEND_ONLY, 5, 1), ack(5, qp=7, source=2, destination=1)]
    new = [
        sent
        for psn in range(100_000, 100_004)
        for sent in (
            Sent(Opcode.RC_SEND_ONLY, psn, 1),
            ack(psn, qp=8, source=2, destination=1),
        )
    ]
    write(tmp_path / "x.pcap", old + new)
    found = report(tmp_path / "x.pcap")
    assert backs(found) == {1: 8}
    assert found.flows[0].requests.restarts == 1
    assert {flow.qp: flow.back for flow in found.flows} == {1: 2, 7: None, 8: 0}


def test_nobody_is_paired_with_who_acknowledges_other_psns(tmp_path: Path) -> None:
    write(
        tmp_path / "x.pcap",
        [Sent(Opcode.RC_SEND_ONLY, 5, 1), ack(9, qp=7, source=2, destination=1)],
    )
    assert backs(report(tmp_path / "x.pcap")) == {1: None}


def test_nobody_is_paired_with_who_acknowledges_from_another_address(tmp_path: Path) -> None:
    write(
        tmp_path / "x.pcap",
        [Sent(Opcode.RC_SEND_ONLY, 5, 1), ack(5, qp=7, source=3, destination=1)],
    )
    assert backs(report(tmp_path / "x.pcap")) == {1: None}


@pytest.mark.parametrize(
    ("capture", "pairs"),
    [
        ("rxe61_write_bw_inline_2qp.pcap", [1, 0, 3, 2]),
        ("rxe61_rping.pcap", [1, 0, 3, 2]),
        ("rxe61_ud_pingpong.pcap", [1, 0]),
        ("rxe61_uc_pingpong.pcap", [None, None]),
        ("rxe61_retry_exceeded.pcap", [None]),
    ],
)
def test_flows_of_real_captures_find_their_flow_back(capture: str, pairs: list[int | None]) -> None:
    assert [flow.back for flow in report(CAPTURES / "linux" / capture).flows] == pairs


def test_reads_are_no_gaps_if_only_the_next_request_tells_the_path_mtu(tmp_path: Path) -> None:
    """3000 bytes in packets of 512 take six numbers."""
    write(tmp_path / "x.pcap", [read(10, 3000), read(16, 3000), read(22, 3000)])
    requests = report(tmp_path / "x.pcap").flows[0].requests
    assert (requests.gaps, requests.duplicates) == (0, 0)


def test_a_gap_that_is_filled_late(tmp_path: Path) -> None:
    psns = (1, 2, 5, 3, 3, 6, 4, 6)
    write(tmp_path / "x.pcap", [Sent(Opcode.RC_SEND_ONLY, psn) for psn in psns])
    requests = report(tmp_path / "x.pcap").flows[0].requests
    assert (requests.gaps, requests.missing, requests.late, requests.filled) == (1, 2, 2, 2)
    assert requests.duplicates == 2


def test_without_acknowledges_connection_management_pairs_queue_pairs(tmp_path: Path) -> None:
    uc = [
        Sent(Opcode.UC_SEND_ONLY, 5, 1),
        Sent(Opcode.UC_SEND_ONLY, 6, 2),
        Sent(Opcode.UC_SEND_ONLY, 9, 7, source=2, destination=1),
    ]
    write(tmp_path / "x.pcap", uc)
    statistics = Statistics()
    there, back = AddressPair("10.0.0.1", "10.0.0.2"), AddressPair("10.0.0.2", "10.0.0.1")
    introductions = CmPairs(statistics.addresses, statistics.pairing)
    for pair, hello in (
        (there, CmQueuePair(comm_id=77, qpn=7, answers=False)),
        (back, CmQueuePair(comm_id=78, qpn=1, answers=True)),
        (back, CmQueuePair(comm_id=77, qpn=2, answers=True)),
    ):
        introductions.add(FrameFacts(pair, 0, 0, None, (), False, hello))
    statistics.read(tmp_path / "x.pcap")
    assert backs(report_of(statistics, [])) == {1: None, 2: 7}


def test_facts_of_connection_management_are_read_from_its_messages() -> None:
    statistics = Statistics()
    statistics.read(CAPTURES / "linux" / "rxe61_rping.pcap")
    flows = statistics.flows
    announced = {
        flows.find(one): flows.find(other) for one, other in statistics.pairing._cm_pairs.items()
    }
    assert announced == {2: 3}
