"""Collective operations in scenarios: results, packets, and what is told of failures."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rdmawire.traffic.scenario.consistency import hints
from rdmawire.traffic.scenario.document import ScenarioError
from rdmawire.traffic.scenario.model.collective import COLLECTIVES
from rdmawire.traffic.scenario.reader import read_scenario_text
from rdmawire.traffic.scenario.runner.play import Outcome, play

RIGHT = "right results at all ranks"
HOSTS = ("a", "b", "c", "d")


def scenario(*steps: str, faults: str = "[]", expect: str = "{}", **more: str) -> str:
    """Four hosts on a switch; the faults are those of the link of b."""
    links = "".join(
        f"  {host}-leaf: {{rate: 100 Gbit/s, faults: {faults if host == 'b' else '[]'}}}\n"
        for host in HOSTS
    )
    given = {
        "hosts": "{a: {}, b: {}, c: {}, d: {}}",
        "switches": "{leaf: {}}",
        **more,
        "expect": expect,
    }
    top = "".join(f"{key}: {value}\n" for key, value in given.items())
    work = "".join(f"  - {step}\n" for step in steps)
    return f"name: collectives\n{top}links:\n{links}work:\n{work}"


def played(*steps: str, **more: Any) -> Outcome:
    return play(read_scenario_text(scenario(*steps, **more), "it.yaml"))


def failures_of(outcome: Outcome) -> list[str]:
    return [failure.text("it.yaml").partition(": ")[2] for failure in outcome.failures]


AMONG = "among: [a, b, c, d], size: 64 KiB"


@pytest.mark.parametrize("verb", COLLECTIVES)
def test_each_operation_is_done_over_the_network_of_the_scenario(verb: str) -> None:
    outcome = played(f"{verb}: {{{AMONG}}}")
    assert failures_of(outcome) == []
    (step,) = outcome.steps
    assert step.endings == {"SUCCESS": 1}
    assert all(outcome.counters[f"{host}-leaf.frames"] > 0 for host in HOSTS)


@pytest.mark.parametrize("settings", [
    "algo: tree, protocol: ll128",
    "protocol: simple, channels: 2, qps: 4, split: true",
    "dtype: float32, protocol: ll",
])  # fmt: skip
def test_settings_are_those_of_the_operation(settings: str) -> None:
    plain = played(f"allreduce: {{{AMONG}, channels: 1}}")
    other = played(f"allreduce: {{{AMONG}, {settings}}}")
    assert failures_of(other) == []
    assert other.frames != plain.frames or "float32" in settings


def test_the_ring_sends_what_a_ring_sends() -> None:
    """Each of n ranks sends 2 (n - 1) / n times the bytes, and 64 for each message it gets."""
    outcome = played(f"allreduce: {{{AMONG}, protocol: simple, channels: 1}}")
    for host in HOSTS:
        messages = outcome.counters[f"{host}.messages"] // 2
        sent = outcome.counters[f"{host}.bytes"]
        assert sent == 2 * 3 * (64 << 10) // 4 + 64 * messages


def test_ranks_are_in_the_order_of_the_list_and_the_root_has_the_values() -> None:
    step = "broadcast: {among: [d, b, a], size: 12 KiB, root: b, protocol: simple}"
    outcome = played(step)
    assert failures_of(outcome) == []
    sent = {host: outcome.counters[f"{host}.bytes"] for host in HOSTS}
    assert sent["c"] == 0
    assert sent["b"] >= 12 << 10
    assert sent["a"] >= 12 << 10  # from the root to the next of the list, and on
    assert sent["d"] < 12 << 10


def test_frames_have_the_dscp_and_are_ecn_capable() -> None:
    outcome = played(
        f"allreduce: {{{AMONG}, dscp: 26, ecn: true, mtu: 1024}}",
        expect="{packets: [{where: {ip.dscp: 26, ip.ecn: ECT_0}, count: 1..}, "
        "{where: {ip.dscp: 0}, count: 0}, {where: {ip.len: 1200..}, count: 0}]}",
    )
    assert failures_of(outcome) == []


def test_marks_slow_down_connections_with_congestion_control() -> None:
    marks = "[{mark: {nth: 5..20}}]"
    step = f"alltoall: {{{AMONG}, ecn: true, congestion: dcqcn}}"
    outcome = played(step, faults=marks)
    assert failures_of(outcome) == []
    assert sum(outcome.counters[f"{host}.cnps"] for host in HOSTS) > 0


def test_marks_that_nobody_reports_are_a_hint() -> None:
    text = scenario(f"alltoall: {{{AMONG}, ecn: true}}", faults="[{mark: {nth: 5..20}}]")
    assert [hint.said for hint in hints(read_scenario_text(text))] == [
        "no CNP reports these marks; give 'congestion: dcqcn' to alltoall"
    ]


def test_steps_after_it_begin_when_all_results_are_there() -> None:
    outcome = played(
        f"allreduce: {{name: one, {AMONG}, at: 10 us}}",
        f"allgather: {{{AMONG}, after: one}}",
    )
    alone = played(f"allreduce: {{{AMONG}, at: 10 us}}")
    assert failures_of(outcome) == []
    assert [step.endings for step in outcome.steps] == [{"SUCCESS": 1}] * 2
    assert outcome.summary.virtual_ns > alone.summary.virtual_ns > 10_000


def test_two_at_once_share_the_network() -> None:
    alone = played("alltoall: {among: [a, b, c], size: 1536 KiB}")
    both = played(
        "alltoall: {among: [a, b, c], size: 1536 KiB}",
        "alltoall: {among: [c, b, a], size: 1536 KiB}",
    )
    assert failures_of(both) == []
    assert both.summary.virtual_ns > 1.5 * alone.summary.virtual_ns


def test_losses_are_repaired() -> None:
    outcome = played(
        f"allreduce: {{{AMONG}, attributes: {{timeout: 5}}}}",
        faults="[{drop: {chance: 0.05}}]",
        seed="3",
    )
    assert failures_of(outcome) == []
    assert outcome.counters["b-leaf.lost"] > 0
    assert outcome.summary.retransmits > 0


def test_the_same_scenario_gives_the_same_bytes(tmp_path: Path) -> None:
    text = scenario(f"allreduce: {{{AMONG}}}", faults="[{drop: {chance: 0.02}}]")
    files = [tmp_path / name for name in ("one.pcap", "other.pcap")]
    for file in files:
        play(read_scenario_text(text), capture=file)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_hosts_may_have_ipv6_and_links_within() -> None:
    hosts = '{a: {address: "fd00::1"}, b: {topology: dgx-h200}, c: {}, d: {}}'
    outcome = played(f"allreduce: {{{AMONG}, protocol: simple}}", hosts=hosts)
    assert failures_of(outcome) == []
    plain = played(f"allreduce: {{{AMONG}, protocol: simple}}")
    assert outcome.summary.virtual_ns > plain.summary.virtual_ns


# Failures.


def test_a_wrong_result_is_reported_with_its_rank() -> None:
    """A bit error that the ICRC does not show, in values that b sends to its neighbour."""
    fault = (
        '[{corrupt: {where: {eth.src: "02:00:00:00:00:02", infiniband.immdt: 0x00100000}, '
        "nth: 1, byte: 100, seal: true}}]"
    )
    outcome = played(
        "broadcast: {among: [a, b, c, d], size: 4 KiB, root: b, protocol: simple, channels: 1}",
        faults=fault,
    )
    (failure,) = failures_of(outcome)
    assert failure.startswith(
        f"broadcast: expected {RIGHT}, found rank 2 (c): the result is wrong at value "
    )


def test_a_failed_connection_is_reported_with_its_ranks() -> None:
    outcome = played(
        f"allreduce: {{name: it, {AMONG}, attributes: {{retry_cnt: 1, timeout: 5}}}}",
        f"allgather: {{{AMONG}, after: it}}",
        faults='[{drop: {where: {eth.src: "02:00:00:00:00:01"}}}]',
    )
    failed = "found from rank 0 (a) to rank 1 (b): the connection failed with RETRY_EXC_ERR"
    assert failures_of(outcome) == [
        f"it (allreduce): expected {RIGHT}, {failed}",
        "allgather: expected to be done, found it never began: it waits for it",
    ]


def test_an_operation_without_end_is_reported_with_a_rank() -> None:
    outcome = played(f"allreduce: {{{AMONG}, channels: 1}}", **{"time limit": "3 us"})
    _, failure = failures_of(outcome)
    assert failure == (
        f"allreduce: expected {RIGHT}, "
        "found rank 0 (a) did not end: 4 of 4 ranks in channels are not done"
    )


def test_memory_that_cannot_be_locked_is_a_refusal() -> None:
    hosts = "{a: {locked memory: 64 KiB}, b: {}, c: {}, d: {}}"
    step = f"allreduce: {{{AMONG}, refused: ENOMEM}}"
    assert failures_of(played(step, hosts=hosts)) == []
    (failure,) = failures_of(played(step.replace(", refused: ENOMEM", ""), hosts=hosts))
    assert failure.startswith("allreduce: expected no refusal, found ENOMEM")


def test_attributes_are_those_that_the_adapters_of_all_hosts_have() -> None:
    hosts = "{a: {profile: rxe}, b: {profile: rxe}, c: {}, d: {}}"
    text = scenario(f"allreduce: {{{AMONG}, attributes: {{max_rd_atomic: 100}}}}", hosts=hosts)
    with pytest.raises(ScenarioError) as caught:
        read_scenario_text(text)
    assert [(one.found, one.expected) for one in caught.value.mistakes] == [
        ("max_rd_atomic 100", "16 at most: c is ibta"),
        ("max_rd_atomic 100", "16 at most: d is ibta"),
    ]


def test_the_queue_pairs_of_a_collective_are_bounded() -> None:
    hosts = [f"h{number}" for number in range(40)]
    text = (
        f"name: many\nhosts: {{{', '.join(f'{host}: {{}}' for host in hosts)}}}\n"
        "switches: {leaf: {}}\n"
        f"links: {{{', '.join(f'{host}-leaf: {{}}' for host in hosts)}}}\n"
        f"work: [alltoall: {{among: [{', '.join(hosts)}], size: 160, qps: 16}}]\n"
    )
    with pytest.raises(ScenarioError) as caught:
        read_scenario_text(text)
    (mistake,) = caught.value.mistakes
    assert mistake.found == "24960 queue pairs at each end"
    read_scenario_text(text.replace("qps: 16", "qps: 8"))


def test_switches_that_pause_have_room_for_its_frames() -> None:
    queue = "{dscp: 26, xoff: 64 KiB, xon: 32 KiB, headroom: 2 KiB}"
    switches = f"{{leaf: {{queues: {{3: {queue}}}}}}}"
    text = scenario(f"alltoall: {{{AMONG}, dscp: 26}}", switches=switches)
    with pytest.raises(ScenarioError) as caught:
        read_scenario_text(text)
    (mistake,) = caught.value.mistakes
    assert mistake.found == "headroom 2048 of queue 3"
    read_scenario_text(text.replace("dscp: 26}\n", "dscp: 26, mtu: 1024}\n"))


# NumPy.


def test_reading_one_and_running_others_imports_no_numpy() -> None:
    code = (
        "import sys\n"
        "from rdmawire import play, read_scenario_text\n"
        "from rdmawire.traffic.scenario import read_shipped\n"
        "read_shipped('allreduce-with-loss')\n"
        "assert play(read_shipped('lost-first')).passed\n"
        "assert 'numpy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
