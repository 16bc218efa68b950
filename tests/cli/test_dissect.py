"""`rdmawire dissect` what it prints, counts and refuses of files."""

import json
from pathlib import Path

import pytest

from tests.cli.command import CAPTURES, RNR, WRITE, broken, rdmawire, refused


def test_a_line_per_frame() -> None:
    done = rdmawire("dissect", "--from", "17", "--to", "18", RNR)
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert len(lines) == 2
    assert lines[0].split()[:7] == [
        *("17", "0.041039000", "10.77.0.2", "→", "10.77.0.1", "RoCEv2", "RC_SEND_ONLY")
    ]
    assert "RNR_NAK 1.28 ms" in lines[1]
    assert "2 frames; ICRC 2 good" in done.stderr


def test_tree_has_offsets_and_words() -> None:
    done = rdmawire("dissect", "-V", "--from", "18", "-c", "1", RNR)
    assert "    42  BTH, 12 bytes: Base Transport Header" in done.stdout
    assert "    42    opcode: 17  RC_ACKNOWLEDGE" in done.stdout
    assert "    54      value: 14  1.28 ms" in done.stdout
    assert "          rdmawire.icrc.status: good" in done.stdout


def test_hex_shows_the_bytes() -> None:
    done = rdmawire("dissect", "-x", "-c", "1", RNR)
    assert done.stdout.splitlines()[1].startswith("0000  52 54 00 00 00 01 52 54  00 00 00 02")


def test_fields_as_tshark_prints_them() -> None:
    names = ["frame.number", "ip.addr", "infiniband.bth.opcode", "infiniband.aeth.syndrome.timer"]
    words = [word for name in names for word in ("-e", name)]
    done = rdmawire("dissect", *words, "--from", "17", "-c", "2", RNR)
    assert done.stdout == "17\t10.77.0.2,10.77.0.1\t4\t\n18\t10.77.0.1,10.77.0.2\t17\t14\n"
    assert done.stderr == ""


def test_separators_of_fields() -> None:
    settings = ("header=y", "separator=;", "aggregator=/s", "quote=d", "occurrence=f")
    words = [word for setting in settings for word in ("-E", setting)]
    done = rdmawire("dissect", "-T", "fields", "-e", "ip.addr", "-e", "ip.ttl", *words, "-c1", RNR)
    assert done.stdout == 'ip.addr;ip.ttl\n"10.77.0.2";"64"\n'


def test_json_is_an_array_and_ndjson_a_line_each() -> None:
    array = json.loads(rdmawire("dissect", "-T", "json", "-c", "20", RNR).stdout)
    lines = rdmawire("dissect", "-T", "ndjson", "-c", "20", RNR).stdout.splitlines()
    assert [json.loads(line) for line in lines] == array
    assert len(array) == 20
    bth = next(layer for layer in array[17]["layers"] if layer["name"] == "bth")
    assert bth["fields"]["infiniband.bth.opcode"] == 17
    assert bth["words"]["infiniband.bth.opcode"] == "RC_ACKNOWLEDGE"
    assert array[17]["malformed"] is None


def test_json_of_chosen_fields() -> None:
    done = rdmawire(
        "dissect", "-T", "ndjson", "-e", "ip.src", "-e", "infiniband.bth.psn", "-c1", RNR
    )
    assert json.loads(done.stdout) == {"ip.src": ["10.77.0.2"]}


def test_json_of_no_frames_is_still_json() -> None:
    assert json.loads(rdmawire("dissect", "-T", "json", "--from", "9999", RNR).stdout) == []


def test_standard_input_is_read() -> None:
    data = Path(RNR).read_bytes()
    of_file = rdmawire("dissect", RNR).stdout
    assert len(of_file.splitlines()) == 152
    assert rdmawire("dissect", stdin=data).stdout == of_file
    assert rdmawire("dissect", "-", stdin=data).stdout == of_file
    assert rdmawire("dissect", "-q", stdin=data).stdout.startswith("standard input: 152 frames;")


def test_quiet_counts_only() -> None:
    done = rdmawire("dissect", "-q", RNR)
    assert done.stdout.startswith(f"{RNR}: 152 frames; ICRC 137 good;")
    assert done.stderr == ""


def test_several_files_are_counted_together() -> None:
    lines = rdmawire("dissect", "-q", RNR, RNR).stdout.splitlines()
    assert len(lines) == 3
    assert lines[2].startswith("2 files: 304 frames; ICRC 274 good;")


def test_only_files_that_were_read_are_counted() -> None:
    done = rdmawire("dissect", "-c", "2", RNR, WRITE, WRITE)
    assert done.stderr.startswith(f"{RNR}: 2 frames;")
    assert " files" not in done.stderr
    done = rdmawire("dissect", "-q", RNR, "/nowhere", WRITE)
    assert done.stdout.splitlines()[-1].startswith("2 files: ")


def test_lines_of_several_files_stand_under_their_names() -> None:
    lines = rdmawire("dissect", "-c", "153", RNR, WRITE).stdout.splitlines()
    assert lines[0] == f"==> {RNR} <=="
    assert lines[153:155] == ["", f"==> {WRITE} <=="]
    assert lines[155].split()[0] == "1"


