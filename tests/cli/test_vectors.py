"""Test vectors from the command line: listed, printed, written, and refused in one line."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rdmawire.capture import open_capture
from tests.cli.command import CAPTURES, RDMAWIRE, RNR, rdmawire, refused
from tests.waiting import HANG

TIMER = "rnr-timer-12"


def data(path: str | Path, *numbers: int) -> list[bytes]:
    """Frames of a capture by number; all of them for none."""
    with open_capture(path) as reader:
        frames = [record.data for record in reader]
    return [frames[number - 1] for number in numbers] if numbers else frames


def told(*words: str) -> list[dict[str, Any]]:
    done = rdmawire("vectors", "--json", *words)
    assert (done.returncode, done.stderr) == (0, "")
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_a_case_is_a_line_of_name_capture_frames_and_what_it_shows() -> None:
    done = rdmawire("vectors", "RNR_NAK", "0.64")
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    name, file, frames, shows = line.split("  ")
    assert (name, file, frames) == (TIMER, "golden/rnr.pcap", "49-52")
    assert shows.startswith("a SEND without a receive: come back in 0.64 ms")


def test_hex_is_the_bytes_of_the_frames_and_nothing_else() -> None:
    done = rdmawire("vectors", "-x", TIMER)
    frames = data(CAPTURES / "golden" / "rnr.pcap", 49, 50, 51, 52)
    assert [bytes.fromhex(line) for line in done.stdout.splitlines()] == frames
    (case,) = told("-x", TIMER)
    assert case["bytes"] == [frame.hex() for frame in frames]


def test_json_has_the_contents_and_the_outcome_of_frames() -> None:
    (case,) = told(TIMER)
    assert (case["name"], case["file"], case["frames"]) == (TIMER, "golden/rnr.pcap", [49, 52])
    assert "bytes" not in case
    assert case["comes_to"] == ["SUCCESS"]
    assert {"RC_SEND_ONLY", "RNR_NAK 12: 0.64 ms"} <= set(case["has"])


@pytest.mark.parametrize("name", ["x.pcap", "x.pcapng.zst"])
def test_frames_are_written_with_their_times(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    done = rdmawire("vectors", "-w", str(path), TIMER)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1)
    source = CAPTURES / "golden" / "rnr.pcap"
    assert data(path) == data(source, 49, 50, 51, 52)
    with open_capture(path) as mine, open_capture(source) as theirs:
        assert [one.time_ns for one in mine] == [one.time_ns for one in theirs][48:52]


def test_frames_of_several_link_types_take_a_pcapng(tmp_path: Path) -> None:
    line = refused("vectors", "-w", str(tmp_path / "x.pcap"), "carried", status=1)
    assert "write a pcapng for several" in line
    path = tmp_path / "x.pcapng"
    assert rdmawire("vectors", "-w", str(path), "carried").returncode == 0
    with open_capture(path) as reader:
        kinds = {record.link_type for record in reader}
    with open_capture(path) as reader:
        declared = [reader.interfaces[one.interface].link_type == one.link_type for one in reader]
    assert len(kinds) > 5
    assert all(declared)


def test_frames_go_down_a_pipe_and_the_list_beside_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [*RDMAWIRE, "vectors", "-w", "-", TIMER], capture_output=True, check=True, timeout=HANG
    )
    assert done.stderr.startswith(TIMER.encode())
    path = tmp_path / "piped.pcap"
    path.write_bytes(done.stdout)
    assert data(path) == data(CAPTURES / "golden" / "rnr.pcap", 49, 50, 51, 52)


@pytest.mark.parametrize("word", ["RD_CMP_SWAP", "TERMINATE"])
def test_what_no_golden_case_has_is_found_frame_by_frame(word: str) -> None:
    for case in told(word):
        first, last = case["frames"]
        assert first == last
        assert case["file"].startswith("generated/")
        assert word in case["has"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["RNR_NACK"], "no test vector has 'RNR_NACK'; the nearest is RNR_NAK"),
        (["RNR_NAK", "RNR_NACK"], "no test vector has 'RNR_NACK'"),
        (["CNP", "vxlan"], "no test vector has all of 'CNP', 'vxlan'; each alone is found"),
        (["\x1b[2J"], r"no test vector has '\x1b[2J'"),
    ],
)
def test_nothing_found_is_status_1_and_names_the_word(words: list[str], says: str) -> None:
    assert says in refused("vectors", *words, status=1)


def test_it_writes_over_none_of_the_vectors() -> None:
    path = CAPTURES / "golden" / "rnr.pcap"
    before = path.read_bytes()
    assert "-w would write over it" in refused("vectors", "-w", str(path), TIMER, status=2)
    assert path.read_bytes() == before


@pytest.mark.parametrize("folder", ["nowhere", "linux"])
def test_a_folder_without_vectors_is_one_line(tmp_path: Path, folder: str) -> None:
    where = tmp_path / "nowhere" if folder == "nowhere" else Path(RNR).parent
    line = refused("vectors", "--dir", str(where), status=2)
    assert f"no test vectors in {where}: golden/manifest.toml is not there" in line
    assert "--dir" in line


def test_a_damaged_pack_is_one_line(tmp_path: Path) -> None:
    golden = tmp_path / "golden"
    golden.mkdir()
    (golden / "manifest.toml").write_text("[[capture]\n")
    assert "manifest.toml: is not TOML" in refused("vectors", "--dir", str(tmp_path), status=2)
    (golden / "manifest.toml").write_text('[[capture]]\nfile = "x.pcap"\nshows = "x"\n')
    assert "x.json: is not a file" in refused("vectors", "--dir", str(tmp_path), status=2)


def test_the_shell_completes_cases_and_rows() -> None:
    def completed(*words: str) -> list[str]:
        told = {"_RDMAWIRE_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words)}
        done = rdmawire(env={**told, "COMP_CWORD": str(len(words) - 1)})
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    assert TIMER in completed("rdmawire", "vectors", "rnr-t")
    assert completed("rdmawire", "vectors", "rc_cmp") == ["RC_CMP_SWAP"]
    assert "RC_CMP_SWAP" in completed("rdmawire", "vectors", "--dir", "/nowhere", "rc_cmp")
