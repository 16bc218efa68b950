"""READs and WRITEs by each path: all bytes are right, and go over the links that they must."""

import shutil
import subprocess
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rdmawire.capture import open_capture
from rdmawire.dissect.dissector import Dissector
from rdmawire.errors import TransferError
from rdmawire.fabric import Rule
from rdmawire.gpudirect.storage import (
    PLANS,
    IOCommand,
    NvmeCompletion,
    Status,
    StorageFault,
    StoragePath,
    StorageReport,
    StorageRun,
    StorageSpec,
    command_name,
    read_capsules,
    status_name,
    storage,
)
from rdmawire.gpudirect.storage.workload import ABORTED, Finished
from rdmawire.testing.strategies import headers
from rdmawire.topology import Machine
from rdmawire.traffic.scenario.topology_file import open_host
from rdmawire.verbs import SendOpcode, SendWR
from rdmawire.wire.ib import IETH, RETH
from tests.effort import examples

DGX: Machine = open_host("dgx-h200").machine
SERVER: Machine = open_host("two-sockets").machine
KIB = 1 << 10
DIRECT = (StoragePath.FABRIC, StoragePath.DRIVE)
FABRIC, DRIVE = DIRECT


@settings(max_examples=examples(25))
@given(
    st.sampled_from(StoragePath),
    st.integers(0, 6),
    st.integers(0, 6),
    st.sampled_from([512, 1024, 4096, 4608, 8192, 65_536, 66_048]),
    st.integers(1, 9),
    st.sampled_from([512, 1024, 4096]),
    st.booleans(),
    st.integers(0, 100),
)
def test_all_bytes_are_right(
    path: StoragePath,
    reads: int,
    writes: int,
    size: int,
    depth: int,
    mtu: int,
    invalidate: bool,
    seed: int,
) -> None:
    count = max(reads + writes, 1)
    spec = StorageSpec(
        DGX,
        "GPU3",
        path,
        count - writes,
        writes,
        size,
        depth,
        1 << 20,
        invalidate=invalidate,
        mtu=mtu,
        seed=seed,
    )
    report = storage(spec)  # which checks the namespace and the memory of the GPU
    assert report.is_right
    assert report.size == count * size
    assert report.copies == PLANS[path].bounces
    assert (report.frames > 0) == PLANS[path].is_remote
    assert [one.opcode for one in report.executed].count("WRITE") == writes
    starts = sorted(one.start for one in report.executed)
    ends = sorted(one.end for one in report.executed)
    assert all(one <= two for one, two in zip(ends, starts[depth:], strict=False))


@settings(max_examples=examples(5))
@given(st.sampled_from([FABRIC, StoragePath.FABRIC_BOUNCE]), st.integers(0, 100))
def test_losses_are_repaired(path: StoragePath, seed: int) -> None:
    run = StorageRun(StorageSpec(DGX, "GPU0", path, 4, 4, 16 * KIB, seed=seed))
    for link in run.network.links:
        run.network.set_faults(link, Rule("drop", chance=0.02))
    assert run.run().is_right


def used(report: StorageReport, host: str) -> dict[tuple[str, str], int]:
    return {ends[1:]: use.bytes for ends, use in report.links.items() if ends[0] == host}


def test_a_drive_below_the_switch_of_a_gpu_does_not_use_host_memory() -> None:
    size, commands = 64 * KIB, 4
    spec = StorageSpec(DGX, "GPU0", DRIVE, commands, 0, size)
    direct = used(storage(spec), "host")
    bounce = used(storage(spec._replace(path=StoragePath.DRIVE_BOUNCE)), "host")
    memory, gpu = ("root0", "memory of node 0"), ("sw0g", "GPU0")
    assert direct[gpu] == bounce[gpu] == commands * size
    assert direct["nvme0", "sw0n"] == commands * (size + 16)
    assert direct[memory] == commands * 16  # completions
    assert bounce[memory] == commands * (size + 16)
    assert bounce[memory[::-1]] == commands * (size + 64)  # the copies, and the commands


