"""The JSON beside a golden capture describes its frames."""

import json
import re
from itertools import pairwise

import pytest

from rdmawire.capture import open_capture
from rdmawire.errors import WireError
from rdmawire.wire import roce
from rdmawire.wire.inet import UDP, IPv4, IPv6
from tests.golden.bench import GOLDEN, RecordedCase, captures, played, read
from tools.make_captures.golden.case import CLIENT, OTHER, SERVER
from tools.make_captures.golden.pack import GOLDEN as PACK


def test_every_golden_capture_has_one() -> None:
    stems = {path.stem for path in GOLDEN.glob("*.pcap*")}
    assert stems == set(captures()) == {golden.name.partition(".")[0] for golden in PACK}


@pytest.mark.parametrize("name", captures())
def test_cases_follow_one_another_to_the_last_frame(name: str) -> None:
    recorded = json.loads((GOLDEN / f"{name}.json").read_text())
    with open_capture(GOLDEN / recorded["capture"]) as reader:
        frames = sum(1 for _ in reader)
    spans = [case["frames"] for case in recorded["cases"]]
    assert spans[0][0] == 1
    assert spans[-1][1] == frames
    assert all(one[1] + 1 == other[0] for one, other in pairwise(spans))
    assert all(first <= last for first, last in spans)


@pytest.mark.parametrize("name", captures())
def test_each_case_has_a_name_of_its_own_and_no_time_before_its_start(name: str) -> None:
    cases = read(name)
    assert len({recorded.name for recorded in cases}) == len(cases)
    assert all(
        min(recorded.times) >= 0 and recorded.times == tuple(sorted(recorded.times))
        for recorded in cases
    )


def test_names_are_unique_in_the_whole_pack() -> None:
    names = [recorded.name for name in captures() for recorded in read(name)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", captures())
def test_no_two_cases_of_a_capture_show_the_same(name: str) -> None:
    cases = json.loads((GOLDEN / f"{name}.json").read_text())["cases"]
    shown = [case["shows"] for case in cases]
    assert len(set(shown)) == len(shown)


SEARCHED = [
    ("unknown-key-rdma-write-5", "NAK: remote access error"),
    ("go-back", "NAK: PSN sequence error; lost: RC_RDMA_WRITE_ONLY (frame 1)"),
    ("rnr-timer-1", "NAK: RNR, receiver not ready"),
    ("told-nak-4", "NAK: invalid RD request"),
    ("told-nak-31", "NAK: reserved code"),
    ("wrap-ack-lost", "lost: RC_ACKNOWLEDGE (frame 4)"),
    ("wrap-write", "PSN wrap: RDMA_WRITE of 600 bytes from PSN 0xfffffe on, past 0xFFFFFF to 0"),
]


@pytest.mark.parametrize(("name", "words"), SEARCHED)
def test_cases_have_the_words_that_readers_search_for(name: str, words: str) -> None:
    files = (json.loads((GOLDEN / f"{each}.json").read_text()) for each in captures())
    shown = {case["name"]: case["shows"] for recorded in files for case in recorded["cases"]}
    assert shown[name].endswith(words)


@pytest.mark.parametrize("name", played())
def test_frames_have_the_numbers_of_their_ends(name: str) -> None:
    for recorded in read(name):
        for who in (CLIENT, SERVER):
            for _, data in recorded.by(who):
                check_numbers(recorded, who, data)


def check_numbers(recorded: RecordedCase, who: str, data: bytes) -> None:
    """The addresses, ports and queue pair of a frame are those of the JSON."""
    here, there = recorded.described[who], recorded.described[OTHER[who]]
    try:
        frame = roce.parse(data)
    except WireError:
        assert name_of(recorded) == "network"  # a pause
        return
    assert frame.packet.bth.destqp == there["qpn"]
    for piece in frame.headers:
        if isinstance(piece, UDP):
            assert piece.srcport == here["udp_source_port"]
        if isinstance(piece, IPv4 | IPv6):
            traffic_class = piece.dscp << 2 | piece.ecn
            assert traffic_class == here["traffic_class"]


def name_of(recorded: RecordedCase) -> str:
    return recorded.capture.partition(".")[0]


def test_no_two_cases_share_a_queue_pair_or_a_key() -> None:
    ends = [
        recorded.described[who]
        for name in played()
        for recorded in read(name)
        for who in (CLIENT, SERVER)
    ]
    for number in ("qpn", "memory_rkey", "memory_va"):
        assert len({end[number] for end in ends}) == len(ends)


PAGES = ("README.md", "CHANGELOG.md", "docs/conformance.md", "docs/howto/test-vectors.md")


def test_pages_have_the_number_of_cases() -> None:
    cases = sum(len(read(name)) for name in captures())
    for page in PAGES:
        said = re.findall(
            r"(\d+) (?:golden )?conversations", (GOLDEN.parents[1] / page).read_text()
        )
        assert said == [str(cases)], page
