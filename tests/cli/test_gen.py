"""Test traffic from the command line: what is written, said and refused."""

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

from rdmawire.capture import open_capture
from rdmawire.cli import progress
from rdmawire.cli.gen import kinds
from tests.cli.command import RDMAWIRE, rdmawire, refused
from tests.waiting import HANG, wait_until
from tests.writing import unfinished

_COUNTED = ("messages", "frames", "retransmits", "NAKs", "frames lost")
README = Path(__file__).parents[2] / "README.md"


def test_ten_thousand_lossy_frames_with_the_command_of_the_readme(tmp_path: Path) -> None:
    (line,) = re.findall(
        r"^\.venv/bin/rdmawire (gen .*) lossy\.pcap$", README.read_text(), re.MULTILINE
    )
    path = str(tmp_path / "lossy.pcap")
    done = rdmawire(*line.split(), path)
    assert (done.returncode, done.stderr) == (0, "")
    rows = dict(line.split("  ", maxsplit=1) for line in done.stdout.splitlines())
    counts = {name: int(rows[name].replace(",", "")) for name in _COUNTED}
    assert counts["frames"] == 10_000
    assert min(counts.values()) > 0
    said = rdmawire("dissect", "-q", "--fail-on-bad-checksum", path)
    assert said.returncode == 0
    assert "10000 frames; ICRC 10000 good; IPv4 header checksum 10000 good" in said.stdout


def test_the_summary_has_all_counts_of_a_run(tmp_path: Path) -> None:
    done = rdmawire("gen", "mix", "--ecn", "5%", "--gpu", "-w", str(tmp_path / "x.pcap"))
    for word in (
        *("messages", "bytes", "frames", "retransmits", "NAKs", "CNPs", "ECN marks"),
        *("GPUDirect", "0 copies", "virtual time", "wall time"),
    ):
        assert word in done.stdout


def test_json_is_one_object(tmp_path: Path) -> None:
    done = rdmawire("gen", "read", "--count", "7", "--json", "-w", str(tmp_path / "x.pcapng"))
    found = json.loads(done.stdout)
    assert (found["messages"], found["bytes"], found["lost"]) == (7, 7 * 4096, 0)
    assert found["paths"]["host"]["copies"] == 0
    assert found["wall_s"] > 0


@pytest.mark.parametrize(
    ("suffix", "form", "packing"),
    [("pcap", "pcap", ""), ("pcapng", "pcapng", ""), ("pcap.zst", "pcap", "zstd")],
)
def test_the_suffix_selects_the_form(tmp_path: Path, suffix: str, form: str, packing: str) -> None:
    path = tmp_path / f"x.{suffix}"
    assert rdmawire("gen", "ud", "--count", "5", "-w", str(path)).returncode == 0
    with open_capture(path) as reader:
        assert (reader.format, reader.compression) == (form, packing)
        assert len(list(reader)) == 5
        assert reader.interfaces[0].resolution == 10**9


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/dev/fd/1"])
def test_standard_output_has_the_capture_and_nothing_else(name: str) -> None:
    program = [*RDMAWIRE, "gen", "atomic", "--count", "3", "-w", name]
    made = subprocess.run(program, capture_output=True, check=True, timeout=HANG)
    assert b"messages" in made.stderr
    said = rdmawire("dissect", "-q", "-", stdin=made.stdout)
    assert "6 frames; ICRC 6 good" in said.stdout


def test_many_wishes_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "x.pcap")
    wishes = "--size 64-2k --mtu 256 --qps 5 --ipv6 --vlan 9 --dscp 26 --psn 0xfffff0 --seed 3"
    more = "--rate 25G --latency 2us --tap arrived --loss 0.5% --count 300 --no-progress"
    done = rdmawire("gen", "mix", *wishes.split(), *more.split(), "-w", path)
    assert done.returncode == 0, done.stderr
    fields = ("vlan.id", "ipv6.tclass.dscp", "rdmawire.icrc.status")
    words = [word for field in fields for word in ("-e", field)]
    said = rdmawire("dissect", "-T", "fields", *words, path)
    assert set(said.stdout.splitlines()) == {"9\t26\tgood"}


def test_many_clients_with_many_flows_to_one_server(tmp_path: Path) -> None:
    path = str(tmp_path / "x.pcap")
    words = ("--clients", "8", "--flows", "100", "--size", "64", "-w", path)
    done = rdmawire("gen", "write", *words)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines()[:3]]
    assert rows == [["clients", "8"], ["servers", "1"], ["flows", "100"]]
    requests = fields_of(path, "ip.src", "infiniband.bth.destqp", "ip.dst")
    assert len({flow for source, flow, _ in requests if source != "10.0.0.9"}) == 100
    assert {source for source, *_ in requests} == {f"10.0.0.{number}" for number in range(1, 10)}
    assert {there for source, _, there in requests if source != "10.0.0.9"} == {"10.0.0.9"}
    said = rdmawire("dissect", "-q", "--fail-on-bad-checksum", path)
    assert said.returncode == 0


