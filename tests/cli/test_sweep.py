"""`rdmawire sweep`: the same rows however they are made, as tables, JSON, files and pictures."""

import csv
import io
import json
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from distributed import LocalCluster
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from rdmawire.cli.sweep.axis import integer, numbers_of
from tests.cli.command import rdmawire, refused

SWEEP = ("sweep", "allreduce", "--hosts", "2,3", "--size", "8..64k", "--loss", "0,1%")
"""A sweep of which a part cannot be: 3 hosts need multiples of 12 bytes."""


def rows(*words: str) -> list[dict[str, Any]]:
    done = rdmawire(*words, "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_the_number_of_processes_changes_no_byte(tmp_path: Path) -> None:
    words = ("sweep", "allreduce", "--hosts", "2,3", "--size", "8,12k..96k", "--loss", "0,1%")
    made: list[list[Any]] = []
    for jobs in ("1", "2"):
        files = [tmp_path / f"{jobs}.{suffix}" for suffix in ("csv", "parquet", "svg")]
        to = ("-o", str(files[0])), ("-o", str(files[1]), "--plot", str(files[2]), "--json")
        texts = [rdmawire(*words, "-j", jobs, *more).stdout for more in to]
        made.append([*texts, *(file.read_bytes() for file in files)])
    assert made[0] == made[1]
    assert json.loads(made[0][1])[4]["bytes"] == 96 << 10


def test_a_table_has_what_differs_in_the_order_of_the_combinations() -> None:
    done = rdmawire(
        "sweep", "allreduce", "--hosts", "3,2", "--size", "8..64", "--algo", "ring,tree"
    )
    title, head, *lines = done.stdout.splitlines()
    assert title == (
        "collective allreduce, gpus 1, protocol ll, channels 1, qps 1, rate 400 Gbit/s, dtype int32"
    )
    assert head.split("  ")[0] == "hosts"
    found = [line.split()[:3] for line in lines]
    assert found == [
        [hosts, algorithm, size]
        for hosts in ("3", "2")
        for algorithm in ("ring", "tree")
        for size in ("8", "16", "32", "64")
    ]
    assert [("take a multiple of 12" in line) for line in lines] == [True] * 8 + [False] * 8


def test_a_row_is_what_gen_does(tmp_path: Path) -> None:
    words = ("--size", "64k", "--gpus", "2", "--loss", "1%", "--qps", "2", "--seed", "7")
    (row,) = rows("sweep", "allreduce", *words)
    done = rdmawire("gen", "allreduce", *words, "-w", str(tmp_path / "x.pcap"), "--json")
    alone = json.loads(done.stdout)
    assert row["duration_ns"] == alone["duration_ns"]
    assert row["messages"] == alone["messages"]
    assert row["local_bytes"] == alone["nvlink_bytes"]
    assert row["channels"] == alone["channels"]


def test_transfers_are_what_transfer_does() -> None:
    words = ("transfer", "two-sockets", "--size", "64k")
    alone = {row["path"]: row for row in json.loads(rdmawire(*words, "--json").stdout)}
    for row in rows("sweep", *words, "-j", "1"):
        one = alone.pop(row["path"])
        assert {name: row.get(name) for name in one if name != "links"} == {
            name: value for name, value in one.items() if name != "links"
        }
    assert not alone


def test_combinations_that_come_to_the_same_are_done_once() -> None:
    found = rows("sweep", "alltoall,allreduce", "--protocol", "ll,simple", "--size", "4k,4096")
    assert [(row["collective"], row["protocol"]) for row in found] == [
        ("alltoall", "simple"),
        ("allreduce", "ll"),
        ("allreduce", "simple"),
    ]


def test_hosts_give_their_gpus() -> None:
    words = ("sweep", "allreduce", "--topology", "dgx-h200,two-sockets", "--size", "96k")
    found = rows(*words, "--flows")
    assert [(row["topology"], row["gpus"]) for row in found] == [
        ("dgx-h200", 8),
        ("two-sockets", 2),
    ]


def test_files_have_numbers_reasons_and_nothing_where_nothing_is_known(tmp_path: Path) -> None:
    paths = [tmp_path / "rows.csv", tmp_path / "rows.parquet"]
    for path in paths:
        done = rdmawire(*SWEEP, "-q", "-o", str(path))
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    table = parquet.read_table(paths[1])
    assert table.schema.field("duration_ns").type == pa.int64()
    assert table.schema.field("loss").type == pa.float64()
    texts = list(csv.DictReader(io.StringIO(paths[0].read_text(encoding="utf-8"))))
    assert len(texts) == table.num_rows == 2 * 2 * 14
    for text, row in zip(texts, table.to_pylist(), strict=True):
        assert (row["reason"] is None) == (row["hosts"] == 2)
        assert (row["duration_ns"] is None) == (row["hosts"] == 3)
        assert text["duration_ns"] == ("" if row["reason"] else str(row["duration_ns"]))


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_keeps_what_is_done(signal_: signal.Signals, tmp_path: Path) -> None:
    before = (
        "import os; from rdmawire.gpudirect.sweep import Sweep; finish = Sweep._finish; "
        "Sweep._finish = lambda self, *found: (finish(self, *found), "
        f"len(self._done) == 3 and os.kill(os.getpid(), {signal_.value})); "
    )
    path, picture = tmp_path / "rows.csv", tmp_path / "rows.svg"
    words = ("-j", "1", "-o", str(path), "--plot", str(picture), "--json")
    done = rdmawire(*SWEEP, *words, before=before)
    assert done.returncode == (130 if signal_ == signal.SIGINT else -signal_)
    assert "rdmawire: 3 of 56 combinations are done\n" in done.stderr
    assert [row["bytes"] for row in json.loads(done.stdout)] == [8, 16, 32]
    assert len(path.read_text(encoding="utf-8").splitlines()) == 4
    assert picture.exists()


def test_the_workers_of_a_cluster_do_the_same() -> None:
    words = ("sweep", "transfer", "dgx-h200", "--size", "8..64")
    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        done = rdmawire(*words, "--json", "--scheduler", cluster.scheduler_address)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == rows(*words)


def test_lines_are_drawn_for_what_is_not_across(tmp_path: Path) -> None:
    path = tmp_path / "lines.svg"
    words = ("sweep", "allreduce", "--flows", "--gpus", "2", "--plot", str(path), "-q")
    rdmawire(*words, "--hosts", "2,4", "--size", "64k..1M", "--protocol", "ll,simple")
    text = path.read_text(encoding="utf-8")
    for label in ("hosts 2, ll", "hosts 4, simple", "bus bandwidth (GB/s)", "bytes"):
        assert f"<!-- {label} -->" in text
    rdmawire(*words, "--hosts", "2..16", "--size", "1M")
    assert "<!-- hosts -->" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("allreduce", "--size", "64..8"), "'64..8': a range goes from 1 or more to a larger"),
        (("allreduce", "--size", "0..8"), "'0..8': a range goes from 1 or more"),
        (("allreduce", "--size", "many"), "'many' is no number of bytes"),
        (("allreduce", "--hosts", "2,999"), "'999' is no number from 1 to 512"),
        (("allreduce", "--hosts", "²"), "'²' is no number from 1 to 512"),
        (("allreduce", "--algo", "ring,star"), "'star' is not one of ring, tree, collnet"),
        (("allreduce,broadcats",), "no subcommand is named 'allreduce,broadcats'"),
        (("collective", "broadcats"), "'broadcats' is not one of allreduce"),
        (("allreduce", "--rate", "fast"), "'fast' is no rate such as 100G"),
        (("allreduce", "--loss", "1%", "--flows"), "--flows knows no losses"),
        (("allreduce", "--topology", "no-such-host"), "'no-such-host': no such file"),
        (("allreduce", "-o", "rows.txt"), "-o rows.txt must end in .csv, .parquet, .arrow"),
        (("allreduce", "--json", "-q"), "--json prints the rows, -q does not"),
        (("allreduce", "-j", "2", "--scheduler", "tcp://x:1"), "--jobs is for processes of this"),
        (("allreduce", "--scheduler", "udp://x:1"), "no Dask scheduler at udp://x:1"),
        (("transfer", "dgx-h200", "--path", "air"), "'air' is not one of direct, bounce"),
        (("transfer", "no-such-host"), "'no-such-host': no such file or directory"),
        (
            ("allreduce", "--seed", ",".join(map(str, range(600))), "--size", "8..1M"),
            "10800 combinations (600 of seed, 18 of bytes); at most 10000 are supported",
        ),
        (
            ("allreduce", "--seed", ",".join(map(str, range(29))), "--plot", "x.svg"),
            "--plot: 29 lines, at most 28 can be told apart: give fewer values of seed",
        ),
    ],
)
def test_what_cannot_be_is_one_line(words: tuple[str, ...], message: str) -> None:
    assert message in refused("sweep", *words, status=2)


def test_a_sweep_of_which_nothing_can_be_fails() -> None:
    done = rdmawire("sweep", "allreduce", "--hosts", "3", "--size", "8..64")
    assert done.returncode == 2
    assert done.stdout.count("take a multiple of 12") == 4
    done = rdmawire("sweep", "transfer", "dgx-h200", "--from", "GPU9", "--size", "8")
    assert done.returncode == 2
    assert done.stdout.count("no device is called 'GPU9'") == 5


@given(st.integers(1, 1 << 40), st.integers(0, 1 << 40))
def test_each_number_of_a_range_is_twice_the_one_before(low: int, more: int) -> None:
    high = low + more
    found = numbers_of(integer(0, 1 << 60))(None, None, f"{low}..{high},{low}")
    assert found is not None
    assert found == [low << power for power in range(len(found))]
    assert found[-1] <= high < 2 * found[-1]
