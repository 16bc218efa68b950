"""`rdmawire sweep`: the same rows however they are made, as tables, JSON, files and pictures."""

import csv
import io
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
from distributed import LocalCluster
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from rdmawire.cli.program import cli
from rdmawire.cli.sweep.axis import integer, numbers_of
from tests.cli.command import rdmawire, refused

SWEEP = ("sweep", "allreduce", "--hosts", "2,3", "--size", "8..64", "--loss", "0,1%", "-j", "1")
"""A sweep of which a part cannot be: 3 hosts need multiples of 12 bytes."""

Call = Callable[..., str]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """A function that does a command in this process, and returns what it prints."""

    def called(*words: str, status: int = 0) -> str:
        assert cli.main([*words], standalone_mode=False) == status
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out

    return called


def test_the_number_of_processes_changes_no_byte(call: Call, tmp_path: Path) -> None:
    words = ("sweep", "allreduce", "--hosts", "2,3", "--size", "8,12k..24k", "--loss", "0,1%")
    made: list[list[Any]] = []
    for jobs in ("1", "2"):
        table = tmp_path / f"{jobs}.csv"
        made.append([call(*words, "-j", jobs, "-o", str(table), "--json"), table.read_bytes()])
    assert made[0] == made[1]
    assert [row["bytes"] for row in json.loads(made[0][0])] == [8, 12 << 10, 24 << 10] * 4


def test_a_table_has_what_differs_in_the_order_of_the_combinations(call: Call) -> None:
    words = ("allreduce", "--hosts", "3,2", "--size", "8..64", "--algo", "ring,tree", "-j", "1")
    title, head, *lines = call("sweep", *words).splitlines()
    assert title == (
        "collective allreduce, gpus 1, protocol ll, channels 1, qps 1, rate 400 Gbit/s, dtype int32"
    )
    assert head.split("  ")[0] == "hosts"
    assert [line.split()[:3] for line in lines] == [
        [hosts, algorithm, size]
        for hosts in ("3", "2")
        for algorithm in ("ring", "tree")
        for size in ("8", "16", "32", "64")
    ]
    assert [("take a multiple of 12" in line) for line in lines] == [True] * 8 + [False] * 8


def test_a_row_is_what_gen_does(call: Call, tmp_path: Path) -> None:
    words = ("--size", "64k", "--gpus", "2", "--loss", "1%", "--qps", "2", "--seed", "7", "--json")
    (row,) = json.loads(call("sweep", "allreduce", *words, "-j", "1"))
    alone = json.loads(call("gen", "allreduce", *words, "-w", str(tmp_path / "x.pcap")))
    names = {name: name for name in ("duration_ns", "messages", "channels", "algorithm")}
    for name, other in {**names, "local_bytes": "nvlink_bytes"}.items():
        assert row[name] == alone[other]


def test_transfers_are_what_transfer_does(call: Call) -> None:
    words = ("transfer", "two-sockets", "--size", "64k", "--json")
    alone = {row.pop("path"): row for row in json.loads(call(*words))}
    found = {row["path"]: row for row in json.loads(call("sweep", *words, "-j", "1"))}
    assert [*found] == [*alone] == ["direct", "bounce", "pageable", "tcp", "nvlink"]
    for path, row in alone.items():
        for name in ("links", "durations_ns", "translations", "registrations"):
            row.pop(name, None)
        assert row == {name: found[path].get(name) for name in row}


def test_combinations_that_come_to_the_same_are_done_once(call: Call) -> None:
    words = ("--protocol", "ll,simple", "--size", "4k,4096", "-j", "1", "--json")
    found = json.loads(call("sweep", "alltoall,allreduce", *words))
    assert [(row["collective"], row["protocol"]) for row in found] == [
        ("alltoall", "simple"),
        ("allreduce", "ll"),
        ("allreduce", "simple"),
    ]


def test_hosts_give_their_gpus(call: Call) -> None:
    words = ("--topology", "dgx-h200,two-sockets", "--size", "96k", "--flows", "-j", "1", "--json")
    found = json.loads(call("sweep", "allreduce", *words))
    expected = [("dgx-h200", 8), ("two-sockets", 2)]
    assert [(row["topology"], row["gpus"]) for row in found] == expected


def test_files_have_numbers_reasons_and_nothing_where_nothing_is_known(
    call: Call, tmp_path: Path
) -> None:
    paths = [tmp_path / "rows.csv", tmp_path / "rows.parquet"]
    assert [call(*SWEEP, "-q", "-o", str(path)) for path in paths] == ["", ""]
    table = parquet.read_table(paths[1])
    assert table.schema.field("duration_ns").type == pa.int64()
    assert table.schema.field("loss").type == pa.float64()
    texts = list(csv.DictReader(io.StringIO(paths[0].read_text(encoding="utf-8"))))
    assert len(texts) == table.num_rows == 2 * 2 * 4
    for text, row in zip(texts, table.to_pylist(), strict=True):
        assert (row["reason"] is None) == (row["hosts"] == 2)
        assert (row["duration_ns"] is None) == (row["hosts"] == 3)
        assert text["duration_ns"] == ("" if row["reason"] else str(row["duration_ns"]))