@pytest.mark.parametrize(
    ("words", "parties"),
    [
        ((), {"clients": 1, "servers": 1, "flows": 1}),
        (("--qps", "3"), {"clients": 1, "servers": 1, "flows": 3}),
        (("--clients", "4", "--servers", "2"), {"clients": 4, "servers": 2, "flows": 8}),
    ],
)
def test_the_summary_as_json_has_hosts_and_flows(
    tmp_path: Path, words: tuple[str, ...], parties: dict[str, int]
) -> None:
    done = rdmawire("gen", "ud", "--count", "9", *words, "--json", "-w", str(tmp_path / "x.pcap"))
    found = json.loads(done.stdout)
    assert {name: found[name] for name in parties} == parties


def test_the_table_names_no_hosts_where_there_are_two(tmp_path: Path) -> None:
    done = rdmawire("gen", "ud", "--flows", "3", "-w", str(tmp_path / "x.pcap"))
    assert done.stdout.startswith("messages ")


def fields_of(path: str, *names: str) -> set[tuple[str, ...]]:
    """The values of these fields that frames have together."""
    words = [word for name in names for word in ("-e", name)]
    lines = rdmawire("dissect", "-T", "fields", *words, path).stdout.splitlines()
    return {tuple(line.split("\t")) for line in lines}


def test_ends_are_where_they_are_asked_for(tmp_path: Path) -> None:
    path = str(tmp_path / "x.pcap")
    ends = ("--client", "192.168.1.10/0c:c4:7a:00:00:01", "--server", "192.168.1.20")
    assert rdmawire("gen", "read", "--count", "5", *ends, "-w", path).returncode == 0
    one, other = ("192.168.1.10", "0c:c4:7a:00:00:01"), ("192.168.1.20", "02:00:00:00:00:02")
    seen = fields_of(path, "ip.src", "eth.src", "ip.dst", "eth.dst")
    assert seen == {(*one, *other), (*other, *one)}


def test_lost_frames_are_named_in_a_pcapng(tmp_path: Path) -> None:
    path = str(tmp_path / "x.pcapng")
    done = rdmawire("gen", "write", "--frames", "900", "--loss", "2%", "--json", "-w", path)
    words = ("-Y", 'frame.comment == "lost on the link"', "-T", "fields", "-e", "frame.number")
    lost = rdmawire("dissect", *words, path).stdout.split()
    assert len(lost) == json.loads(done.stdout)["lost"] > 0


def test_cnps_and_timeouts_as_asked_for(tmp_path: Path) -> None:
    path = str(tmp_path / "x.pcap")
    words = ("--dscp", "10", "--cnp-dscp", "34", "--timeout", "9", "--tap", "arrived")
    assert rdmawire("gen", "send", "--ecn", "20%", *words, "-w", path).returncode == 0
    kinds = fields_of(path, "infiniband.bth.opcode", "ip.dsfield.dscp", "ip.dsfield.ecn")
    assert {("17", "10", "0"), ("129", "34", "0"), ("0", "10", "2")} <= kinds
    assert {ecn for opcode, _, ecn in kinds if opcode in {"17", "129"}} == {"0"}


@pytest.mark.parametrize(
    ("tag", "priorities"),
    [("100", {("17", "1"), ("129", "6")}), ("100:3", {("17", "3"), ("129", "3")})],
)
def test_the_priority_in_a_tag_follows_the_dscp_unless_it_is_asked_for(
    tmp_path: Path, tag: str, priorities: set[tuple[str, str]]
) -> None:
    path = str(tmp_path / "x.pcap")
    words = ("--vlan", tag, "--dscp", "10", "--ecn", "20%", "--count", "100")
    assert rdmawire("gen", "send", *words, "-w", path).returncode == 0
    assert fields_of(path, "vlan.id") == {("100",)}
    assert priorities <= fields_of(path, "infiniband.bth.opcode", "vlan.priority")


