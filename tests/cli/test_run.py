"""`rdmawire run` as people call it."""

import json
import os
import pty
import subprocess
from collections import Counter
from hashlib import sha256
from pathlib import Path

import pytest

from rdmawire.capture import open_capture
from tests.cli.command import RDMAWIRE, rdmawire, refused

WRITE = """\
name: One WRITE
hosts:
  client: {memory: {source: {size: 8 KiB, fill: count}}}
  server: {memory: {sink: 8 KiB}}
connections:
  a: client, server
work:
  - write: {on: client/a, from: client.source, to: server.sink}
expect:
  memory: {server.sink: client.source}
"""


@pytest.fixture
def here(tmp_path: Path) -> str:
    """The path of a scenario that passes."""
    path = tmp_path / "mine.yaml"
    path.write_text(WRITE)
    return str(path)


def failing(tmp_path: Path) -> str:
    path = tmp_path / "fails.yaml"
    path.write_text(WRITE + "  counters: {client.retransmits: 2.., client-server.frames: 8}\n")
    return str(path)


def test_a_file_is_played_and_captured(here: str, tmp_path: Path) -> None:
    capture = tmp_path / "out.pcap"
    done = rdmawire("run", here, "-w", str(capture))
    first, empty, *table = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert first == f"passed  {here}: One WRITE (9 frames, 0.000002000 s)"
    assert empty == ""
    assert ["messages", "1"] in [line.split() for line in table]
    with open_capture(capture) as reader:
        assert len(list(reader)) == 9


def test_a_failure_has_the_expected_and_the_found_value_and_the_frame(tmp_path: Path) -> None:
    path = failing(tmp_path)
    done = rdmawire("run", "-q", path)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        f"FAILED  {path}: One WRITE (9 frames, 0.000002000 s)",
        f"  {path}:11:14: counter client.retransmits: expected 2 or more, found 0",
        f"  {path}:11:39: counter client-server.frames: expected 8, found 9 (frame 9)",
    ]


