"""Faults of links as scenarios say them, and all that a Lumina configuration can ask for."""

from collections import Counter
from pathlib import Path

import pytest

from rdmawire.capture import open_capture
from rdmawire.traffic.scenario.document import ScenarioError
from rdmawire.traffic.scenario.model import Scenario
from rdmawire.traffic.scenario.model.network import FaultPlan
from rdmawire.traffic.scenario.reader import read_scenario_text
from rdmawire.traffic.scenario.runner.play import play
from rdmawire.traffic.scenario.types import End
from rdmawire.wire import roce
from tests.traffic.scenario.scene import (
    CLIENT,
    SERVER,
    SINK,
    SOURCE,
    connection,
    counts,
    exactly,
    expecting,
    failures,
    failures_of,
    fault,
    holds,
    link,
    packets,
    scene,
    write,
)

CLIENT_MAC = b"\x02\0\0\0\0\1"


def with_faults(*faults: FaultPlan, **more: object) -> Scenario:
    return scene(write(), links=(link(*faults),), **more)


def test_nth_counts_each_packet_by_itself(tmp_path: Path) -> None:
    """The third packet and the fifth, each twice: Lumina's psn with iterations 1 and 2."""
    lost = fault("drop", sent_by=CLIENT, packet=(3, 5), nth=(1, 2))
    outcome = play(
        expecting(with_faults(lost), holds(SINK, SOURCE), counts("client-server.lost", exactly(4))),
        capture=tmp_path / "out.pcap",
    )
    assert failures_of(outcome) == []
    psns: Counter[int] = Counter()
    with open_capture(tmp_path / "out.pcap") as reader:
        for record in reader:
            packet = roce.parse(record.data).packet
            psns[packet.bth.psn] += record.data[6:12] == CLIENT_MAC
    assert psns[102] == 3


def test_answers_are_never_taken_for_the_packet() -> None:
    """Both ends begin with the same PSN; what is lost is the request alone."""
    lost = fault("drop", sent_by=SERVER, packet=(1,))
    assert failures(with_faults(lost), counts("client-server.lost", exactly(0))) == []
    lost = fault("drop", sent_by=SERVER, nth=(1,))
    assert failures(with_faults(lost), counts("client-server.lost", exactly(1))) == []


def test_one_queue_pair_of_several_is_meant() -> None:
    lost = fault("drop", sent_by=End("client", "a", 2), packet=(8,), nth=(1,))
    plan = connection(count=3)
    for of, number in ((0x11, 1), (0x12, 2), (0x13, 1)):
        where = {"bth.destqp": of, "bth.psn": 107, "eth.src": CLIENT_MAC}
        assert (
            failures(with_faults(lost, connections=(plan,)), packets(exactly(number), where)) == []
        )


def test_a_fault_for_all_queue_pairs_of_an_end_counts_each_by_itself() -> None:
    lost = fault("drop", sent_by=CLIENT, packet=(1,), nth=(1,))
    plan = connection(count=3)
    assert (
        failures(with_faults(lost, connections=(plan,)), counts("client-server.lost", exactly(3)))
        == []
    )


def test_psns_go_round() -> None:
    lost = fault("drop", sent_by=CLIENT, packet=(4,), nth=(1,))
    plan = connection(psn=(0xFFFFFE, 100))
    assert (
        failures(
            with_faults(lost, connections=(plan,)),
            packets(exactly(2), {"bth.psn": 1, "eth.src": CLIENT_MAC}),
            counts("client-server.lost", exactly(1)),
        )
        == []
    )


OTHERS = [
    (fault("duplicate", sent_by=CLIENT, packet=(2,), nth=(1,)), "duplicated", 1),
    (fault("delay", sent_by=CLIENT, packet=(2,), nth=(1,), options={"by": 500}), "delayed", 1),
    (fault("reorder", where={"bth.psn": 101}, nth=(1,)), "reordered", 1),
    (fault("corrupt", sent_by=CLIENT, packet=(2,), nth=(1,)), "corrupted", 1),
    (fault("truncate", sent_by=CLIENT, packet=(2,), nth=(1,)), "truncated", 1),
    (fault("mark", sent_by=CLIENT), "marked", 8),
    (
        fault("set", where={"bth.opcode": 6}, nth=(1,), options={"field": "reth.rkey", "value": 0}),
        "rewritten",
        1,
    ),
]