def test_quietly_it_writes_and_prints_nothing(tmp_path: Path) -> None:
    path, usual = tmp_path / "x.pcap", tmp_path / "usual.pcap"
    done = rdmawire("gen", "ud", "--count", "5", "-q", "-w", str(path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    rdmawire("gen", "ud", "--count", "5", "-w", str(usual))
    assert path.read_bytes() == usual.read_bytes()


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (("--size", "4k"), ("--size", "4 KiB")),
        (("--rate", "25G"), ("--rate", "25 Gbit/s")),
        (("--latency", "5us"), ("--latency", "5 us")),
    ],
)
def test_quantities_as_scenarios_write_them(
    tmp_path: Path, short: tuple[str, ...], long: tuple[str, ...]
) -> None:
    paths = tmp_path / "one.pcap", tmp_path / "other.pcap"
    for path, words in zip(paths, (short, long), strict=True):
        assert rdmawire("gen", "send", "--count", "9", *words, "-w", str(path)).returncode == 0
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("write", "-w", "x.foo"), "-w x.foo names no format; end it in .pcap or .pcapng"),
        (("teapot", "-w", "x"), "for 'VERB': 'teapot' is not one of 'write', 'send'"),
        (("write",), "Missing option '-w'"),
        (("write", "--size", "4x", "-w", "x"), "'4x' is no size such as 64, 4k, 1M"),
        (("write", "--size", "3G", "-w", "x"), "at most 2 GiB"),
        (("write", "--mtu", "1500", "-w", "x"), "'1500' is not one of '256'"),
        (("write", "--count", "0", "-w", "x"), "0 is not in the range 1<=x<="),
        (("write", "--count", "1e6", "-w", "x"), "'1e6' is not a valid integer"),
        (("write", "--loss", "90%", "-w", "x"), "'90%' is no share of frames such as 1%"),
        (("write", "--ecn", "write", "-w", "x"), "'write' is no share of frames"),
        (("write", "--psn", "0x1000000", "-w", "x"), "is not a PSN from 0 to 0xffffff"),
        (("write", "--rate", "fast", "-w", "x"), "'fast' is no rate such as 100G"),
        (("write", "--latency", "1", "-w", "x"), "'1' is not a duration such as 1us"),
        (("write", "--latency", "1 2us", "-w", "x"), "'1 2us' is not a duration such as 1us"),
        (("write", "--timeout", "32", "-w", "x"), "32 is not in the range 1<=x<=31"),
        (("ud", "--timeout", "8", "-w", "x"), "leave the timeout out"),
        (("write", "--client", "host", "-w", "x"), "'host' is no address such as 10.0.0.1"),
        (("write", "--client", "fd00::7", "-w", "x"), "both of IPv6 with --ipv6"),
        (("write", "--count", "1", "--frames", "1", "-w", "x"), "give one of them"),
        (("write", "--qps", "1", "--flows", "1", "-w", "x"), "give one of them"),
        (("write", "--clients", "254", "-w", "x"), "254 is not in the range 1<=x<=253"),
        (("write", "--clients", "8", "--flows", "5", "-w", "x"), "5 flows are too few"),
        (("cm", "--servers", "8", "--count", "5", "-w", "x"), "ask for 8 messages or frames"),
        (("ud", "--size", "8k", "-w", "x"), "a datagram has at most the MTU's 1024 bytes"),
        (("atomic", "--size", "8", "-w", "x"), "leave the size out"),
        (("cm", "--gpu", "-w", "x"), "no GPU memory"),
        (("ud", "--vlan", "4095", "-w", "x"), "'4095': a VLAN is within 0..4094"),
        (("ud", "--vlan", "100:8", "-w", "x"), "'100:8': a priority is within 0..7"),
        (("ud", "--vlan", "100:", "-w", "x"), "'100:' is no VID or VID:PCP such as 100 or 100:3"),
        (("ud", "--json", "-q", "-w", "x"), "--json prints the summary, -q does not: give one"),
    ],
)
def test_wrong_usage_is_one_line_that_says_what_is_allowed(
    words: tuple[str, ...], message: str
) -> None:
    line = refused("gen", *words, status=2)
    assert message in line
    assert "gen --help" in line


@pytest.mark.parametrize("kind", kinds())
def test_each_kind_of_traffic_has_its_own_help(kind: str) -> None:
    shown = rdmawire("gen", kind, "--help").stdout
    assert shown.startswith(f"Usage: rdmawire gen {kind} [OPTIONS]")
    assert shown.count(kind, 0, shown.index("\n")) == 1
    line = refused("gen", kind, "--no-such", status=2)
    assert line.rstrip().endswith(f"see `rdmawire gen {kind} --help`")


def test_a_file_that_cannot_be_written_is_one_line() -> None:
    assert "folder does not exist" in refused("gen", "ud", "-w", "/no/such/x.pcap", status=1)


def test_an_interrupted_run_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    program = [*RDMAWIRE, "gen", "write", "--count", "1000000000", "-w", str(path)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        wait_until(lambda: [file for file in unfinished(tmp_path, running.pid) if file.st_size > 0])
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=HANG)
    assert running.returncode == 130
    assert said == b"rdmawire: interrupted\n"
    assert not list(tmp_path.iterdir())


def test_long_runs_show_how_far_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("gen", "send", "--count", "3000", "--progress", "-w", str(tmp_path / "x.pcap"))
    terminal = {"FORCE_COLOR": "1"}
    monkeypatch.setattr(progress, "_SOON", 600.0)
    assert rdmawire(*words, env=terminal).stderr == ""
    monkeypatch.setattr(progress, "_SOON", 0.0)
    assert "gen send" in rdmawire(*words, env=terminal).stderr
    assert rdmawire(*words).stderr == ""  # no terminal
