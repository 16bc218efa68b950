"""`rdmawire topo`: matrices, advice and paths, as text and as JSON."""

import json
from pathlib import Path

import pytest

from rdmawire.topology import topology_matrix
from rdmawire.traffic.scenario.topology_file import open_host, shipped_hosts
from tests.cli.command import rdmawire as run

EXCHANGE = str(Path(__file__).parents[2] / "examples" / "workloads" / "exchange.goal")


def test_the_matrix_is_printed() -> None:
    done = run("topo", "dgx-h100")
    assert done.stdout == topology_matrix(open_host("dgx-h100").machine)
    assert run("topo", "-m", "dgx-h100").stdout == done.stdout


def test_shipped_hosts_are_listed() -> None:
    assert run("topo", "--list").stdout.split() == list(shipped_hosts())


def test_the_matrix_of_peer_to_peer_access() -> None:
    lines = run("topo", "two-sockets", "-p2p", "r").stdout.splitlines()
    assert lines[1:3] == [" GPU0\tX\tTNS\t", " GPU1\tTNS\tX\t"]


def test_advice() -> None:
    text = run("topo", "two-sockets", "--advice").stdout
    assert text.splitlines()[1] == "  GPUDirect RDMA"
    assert "  through host memory: the path crosses the link between sockets\n" in text
    assert "  better: an adapter in a slot of pci0000_b1 (NUMA node 1) would be at PHB" in text


def test_paths() -> None:
    text = run("topo", "dgx-h200", "--path", "GPU0", "GPU5").stdout
    assert "NVLink:\n  GPU0 -> GPU5: 18 NVLinks, 370.8 GB/s\n" in text
    assert "peer-to-peer, not allowed (the path crosses the link between sockets):\n" in text
    memory = run("topo", "two-sockets", "--path", "GPU1", "memory0").stdout
    assert "  pci0000_b1 -> memory of node 0: UPI, 10.0 GB/s\n" in memory


def test_paths_from_memory_and_by_labels() -> None:
    there = run("topo", "two-sockets", "--path", "memory0", "NIC0").stdout
    assert there.splitlines()[1] == "  memory of node 0 -> pci0000_17: memory controller"
    assert there.splitlines()[3].startswith("  sw0 -> mlx5_0")
    bounce = run("topo", "two-sockets", "--path", "GPU0", "mlx5_0").stdout
    assert "bounce, to mlx5_0:\n  memory of node 0 -> pci0000_17" in bounce


def test_times_without_rates_are_not_known() -> None:
    matrix = run("topo", "two-sockets").stdout.encode()
    asked = "--path", "NIC0", "GPU1", "--size", "1MiB"
    assert (
        "  1048576 bytes: the rate of a link is not known\n"
        in run("topo", "-", *asked, stdin=matrix).stdout
    )
    found = json.loads(run("topo", "-", *asked, "--json", stdin=matrix).stdout)
    assert [path["ns"] for path in found["paths"]] == [None] * 3


def test_json_has_the_same() -> None:
    done = run(
        "topo", "two-sockets", "-m", "-p2p", "w", "--advice", "--path", "mlx5_0", "GPU0", "--json"
    )
    found = json.loads(done.stdout)
    assert found["matrix"]["mlx5_0"] == {"GPU0": "PIX", "GPU1": "SYS", "mlx5_0": "X"}
    assert found["p2p"]["GPU0"] == {"GPU0": "X", "GPU1": "TNS"}
    assert [each["direct"] for each in found["advice"]] == [True, False]
    assert found["paths"][0]["steps"][0]["source"] == "mlx5_0"