def test_each_object_and_each_row_can_say_its_file() -> None:
    done = rdmawire("dissect", "-T", "ndjson", "-c", "153", RNR, WRITE)
    files = [json.loads(line)["file"] for line in done.stdout.splitlines()]
    assert files == [RNR] * 152 + [WRITE]
    done = rdmawire("dissect", "-e", "rdmawire.file", "-c", "153", RNR, WRITE)
    assert done.stdout.splitlines() == files


def test_a_file_may_be_named_as_for_tshark() -> None:
    assert rdmawire("dissect", "-q", "-r", RNR).stdout == rdmawire("dissect", "-q", RNR).stdout


def test_counts_as_json(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")
    done = rdmawire("dissect", "-q", "-T", "json", RNR, nowhere)
    first, second = json.loads(done.stdout)
    assert first["file"] == RNR
    assert first["frames"] == 152
    assert first["malformed"] == 0
    assert first["checksums"]["ICRC"] == {"good": 137, "bad": 0, "not_verified": 0}
    assert first["damaged"] is None
    assert second["frames"] == 0
    assert "there is no such file" in second["damaged"]
    lines = rdmawire("dissect", "-q", "-T", "ndjson", RNR, nowhere).stdout.splitlines()
    assert [json.loads(line) for line in lines] == [first, second]


def test_json_has_the_bytes_if_asked_to() -> None:
    (plain,) = json.loads(rdmawire("dissect", "-T", "json", "-c1", RNR).stdout)
    (whole,) = json.loads(rdmawire("dissect", "-T", "json", "-x", "-c1", RNR).stdout)
    assert len(whole.pop("bytes")) == 2 * whole["captured"]
    assert whole == plain


@pytest.mark.parametrize(
    ("start", "end", "numbers"),
    [
        ("3", "5", ["3", "4", "5"]),
        ("0.0410s", "41.1ms", ["17"]),
        ("2026-11-21T02:16:38.037Z", "2026-11-21T03:16:38.037972+01:00", ["17", "18"]),
    ],
)
def test_windows(start: str, end: str, numbers: list[str]) -> None:
    done = rdmawire("dissect", "--from", start, "--to", end, "-e", "frame.number", RNR)
    assert done.returncode == 0
    assert done.stdout.split() == numbers


def test_bad_checksums_fail_only_when_asked_to(tmp_path: Path) -> None:
    data = bytearray(Path(RNR).read_bytes())
    data[data.index(bytes.fromhex("1100ffff0000003a")) + 15] ^= 1  # the first ACK's AETH
    path = broken(tmp_path, bytes(data))
    assert rdmawire("dissect", path).returncode == 0
    line = refused("dissect", "--fail-on-bad-checksum", path, status=1)
    assert ": 1 bad checksum, the first in frame 12: ICRC bad: found 0x" in line


def test_only_the_checksums_that_matter_make_it_fail() -> None:
    path = str(CAPTURES / "faulty" / "bad_icrc.pcap")
    demand = ("dissect", "-q", "--fail-on-bad-checksum", "--checksums")
    assert rdmawire(*demand, "ip,udp", path).returncode == 0
    assert "frame 2: ICRC bad: found 0xe8b9a491" in refused(*demand, "ip,icrc", path, status=1)


def test_malformed_frames_fail_only_when_asked_to() -> None:
    path = str(CAPTURES / "faulty" / "malformed.pcap")
    assert rdmawire("dissect", "-q", path).returncode == 0
    line = refused("dissect", "-q", "--fail-on-malformed", path, status=1)
    assert ": 3 malformed frames, first frame 1: opcode 0x1f is reserved (IBA 9.2.1)" in line


def test_a_file_cut_in_a_record_shows_all_before_it(tmp_path: Path) -> None:
    data = Path(RNR).read_bytes()
    path = broken(tmp_path, data[:-10])
    done = rdmawire("dissect", path)
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 151
    assert "claims" in refused("dissect", path, status=1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"not a capture at all", "is no capture: its first bytes are 6e 6f 74 20"),
        (b"\xd4\xc3\xb2\xa1\x02\x00", "header"),
    ],
)
def test_files_that_are_no_captures(tmp_path: Path, data: bytes, message: str) -> None:
    assert message in refused("dissect", broken(tmp_path, data), status=1)


def test_a_record_that_claims_four_gigabytes(tmp_path: Path) -> None:
    header = Path(RNR).read_bytes()[:24]
    path = broken(tmp_path, header + b"\0" * 8 + b"\xff\xff\xff\xff" * 2)
    assert "claims 4294967295 bytes" in refused("dissect", path, status=1)


def test_a_link_type_that_is_not_known(tmp_path: Path) -> None:
    data = bytearray(Path(RNR).read_bytes())
    data[20:24] = (147).to_bytes(4, "little")
    line = refused("dissect", broken(tmp_path, bytes(data)), status=1)
    assert "link type 147 is not known; known are NULL (0)" in line


def test_folders_and_missing_files(tmp_path: Path) -> None:
    assert "is a folder" in refused("dissect", str(tmp_path), status=1)
    assert "no such file" in refused("dissect", str(tmp_path / "nowhere"), status=1)


def test_the_other_files_are_read_all_the_same(tmp_path: Path) -> None:
    done = rdmawire("dissect", "-q", str(tmp_path / "nowhere"), RNR)
    assert done.returncode == 1
    assert "152 frames" in done.stdout