@pytest.mark.parametrize("path", DIRECT)
def test_a_bounce_costs_time_and_a_copy(path: StoragePath) -> None:
    for reads, writes in (8, 0), (0, 8):
        direct = storage(StorageSpec(DGX, "GPU0", path, reads, writes))
        bounce = storage(
            StorageSpec(DGX, "GPU0", StoragePath(f"{path.value}-bounce"), reads, writes)
        )
        assert direct.duration < bounce.duration
        assert (direct.copies, bounce.copies) == (0, 1)
        assert direct.cpu < bounce.cpu
        assert direct.rate > bounce.rate


def test_one_read_takes_the_time_of_the_media_and_of_the_way() -> None:
    spec = StorageSpec(DGX, "GPU0", DRIVE, 1, 0, 4096)
    latency = storage(spec).executed[0].end
    assert 85_000 < latency < 90_000
    assert 88_000 < storage(spec._replace(path=FABRIC)).mean_latency < 95_000


def test_data_of_the_fabric_goes_to_the_memory_that_the_command_names() -> None:
    spec = StorageSpec(DGX, "GPU0", FABRIC, 4, 0)
    direct = used(storage(spec), "host")
    bounce = used(storage(spec._replace(path=StoragePath.FABRIC_BOUNCE)), "host")
    memory, gpu, out = (
        ("root0", "memory of node 0"),
        ("sw0g", "GPU0"),
        ("memory of node 0", "root0"),
    )
    size = 4 * spec.block_size
    assert size <= direct[gpu] < size + 8192
    assert direct[memory] < 16 * KIB > direct[out]  # capsules, and Identify
    assert bounce[gpu] == size
    assert bounce[memory] > size < bounce[out]


def test_the_same_seed_gives_the_same_run() -> None:
    spec = StorageSpec(DGX, "GPU0", FABRIC, seed=5)
    one, two, other = storage(spec), storage(spec), storage(spec._replace(seed=6))
    assert one.executed == two.executed
    assert one.duration == two.duration
    assert one.executed != other.executed


def test_a_gpu_without_hopper_is_flushed() -> None:
    report = storage(StorageSpec(SERVER, "GPU0", FABRIC))
    assert report.is_right


# Errors.


@pytest.mark.parametrize("path", StoragePath)
def test_an_address_after_the_end_of_the_namespace_has_its_status(path: StoragePath) -> None:
    report = storage(StorageSpec(DGX, "GPU0", path, 3, 3, fault=StorageFault.LBA))
    found = Counter(one.status for one in report.executed)
    assert found == {"SUCCESS": 5, "LBA_OUT_OF_RANGE": 1}
    assert not report.is_right
    assert report.errors == []


@pytest.mark.parametrize(("reads", "writes", "work"), [(12, 0, "RDMA WRITE"), (0, 12, "RDMA READ")])
def test_revoked_memory_is_an_error_of_rdma(reads: int, writes: int, work: str) -> None:
    spec = StorageSpec(DGX, "GPU0", FABRIC, reads, writes, queue_depth=3, fault=StorageFault.REVOKE)
    report = storage(spec)
    assert report.errors == [f"{work}: REM_ACCESS_ERR"]
    statuses = [one.status for one in report.executed]
    assert statuses.count("SUCCESS") >= 6
    assert set(statuses) == {"SUCCESS", "ABORTED"}


def test_a_drive_that_writes_to_revoked_memory_has_a_status() -> None:
    spec = StorageSpec(DGX, "GPU0", DRIVE, 8, 8, queue_depth=2, fault=StorageFault.REVOKE)
    found = Counter(one.status for one in storage(spec).executed)
    assert set(found) == {"SUCCESS", "DATA_TRANSFER_ERROR"}
    assert found["SUCCESS"] >= 8


