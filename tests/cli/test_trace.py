"""`rdmawire gen trace`: traces of each kind, their summaries, captures and errors."""

import json
from pathlib import Path

import pytest

from tests.cli.command import rdmawire, refused

FOLDER = Path(__file__).parents[2] / "examples" / "workloads"
GOAL, MSCCL = str(FOLDER / "exchange.goal"), str(FOLDER / "allreduce.xml")
CHAKRA = [str(FOLDER / f"training.{rank}.json") for rank in range(2)]


@pytest.mark.parametrize(
    ("files", "form", "ranks", "messages"),
    [([GOAL], "GOAL", 3, 4), ([MSCCL], "MSCCL", 4, 8), (CHAKRA, "Chakra", 2, 5)],
)
@pytest.mark.parametrize("flows", [False, True])
def test_each_kind_is_run(
    files: list[str], form: str, ranks: int, messages: int, flows: bool
) -> None:
    words = ("gen", "trace", *files, "--json", *(["--flows"] if flows else []))
    found = json.loads(rdmawire(*words).stdout)
    assert (found["form"], found["ranks"], found["messages"]) == (form, ranks, messages)
    assert found["mode"] == ("flows" if flows else "packets")
    assert max(found["rank_ns"]) == found["duration_ns"]
    assert bool(found["frames"]) != flows
    assert sum(link["bytes"] for link in found["links"]) >= found["message_bytes"]


def test_a_capture_has_the_frames(tmp_path: Path) -> None:
    path = tmp_path / "trace.pcap"
    done = rdmawire("gen", "trace", GOAL, "--links", "-w", str(path))
    assert done.stdout.startswith("GOAL: 3 ranks with 12 operations, as 45 frames\n")
    assert "  host0.mlx5_0 -> switch: 65792 bytes\n" in done.stdout
    assert len(rdmawire("dissect", str(path)).stdout.splitlines()) == 45
    fields = ("-Y", "infiniband.immdt", "-T", "fields", "-e", "infiniband.bth.opcode")
    assert set(rdmawire("dissect", str(path), *fields).stdout.split()) == {"9", "11"}


@pytest.mark.parametrize("flows", [False, True])
def test_messages_have_the_constants_of_loggp(flows: bool) -> None:
    words = ("gen", "trace", GOAL, "--json", *(["--flows"] if flows else []))
    plain = json.loads(rdmawire(*words).stdout)["rank_ns"]
    costly = json.loads(rdmawire(*words, "--overhead", "5000").stdout)["rank_ns"]
    assert all(later >= now + 5000 for now, later in zip(plain, costly, strict=True))
    gapped = json.loads(rdmawire(*words, "--gap", "9000").stdout)["rank_ns"]
    assert max(gapped) >= max(plain) + 5000
    buffered = json.loads(rdmawire(*words, "--eager", "1MiB", "--buffered").stdout)["rank_ns"]
    assert sum(buffered) < sum(plain)


def test_hosts_are_filled_with_ranks() -> None:
    words = ("gen", "trace", MSCCL, "--size", "64KiB", "--host", "dgx-h200", "--links", "-q")
    assert rdmawire(*words).stdout == ""
    found = rdmawire(*words[:-1]).stdout
    assert "host0: GPU0 -> GPU1: 65536 bytes" in found
    assert "switch" not in found
    listed = json.loads(rdmawire(*words[:-2], "--json").stdout)["places"]
    assert listed[3] == {"host": 0, "gpu": "GPU3", "adapter": "mlx5_3"}
    apart = rdmawire(*words[:-1], "--gpus-per-host", "1").stdout
    assert "host3.mlx5_0 -> switch: 131072 bytes" in apart


