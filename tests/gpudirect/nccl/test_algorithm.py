"""NCCL's algorithms: the shape of trees, the bytes that each sends, its choice of paths."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire import open_host
from rdmawire.errors import CollectiveError
from rdmawire.fabric import Cable
from rdmawire.gpudirect import (
    LOCAL_PATHS,
    PROTOCOLS,
    Algorithm,
    Collective,
    CollectiveRun,
    CollectiveSpec,
    HostLayout,
    MessageProtocol,
    NetSettings,
    tree_parent,
)
from rdmawire.gpudirect.nccl.ring import ring_order
from rdmawire.gpudirect.nccl.tree import tree_nodes
from rdmawire.topology import Machine
from rdmawire.units import gbps, us

CABLE = Cable(latency=us(1), rate=gbps(400))


def parents(places: int, tree: int) -> list[int | None]:
    return [tree_parent(place, places, tree) for place in range(places)]


def test_the_trees_of_eight_are_those_of_nccl() -> None:
    assert parents(8, 0) == [None, 2, 4, 2, 0, 6, 4, 6]
    assert parents(8, 1) == [1, 3, 1, 7, 5, 3, 5, None]
    assert parents(5, 0) == [None, 2, 4, 2, 0]
    assert parents(5, 1) == [1, None, 3, 0, 3]


@given(st.integers(1, 200), st.sampled_from([0, 1]))
def test_a_tree_reaches_all_and_has_two_branches(places: int, tree: int) -> None:
    found = parents(places, tree)
    assert found.count(None) == 1
    for place in range(places):
        depth, here = 0, place
        while (above := found[here]) is not None:
            here, depth = above, depth + 1
        assert depth <= max(places - 1, 1).bit_length() + 1
    children = Counter(parent for parent in found if parent is not None)
    assert all(count <= 2 for count in children.values())


@given(st.integers(2, 200))
def test_few_are_inside_both_trees(places: int) -> None:
    inside = [set(parents(places, tree)) - {None} for tree in (0, 1)]
    assert len(inside[0] & inside[1]) <= 1 + places % 2


@pytest.mark.parametrize(("hosts", "gpus"), [(5, 1), (4, 2), (3, 4), (1, 4)])
def test_ranks_of_a_host_are_a_chain_in_the_tree(hosts: int, gpus: int) -> None:
    spec = CollectiveSpec(hosts=hosts, gpus=gpus, channels=4, algorithm=Algorithm.TREE)
    for channel in range(4):
        nodes = {node.rank: node for node in tree_nodes(spec, channel)}
        assert len(nodes) == hosts * gpus
        for node in nodes.values():
            assert len(node.children) <= 3
            for child in node.children:
                assert nodes[child].parent == node.rank
        crossing = [
            node
            for node in nodes.values()
            if node.parent is not None and node.parent // gpus != node.rank // gpus
        ]
        assert len(crossing) == hosts - 1


def sent_by(spec: CollectiveSpec) -> list[int]:
    """Return the bytes that each rank sends."""
    run = CollectiveRun(spec, CABLE)
    run.run()
    return [run.sent[rank] * spec.itemsize for rank in range(spec.ranks)]


def test_bytes_of_each_algorithm() -> None:
    size = 8 << 12
    spec = CollectiveSpec(hosts=8, size=size, protocol="simple", channels=2)
    assert sent_by(spec) == [2 * 7 * size // 8] * 8
    assert sum(sent_by(spec._replace(algorithm=Algorithm.TREE))) == 2 * 7 * size
    assert sent_by(spec._replace(algorithm=Algorithm.COLLNET)) == [size] * 8
    wide = spec._replace(hosts=2, gpus=4)
    assert sent_by(wide._replace(algorithm=Algorithm.COLLNET)) == [size * 7 // 4] * 8
    assert sent_by(wide._replace(algorithm=Algorithm.NVLS)) == [size * 6 // 4] * 8


def test_a_switch_that_adds_receives_one_part_of_each_host() -> None:
    size = 1 << 16
    spec = CollectiveSpec(hosts=4, gpus=2, size=size, channels=1, algorithm=Algorithm.NVLS)
    run = CollectiveRun(spec, CABLE)
    run.run()
    assert len(run.connections) == 2 * spec.ranks
    assert run.sent[spec.ranks] == 4 * size // 4


def test_broadcast_leaves_from_the_root_and_reduce_ends_there() -> None:
    spec = CollectiveSpec(Collective.BROADCAST, 3, 2, 6 * 4096, root=3)
    assert ring_order(spec, 0)[0] == 3
    assert ring_order(spec._replace(collective=Collective.REDUCE), 1)[-1] == 3


@given(
    st.sampled_from(sorted(PROTOCOLS)), st.integers(1, 500), st.integers(1, 1 << 33),
    st.sampled_from(["int32", "float32"]),
)  # fmt: skip
def test_protocols_carry_values(name: str, count: int, number: int, dtype: str) -> None:
    protocol: MessageProtocol = PROTOCOLS[name]
    values = np.arange(count).astype(dtype)
    data = protocol.encoded(values, number)
    assert len(data) == protocol.wire_size(values.nbytes)
    assert np.array_equal(protocol.decoded(data, number, values.dtype)[:count], values)
    if protocol.line:
        with pytest.raises(CollectiveError, match=f"without the flag {number + 1}"):
            protocol.decoded(data, number + 1, values.dtype)


def test_a_line_of_ll128_is_120_bytes_and_a_flag() -> None:
    data = PROTOCOLS["ll128"].encoded(np.arange(31, dtype=np.int32), 7)
    assert len(data) == 256
    assert data[116:128] == (29).to_bytes(4, "little") + (7).to_bytes(8, "little")
    assert data[128:132] == (30).to_bytes(4, "little")


def machine(name: str) -> Machine:
    return open_host(name).machine


def test_a_host_with_nvlink() -> None:
    layout = HostLayout.of(machine("dgx-h200"))
    assert layout.adapters == tuple(range(8))
    assert {path.name for row in layout.paths for path in row} == {"NVL"}
    assert all(layout.direct)


def test_gpus_share_an_adapter_and_go_through_host_memory() -> None:
    layout = HostLayout.of(machine("two-sockets"))
    assert layout.adapters == (0,) * layout.gpus
    assert layout.paths[0][layout.gpus - 1] == LOCAL_PATHS["host"]
    spec = CollectiveSpec(gpus=layout.gpus, size=layout.gpus << 14, layout=layout)
    run = CollectiveRun(spec, CABLE)
    run.run()
    assert len(run.adapters) == 2


def test_a_host_without_an_adapter_is_refused() -> None:
    bare = machine("dgx-h200")
    for devices, missing in ((bare.gpus, "RDMA adapter"), (bare.adapters, "GPU")):
        with pytest.raises(CollectiveError, match=f"the host has no {missing}"):
            HostLayout.of(replace(bare, devices=tuple(devices), nvlinks={}))


@pytest.mark.parametrize("split", [True, False])
def test_messages_over_several_queue_pairs(split: bool) -> None:
    net = NetSettings(4, split=split, ar_threshold=8192)
    run = CollectiveRun(CollectiveSpec(Collective.SEND_RECEIVE, size=1 << 20, net=net), CABLE)
    run.run()
    for connection in run.connections:
        assert connection.messages == 8