def valid(command: IOCommand) -> IOCommand:
    """The command with blocks that are there, and a length that fits; its address and key stay."""
    count = command.nlb % 8 + 1
    return command.replace(
        opcode=1 + command.opcode % 2,
        nsid=1,
        slba=command.slba % 99,
        nlb=count - 1,
        length=512 * count,
        sgl_type=4 * (command.sgl_type % 2),
        sgl_subtype=command.sgl_subtype % 2,
    )


@settings(max_examples=examples(12))
@given(st.lists(headers(IOCommand), min_size=1, max_size=6), st.booleans())
@example([IOCommand(), IOCommand(sgl_type=4, sgl_subtype=15)], False)
def test_any_command_has_a_response_or_ends_the_connection(
    commands: list[IOCommand], are_known: bool
) -> None:
    run = StorageRun(StorageSpec(DGX, "GPU0", FABRIC, 1, 0, 4096, 8))
    initiator = run._initiator
    assert initiator is not None
    answers: list[NvmeCompletion | None] = []

    def submit(_slot: int, _command: IOCommand, _at: int, finished: Finished) -> None:
        def answered(answer: NvmeCompletion | None) -> None:
            answers.append(answer)
            if len(answers) == len(commands):
                finished(ABORTED)

        for command in commands:
            initiator.io.submit(valid(command) if are_known else command, answered)

    run._workload.submit = submit
    run.network.simulator.call_at(0, initiator.start)
    run.network.simulator.run()
    assert run._target is not None
    assert len(answers) == len(commands)
    # A response that invalidates a key that the host does not have is an error of the host alone.
    invalidates = any((one.sgl_type, one.sgl_subtype) == (4, 15) for one in commands)
    assert (None in answers) <= (bool(run._target.errors) or (invalidates and not are_known))
    assert run._workload.executed[0] is not None
    assert all(answer is None or answer.status in set(Status) for answer in answers)


def test_a_capsule_that_is_too_short_ends_the_connection() -> None:
    run = StorageRun(StorageSpec(DGX, "GPU0", FABRIC, 1, 0, 4096))
    initiator = run._initiator
    assert initiator is not None

    def submit(_slot: int, command: IOCommand, at: int, finished: Finished) -> None:
        sge = run._host.host.buffer(63).sge()
        run._host.post(initiator.io.qp, SendWR(SendOpcode.SEND, (sge,)))
        initiator.submit(0, command, at, finished)

    run._workload.submit = submit
    report = run.run()
    assert report.errors == ["RECV: a capsule of 63 bytes"]
    assert [one.status for one in report.executed] == [ABORTED]


def test_a_queue_that_is_too_deep_is_rejected() -> None:
    run = StorageRun(StorageSpec(DGX, "GPU0", FABRIC))
    assert run._initiator is not None
    run._initiator._depth = 200
    with pytest.raises(TransferError, match="rejects the connection: INVALID_HSQSIZE"):
        run.run()


def test_a_controller_that_never_becomes_ready_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rdmawire.gpudirect.storage.controller._READY", 0)
    with pytest.raises(TransferError, match="the controller does not become ready"):
        storage(StorageSpec(DGX, "GPU0", FABRIC))