def test_many_ranks_are_summed_up(tmp_path: Path) -> None:
    path = tmp_path / "many.goal"
    ranks = "".join(f"rank {rank} {{\ncalc {100 - rank}\n}}\n" for rank in range(20))
    path.write_text(f"num_ranks 20\n{ranks}")
    lines = rdmawire("gen", "trace", str(path)).stdout.splitlines()
    assert lines[-2:] == ["  rank 19: 0.08 us, the first", "  rank 0: 0.10 us, the last"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("missing.goal",), "missing.goal: no such file or directory"),
        ((GOAL, MSCCL), "has all ranks: give it alone, without "),
        ((GOAL, "--size", "1M"), "a size is for an MSCCL algorithm; this trace has its own"),
        ((GOAL, "--flows", "-w", "x.pcap"), "--flows makes no packets: leave -w and --loss out"),
        ((GOAL, "--flows", "--loss", "1%"), "--flows makes no packets: leave -w and --loss out"),
        ((GOAL, "--json", "-q"), "give one of them"),
        ((GOAL, "--host", "dgx-h300"), "did you mean 'dgx-h"),
        ((GOAL, "--host", "two-sockets"), "mlx5_0 may not access GPU1 of two-socket server"),
        ((*CHAKRA, "--groups", GOAL), "exchange.goal, line 1: expecting value"),
        ((GOAL, "--size", "0"), "--size 0: an operation has one byte or more"),
        ((*CHAKRA, "--groups", "missing"), "--groups: missing: no such file or directory"),
    ],
)
def test_errors_of_usage_are_one_line(words: tuple[str, ...], message: str) -> None:
    assert message in refused("gen", "trace", *words, status=2)


def test_groups_are_for_traces_that_name_them(tmp_path: Path) -> None:
    path = tmp_path / "groups.json"
    path.write_text('{"a": [0, 1]}')
    line = refused("gen", "trace", GOAL, "--groups", str(path), status=2)
    assert "exchange.goal: process groups are for Chakra's traces" in line


def test_a_deadlock_is_one_line_with_its_time(tmp_path: Path) -> None:
    path = tmp_path / "stuck.goal"
    text = Path(GOAL).read_text(encoding="utf-8")
    path.write_text(text.replace("out requires compute", "out requires in"))
    line = refused("gen", "trace", str(path), status=1)
    assert line.startswith("rdmawire: after 3.0 us: rank 0, in (")
    assert (
        "line 7): recv of 65536 bytes from rank 1 with tag 1 waits forever: rank 1, out (" in line
    )


def test_losses_that_are_too_many_fail(tmp_path: Path) -> None:
    line = refused("gen", "trace", GOAL, "--loss", "40%", status=1)
    assert "failed: RETRY_EXC_ERR" in line


def long_schedule(tmp_path: Path, days: int) -> str:
    """A schedule whose message is sent after this many computations, of 11.6 days each."""
    steps = "".join(
        f"l{day}: calc {10**15}\nl{day} requires l{day - 1}\n" for day in range(1, days)
    )
    first = f"rank 0 {{\nl0: calc 1\n{steps}a: send 8b to 1\na requires l{days - 1}\n}}\n"
    path = tmp_path / "long.goal"
    path.write_text(f"num_ranks 2\n{first}rank 1 {{\nrecv 8b from 0\n}}\n")
    return str(path)


@pytest.mark.parametrize("flows", [(), ("--flows",)])
def test_a_run_of_more_time_than_there_is_fails(tmp_path: Path, flows: tuple[str, ...]) -> None:
    line = refused("gen", "trace", long_schedule(tmp_path, 4700), *flows, status=1)
    assert line.startswith("rdmawire: after 4611000000000000.0 us: not at rest after ")


def test_a_pcap_ends_in_2106(tmp_path: Path) -> None:
    words = ("gen", "trace", long_schedule(tmp_path, 4400), "-w")
    line = refused(*words, str(tmp_path / "long.pcap"), status=1)
    assert line.endswith("in a pcap, whose times end at 4294967295999999999 (2106-02-07); write a"
                         " pcapng")  # fmt: skip
    assert rdmawire(*words, str(tmp_path / "long.pcapng")).returncode == 0
