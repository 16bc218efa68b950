"""`rdmawire dissect -Y`: which frames it shows and counts, and how it complains."""

import json

import pytest

from tests.cli.command import CAPTURES, RNR, rdmawire, refused

NAK = 'infiniband.aeth.syndrome.opcode == "RNR Nak"'


def numbers(*words: str) -> list[int]:
    done = rdmawire("dissect", "-T", "fields", "-e", "frame.number", *words, RNR)
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.splitlines()]


def test_only_frames_that_pass_are_shown_and_counted() -> None:
    done = rdmawire("dissect", "-Y", NAK, RNR)
    lines = done.stdout.splitlines()
    assert len(lines) == 65
    assert all("RNR_NAK" in line for line in lines)
    assert "65 frames; ICRC 65 good" in done.stderr


def test_the_filter_goes_with_windows_and_counts() -> None:
    every = numbers("-Y", NAK)
    assert numbers("-Y", NAK, "-c", "3") == every[:3]
    assert numbers("-Y", NAK, "--from", "20", "--to", "40") == [n for n in every if 20 <= n <= 40]
    assert numbers("--display-filter", NAK, "--from", "20", "-c", "2") == [20, 22]


def test_the_filter_goes_with_every_format() -> None:
    array = json.loads(rdmawire("dissect", "-T", "json", "-Y", "arp", RNR).stdout)
    assert array == []
    lines = rdmawire("dissect", "-T", "ndjson", "-Y", "frame.number == 17", RNR).stdout.splitlines()
    assert [json.loads(line)["number"] for line in lines] == [17]
    tree = rdmawire("dissect", "-V", "-x", "-Y", "frame.number in {12}", RNR).stdout
    assert "opcode: 17  RC_ACKNOWLEDGE" in tree
    quiet = rdmawire("dissect", "-q", "-Y", "infiniband.bth.opcode == 17", RNR).stdout
    assert quiet.startswith(f"{RNR}: 68 frames; ICRC 68 good;")


def test_frames_that_do_not_pass_are_still_remembered() -> None:
    name = str(CAPTURES / "linux" / "siw61_rping_big.pcap")
    words = ("-T", "fields", "-e", "frame.number", "-e", "iwarp_ddp.stag", name)
    whole = rdmawire("dissect", *words).stdout.splitlines()
    some = rdmawire("dissect", "-Y", "iwarp_ddp.stag and frame.number > 20", *words).stdout
    assert some.splitlines() == [
        line for line in whole if int(line.split("\t")[0]) > 20 and line.split("\t")[1]
    ]
    assert some


def test_demands_mind_only_frames_that_pass() -> None:
    bad = str(CAPTURES / "faulty" / "bad_icrc.pcap")
    words = ("dissect", "-q", "--fail-on-bad-checksum", bad)
    assert rdmawire(*words, "-Y", "rdmawire.icrc.status == good").returncode == 0
    assert rdmawire(*words, "-Y", "rdmawire.icrc.status == bad").returncode == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("infiniband.bth.opcod == 17", "column 1: no field is named 'infiniband.bth.opcod'"),
        ("infiniband.bth.opcod == 17", "the nearest is infiniband.bth.opcode"),
        ("ip and", "column 7: a field or a value is expected here, not the end of the filter"),
        ("", "column 1: the filter is empty"),
        ("ip.src == 10.77.0.256", "column 11: 10.77.0.256 is not an IPv4 address"),
    ],
)  # fmt: skip
def test_a_wrong_filter_is_one_line_with_its_place(text: str, said: str) -> None:
    assert said in refused("dissect", "-Y", text, RNR, status=2)
