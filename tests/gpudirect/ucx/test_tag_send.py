"""Tag messages: the data arrives, with the messages, copies and keys that each protocol has."""

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.capture import open_capture
from rdmawire.errors import TransferError
from rdmawire.fabric import Rule
from rdmawire.gpudirect.ucx import (
    TRANSPORTS,
    AckHeader,
    ActiveMessage,
    AmId,
    MemoryType,
    PackedKey,
    Protocol,
    RtrHeader,
    RtsHeader,
    TagReport,
    TagSend,
    TagSpec,
    UcxConfig,
    fragments,
    mpi_tag,
    read_config,
    tag_send,
)
from rdmawire.topology import LinkEnds, Machine
from rdmawire.traffic.scenario.topology_file import open_host
from rdmawire.wire.ib import BTH
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.roce import bth_offset

DGX: Machine = open_host("dgx-h200").machine
SERVER: Machine = open_host("two-sockets").machine
KIB = 1 << 10
MIB = 1 << 20
HOST, CUDA = MemoryType.HOST, MemoryType.CUDA
SCHEMES = ("auto", "get_zcopy", "put_zcopy", "get_ppln", "put_ppln")


def expected(spec: TagSpec, protocol: Protocol, *, sends: bool, receives: bool) -> Counter[str]:
    """Count what is posted; ``sends`` and ``receives`` say where data goes through fragments."""
    size = spec.size
    parts = -(-size // spec.config.rndv_frag_size)
    if not protocol.is_rendezvous:
        return Counter(part.am_id.name for part in fragments(size, spec.config))
    if protocol.reads:
        return Counter(RNDV_RTS=1, RDMA_READ=parts if receives else 1, RNDV_ATS=1)
    rtrs = parts if receives else 1
    writes = parts if sends or receives else 1
    return Counter(RNDV_RTS=1, RNDV_RTR=rtrs, RDMA_WRITE=writes, RNDV_ATP=rtrs)


@settings(max_examples=30)
@given(
    st.sampled_from([(DGX, "GPU0", "GPU5"), (SERVER, "GPU0", "GPU1"), (SERVER, "GPU1", "GPU0"),
                     (SERVER, "GPU1", "GPU1"), (SERVER, "GPU0", "GPU0")]),
    st.integers(0, 100_000),
    st.sampled_from([(HOST, HOST), (HOST, CUDA), (CUDA, HOST), (CUDA, CUDA)]),
    st.builds(
        UcxConfig,
        tls=st.sampled_from(["rc_mlx5", "rc_verbs"]),
        bcopy_thresh=st.sampled_from([None, 0, 100]),
        zcopy_thresh=st.sampled_from([None, 0, 5000, 1 << 30]),
        rndv_thresh=st.sampled_from([None, 0, 10_000]),
        rndv_scheme=st.sampled_from(SCHEMES),
        rndv_frag_size=st.sampled_from([10_000, 65_536]),
        rndv_put_force_flush=st.booleans(),
        rc_seg_size=st.sampled_from([2048, 8256]),
    ),
    st.sampled_from([256, 1024, 4096]),
    st.integers(0, 100),
)  # fmt: skip
def test_data_arrives_by_each_protocol(
    hosts: tuple[Machine, str, str],
    size: int,
    memories: tuple[MemoryType, MemoryType],
    config: UcxConfig,
    mtu: int,
    seed: int,
) -> None:
    spec = TagSpec(*hosts, size, *memories, config=config, mtu=mtu, seed=seed)
    report = tag_send(spec)  # which compares the data
    protocol = report.protocol
    # The adapter of this server may not access its second GPU.
    far = [hosts[0] is SERVER and name == "GPU1" for name in hosts[1:]]
    unregistered = [is_far and kind is CUDA for is_far, kind in zip(far, memories, strict=True)]
    assert len(report.reasons) == sum(unregistered)
    staged = [
        (protocol.is_pipeline and kind is CUDA) or none
        for kind, none in zip(memories, unregistered, strict=True)
    ]
    found = Counter(one.what for one in report.posted)
    assert found == expected(spec, protocol, sends=staged[0], receives=staged[1])
    if protocol.is_rendezvous:
        copies = staged[1] if protocol.reads else sum(staged)
    else:
        copies = 1 + protocol.copies_in
    assert report.copies == (copies if size else 0)
    assert report.wire_bytes > size
    assert report.duration > 0
    assert report.send_duration >= 0


def test_the_same_seed_gives_the_same_message() -> None:
    spec = TagSpec(DGX, "GPU0", "GPU1", 20_000, seed=7)
    assert tag_send(spec) == tag_send(spec)


@pytest.mark.parametrize("scheme", ["get_zcopy", "put_zcopy", "put_ppln"])
def test_losses_are_repaired(scheme: str) -> None:
    config = read_config(["UCX_RNDV_THRESH=0", f"UCX_RNDV_SCHEME={scheme}"])
    run = TagSend(TagSpec(DGX, "GPU0", "GPU1", 200_000, config=config, seed=3))
    clean = tag_send(run.spec)
    run.network.set_faults("sender-s1", Rule("drop", chance=0.05))
    assert run.run().frames > clean.frames


def test_eager_data_takes_the_links_of_the_gpu() -> None:
    run = TagSend(TagSpec(SERVER, "GPU0", "GPU0", 4000))
    assert run.run().protocol is Protocol.ZCOPY
    assert run.hosts[0].bus.links[LinkEnds("GPU0", "sw0")].bytes >= 4000


def test_a_rendezvous_is_faster_for_long_messages_and_slower_for_short_ones() -> None:
    def duration(size: int, threshold: str) -> int:
        config = read_config([f"UCX_RNDV_THRESH={threshold}"])
        return tag_send(TagSpec(DGX, "GPU0", "GPU1", size, HOST, HOST, config=config)).duration

    assert duration(8, "inf") < duration(8, "0")
    assert duration(256 * KIB, "0") < duration(256 * KIB, "inf")


def test_fragments_overlap() -> None:
    spec = TagSpec(SERVER, "GPU1", "GPU1", 2 * MIB)
    one = spec._replace(config=read_config(["UCX_RNDV_FRAG_SIZE=2m"]))
    assert tag_send(spec).duration < tag_send(one).duration


def test_a_flush_before_the_atp_takes_a_round_trip() -> None:
    config = UcxConfig(rndv_thresh=0, rndv_scheme="put_zcopy")
    spec = TagSpec(DGX, "GPU0", "GPU1", 4096, config=config)
    flushed = spec._replace(config=config._replace(rndv_put_force_flush=True))
    assert tag_send(flushed).duration > tag_send(spec).duration + 600


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": -1}, "a message of -1 bytes"),
        ({"size": (1 << 26) + 1}, "up to 67108864"),
        ({"mtu": 1500}, "a path MTU of 1500"),
        ({"tag": 1 << 64}, "it has 64 bits"),
        ({"source": "mlx5_0"}, "mlx5_0 is no GPU"),
        ({"size": MIB, "config": UcxConfig(rndv_thresh=1 << 40, rc_seg_size=128)}, "fragments"),
    ],
)
def test_specifications_that_cannot_be(change: dict[str, object], message: str) -> None:
    with pytest.raises(TransferError, match=message):
        TagSend(TagSpec(DGX, "GPU0", "GPU1")._replace(**change))  # type: ignore[arg-type]