def test_shipped_scenarios_all_pass(tmp_path: Path) -> None:
    done = rdmawire("run", "--all", "-w", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    names = [line.split()[0] for line in rdmawire("run", "--list").stdout.splitlines()]
    assert {"write", "lost-first", "psn-wrap"} <= {*names}
    assert sorted(os.listdir(tmp_path)) == sorted(f"{name}.pcapng" for name in names)
    assert done.stdout.endswith(f"{len(names)} passed, 0 failed\n")


def test_a_shipped_name_is_the_shipped_scenario_whatever_files_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("lost-first", "write"):
        Path(name).write_text(WRITE)
    done = rdmawire("run", "-q", "--check", "lost-first")
    assert (done.returncode, done.stderr) == (0, "")
    told = rdmawire("run", "--check", "lost-first", "./lost-first", str(tmp_path / "write"))
    assert told.stdout.splitlines() == [
        "lost-first: The first packet of a WRITE is lost (1 step, 7 expectations)",
        "./lost-first: One WRITE (1 step, 1 expectation)",
        f"{tmp_path}/write: One WRITE (1 step, 1 expectation)",
    ]
    assert "One WRITE" not in rdmawire("run", "--show", "lost-first").stdout
    assert "One WRITE" in rdmawire("run", "--show", "./lost-first").stdout
    assert "One WRITE" not in rdmawire("run", "--check", "--all").stdout


def test_shipped_scenarios_are_shown_and_read_again(tmp_path: Path) -> None:
    shown = rdmawire("run", "--show", "lost-first").stdout
    path = tmp_path / "mine.yaml"
    path.write_text(shown)
    assert rdmawire("run", "--show", str(path)).stdout == shown
    done = rdmawire("run", "--check", str(path), "lost-first")
    assert done.stdout.splitlines() == [
        f"{path}: The first packet of a WRITE is lost (1 step, 7 expectations)",
        "lost-first: The first packet of a WRITE is lost (1 step, 7 expectations)",
    ]
    assert rdmawire("run", "-q", "--check", "lost-first").stdout == ""


def test_json_has_all_of_it(here: str, tmp_path: Path) -> None:
    done = rdmawire("run", "--json", here, failing(tmp_path))
    document = json.loads(done.stdout)
    assert (done.returncode, document["passed"], document["failed"]) == (1, 1, 1)
    good, bad = document["scenarios"]
    assert (good["passed"], good["failures"], good["frames"]) == (True, [], 9)
    assert good["steps"] == [
        {"name": "", "verb": "write", "line": 8, "posted": 1, "endings": {"SUCCESS": 1}}
    ]
    assert good["summary"]["bytes"] == 8192
    assert bad["failures"][1] == {
        "file": bad["source"],
        "line": 11,
        "column": 39,
        "what": "counter client-server.frames",
        "expected": "8",
        "found": "9",
        "frame": 9,
        "point": "",
        "nearest": "",
    }


def test_another_point_and_another_end_of_the_way(tmp_path: Path) -> None:
    capture = tmp_path / "out.pcapng"
    words = ("run", "-q", "lost-first", "-w", str(capture))
    frames = {}
    for more in (), ("--tap", "server"), ("--tap", "server", "--arrived"):
        assert rdmawire(*words, *more).returncode == 0
        with open_capture(capture) as reader:
            frames[more] = len(list(reader))
    assert list(frames.values()) == [18, 2, 15]


def test_a_link_is_tapped_from_either_end(tmp_path: Path) -> None:
    data = set()
    for point in "client-server", "server-client":
        capture = tmp_path / "out.pcap"
        rdmawire("run", "-q", "lost-first", "-w", str(capture), "--tap", point)
        data.add(capture.read_bytes())
    assert len(data) == 1


def test_several_points_are_interfaces_of_one_pcapng(tmp_path: Path) -> None:
    path = tmp_path / "points.pcapng"
    taps = ("--tap", "leaf:sink", "--tap", "one", "--tap", "leaf-sink", "--tap", "one")
    assert rdmawire("run", "-q", "cnp-reaction", *taps, "-w", str(path)).returncode == 0
    with open_capture(path) as reader:
        found = Counter(reader.interfaces[record.interface].name for record in reader)
        assert [one.name for one in reader.interfaces] == ["leaf:sink", "one", "leaf-sink"]
    (alone,) = json.loads(rdmawire("run", "--json", "cnp-reaction").stdout)["scenarios"]
    assert 0 < found["leaf:sink"] < found["leaf-sink"]
    assert found["one"] == alone["counters"]["one.frames"]
    assert found["leaf-sink"] == alone["counters"]["leaf-sink.frames"]


def test_what_faults_did_is_a_comment_that_a_filter_finds(tmp_path: Path) -> None:
    path = str(tmp_path / "out.pcapng")
    assert rdmawire("run", "-q", "lost-first", "-w", path).returncode == 0
    words = ("-Y", 'frame.comment == "lost on the link"', "-T", "fields", "-e", "frame.number")
    assert rdmawire("dissect", *words, path).stdout == "1\n"


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_frames_go_to_standard_output_and_all_else_beside(
    here: str, tmp_path: Path, name: str
) -> None:
    done = subprocess.run([*RDMAWIRE, "run", here, "-w", name], capture_output=True, check=True)
    assert done.stderr.decode().startswith(f"passed  {here}: One WRITE")
    path = tmp_path / "out.pcap"
    path.write_bytes(done.stdout)
    with open_capture(path) as reader:
        assert len(list(reader)) == 9


def test_a_scenario_comes_from_standard_input() -> None:
    done = rdmawire("run", "-", stdin=WRITE.encode())
    assert done.stdout.startswith("passed  standard input: One WRITE")
    assert refused("run", "-", stdin=b"- a", status=2).startswith("rdmawire: standard input:1:1: ")


@pytest.mark.parametrize("env", [{}, pytest.param({"NO_COLOR": "1"}, marks=pytest.mark.slow)])
def test_colours_are_for_terminals(here: str, env: dict[str, str]) -> None:
    main, follower = pty.openpty()
    done = subprocess.run(
        [*RDMAWIRE, "run", "-q", failing(Path(here).parent)],
        stdout=follower,
        check=False,
        env={**os.environ, "TERM": "xterm", **env},
    )
    os.close(follower)
    shown = os.read(main, 1 << 16)
    os.close(main)
    assert done.returncode == 1
    assert (b"\x1b[1;31mFAILED" in shown) is not bool(env)
    assert b"\x1b" not in rdmawire("run", here).stdout.encode()


def test_the_schema_is_json(here: str) -> None:
    schema = json.loads(rdmawire("run", "--schema").stdout)
    assert schema["title"] == "A scenario of rdmawire"
    assert os.path.exists(here)


def test_keys_are_printed_by_a_word_of_their_name() -> None:
    lines = rdmawire("run", "--keys", "kmin").stdout.splitlines()
    assert lines[0] == "a queue"
    assert lines[1].startswith(
        "  kmin  Queue length in bytes above which some frames are marked (ECN). ["
    )
    every = rdmawire("run", "--keys").stdout.splitlines()
    assert {"a connection", "the scheme dcqcn", "counters of a port", "events of hosts"} <= {*every}
    assert "did you mean 'kmin'?" in refused("run", "--keys", "kminn", status=2)


def test_the_same_seed_gives_the_same_bytes_on_every_machine(tmp_path: Path) -> None:
    """Chance, memory and connection manager: all of it comes from the seed."""
    path = tmp_path / "chance.yaml"
    path.write_text(
        WRITE.replace("fill: count", "fill: random").replace(
            "a: client, server", "a: {between: 'client, server', connect: cm}"
        )
        + "links: {client-server: {faults: [drop: {chance: 0.1}]}}\n"
    )
    found = []
    for number, env in enumerate(
        ({"PYTHONHASHSEED": "1", "TZ": "UTC"}, {"PYTHONHASHSEED": "2", "TZ": "Asia/Tokyo"})
    ):
        capture = tmp_path / f"{number}.pcap"
        done = rdmawire("run", str(path), "--seed", "7", "-w", str(capture), env=env)
        assert done.returncode == 0, done.stdout
        found.append(sha256(capture.read_bytes()).hexdigest())
    capture = tmp_path / "other.pcap"
    rdmawire("run", str(path), "--seed", "8", "-w", str(capture))
    assert found[0] == found[1] != sha256(capture.read_bytes()).hexdigest()


def test_every_mistake_of_every_file_is_reported_and_nothing_runs(
    here: str, tmp_path: Path
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(WRITE.replace("on: client/a", "onn: client/a").replace("sink: 8", "sink: -8"))
    capture = tmp_path / "out.pcap"
    done = rdmawire("run", here, str(path), "-w", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert len(lines) >= 2
    assert all(line.startswith(f"rdmawire: {path}:") for line in lines)
    assert not capture.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "no SCENARIO is given; --list names the shipped ones"),
        (("wrte",), "did you mean the shipped 'write'?"),
        (("nothing-like-it-at-all-here",), "--list names the shipped ones"),
        (("--show", "wrte"), "did you mean the shipped 'write'?"),
        (("write", "--tap", "server"), "--tap and --arrived need -w FILE"),
        (("write", "--arrived", "-w", "x.pcap"), "--arrived needs a --tap POINT"),
        (
            ("write", "--tap", "client", "--tap", "server", "-w", "x.pcap"),
            "-w x.pcap is a pcap with one interface, for 2 --tap; write a .pcapng",
        ),
        (("write", "read", "-w", "x.pcap"), "-w x.pcap is one file, for 2 scenarios"),
        (("write", "-w", "x.foo"), "-w x.foo names no format; end it in .pcap or .pcapng"),
        (("write", "-w", "x"), "-w x names no format"),
        (("write", "-w", "x.gz"), "-w x.gz names no format"),
        (("write", "--seed", "-1"), "-1 is not in the range"),
        (("write", "write.yaml", "-w", "."), "./write.pcapng would be written twice"),
        (
            ("write", "--tap", "leaf", "-w", "x.pcap"),
            "Invalid value for --tap: 'leaf' is none of client-server, client, server",
        ),
    ],
)
def test_wrong_usage_is_one_line(
    words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refused("run", *words, status=2)
    assert not list(tmp_path.iterdir())


def test_marks_without_cnps_are_pointed_out(tmp_path: Path) -> None:
    path = tmp_path / "marks.yaml"
    capable = WRITE.replace("client, server", "{between: 'client, server', ecn: true}")
    path.write_text(f"{capable}links: {{client-server: {{faults: [mark: {{}}]}}}}\n")
    done = rdmawire("run", "-q", str(path))
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith(f"rdmawire: {path}:11:34: no CNP reports these marks")


def test_faults_that_changed_no_frame_are_pointed_out(tmp_path: Path) -> None:
    path = tmp_path / "idle.yaml"
    path.write_text(f"{WRITE}links: {{client-server: {{faults: [drop: {{nth: 99}}]}}}}\n")
    done = rdmawire("run", "-q", str(path))
    said = "the fault 'drop' changed no frame: of the 9 on client-server 9 could be meant"
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith(f"rdmawire: {path}:11:34: {said}")
    (found,) = json.loads(rdmawire("run", "--json", str(path)).stdout)["scenarios"]
    (hint,) = found["hints"]
    assert (hint["file"], hint["line"], hint["column"]) == (str(path), 11, 34)
    assert hint["said"].startswith(said)


def test_a_folder_is_made_where_its_name_says_that_it_is_one(here: str, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "captures"
    assert rdmawire("run", "-q", here, "write", "-w", f"{folder}/").returncode == 0
    assert sorted(os.listdir(folder)) == ["mine.pcapng", "write.pcapng"]
    assert "mine.yaml" in refused("run", here, "-w", f"{here}/", status=1)


def test_ports_of_switches_are_in_the_table_and_in_json() -> None:
    said = rdmawire("run", "cnp-reaction").stdout
    (summary,) = json.loads(rdmawire("run", "--json", "cnp-reaction").stdout)["scenarios"]
    marks = summary["ports"]["leaf:sink"]["marks"]
    assert marks == summary["summary"]["marks"] > 0
    table = [line.split(maxsplit=2) for line in said.splitlines()]
    assert ["port", "leaf:sink", f"{marks} marked"] in table
    assert ["ECN", "marks", f"{marks}"] in table
    assert not any(line[:2] == ["port", "leaf:one"] for line in table)


def test_counters_are_printed_by_the_names_that_files_have_for_them() -> None:
    said = rdmawire("run", "-q", "--counters", "lost-first").stdout
    first, *rows = said.splitlines()
    assert first.startswith("passed  lost-first")
    table = {name: int(count.replace(",", "")) for name, count in map(str.split, rows)}
    assert table["client.retransmits"] == 8
    assert table["client-server.lost"] == 1
    assert all(table.values())
    (found,) = json.loads(rdmawire("run", "--json", "lost-first").stdout)["scenarios"]
    assert {name: count for name, count in found["counters"].items() if count} == table
    assert found["counters"]["client.naks"] == 0
    assert "client.frames" not in rdmawire("run", "lost-first").stdout


def test_a_capture_that_cannot_be_written_is_one_line(here: str) -> None:
    assert "nowhere" in refused("run", here, "-w", "/nowhere/out.pcap", status=1)


def test_a_bar_is_drawn_where_it_is_asked_for_and_takes_long(tmp_path: Path) -> None:
    path = tmp_path / "long.yaml"
    path.write_text(WRITE.replace("to: server.sink", "to: server.sink, times: 4000, depth: 4"))
    done = rdmawire("run", "-q", "--progress", str(path))
    assert (done.returncode, done.stdout) == (0, "")


def test_a_planted_bug_fails_the_scenario_of_its_finding(tmp_path: Path) -> None:
    words = ("--bug", "short-writes", "--service", "rc", "--max-findings", "1", "--seed", "1")
    found = rdmawire("fuzz", "run", *words, "-o", str(tmp_path))
    assert found.returncode == 1
    (scenario,) = tmp_path.glob("*/scenario.yaml")
    assert rdmawire("run", "-q", str(scenario)).returncode == 0
    broken = rdmawire("run", "-q", "--bug", "server=short-writes", str(scenario))
    assert broken.returncode == 1
    assert "state of server/a" in broken.stdout
    report = (scenario.parent / "report.txt").read_text()
    assert "rdmawire run --bug server=short-writes FOLDER/scenario.yaml" in report


@pytest.mark.parametrize(
    ("bug", "service"),
    [
        ("no-space-for-grh", "ud"),
        pytest.param("uc-lost-immediate", "uc", marks=pytest.mark.slow),
    ],
)
def test_findings_of_other_services_and_roles_have_scenarios(
    bug: str, service: str, tmp_path: Path
) -> None:
    words = ("--bug", bug, "--service", service, "--max-findings", "1", "--seed", "1")
    assert rdmawire("fuzz", "run", *words, "-o", str(tmp_path)).returncode == 1
    (scenario,) = tmp_path.glob("*/scenario.yaml")
    assert rdmawire("run", "-q", str(scenario)).returncode == 0
    assert rdmawire("run", "-q", "--bug", f"server={bug}", str(scenario)).returncode == 1


@pytest.mark.parametrize(
    ("bug", "message"),
    [
        ("short-writes", "'short-writes' is no HOST=NAME"),
        ("server=", "'server=' is no HOST=NAME"),
        ("server=short-write", "no planted bug is named 'short-write'"),
        ("serve=short-writes", "has no host 'serve': hosts are client, server"),
    ],
)
def test_bugs_that_cannot_be_planted_are_refused(bug: str, message: str, here: str) -> None:
    assert message in refused("run", "--bug", bug, here, status=2)
