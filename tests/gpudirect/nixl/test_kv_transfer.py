"""KV caches: the blocks of the request arrive, and no other block changes."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.errors import TransferError
from rdmawire.fabric import Rule
from rdmawire.gpudirect.nixl import KvSpec, KvTransfer, kv_transfer
from rdmawire.gpudirect.ucx import MemoryType
from rdmawire.topology import Machine
from rdmawire.traffic.scenario.topology_file import open_host

DGX: Machine = open_host("dgx-h200").machine
SERVER: Machine = open_host("two-sockets").machine
SMALL = KvSpec(DGX, "GPU0", "GPU1", blocks=4, layers=2, token_bytes=64, pool=9)


@settings(max_examples=20)
@given(
    st.sampled_from([(DGX, "GPU0", "GPU5"), (SERVER, "GPU0", "GPU0")]),
    st.integers(1, 6),
    st.integers(1, 20),
    st.integers(1, 3),
    st.sampled_from([1, 64, 100, 512]),
    st.integers(0, 6),
    st.booleans(),
    st.booleans(),
    st.sampled_from(MemoryType),
    st.integers(0, 100),
)
def test_blocks_arrive(
    hosts: tuple[Machine, str, str],
    blocks: int,
    block_size: int,
    layers: int,
    token_bytes: int,
    spare: int,
    contiguous: bool,
    merges: bool,
    memory: MemoryType,
    seed: int,
) -> None:
    spec = KvSpec(
        *hosts, blocks, block_size, layers, token_bytes, blocks + spare, contiguous, merges, memory,
        seed=seed,
    )  # fmt: skip
    one = KvTransfer(spec)
    report = one.run()  # which compares all blocks of the decode worker
    assert report.size == blocks * layers * 2 * block_size * token_bytes
    assert report.descriptors == blocks * layers * 2
    there, here = one.block_ids
    steps = zip(there, there[1:], here, here[1:], strict=False)
    runs = 1 + sum((b - a, d - c) != (1, 1) for a, b, c, d in steps)
    assert report.reads == 2 * layers * (runs if merges else blocks)
    assert [posted.what for posted in report.posted] == ["RDMA_READ"] * report.reads + ["AM_SINGLE"]
    assert report.duration < report.notified


def test_contiguous_blocks_need_one_read_for_each_tensor() -> None:
    report = kv_transfer(SMALL._replace(contiguous=True))
    assert report.reads == 4
    assert kv_transfer(SMALL._replace(contiguous=True, merges=False)).reads == 16


def test_losses_are_repaired() -> None:
    one = KvTransfer(SMALL._replace(blocks=9, token_bytes=512))
    one.network.set_faults("prefill-s1", Rule("drop", chance=0.1))
    assert one.run().frames > kv_transfer(one.spec).frames


def test_a_wrong_block_is_found() -> None:
    one = KvTransfer(SMALL)
    block = one.block_ids[0][2]
    one.caches[0][3].write(block * one.spec.block_bytes, b"other")
    with pytest.raises(TransferError, match=f"block {one.block_ids[1][2]} of tensor 3 is wrong"):
        one.run()


def test_a_block_that_nobody_asked_for_is_found() -> None:
    one = KvTransfer(SMALL)
    other = next(number for number in range(9) if number not in one.block_ids[1])
    one.caches[1][0].write(other * one.spec.block_bytes, b"other")
    with pytest.raises(TransferError, match=f"block {other} of tensor 0 is wrong"):
        one.run()


def test_the_longest_notification_arrives() -> None:
    report = kv_transfer(SMALL._replace(notification="x" * 8204))
    assert report.posted[-1].size == 8256


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"machine": SERVER, "target": "GPU0", "source": "GPU1"}, "prefill: mlx5_0 may not access"),
        ({"source": "mlx5_0"}, "mlx5_0 is no GPU"),
        ({"layers": 0}, "layers: 0; 1 to 256"),
        ({"blocks": 10}, "10 blocks of a pool of 9"),
        ({"mtu": 1500}, "a path MTU of 1500"),
        ({"pool": 1 << 16, "token_bytes": 1024}, "caches of 4294967296 bytes"),
        ({"blocks": 2048, "pool": 2048, "block_size": 1, "token_bytes": 1}, "8192 descriptors"),
        ({"notification": "x" * 8205}, "a notification of 8247 bytes; .* room for 8246"),
    ],
)
def test_specifications_that_cannot_be(change: dict[str, object], message: str) -> None:
    with pytest.raises(TransferError, match=message):
        KvTransfer(SMALL._replace(**change))  # type: ignore[arg-type]


@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")
def test_tshark_reads_each_block_with_the_key_of_its_tensor(tmp_path: Path) -> None:
    one = KvTransfer(SMALL._replace(merges=False))
    path = tmp_path / "kv.pcap"
    with one.network.captured(path):
        one.run()
    fields = ("infiniband.reth.va", "infiniband.reth.r_key", "infiniband.reth.dmalen")
    command = ["tshark", "-r", str(path), "-Y", "infiniband.reth", "-T", "fields"]
    for field in fields:
        command += ["-e", field]
    text = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    found = [tuple(int(word, 0) for word in line.split()) for line in text.splitlines()]
    size = one.spec.block_bytes
    assert found == [
        (tensor.address + number * size, tensor.registered.rkey, size)
        for tensor in one.caches[0]
        if tensor.registered is not None
        for number in one.block_ids[0]
    ]
    assert len({rkey for _, rkey, _ in found}) == 4