@pytest.mark.parametrize(
    "signal_", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_signal_keeps_what_is_done(signal_: signal.Signals, tmp_path: Path) -> None:
    before = (
        "import os; from rdmawire.gpudirect.sweep import Sweep; finish = Sweep._finish; "
        "Sweep._finish = lambda self, *found: (finish(self, *found), "
        f"len(self._done) == 3 and os.kill(os.getpid(), {signal_.value})); "
    )
    path = tmp_path / "rows.csv"
    done = rdmawire(*SWEEP, "-o", str(path), "--json", before=before)
    assert done.returncode == (130 if signal_ == signal.SIGINT else -signal_)
    assert "rdmawire: 3 of 16 combinations are done\n" in done.stderr
    assert [row["bytes"] for row in json.loads(done.stdout)] == [8, 16, 32]
    assert len(path.read_text(encoding="utf-8").splitlines()) == 4


@pytest.mark.slow
def test_the_workers_of_a_cluster_do_the_same(call: Call) -> None:
    words = ("sweep", "transfer", "dgx-h200", "--size", "8,64", "--json")
    here = call(*words, "-j", "1")
    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        assert call(*words, "--scheduler", cluster.scheduler_address) == here
    assert len(json.loads(here)) == 10


def test_lines_are_drawn_for_what_is_not_across(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "lines.svg"
    words = ("sweep", "allreduce", "--flows", "-j", "1", "--plot", str(path), "-q")
    call(*words, "--hosts", "2,4", "--size", "512k..1M", "--protocol", "ll,simple")
    text = path.read_text(encoding="utf-8")
    for label in ("hosts 2, ll", "hosts 4, simple", "bus bandwidth (GB/s)", "bytes"):
        assert f"<!-- {label} -->" in text
    call(*words, "--hosts", "2..4", "--size", "1M")
    first = path.read_bytes()
    assert b"<!-- hosts -->" in first
    call(*words, "--hosts", "2..4", "--size", "1M")
    assert path.read_bytes() == first


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
        (("allreduce", "-o", "rows.txt"), "-o rows.txt must end in .csv, .parquet or .arrow"),
        (("allreduce", "--json", "-q"), "--json prints the rows, -q does not"),
        (("allreduce", "-j", "2", "--scheduler", "tcp://x:1"), "--jobs is for processes of this"),
        (("transfer", "dgx-h200", "--path", "air"), "'air' is not one of direct, bounce"),
        (("transfer", "no-such-host"), "'no-such-host': no such file or directory"),
        (("transfer", "dgx-h200", "--mtu", "9000"), "'9000' is not one of 256, 512"),
        (
            ("allreduce", "--seed", ",".join(map(str, range(600))), "--size", "8..1M"),
            "10800 combinations (600 of seed, 18 of bytes); at most 10000 are supported",
        ),
        (
            ("allreduce", "--seed", ",".join(map(str, range(29))), "--plot", "x.svg"),
            "--plot: 29 lines, at most 28 can be distinguished: give fewer values of seed",
        ),
    ],
)
def test_wrong_usage_names_what_is_allowed(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(click.UsageError) as error:
        cli.main(["sweep", *words], standalone_mode=False)
    assert message in error.value.format_message()


def test_errors_are_one_line() -> None:
    words = ("sweep", "allreduce", "--scheduler", "udp://x:1")
    assert "no Dask scheduler at udp://x:1" in refused(*words, status=2)


def test_a_sweep_of_which_nothing_can_be_fails(call: Call) -> None:
    alone = ("-j", "1")
    words = ("allreduce", "--hosts", "3", "--size", "8..64")
    assert call("sweep", *words, *alone, status=2).count("take a multiple of 12") == 4
    others = ("transfer", "dgx-h200", "--from", "GPU9", "--size", "8")
    assert call("sweep", *others, *alone, status=2).count("no device is called 'GPU9'") == 5


@given(st.integers(1, 1 << 40), st.integers(0, 1 << 40))
def test_each_number_of_a_range_is_twice_the_one_before(low: int, more: int) -> None:
    high = low + more
    found = numbers_of(integer(0, 1 << 60))(None, None, f"{low}..{high},{low}")
    assert found is not None
    assert found == [low << power for power in range(len(found))]
    assert found[-1] <= high < 2 * found[-1]