# What is on the wire.


def captured(spec: TagSpec, path: Path) -> TagReport:
    run = TagSend(spec)
    with run.network.captured(path):
        return run.run()


def sends(path: Path, tls: str) -> list[ActiveMessage]:
    """Return the active messages of a capture, whose SENDs have one packet each."""
    found = []
    with open_capture(path) as capture:
        for frame in capture:
            at = bth_offset(frame.data, 0, len(frame.data))
            if frame.data[at] == Opcode.RC_SEND_ONLY:
                pad = frame.data[at + 1] >> 4 & 3
                data = frame.data[at + BTH.SIZE : len(frame.data) - 4 - pad]
                found.append(ActiveMessage.parse(data, TRANSPORTS[tls]))
    return found


@pytest.mark.parametrize("tls", ["rc_mlx5", "rc_verbs"])
@pytest.mark.parametrize("scheme", ["get_zcopy", "put_zcopy"])
def test_the_headers_on_the_wire(tls: str, scheme: str, tmp_path: Path) -> None:
    config = UcxConfig(tls=tls, rndv_thresh=0, rndv_scheme=scheme)
    spec = TagSpec(DGX, "GPU0", "GPU1", 10_000, tag=mpi_tag(5, 1), config=config)
    captured(spec, tmp_path / "message.pcap")
    first, *others = sends(tmp_path / "message.pcap", tls)
    rts = first.header
    assert isinstance(rts, RtsHeader)
    assert (rts.tag, rts.size, rts.opcode) == (mpi_tag(5, 1), 10_000, 0)
    last = others[-1].header
    assert isinstance(last, AckHeader)
    assert (last.status, last.size) == (0, 10_000)
    if scheme == "get_zcopy":
        assert [one.am_id for one in others] == [AmId.RNDV_ATS]
        assert last.req_id == rts.req_id
        return
    assert [one.am_id for one in others] == [AmId.RNDV_RTR, AmId.RNDV_ATP]
    rtr = others[0].header
    assert isinstance(rtr, RtrHeader)
    assert (rtr.sreq_id, rtr.size, rtr.offset) == (rts.req_id, 10_000, 0)
    assert last.req_id == rtr.rreq_id


@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")
@pytest.mark.parametrize("scheme", ["get_zcopy", "put_zcopy"])
def test_tshark_reads_the_key_that_the_message_had(scheme: str, tmp_path: Path) -> None:
    path = tmp_path / "message.pcap"
    config = UcxConfig(rndv_thresh=0, rndv_scheme=scheme)
    captured(TagSpec(DGX, "GPU0", "GPU1", 10_000, config=config), path)
    by_id = {one.am_id: one for one in sends(path, "rc_mlx5")}
    message = by_id[AmId.RNDV_RTS if scheme == "get_zcopy" else AmId.RNDV_RTR]
    assert isinstance(message.header, RtsHeader | RtrHeader)
    fields = ("infiniband.reth.va", "infiniband.reth.r_key", "infiniband.reth.dmalen")
    command = ["tshark", "-r", str(path), "-Y", "infiniband.reth", "-T", "fields"]
    for field in fields:
        command += ["-e", field]
    text = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    (line,) = text.splitlines()
    address, rkey, size = (int(word, 0) for word in line.split())
    assert address == message.header.address
    assert rkey == PackedKey.parse(message.rest).rkey
    assert size == 10_000