def test_a_refused_connect_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rdmawire.gpudirect.storage.initiator.SUBSYSTEM", "nqn.2016-06.io.other")
    with pytest.raises(TransferError, match="ConnectCommand: CONNECT_INVALID_PARAMETERS"):
        storage(StorageSpec(DGX, "GPU0", FABRIC))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reads": 0, "writes": 0}, "0 commands; 1 to 4096"),
        ({"reads": 5000, "writes": 0}, "5000 commands"),
        ({"reads": -1, "writes": 4}, "3 commands"),
        ({"block_size": 1000}, "a multiple of 512"),
        ({"block_size": 1 << 21}, "up to 1048576"),
        ({"queue_depth": 128}, "1 to 127 are supported"),
        ({"size": 1000}, "a namespace of 1000 bytes"),
        ({"size": 1 << 29}, "a namespace of 536870912 bytes"),
        ({"size": 1 << 19}, "16 commands of 65536 bytes; each has other blocks of 524288"),
        ({"mtu": 1500}, "a path MTU of 1500"),
        ({"gpu": "mlx5_0"}, "mlx5_0 is no GPU"),
        ({"drive": "GPU0"}, "GPU0 is no NVMe drive"),
        (
            {"fault": StorageFault.REVOKE, "path": StoragePath.FABRIC_BOUNCE},
            "only on a path without a bounce",
        ),
        ({"machine": open_host("vm").machine, "path": DRIVE}, "the host has no NVMe drive"),
        ({"machine": SERVER, "path": DRIVE}, "nvme0 may not access GPU0: the path crosses"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(TransferError, match=message):
        StorageRun(StorageSpec(DGX, "GPU0", FABRIC)._replace(**change))


def test_a_drive_on_another_socket_needs_a_bounce() -> None:
    report = storage(StorageSpec(SERVER, "GPU0", StoragePath.DRIVE_BOUNCE))
    assert report.is_right
    assert used(report, "host")["pci0000_b1", "memory of node 0"] > report.size // 2


# Packets.


def captured(spec: StorageSpec, path: Path) -> StorageReport:
    run = StorageRun(spec)
    with run.network.captured(path):
        return run.run()


def names(path: Path) -> Counter[str]:
    with open_capture(path) as reader:
        frames = list(Dissector().capture(reader))
    assert not any(frame.bad_checks or frame.malformed for frame in frames)
    opcodes = (frame.nodes for frame in frames)
    return Counter(
        node.header.word("opcode")
        for nodes in opcodes
        for node in nodes
        if node.name == "bth" and node.header is not None
    )


def test_small_writes_are_in_the_capsule(tmp_path: Path) -> None:
    path = tmp_path / "small.pcap"
    captured(StorageSpec(DGX, "GPU0", FABRIC, 0, 5, 4096), path)
    assert names(path)["RC_RDMA_READ_REQUEST"] == 1  # Connect of the Admin queue
    captured(StorageSpec(DGX, "GPU0", FABRIC, 0, 5, 4608), path)
    assert names(path)["RC_RDMA_READ_REQUEST"] == 6


def test_the_response_invalidates_the_key_of_its_command(tmp_path: Path) -> None:
    path = tmp_path / "invalidate.pcap"
    spec = StorageSpec(DGX, "GPU0", FABRIC, 5, 4, 8192, 3, invalidate=True)
    captured(spec, path)
    with open_capture(path) as reader:
        frames = list(Dissector().capture(reader))
    headers = [node.header for frame in frames for node in frame.nodes]
    invalidated = [one.rkey for one in headers if isinstance(one, IETH)]
    assert len(invalidated) == len(set(invalidated)) == 9
    assert set(invalidated) < {one.rkey for one in headers if isinstance(one, RETH)}


@settings(max_examples=examples(4))
@given(st.booleans(), st.booleans(), st.sampled_from([512, 4096, 16_384]), st.integers(0, 99))
def test_a_capture_has_the_commands_of_the_run(
    bounces: bool, invalidate: bool, size: int, seed: int
) -> None:
    path = StoragePath.FABRIC_BOUNCE if bounces else FABRIC
    spec = StorageSpec(DGX, "GPU0", path, 4, 4, size, 3, seed=seed, fault=StorageFault.LBA)
    run = StorageRun(spec._replace(invalidate=invalidate))
    for link in run.network.links:
        run.network.set_faults(link, Rule("drop", chance=0.01))
    with TemporaryDirectory() as folder:
        file = Path(folder, "nvme.pcap")
        with run.network.captured(file):
            report = run.run()
        found = list(read_capsules(file))
    assert Counter(one.qid for one in found) == {0: 8, 1: 9}
    names = Counter(command_name(one.command) for one in found if one.qid == 0)
    assert names == {
        "CONNECT": 1,
        "PROPERTY_GET": 2,
        "PROPERTY_SET": 2,
        "IDENTIFY": 2,
        "SET_FEATURES": 1,
    }
    executed = {(one.opcode, one.slba, one.status) for one in report.executed}
    commands = [(one.command, one.completion) for one in found]
    assert executed == {
        (command_name(command), command.slba, status_name(completion.status))
        for command, completion in commands
        if isinstance(command, IOCommand) and completion is not None
    }


def tshark(path: Path, *fields: str) -> list[dict[str, str]]:
    """Return these fields of each frame as tshark reads it, by name."""
    command = ["tshark", "-r", str(path), "-T", "fields"]
    command += [word for field in fields for word in ("-e", field)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = (line.split("\t") for line in done.stdout.splitlines())
    return [dict(zip(fields, row, strict=True)) for row in rows]


@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")
def test_tshark_reads_the_same_commands_and_completions(tmp_path: Path) -> None:
    path = tmp_path / "nvme.pcap"
    spec = StorageSpec(DGX, "GPU0", FABRIC, 6, 6, 16 * KIB, fault=StorageFault.LBA)
    report = captured(spec, path)
    rows = tshark(path, *_COMMAND, _QUEUE, _STATUS, _NQN, _CRQ, _INFO, "_ws.malformed")
    assert {row["_ws.malformed"] for row in rows} == {""}
    commands = [[row[name] for name in (*_COMMAND, _QUEUE)] for row in rows if row[_SLBA]]
    codes = {"READ": "0x02", "WRITE": "0x01"}
    assert commands == [
        [codes[one.opcode], f"0x{one.slba:016x}", "32", "16384", "0x0001"]
        for one in report.executed
    ]
    statuses = Counter(row[_STATUS] for row in rows if row[_STATUS] and row[_QUEUE] == "0x0001")
    assert statuses == {"0x0000": 12, "0x0080": 1}  # Connect's too
    info = [row[_INFO] for row in rows if "NVMe" in row[_INFO]]
    steps = [text.rpartition("| ")[2] for text in info if "Send Only" in text]
    assert steps[:13] == [
        "NVMeOF Connect",
        "NVMeOF CQE for Connect",
        "NVMeOF Property Get Controller Capabilities",
        "NVMeOF CQE for Property Get Controller Capabilities",
        "NVMeOF Property Set Controller Configuration",
        "NVMeOF CQE for Property Set Controller Configuration",
        "NVMeOF Property Get Controller Status",
        "NVMeOF CQE for Property Get Controller Status",
        "NVMe Identify Controller",
        "NVMe CQE for Identify Controller",
        "NVMe Identify Namespace",
        "NVMe CQE for Identify Namespace",
        "NVMe Set Features",
    ]
    data = Counter(text.rpartition("| ")[2].split(", offset")[0] for text in info)
    succeeded = Counter(one.opcode for one in report.executed if one.status == "SUCCESS")
    assert data["NVMeOF Data for Read"] == 4 * succeeded["READ"]
    assert data["NVMeOF Data for Write"] == 4 * succeeded["WRITE"]
    assert {row[_NQN] for row in rows} == {"", "nqn.2016-06.io.rdmawire:storage"}
    assert [row[_CRQ] for row in rows if row[_CRQ]] == ["32", "9"]


_NQN = "nvme.fabrics.cmd.connect.data.subnqn"
_CRQ = "nvme-rdma.cm.rsp.crqsize"
_SLBA = "nvme.cmd.slba"
_COMMAND = ("nvme.cmd.opc", _SLBA, "nvme.cmd.nlb", "nvme.cmd.sgl1.len")
_QUEUE = "nvme-rdma.cmd.qid"
_STATUS = "nvme.cqe.status.sc"
_INFO = "_ws.col.Info"


def test_a_namespace_is_filled_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rdmawire.gpudirect.storage.run._PIECE", 1000)
    run = StorageRun(StorageSpec(DGX, "GPU0", FABRIC, reads=4, writes=0, block_size=4096))
    assert run.run().is_right


@pytest.mark.slow
def test_the_largest_namespace_has_random_data() -> None:
    run = StorageRun(StorageSpec(DGX, "GPU0", FABRIC, reads=1, writes=0, size=1 << 28))
    assert run.run().is_right
