"""One test for each library that rdmawire needs: it is there, and does what it is needed for.

`make lowest` runs these with the lowest versions that `pyproject.toml` declares.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from rdmawire.capture import open_capture
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.packet import Packet
from tests.cli.command import CAPTURES, RNR, rdmawire, refused
from tests.waiting import HANG

SIW = str(CAPTURES / "linux" / "siw612crc_rping.pcap")
COMMANDS = ["dissect", "edit", "fields", "gen", "run", "stats", "vectors"]


def ran(*words: str) -> str:
    """What a call prints that succeeds."""
    done = rdmawire(*words)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_click_shows_the_help_of_every_command(command: str) -> None:
    assert ran(command, "--help").startswith(f"Usage: rdmawire {command}")


def test_click_refuses_what_is_wrong_in_one_line() -> None:
    assert "No such option" in refused("dissect", "--nope", status=2)
    assert "'5' is not one of" in refused("gen", "write", "--mtu", "5", "-w", "x.pcap", status=2)
    assert "Missing option '-w'" in refused("gen", "write", status=2)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_click_has_shells_complete_words(shell: str) -> None:
    assert "_RDMAWIRE_COMPLETE" in ran("completion", shell)


def test_rich_draws_tables() -> None:
    assert "RC_SEND_ONLY" in ran("stats", RNR)


@pytest.mark.parametrize("suffix", [".lz4", ".zst", ".gz"])
def test_captures_are_packed_and_unpacked(suffix: str, tmp_path: Path) -> None:
    packed = tmp_path / f"x.pcap{suffix}"
    ran("edit", "-q", RNR, "-w", str(packed))
    with open_capture(RNR) as plain, open_capture(packed) as reader:
        assert [record.data for record in reader] == [record.data for record in plain]


@pytest.mark.parametrize("capture", [RNR, SIW])
def test_isal_and_crc32c_verify_every_checksum(capture: str) -> None:
    assert "CRC" in ran("dissect", "--quiet", "--fail-on-bad-checksum", capture)


def test_re2_finds_patterns_in_frames() -> None:
    found = ran("dissect", "-q", "-Y", r'string(ip.src) matches r"^10\.77\.0\.\d+$"', RNR)
    assert found == ran("dissect", "-q", "-Y", "ip.src == 10.77.0.0/24", RNR)
    assert "lookaround" in refused("dissect", "-Y", 'frame matches "a(?=b)"', RNR, status=2)


def test_pyyaml_reads_a_scenario() -> None:
    assert ran("run", "lost-first").startswith("passed  lost-first")


def test_pydantic_collects_the_mistakes_of_a_scenario(tmp_path: Path) -> None:
    path = tmp_path / "it.yaml"
    path.write_text("name: It\nhosts: {client: {profile: rex}, server: {mack: 1}}\nseed: -1\n")
    done = rdmawire("run", str(path))
    assert done.returncode == 2
    for said in (":2:27: found 'rex'", "did you mean 'rxe'?", ":2:42: found key 'mack'", ":3:7: "):
        assert said in done.stderr


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow"])
def test_numpy_and_pyarrow_write_columns(form: str, tmp_path: Path) -> None:
    path = tmp_path / "columns"
    rdmawire("dissect", "-T", form, "-e", "infiniband.bth.psn", "-o", str(path), RNR)
    assert path.stat().st_size > 100


def test_pyarrow_reads_what_was_written(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "columns"
    rdmawire("dissect", "-T", "parquet", "-e", "infiniband.bth.psn", "-o", str(path), RNR)
    shown = ran("dissect", "-T", "fields", "-e", "infiniband.bth.psn", RNR).split()
    column = parquet.read_table(path)["infiniband.bth.psn"].drop_null()
    assert [str(psn) for psn in column.to_pylist()] == shown


def test_numpy_repeats_rounds_of_traffic(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    ran("gen", "send", "--size", "64", "--count", "3000", "-w", str(path))
    with open_capture(path) as reader:
        assert sum(1 for _ in reader) >= 3000


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_matplotlib_draws_a_picture(suffix: str, tmp_path: Path) -> None:
    picture = tmp_path / f"picture.{suffix}"
    rdmawire("stats", "--plot", str(picture), RNR)
    assert picture.stat().st_size > 1000


def test_hypothesis_draws_packets() -> None:
    from hypothesis import given

    from rdmawire.testing.strategies import packets

    drawn: list[int] = []

    @given(packets(opcodes=[Opcode.RC_SEND_ONLY]))
    def draw(packet: Packet) -> None:
        assert Packet.parse(packet.build()) == packet
        drawn.append(packet.bth.opcode)

    draw()
    assert set(drawn) == {Opcode.RC_SEND_ONLY}


def test_construct_reads_and_builds_a_header() -> None:
    from rdmawire.layers.construct import BTH

    data = bytes.fromhex("040000000000001100000005")
    assert BTH.build(BTH.parse(data)) == data


SCAPY = """
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import rdpcap
from rdmawire.layers.scapy import BTH
link = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
sent = link / IP(src="192.0.2.1", dst="192.0.2.2") / UDP() / BTH(opcode="RC_SEND_ONLY") / b"abc"
assert Ether(bytes(sent))[BTH].icrc_good()
packets = rdpcap(sys.argv[1])
assert packets and all(each[BTH].icrc_good() for each in packets if BTH in each)
"""


def test_scapy_builds_and_reads_packets() -> None:
    """In a process of its own: only files under Scapy's licence import it."""
    command = [sys.executable, "-c", f"import sys{SCAPY}", RNR]
    done = subprocess.run(command, capture_output=True, check=False, timeout=HANG)
    assert done.returncode == 0, done.stderr
