"""Collectives: right results for any ring, the bytes of the formula, and NCCL's messages."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.capture import open_capture
from rdmawire.errors import CollectiveError
from rdmawire.fabric import Cable, CaptureTap, Rule
from rdmawire.gpudirect import (
    LOCAL_PATHS,
    Algorithm,
    Collective,
    CollectiveRun,
    CollectiveSpec,
    HostLayout,
    NetSettings,
    bytes_sent,
    ring_steps,
)
from rdmawire.gpudirect.nccl.connection import immediate_of
from rdmawire.gpudirect.nccl.task import RankValues
from rdmawire.units import gbps, us
from rdmawire.wire import roce
from rdmawire.wire.ib import ImmDt
from rdmawire.wire.opcode import Opcode

CABLE = Cable(latency=us(1), rate=gbps(100))


@st.composite
def specs(draw: st.DrawFn) -> CollectiveSpec:
    """Draw a small operation."""
    hosts, gpus = draw(st.sampled_from([(1, 2), (1, 3), (2, 1), (2, 2), (3, 1), (3, 2), (5, 1)]))
    collective = draw(st.sampled_from(Collective))
    algorithms = list(Algorithm) if collective is Collective.ALL_REDUCE else [Algorithm.RING]
    if gpus == 1:
        algorithms = [one for one in algorithms if not one.uses_nvswitch]
    algorithm = draw(st.sampled_from(algorithms))
    flagged = ["", "ll", "ll128", "simple"]
    adds_in_switch = algorithm not in {Algorithm.RING, Algorithm.TREE}
    return CollectiveSpec(
        collective,
        hosts,
        gpus,
        draw(st.integers(1, 400)) * 4 * hosts * gpus * draw(st.sampled_from([1, 7, 60])),
        draw(st.sampled_from(["", "simple"] if adds_in_switch else flagged)),
        draw(st.sampled_from([0, 1, 3])),
        draw(st.sampled_from(["int32", "float32"])),
        draw(st.integers(0, 100)),
        algorithm=algorithm,
        root=draw(st.integers(0, hosts * gpus - 1)),
        net=NetSettings(
            draw(st.integers(1, 3)),
            split=draw(st.booleans()),
            ar_threshold=draw(st.sampled_from([None, 0, 8192])),
            flush=draw(st.booleans()),
        ),
    )


@given(specs())
def test_results_are_right(spec: CollectiveSpec) -> None:
    run = CollectiveRun(spec, CABLE)
    assert run.run() > 0
    assert all(task.is_done for task in run._tasks)
    flushes = sum(connection.flushes for connection in run.connections)
    messages = sum(connection.messages for connection in run.connections)
    from_ranks = 0.5 if run.network.hosts.get("aggregation") else 1
    assert flushes == messages * from_ranks * spec.net.flush


@settings(max_examples=20)
@given(specs(), st.integers(0, 1 << 20))
def test_what_is_expected_is_numpys_sum(spec: CollectiveSpec, seed: int) -> None:
    data = RankValues(spec._replace(seed=seed))
    every = slice(0, data.total)
    values = [data.values(rank, every) for rank in range(spec.ranks)]
    assert np.array_equal(data.expected(every, None), np.sum(values, axis=0, dtype=spec.dtype))
    for rank in range(spec.ranks):
        assert np.array_equal(data.expected(every, rank), values[rank])


LOSSY = [
    CollectiveSpec(hosts=3, size=3 * (1 << 17)),
    CollectiveSpec(hosts=3, size=3 * (1 << 17), net=NetSettings(4, split=True, ar_threshold=0)),
    CollectiveSpec(hosts=3, size=3 * (1 << 17), net=NetSettings(4, flush=True)),
    CollectiveSpec(hosts=5, size=5 * (1 << 16), algorithm=Algorithm.TREE),
    CollectiveSpec(hosts=4, gpus=2, size=1 << 18, algorithm=Algorithm.COLLNET),
    CollectiveSpec(Collective.BROADCAST, hosts=4, size=1 << 18, root=2),
]


@pytest.mark.parametrize("spec", LOSSY)
def test_lost_frames_are_sent_again(spec: CollectiveSpec) -> None:
    run = CollectiveRun(spec, CABLE)
    rules = [Rule("drop", chance=0.02) for _ in run.network.links]
    for link, rule in zip(run.network.links, rules, strict=True):
        run.network.set_faults(link, rule)
    run.run()
    assert sum(rule.hits for rule in rules) > 0


def test_a_wrong_value_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    run = CollectiveRun(CollectiveSpec(size=4096), CABLE)
    connection = run.connections[0]
    send = connection.send

    def send_wrong(data: bytes) -> None:
        send(bytes([data[0] ^ 1]) + data[1:])

    monkeypatch.setattr(connection, "send", send_wrong)
    with pytest.raises(CollectiveError, match="rank 1: the result is wrong at value 512"):
        run.run()


RINGS = [one for one in Collective if one.is_ring and not one.has_root]


@pytest.mark.parametrize("collective", RINGS)
@pytest.mark.parametrize(("hosts", "gpus"), [(4, 1), (2, 4), (1, 8)])
def test_bytes_are_those_of_the_formula(collective: Collective, hosts: int, gpus: int) -> None:
    size = 1 << 17
    run = CollectiveRun(CollectiveSpec(collective, hosts, gpus, size, "simple"), CABLE)
    run.run()
    rank_bytes = bytes_sent(collective, size, hosts * gpus)
    edges = hosts * gpus - (hosts if hosts > 1 else 0)
    assert sum(edge.bytes for edge in run.local_edges) == edges * rank_bytes
    assert (len(run.connections) > 0) == (hosts > 1)


def test_ring_steps_move_each_chunk_once_around() -> None:
    for ranks in range(2, 9):
        for collective in RINGS:
            steps = [ring_steps(collective, rank, ranks) for rank in range(ranks)]
            for rank in range(ranks):
                sent = [step.chunk for step in steps[rank] if step.send]
                received = [step.chunk for step in steps[(rank + 1) % ranks] if step.receive]
                assert sent == received
                stored = [step.chunk for step in steps[rank] if step.store]
                wanted = [rank] if collective is Collective.REDUCE_SCATTER else range(ranks)
                assert sorted(stored) == sorted(wanted)
    with pytest.raises(CollectiveError, match="at least two ranks"):
        ring_steps(Collective.ALL_REDUCE, 0, 1)


def captured(spec: CollectiveSpec, folder: Path) -> Path:
    """Return a capture of an operation, as all adapters send it."""
    path, run = folder / "run.pcap", CollectiveRun(spec, CABLE)
    with CaptureTap(path) as tap:
        for adapter in run.adapters:
            run.network.tap(adapter.name, tap)
        run.run()
    return path


def messages(path: Path) -> dict[tuple[bytes, int], list[tuple[int, int | None]]]:
    """Return the RDMA WRITEs of each queue pair: their bytes, and immediates."""
    found: dict[Any, list[tuple[int, int | None]]] = defaultdict(list)
    sizes: dict[Any, int] = defaultdict(int)
    with open_capture(path) as reader:
        for record in reader:
            packet = roce.parse(record.data).packet
            name = Opcode(packet.bth.opcode).name
            if "WRITE" not in name:
                continue
            key = record.data[30:34], packet.bth.destqp
            sizes[key] += len(packet.payload)
            if "LAST" in name or "ONLY" in name:
                immediate = packet.header(ImmDt)
                number = None if immediate is None else immediate.immdt
                found[key].append((sizes.pop(key), number))
    return dict(found)


@pytest.mark.parametrize(
    ("size", "channels", "data"),
    [
        (1 << 10, 1, [(1024, 262144)] * 2),
        (1 << 16, 8, [(8192, 2097152)] * 2),
        (1 << 20, 8, [(32768, 8388608)] * 8),
    ],
)
def test_messages_are_those_of_nccl(
    size: int, channels: int, data: list[tuple[int, int]], tmp_path: Path
) -> None:
    """NCCL 2.28 between two GPUs wrote these messages on each queue pair of an all-reduce."""
    path = captured(CollectiveSpec(size=size), tmp_path)
    entries: list[tuple[int, int | None]] = [(64, None)] * len(data)
    found = sorted(messages(path).values(), key=len)
    assert sorted(found, key=str) == sorted([entries, data] * 2 * channels, key=str)


@pytest.mark.parametrize(
    ("collective", "size", "data"),
    [
        (Collective.SEND_RECEIVE, 1 << 10, [1024]),
        (Collective.ALL_TO_ALL, 1 << 10, [512]),
        (Collective.SEND_RECEIVE, 1 << 16, [32768] * 2),
        (Collective.ALL_TO_ALL, 1 << 16, [32768]),
    ],
)
def test_messages_between_pairs_are_those_of_nccl(
    collective: Collective, size: int, data: list[int], tmp_path: Path
) -> None:
    path = captured(CollectiveSpec(collective, size=size), tmp_path)
    found = [[size for size, _ in each] for each in messages(path).values()]
    assert sorted(found) == sorted([[64] * len(data), data] * 2)


def test_pairs_send_their_parts_only() -> None:
    spec = CollectiveSpec(Collective.ALL_TO_ALL, hosts=2, gpus=4, size=1 << 16)
    run = CollectiveRun(spec, CABLE)
    run.run()
    assert sum(edge.bytes for edge in run.local_edges) == 8 * 3 * (1 << 13)
    assert sum(connection.messages for connection in run.connections) == 8 * 4


def test_the_immediate_is_the_size_in_the_order_of_the_processor() -> None:
    assert immediate_of(1024) == 262144
    assert immediate_of(immediate_of(77)) == 77


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (CollectiveSpec(hosts=1), "1 GPUs; 2 to 4096 are supported"),
        (CollectiveSpec(size=10), "take a multiple of 8"),
        (CollectiveSpec(size=0), "take a multiple of 8"),
        (CollectiveSpec(size=1 << 31), "2147483648 bytes as packets; at most 1073741824"),
        (CollectiveSpec(root=2), "root 2: ranks are 0 to 1"),
        (CollectiveSpec(root=-1), "root -1: ranks are 0 to 1"),
        (CollectiveSpec(net=NetSettings(17)), "17 queue pairs of a connection; 1 to 16"),
        (CollectiveSpec(net=NetSettings(ar_threshold=-1)), "a threshold of -1 bytes"),
        (
            CollectiveSpec(Collective.ALL_GATHER, algorithm=Algorithm.TREE),
            "tree is for allreduce, not for allgather: take ring",
        ),
        (CollectiveSpec(algorithm=Algorithm.NVLS), "nvls needs hosts with two GPUs or more"),
        (
            CollectiveSpec(protocol="ll", algorithm=Algorithm.COLLNET),
            "collnet has switches that add values, not flags",
        ),
        (
            CollectiveSpec(layout=HostLayout.alike(2, LOCAL_PATHS["host"])),
            "the layout is of 2 GPUs, the hosts have 1",
        ),
    ],
)
def test_what_cannot_be_done(spec: CollectiveSpec, message: str) -> None:
    with pytest.raises(CollectiveError, match=message):
        CollectiveRun(spec, CABLE)


@pytest.mark.parametrize(
    "wrong",
    [
        CollectiveSpec(size=-8),
        CollectiveSpec(channels=-1),
        CollectiveSpec(protocol="lll"),
    ],
)
def test_specs_that_cannot_be_are_refused(wrong: CollectiveSpec) -> None:
    with pytest.raises(CollectiveError):
        wrong.check()