def test_text_of_other_tools_from_standard_input() -> None:
    matrix = run("topo", "two-sockets").stdout
    done = run("topo", "-", "--advice", stdin=matrix.encode())
    assert done.stdout.startswith("GPU0: mlx5_0 by PIX")
    note = "the matrix shows no links, NVLink-C2C, ACS or IOMMU: no rates are known"
    assert done.stderr == f"rdmawire: note: {note}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere",), "'nowhere': no such file or directory; shipped hosts are dgx-h100"),
        (("vm", "--path", "GPU7", "mlx5_0"), "no device is called 'GPU7'; there are GPU0, mlx5_0"),
        (("vm", "--path", "GPU0", "GPU0"), "GPU0 to itself is no path: name two devices"),
        (("vm", "--path", "GPU0", "memory3"), "memory3: NUMA nodes are 0"),
        (("vm", "--size", "1k"), "--size goes with --path"),
        (("-",), "standard input: empty; expected the text of nvidia-smi topo -m"),
    ],
)
def test_errors_are_one_line(words: tuple[str, ...], message: str) -> None:
    done = run("topo", *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"rdmawire: {message}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [("topo",), ("doctor",), ("transfer",), ("storage",), ("sweep", "transfer", "--size", "8"),
     ("gen", "allreduce", "--topology"), ("gen", "trace", EXCHANGE, "--host")],
)  # fmt: skip
def test_every_error_of_a_file_has_a_line(words: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "host.yaml"
    path.write_text("topology: a\nnuma nodes: {x: 1}\nhost bridges: {root: 0}\nspeed: 3\n")
    done = run(*words, str(path))
    assert done.returncode == 2
    assert [line.split(":")[2] for line in done.stderr.splitlines()] == ["2", "4"]


def test_the_tree_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "host.svg"
    done = run("topo", "two-sockets", "--path", "GPU1", "mlx5_0", "--plot", str(path))
    assert done.returncode == 0
    assert "GPU1 to memory of node 1" in path.read_text(encoding="utf-8")
    wrong = run("topo", "two-sockets", "--plot", "host.gif")
    assert "'host.gif' must end in .svg or .png" in wrong.stderr


COPIES = "tests/topology/h200-copies.csv"


def test_a_calibration_writes_constants_that_are_read(tmp_path: Path) -> None:
    path = tmp_path / "costs.yaml"
    done = run("topo", "dgx-h200", "--calibrate", COPIES, "-w", str(path))
    assert done.stdout.splitlines()[-2:] == [
        "typically a factor of 1.15 before, 1.09 after",
        "at most a factor of 1.48 before, 1.21 after",
    ]
    found = json.loads(run("topo", "dgx-h200", "--calibrate", COPIES, "--json").stdout)
    assert len(found["ratios"]) == 42
    again = run("topo", "dgx-h200", "--calibrate", COPIES, "--costs", str(path)).stdout
    assert "typically a factor of 1.09 before, 1.09 after" in again
    slow = tmp_path / "slow.yaml"
    slow.write_text("costs: slow\nroot_latency: 5270\n")
    wanted = ("topo", "two-sockets", "--path", "mlx5_0", "memory0", "--size", "8")
    usual, slower = (run(*wanted, *more).stdout for more in ((), ("--costs", str(slow))))
    assert (usual.split()[-4:-3], slower.split()[-4:-3]) == (["0.39"], ["5.39"])
    times = [
        run("transfer", "two-sockets", "--path", "bounce", "--size", "8", *more)
        .stdout.splitlines()[1]
        .split()[2]
        for more in ((), ("--costs", str(slow)))
    ]
    assert float(times[1]) > float(times[0]) + 10


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--constant", "copy_launch"), "--constant and -w go with --calibrate"),
        (("--calibrate", "none.csv"), "no such file or directory; expected a file with meas"),
        (("--calibrate", COPIES, "--constant", "x"), "no constant is called 'x'"),
        (("--costs", COPIES), "h200-copies.csv:1:1: found"),
    ],
)
def test_calibrations_that_are_not_possible(words: tuple[str, ...], message: str) -> None:
    done = run("topo", "dgx-h200", *words)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_host_without_devices_names_the_shipped_ones(tmp_path: Path) -> None:
    done = run("topo", str(tmp_path))
    assert done.returncode == 2
    assert "as in /sys or /sys/bus/pci; shipped hosts are dgx-h100, dgx-h200" in done.stderr
