"""`rdmawire edit`: what it changes, and what it refuses."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from rdmawire.capture import COMMENT, Record, create_capture, open_capture
from rdmawire.wire.roce import parse
from tests.cli.command import CAPTURES, RDMAWIRE, RNR, rdmawire, refused
from tests.waiting import HANG

RPING = str(CAPTURES / "linux" / "rxe61_rping.pcap")
SIW = str(CAPTURES / "linux" / "siw612crc_rping.pcap")
BAD = str(CAPTURES / "faulty" / "bad_icrc.pcap")
SNAPPED = str(CAPTURES / "generated" / "roce_v2_snapped.pcap")


def edit(*words: str, stdin: bytes = b"", before: str = "") -> subprocess.CompletedProcess[str]:
    """What becomes of a call, in which no mistake of our own goes unseen."""
    return rdmawire("edit", *words, stdin=stdin, env={"RDMAWIRE_TRACEBACK": "1"}, before=before)


def fields(path: Path, *names: str) -> list[list[str]]:
    """Fields of all frames."""
    asked = [word for name in names for word in ("-e", name)]
    return [line.split("\t") for line in rdmawire("dissect", *asked, str(path)).stdout.splitlines()]


def test_a_capture_is_moved_and_sealed(tmp_path: Path) -> None:
    out = tmp_path / "out.pcap"
    done = edit(
        "--ip", "10.77.0.0/24=192.168.7.0/24", "--qpn", "0x3a=0x1234", "--psn-offset", "100",
        "-w", str(out), RNR,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"{RNR}: 152 frames, 152 changed\n"
    seen = rdmawire("dissect", "-q", "--fail-on-bad-checksum", str(out))
    assert seen.returncode == 0
    assert "ICRC 137 good; IPv4 header checksum 152 good; TCP checksum 15 good" in seen.stdout
    assert fields(out, "ip.src", "infiniband.bth.destqp", "infiniband.bth.psn")[10] == [
        "192.168.7.2", "0x001234", "356",
    ]  # fmt: skip


REFUSED: list[tuple[Sequence[str], str]] = [
    (("--ip", "banana=1.2.3.4"), "Invalid value for '--ip': 'banana=1.2.3.4': 'banana' is no IP"),
    (("--ecn", "very"), "Invalid value for '--ecn': 'very': one of not, ect0, ect1, ce"),
    (("--set", "bth.spn=3"), "Invalid value for '--set': 'bth.spn=3': no field is named 'bth."),
    (("--qpn", "1=2", "--qpn", "1=3"), "Invalid value for '--qpn': '1=2' and '1=3' map the same"),
    (("--psn-offset", "3@x=1"), "Invalid value for '--psn-offset': '3@x=1': 'x' is no address"),
    (("-Y", "bth"), "Invalid value for '-Y' / '--display-filter'"),
    (
        ("--time-shift", "soon"),
        "Invalid value for '--time-shift': 'soon' is not a duration",
    ),
    (
        ("--time-shift", "-999999999999s"),
        "Invalid value for '--time-shift': frame 1 to write is at ",
    ),
    (("--tag", "5:8"), "Invalid value for '--tag': '5:8': 8 does not fit 3 bits (0 to 0x7)"),
    (("--tag", "4096"), "Invalid value for '--tag': '4096': 4096 does not fit 12 bits"),
    (("--seal", "some"), "Invalid value for '--seal'"),
    (("--time-shift", "-+1s"), "Invalid value for '--time-shift': '-+1s' is not a duration"),
    (("--ttl", "1", "--ttl", "2"), "--ttl 1 and --ttl 2 both set ip.ttl; give one of them"),
    (("--ecn", "ce", "--ecn", "ce"), "--ecn ce and --ecn ce both set ip.ecn; give one of them"),
    (("--set", "ip.ttl=3", "--ttl", "4"), "--ttl 4 and --set ip.ttl=3 both set ip.ttl; give one"),
    (
        ("--set", "bth.psn=5", "--psn-offset", "1"),
        "--psn-offset 1 and --set bth.psn=5 both set bth.psn; give one of them",
    ),
    (
        ("--set", "ip.src=1.1.1.1", "--ip", "10.77.0.1=2.2.2.2"),
        "--ip 10.77.0.1=2.2.2.2 and --set ip.src=1.1.1.1 both set ip.src; give one of them",
    ),
    (("--seal", "all", "--seal", "none"), "--seal is given 2 times; give it once"),
    (("-Y", "arp", "-Y", "bth", "-Y", "ip"), "-Y is given 3 times; give it once"),
    (
        ("--set", "frame.number=1"),
        "Invalid value for '--set': 'frame.number=1': filters know this field, but no header",
    ),
    (("--set", "frame.time_epoch-=1"), "Invalid value for '--set': 'frame.time_epoch-=1': filter"),
    (("--set", "ip.addr=10.0.0.1"), "Invalid value for '--set': 'ip.addr=10.0.0.1': filters know"),
]


@pytest.mark.parametrize(("words", "reason"), REFUSED, ids=[row[0][0] for row in REFUSED])
def test_what_makes_no_sense_is_one_line_and_nothing_is_written(
    words: Sequence[str], reason: str, tmp_path: Path
) -> None:
    line = refused("edit", *words, "-w", str(tmp_path / "out.pcap"), RNR, status=2)
    assert line.startswith(f"rdmawire: {reason}")
    assert not list(tmp_path.iterdir())


def test_the_output_must_be_given() -> None:
    assert "Missing option '-w'" in refused("edit", RNR, status=2)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    out = str(tmp_path / "out.pcap")
    assert "no such file" in refused("edit", "-w", out, str(tmp_path / "in"), status=1).lower()
    line = refused("edit", "-w", str(tmp_path / "no" / "out.pcap"), RNR, status=1)
    assert str(tmp_path / "no" / "out.pcap") in line
    assert not list(tmp_path.iterdir())


def test_changes_that_no_frame_needs_are_reported(tmp_path: Path) -> None:
    done = edit(
        "--ip", "10.77.0.1=10.0.0.1", "--ip", "10.77.0.9=10.0.0.9", "--set", "reth.va=5",
        "-w", str(tmp_path / "out.pcap"), RNR,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr.splitlines()[1:] == [
        "rdmawire: --ip 10.77.0.9=10.0.0.9: no frame has it",
        "rdmawire: --set reth.va=5: no frame has it",
    ]


def test_the_psns_of_one_flow_move_with_those_of_its_answers(tmp_path: Path) -> None:
    out = tmp_path / "out.pcap"
    done = edit("--psn-offset", "17@10.77.0.1=+100", "-w", str(out), RPING)
    assert done.stderr == f"{RPING}: 43 frames, 13 changed\n"
    asked = ("infiniband.bth.destqp", "ip.src", "infiniband.bth.opcode", "infiniband.bth.psn")
    before, after = fields(Path(RPING), *asked), fields(out, *asked)
    responses = {"13", "14", "15", "16", "17", "18"}
    for old, new in zip(before, after, strict=True):
        to_server = old[1] == "10.77.0.2" and old[2] not in responses
        from_server = old[1] == "10.77.0.1" and old[2] in responses
        by = 100 if old[0] == "0x000011" and (to_server or from_server) else 0
        assert new[:3] == old[:3]
        if old[3]:
            assert int(new[3]) == int(old[3]) + by


def test_for_one_flow_the_capture_must_be_there_to_be_read_twice(tmp_path: Path) -> None:
    words = ("edit", "--psn-offset", "17=1", "-w", str(tmp_path / "out.pcap"))
    line = refused(*words, status=2, stdin=Path(RPING).read_bytes())
    assert "reads the capture twice" in line
    line = refused(*words, str(tmp_path), status=2)
    assert "name a file" in line


def test_responses_of_no_known_queue_pair_are_counted(tmp_path: Path) -> None:
    out, lone = tmp_path / "out.pcap", tmp_path / "acks.pcap"
    edit("--keep", "infiniband.bth.opcode == 17 && ip.src == 10.77.0.1", "-w", str(lone), RPING)
    done = edit("--psn-offset", "17=1", "-w", str(out), str(lone))
    assert done.stderr.splitlines()[1:] == [
        "rdmawire: --psn-offset 17=1: no frame has it",
        "rdmawire: --psn-offset: 6 responses kept their PSN: their queue pair is unknown",
    ]


def test_only_frames_that_pass_are_edited_others_are_left_out_or_stay(tmp_path: Path) -> None:
    out = tmp_path / "out.pcap"
    done = edit(
        "-Y", "infiniband.bth.opcode == RC_ACKNOWLEDGE", "--ecn", "ce", "--drop", "tcp",
        "--keep", "frame.number > 20", "-w", str(out), RNR,
    )  # fmt: skip
    assert done.stderr == f"{RNR}: 152 frames, 63 changed, 25 left out\n"
    marks = fields(out, "infiniband.bth.opcode", "ip.dsfield.ecn")
    assert {(row[0] == "17", row[1]) for row in marks} == {(True, "3"), (False, "0")}
    assert len(marks) == 127


def test_a_filter_knows_interfaces_and_comments(tmp_path: Path) -> None:
    source, out = tmp_path / "in.pcapng", tmp_path / "out.pcapng"
    with open_capture(RPING) as reader, create_capture(source) as writer:
        for number, record in enumerate(reader):
            options = ((COMMENT, b"look"),) if number == 3 else ()
            writer.write(record._replace(interface=number % 2, options=options))
    edit(
        "--keep", 'frame.comment == "look" or frame.interface_id == 1', "-w", str(out), str(source)
    )
    with open_capture(out) as reader:
        kept = list(reader)
    assert [record.comments for record in kept if record.comments] == [("look",)]
    assert len(kept) == 21


def test_bad_icrcs_and_cut_frames_are_counted(tmp_path: Path) -> None:
    out = str(tmp_path / "out.pcap")
    done = edit("--psn-offset", "1", "-w", out, BAD)
    assert done.stderr == f"{BAD}: 2 frames, 2 changed, 1 had a bad ICRC\n"
    assert rdmawire("dissect", "-q", out).stdout.count("1 BAD") == 1
    done = edit("--seal", "all", "-w", out, out)
    assert done.stderr == f"{out}: 2 frames, 1 changed, 1 had a bad ICRC\n"
    assert "BAD" not in rdmawire("dissect", "-q", out).stdout
    done = edit("--psn-offset", "1", "-w", out, SNAPPED)
    assert done.stderr == f"{SNAPPED}: 91 frames, 90 changed, 88 cut before the ICRC\n"


def test_without_seals_checksums_do_not_fit(tmp_path: Path) -> None:
    out = str(tmp_path / "out.pcap")
    edit("--seal", "none", "--psn-offset", "1", "-w", out, RPING)
    assert "ICRC 41 BAD" in rdmawire("dissect", "-q", out).stdout


def test_stags_inside_fpdus_are_mapped(tmp_path: Path) -> None:
    out = tmp_path / "out.pcap"
    keys = {row[0] for row in fields(Path(SIW), "iwarp_ddp.stag") if row[0]}
    words = [word for key in sorted(keys) for word in ("--rkey", f"{key}={int(key, 0) ^ 0xFFFF}")]
    done = edit(*words, "-w", str(out), SIW)
    assert done.returncode == 0
    assert {row[0] for row in fields(out, "iwarp_ddp.stag") if row[0]} == {
        f"0x{int(key, 0) ^ 0xFFFF:08x}" for key in keys
    }
    assert "MPA CRC 21 good" in rdmawire("dissect", "-q", str(out)).stdout


def test_it_stands_in_a_pipe(tmp_path: Path) -> None:
    data = Path(RPING).read_bytes()
    done = subprocess.run(
        [*RDMAWIRE, "edit", "-q", "--time-shift", "-1.5s", "-w", "-"],
        input=data, capture_output=True, check=True, timeout=HANG,
    )  # fmt: skip
    assert done.stderr == b""
    out = tmp_path / "out.pcap"
    out.write_bytes(done.stdout)
    with open_capture(RPING) as old, open_capture(out) as new:
        for before, after in zip(old, new, strict=True):
            assert after == before._replace(time_ns=before.time_ns - 1_500_000_000)


def test_a_damaged_capture_is_written_up_to_the_damage(tmp_path: Path) -> None:
    source, out = tmp_path / "in.pcap", tmp_path / "out.pcap"
    source.write_bytes(Path(RPING).read_bytes()[:-1])
    done = edit("--psn-offset", "1", "-w", str(out), str(source))
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == f"{source}: 42 frames, 40 changed"
    assert "a record claims" in done.stderr.splitlines()[1]
    done = edit("--psn-offset", "1", "-w", str(source), str(source))
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert source.read_bytes() == Path(RPING).read_bytes()[:-1]


def test_tags_are_taken_away(tmp_path: Path) -> None:
    out = tmp_path / "out.pcap"
    done = edit("--untag", "-w", str(out), str(CAPTURES / "generated" / "tagged.pcap"))
    assert "5 changed" in done.stderr
    with open_capture(out) as reader:
        assert all(parse(record.data).seal().build() == record.data for record in reader)
    assert not any(row[0] for row in fields(out, "vlan.id"))


def test_comments_that_a_pcap_has_no_place_for_are_counted(tmp_path: Path) -> None:
    source = tmp_path / "in.pcapng"
    with create_capture(source) as writer:
        writer.write(Record(bytes(60), 0, 60, 1, 0, ((COMMENT, b"look"),)))
    done = edit("-w", str(tmp_path / "out.pcap"), str(source))
    assert "1 lost comments, for which a pcap has no place" in done.stderr


def test_a_long_capture_shows_how_far_it_is(tmp_path: Path) -> None:
    before = "import rdmawire.cli.edit as e; e._LONG = 1; "
    done = edit("--progress", "-w", str(tmp_path / "out.pcap"), RNR, before=before)
    assert done.returncode == 0
    assert done.stderr.endswith(f"{RNR}: 152 frames, 0 changed\n")


def test_tags_are_given_and_taken_away_again(tmp_path: Path) -> None:
    out, back = tmp_path / "out.pcap", tmp_path / "back.pcap"
    assert edit("-q", "--tag", "100:3", "-w", str(out), RNR).stderr == ""
    assert fields(out, "vlan.id", "vlan.priority") == [["100", "3"]] * 152
    assert edit("-q", "--untag", "-w", str(back), str(out)).stderr == ""
    with open_capture(back) as after, open_capture(RNR) as before:
        assert list(after) == list(before)


def test_numbers_that_become_the_same_are_reported(tmp_path: Path) -> None:
    done = edit(
        "-q", "--ip", "10.77.0.1=10.77.0.2", "--qpn", "17=5", "--qpn", "1=5",
        "-w", str(tmp_path / "out.pcap"), RPING,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "rdmawire: --ip: 10.77.0.1 and 10.77.0.2 are both 10.77.0.2 now",
        "rdmawire: --qpn: 0x1 and 0x11 of 10.77.0.2 are both 0x5 now",
        "rdmawire: --qpn: 0x1 and 0x11 of 10.77.0.1 are both 0x5 now",
    ]


def test_many_maps_stand_in_a_file(tmp_path: Path) -> None:
    maps, out = tmp_path / "maps", tmp_path / "out.pcap"
    queue_pairs = "".join(f"{number}={number + 0x1000}\n" for number in range(2, 200))
    maps.write_text(f"[ip]\n10.77.0.1=192.168.7.1\n[qpn]\n{queue_pairs}")
    done = edit("-q", "--map", str(maps), "--qpn", "200=9", "-w", str(out), RPING)
    assert done.returncode == 0
    assert "rdmawire: --qpn 200=9: no frame has it" in done.stderr.splitlines()
    assert "rdmawire: --qpn 17=4113: no frame has it" not in done.stderr
    asked = ("infiniband.bth.destqp", "ip.src")
    for old, new in zip(fields(Path(RPING), *asked), fields(out, *asked), strict=True):
        assert new == [
            old[0].replace("0x000011", "0x001011"),
            old[1].replace("10.77.0.1", "192.168.7.1"),
        ]


def test_a_mistake_in_a_file_of_maps_is_one_line(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text("[qpn]\n17=banana\n")
    words = ("--map", str(maps), "-w", str(tmp_path / "out.pcap"), RPING)
    line = refused("edit", *words, status=2)
    said = "line 2: '17=banana': 'banana' is no number"
    assert line.startswith(f"rdmawire: Invalid value for '--map': {maps}, {said}")


@pytest.mark.parametrize("name", ["/dev/stdout", ">(cat)"])
def test_a_pipe_by_its_descriptor_is_written_to(name: str) -> None:
    line = f'"$@" -q -w {name} {RNR} | cat'
    words = ["bash", "-c", line, "bash", *RDMAWIRE, "edit"]
    made = subprocess.run(words, capture_output=True, check=True, timeout=HANG)
    assert made.stderr == b""
    assert made.stdout == Path(RNR).read_bytes()