@pytest.mark.parametrize(("plan", "counter", "times"), OTHERS, ids=[one[1] for one in OTHERS])
def test_every_other_fault_is_applied_and_counted(
    plan: FaultPlan, counter: str, times: int
) -> None:
    scenario = with_faults(plan, connections=(connection(ecn=True),))
    found = failures(scenario, counts(f"client-server.{counter}", exactly(times)))
    refused = ["write on client/a: expected SUCCESS, found REM_ACCESS_ERR (frame 9)"]
    assert found == (refused if counter == "rewritten" else [])


def test_what_is_not_ecn_capable_is_not_marked() -> None:
    outcome = play(with_faults(fault("mark")))
    assert (outcome.counters["client-server.marked"], outcome.summary.marks) == (0, 0)


def test_chance_is_the_seeds() -> None:
    def lost(seed: int) -> int:
        plan = fault("drop", chance=0.2)
        outcome = play(with_faults(plan, seed=seed))
        return outcome.summary.lost

    assert [lost(1), lost(2)] == [lost(1), lost(2)]
    assert len({lost(seed) for seed in range(8)}) > 1


def test_frames_beyond_the_links_mtu_are_lost() -> None:
    scenario = scene(
        write(status="RETRY_EXC_ERR"),
        links=(link(mtu=1000),),
        connections=(connection(attributes={"timeout": 3, "retry_cnt": 1}),),
    )
    outcome = play(expecting(scenario, counts("client-server.oversized", exactly(0))))
    assert failures_of(outcome) == [
        "counter client-server.oversized: expected 0, found 16 (frame 1)"
    ]
    assert outcome.summary.lost == 16


def test_a_packet_that_is_first_sent_after_a_loss_comes_for_the_first_time() -> None:
    """What Lumina calls the second round of a queue pair is the first turn of such a packet."""
    slow = connection(congestion="dcqcn", ecn=True, parameters={"line_rate": 10**8})
    early = fault("drop", sent_by=CLIENT, packet=(2,), nth=(1,))
    for nth, lost in ((1, 2), (2, 1)):
        late = fault("drop", sent_by=CLIENT, packet=(8,), nth=(nth,))
        links = (link(early, late, rate=10**9),)
        scenario = scene(write(), connections=(slow,), links=links)
        assert failures(scenario, counts("client-server.lost", exactly(lost))) == []


def test_what_lumina_can_ask_for() -> None:
    """Its configuration: traffic of several queue pairs, and events by qpn, psn and iteration."""
    first, second = End("client", "a", 1), End("client", "a", 2)
    events = (
        fault("drop", sent_by=first, packet=(4,), nth=(1,)),
        fault("drop", sent_by=first, packet=(5,), nth=(2,)),
        fault("mark", sent_by=second, packet=(2,), nth=(1,)),
        fault("corrupt", sent_by=second, packet=(7,), nth=(1,)),
    )
    plan = connection(
        count=2,
        mtu=1024,
        ecn=True,
        cnp_interval=0,
        attributes={"timeout": 14, "retry_cnt": 7, "min_rnr_timer": 12},
    )
    steps = (write(times=10, depth=1, barrier=True),)
    assert (
        failures(
            scene(*steps, links=(link(*events, rate=100 * 10**9),), connections=(plan,)),
            holds(SINK, SOURCE),
            counts("client-server.lost", exactly(2)),
            counts("client-server.marked", exactly(1)),
            counts("client-server.corrupted", exactly(1)),
            counts("server.cnps", exactly(1)),
            counts("server.dropped_icrc", exactly(1)),
            counts("client.messages", exactly(20)),
            packets(exactly(3), {"bth.psn": 104, "bth.destqp": 0x11, "eth.src": CLIENT_MAC}),
            packets(exactly(1), {"bth.opcode": 0x81, "bth.destqp": 0x12}, sent_by="server"),
        )
        == []
    )


def test_a_packet_of_each_message() -> None:
    """Three messages of ten packets: the fourth of each, as Lumina means it."""
    text = """
name: One packet of each
hosts: {client: {memory: {source: 10 KiB}}, server: {memory: {sink: 10 KiB}}}
links:
  client-server:
    faults: [drop: {sent by: client/a, packet: {first: 4, every: 10, times: 3}, nth: 1}]
connections: {a: {between: [client, server]}}
work:
  - write: {on: client/a, from: client.source, to: server.sink, times: 3}
"""
    scenario = read_scenario_text(text)
    assert scenario.links[0].faults[0].packet == (4, 14, 24)
    assert failures(scenario, counts("client-server.lost", exactly(3))) == []
    with pytest.raises(ScenarioError, match="packet 50331646; expected packets from 1 to 16777216"):
        read_scenario_text(text.replace("first: 4, every: 10", "first: 16777214, every: 16777216"))
