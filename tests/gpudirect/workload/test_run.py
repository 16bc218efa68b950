"""Runs as packets and as flows: data, bytes on links, times that agree, and placements."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rdmawire.gpudirect.workload.flows as flow_module
from rdmawire import open_host
from rdmawire.capture import open_capture
from rdmawire.fabric import Buffer
from rdmawire.gpudirect.workload import (
    Call,
    Collective,
    Kind,
    LinkId,
    Operation,
    Workload,
    WorkloadError,
    WorkloadRun,
    WorkloadSpec,
    ring_algorithm,
)
from rdmawire.gpudirect.workload.buffers import EXPECTED
from rdmawire.topology import (
    Device,
    DeviceKind,
    HostBridge,
    Machine,
    NumaNode,
    PcieLink,
    Switch,
)
from rdmawire.units import gbps
from tests.gpudirect.workload.schedules import failure, goal, schedules

AGREE = 1.5
"""Factor within which the times of flows and packets of small schedules agree."""
RINGS, PAIRS = 1.25, 1.7
"""The same for collectives: between pairs, announcements wait behind data of other messages."""
SLACK = 100
"""Time (ns) of rounding in short runs."""


def near(packets: int, flows: int, factor: float) -> bool:
    return packets / factor - SLACK <= flows <= packets * factor + SLACK


@settings(max_examples=25)
@given(schedules(sizes=60_000), st.sampled_from([1, 2]), st.sampled_from([0, 8192, 1 << 20]))
def test_flows_agree_with_packets(ranks: list[list[Operation]], gpus: int, eager: int) -> None:
    workload = Workload("x", ["x"], ranks)
    spec = WorkloadSpec(gpus=gpus, eager=eager)
    if "waits forever" in failure(WorkloadRun(workload, spec).run):
        return
    packets = WorkloadRun(workload, spec).run()
    flows = WorkloadRun(workload, spec._replace(flows=True)).run()
    assert flows.links == packets.links
    assert (flows.messages, flows.message_bytes) == (packets.messages, packets.message_bytes)
    assert near(packets.duration, flows.duration, AGREE)


@pytest.mark.parametrize("collective", EXPECTED)
@pytest.mark.parametrize("gpus", [1, 2, 3, 8])
@pytest.mark.parametrize("exact", [False, True])
def test_collectives_give_their_results_as_packets_and_flows(
    collective: Collective, gpus: int, exact: bool
) -> None:
    root = gpus // 2
    call = Call(ring_algorithm(collective, gpus, root), tuple(range(gpus)), exact=exact)
    factor = PAIRS if collective is Collective.ALL_TO_ALL else RINGS
    for size in (gpus, 1 << 14, 60_001):
        one = [[Operation(Kind.COLLECTIVE, size, call=call)] for _ in range(gpus)]
        workload = Workload("x", ["x"], one)
        spec = WorkloadSpec(gpus=1 if gpus < 4 else 2)
        packets = WorkloadRun(workload, spec).run()
        flows = WorkloadRun(workload, spec._replace(flows=True)).run()
        assert flows.links == packets.links
        assert flows.messages == packets.messages
        assert near(packets.duration, flows.duration, factor)


def test_two_senders_share_the_link_of_their_receiver() -> None:
    text = "num_ranks 3\n" + "".join(
        f"rank {rank} {{\nsend 4096000b to 2 tag {rank}\n}}\n" for rank in (0, 1)
    )
    text += "rank 2 {\nrecv 4096000b from 0 tag 0\nrecv 4096000b from 1 tag 1\n}\n"
    spec = WorkloadSpec(rate=gbps(100), flows=True)
    found = WorkloadRun(goal(text), spec).run()
    bits = 2 * (1000 * (4096 + 58 + 4 + 20) + 20) * 8
    assert bits / 100 < found.ranks[2] < bits / 100 + 5000
    assert abs(found.ranks[0] - found.ranks[1]) <= 1
    assert found.links[LinkId(-1, "switch", "host2.mlx5_0")] == 8_192_000


def test_a_flow_that_ends_leaves_its_share_to_others() -> None:
    text = """num_ranks 3
    rank 0 { short: send 4096000b to 2 tag 0
    }
    rank 1 { long: send 12288000b to 2 tag 1
    }
    rank 2 { recv 4096000b from 0 tag 0
    recv 12288000b from 1 tag 1
    }"""
    found = WorkloadRun(goal(text), WorkloadSpec(rate=gbps(100), flows=True)).run()
    each = 1000 * (4096 + 58 + 4 + 20) * 8 / 100
    assert 2 * each < found.ranks[0] < 2 * each + 5000
    assert 4 * each < found.ranks[1] < 4 * each + 5000


PAIR = """num_ranks 2
rank 0 {
send 100000b to 1 nic 0
send 100000b to 1 tag 1 nic 1
}
rank 1 {
recv 100000b from 0
recv 100000b from 0 tag 1
}"""


def test_messages_take_the_adapter_that_they_name() -> None:
    report = WorkloadRun(goal(PAIR)).run()
    ports = {link.source: count for link, count in report.links.items() if link.target == "switch"}
    assert ports == {"host0.mlx5_0": 100_000, "host0.mlx5_1": 100_000}


@pytest.mark.parametrize("flows", [False, True])
def test_a_gpu_may_have_many_adapters(flows: bool) -> None:
    link = PcieLink(5, 16)
    adapters = [
        Device(f"mlx5_{number}", DeviceKind.ADAPTER, "sw", link, rate=gbps(100))
        for number in range(20)
    ]
    machine = Machine(
        "x", (NumaNode(0),), (HostBridge("root", 0),), (Switch("sw", "root", link),),
        (Device("GPU0", DeviceKind.GPU, "sw", link), *adapters),
    )  # fmt: skip
    text = PAIR.replace("nic 1", "nic 18").replace("nic 0", "nic 23")
    report = WorkloadRun(goal(text), WorkloadSpec(machine=machine, flows=flows)).run()
    ports = {link.source for link in report.links if link.target == "switch"}
    assert ports == {"host0.mlx5_18", "host0.mlx5_3"}


def test_ranks_are_on_gpus_of_a_real_host() -> None:
    machine = open_host("dgx-h200").machine
    text = PAIR.replace("num_ranks 2", "num_ranks 3") + "\nrank 2 {\n}"
    near_by = WorkloadRun(goal(text), WorkloadSpec(machine=machine)).run()
    assert [str(link) for link in near_by.links] == ["host0: GPU0 -> GPU1"]
    far = WorkloadRun(goal(text), WorkloadSpec(machine=machine, gpus=1)).run()
    assert far.links[LinkId(-1, "host0.mlx5_0", "switch")] == 200_000
    assert far.duration > near_by.duration
    assert near_by.frames == 0


@pytest.mark.parametrize("flows", [False, True])
def test_two_gpus_share_an_adapter(flows: bool) -> None:
    link = PcieLink(5, 16)
    gpus = tuple(
        Device(f"GPU{number}", DeviceKind.GPU, "sw", link, model="H200") for number in range(2)
    )
    adapter = Device("mlx5_0", DeviceKind.ADAPTER, "sw", link, rate=gbps(100))
    machine = Machine(
        "x", (NumaNode(0),), (HostBridge("root", 0),), (Switch("sw", "root", link),),
        (*gpus, adapter),
    )  # fmt: skip
    text = """num_ranks 4
    rank 0 { send 1000000b to 2
    }
    rank 1 { send 1000000b to 3
    }
    rank 2 { recv 1000000b from 0
    }
    rank 3 { recv 1000000b from 1
    }"""
    report = WorkloadRun(goal(text), WorkloadSpec(machine=machine, flows=flows)).run()
    assert report.links[LinkId(-1, "host0.mlx5_0", "switch")] == 2_000_000
    assert 2_000_000 * 8 / 100 < report.duration < 1.1 * 2_000_000 * 8 / 100


@pytest.mark.parametrize(
    ("host", "gpus", "message"),
    [
        ("two-sockets", 3, "3 ranks on a host with 2 GPUs: two-socket server"),
        ("two-sockets", 2, "mlx5_0 may not access GPU1 of two-socket server: the path crosses"),
    ],
)
def test_placements_that_cannot_be_are_refused(host: str, gpus: int, message: str) -> None:
    ranks: list[list[Operation]] = [[], [], []]
    spec = WorkloadSpec(machine=open_host(host).machine, gpus=gpus)
    with pytest.raises(WorkloadError, match="^" + re.escape(message)):
        WorkloadRun(Workload("x", ["x"], ranks), spec)


def test_frames_are_writes_with_immediate_and_losses_cost_time(tmp_path: Path) -> None:
    path = tmp_path / "pair.pcap"
    run = WorkloadRun(goal(PAIR))
    assert run.network is not None
    with run.network.captured(path):
        report = run.run()
    with open_capture(path) as capture:
        opcodes = [record.data[42] for record in capture]
    assert len(opcodes) == report.frames
    with_immediate = {0x09, 0x0B}
    # For each message: an announcement, a clearance, and its last packet.
    assert sum(opcode in with_immediate for opcode in opcodes) == 6
    lossy = WorkloadRun(goal(PAIR), WorkloadSpec(loss=0.1, seed=3)).run()
    assert lossy.duration > report.duration
    assert lossy.links == report.links


def test_data_that_arrives_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    write = Buffer.write

    def change_a_byte(buffer: Buffer, data: bytes, offset: int = 0) -> None:
        write(buffer, bytes([data[0] ^ 1]) + data[1:], offset)

    monkeypatch.setattr(Buffer, "write", change_a_byte)
    run = WorkloadRun(goal(PAIR))
    message = (
        r"rank 0, operation \d \(x.goal, line \d\): the data that arrived is not what was sent"
    )
    with pytest.raises(WorkloadError, match=message):
        run.run()


@pytest.mark.parametrize("flows", [False, True])
def test_many_short_messages_arrive_before_they_are_received(flows: bool) -> None:
    count = 200
    sends = "".join(f"send {10 + number}b to 1\n" for number in range(count))
    receives = "".join(
        f"r{number}: recv {10 + number}b from 0\nr{number} requires wait\n"
        for number in range(count)
    )
    text = f"num_ranks 2\nrank 0 {{\n{sends}}}\nrank 1 {{\nwait: calc 100000\n{receives}}}\n"
    report = WorkloadRun(goal(text), WorkloadSpec(flows=flows)).run()
    assert report.ranks[0] < 100_000 == report.ranks[1]
    assert report.messages == count


def test_no_frame_of_an_incast_is_lost() -> None:
    senders = 4
    text = f"num_ranks {senders + 1}\n" + "".join(
        f"rank {rank} {{\nsend 1000000b to {senders}\n}}\n" for rank in range(senders)
    )
    receives = "".join(f"recv 1000000b from {rank}\n" for rank in range(senders))
    report = WorkloadRun(goal(f"{text}rank {senders} {{\n{receives}}}\n")).run()
    assert senders * 1_000_000 / 50 < report.duration < 1.1 * senders * 1_000_000 / 50


def test_runs_are_repeatable(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.pcap" for number in range(2)]
    for path in paths:
        run = WorkloadRun(goal(PAIR), WorkloadSpec(loss=0.01, seed=7))
        assert run.network is not None
        with run.network.captured(path):
            run.run()
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_too_much_for_packets_is_refused() -> None:
    text = "num_ranks 2\nrank 0 {\nsend 300000000b to 1\n}\nrank 1 {\nrecv 300000000b from 0\n}"
    with pytest.raises(WorkloadError, match="300000000 bytes of messages between hosts; at most"):
        WorkloadRun(goal(text))
    assert WorkloadRun(goal(text), WorkloadSpec(flows=True)).run().frames == 0
    many = Workload("x", ["x"], [[] for _ in range(300)])
    with pytest.raises(WorkloadError, match="300 ranks; at most 256 as packets: compute flows"):
        WorkloadRun(many)


def test_a_thousand_ranks_are_flows_at_the_rate_of_a_ring() -> None:
    ranks, size = 1024, 1 << 30
    algorithm = ring_algorithm(Collective.ALL_REDUCE, ranks)
    call = Call(algorithm, tuple(range(ranks)))
    operations = [[Operation(Kind.COLLECTIVE, size, call=call)] for _ in range(ranks)]
    found = WorkloadRun(Workload("x", ["x"], operations), WorkloadSpec(gpus=8, flows=True)).run()
    moved = 2 * size * (ranks - 1) / ranks
    assert moved / 50 < found.duration < 1.2 * moved / 50
    assert found.messages == 2 * (ranks - 1) * ranks


def test_rates_of_many_flows_are_nearly_those_of_all_computed_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranks: list[list[Operation]] = []
    for rank in range(12):
        others = [(rank + step) % 12 for step in range(1, 12)]
        sends = [Operation(Kind.SEND, 40_000 + 997 * rank + 3001 * to, to) for to in others]
        takes = [Operation(Kind.RECEIVE, 1 << 20, source) for source in others]
        ranks.append([*sends, *takes])
    spec = WorkloadSpec(flows=True, eager=1 << 20)
    exact = WorkloadRun(Workload("all-to-all", ["x"], ranks), spec).run()
    monkeypatch.setattr(flow_module, "MAX_SHARED", 16)
    found = WorkloadRun(Workload("all-to-all", ["x"], ranks), spec).run()
    assert found.duration == pytest.approx(exact.duration, rel=0.01)
    assert found.links == exact.links
