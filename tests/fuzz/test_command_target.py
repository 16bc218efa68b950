"""Commands that read a capture: the frame on which one fails, hangs or prints a bug is found."""

import sys
from itertools import count
from pathlib import Path

import pytest

from rdmawire.capture import LinkType, open_capture
from rdmawire.errors import FuzzError
from rdmawire.fuzz import command_target
from rdmawire.fuzz.campaign import Campaign
from rdmawire.fuzz.command_target import CommandParser, without_numbers, write_frames
from rdmawire.fuzz.finding import replay
from rdmawire.fuzz.frame_mutation import SeedFrame, mutants_from_json
from rdmawire.fuzz.fuzzer import make_fuzzer
from rdmawire.fuzz.seed_corpus import corpus_of
from tests.waiting import is_running, wait_until

CORPUS = corpus_of()
FRAMES = list(CORPUS.frames())[:64]
CRASHES = """
import os, signal, struct, sys
data = open(sys.argv[1], "rb").read()
at, number = 24, 0
while at < len(data):
    length, = struct.unpack_from("<I", data, at + 8)
    frame = data[at + 16 : at + 16 + length]
    number += 1
    if MARK in frame:
        ACTION
    at += 16 + length
print(number, "frames")
"""
ACTIONS = {
    "signal | SIGSEGV | ": "os.kill(os.getpid(), signal.SIGSEGV)",
    "exit status | 7 | frame N is bad": "print('frame', number, 'is bad'); sys.exit(7)",
    "output | a line that matches | [Dissector bug, protocol X: N]": (
        "print('[Dissector bug, protocol X: %d]' % number)"
    ),
}
MARK = b"\xde\xad\xbe\xef\x01"


def script(folder: Path, action: str) -> list[str]:
    """A command that fails on frames with the mark."""
    path = folder / "parser.py"
    path.write_text(CRASHES.replace("ACTION", action).replace("MARK", repr(MARK)))
    return [sys.executable, "-I", "-S", str(path), "{pcap}"]


@pytest.mark.parametrize(("signature", "action"), ACTIONS.items(), ids=["signal", "exit", "output"])
def test_the_frame_on_which_a_command_fails_is_found(
    signature: str, action: str, tmp_path: Path
) -> None:
    parser = CommandParser(script(tmp_path, action))
    cases = [[frame] for frame in FRAMES if frame.link_type == LinkType.ETHERNET][:32]
    cases[21] = [cases[20][0], SeedFrame(b"x" * 20 + MARK + b"y" * 9), cases[22][0]]
    found = list(parser.judge_all(cases))
    assert [place for place, one in enumerate(found) if one] == [21]
    violation = found[21]
    assert violation is not None
    assert violation.place == 1
    assert violation.signature == signature
    assert parser.runs < 16


@pytest.mark.parametrize(("seconds", "runs"), [(0, 4), (1, 5), (3, 58)])
def test_a_slow_command_gets_fewer_cases_at_a_time(seconds: int, runs: int) -> None:
    times = count(0, seconds)
    parser = CommandParser(["true", "{pcap}"], clock=lambda: float(next(times)))
    cases = [FRAMES[:1]] * 100
    assert list(parser.judge_all(cases)) == [None] * 100
    assert parser.runs == runs


def test_results_of_a_command_are_known_before_all_cases_are_judged() -> None:
    parser = CommandParser(["false", "{pcap}"])
    results = parser.judge_all([FRAMES[:1]] * 100)
    assert next(results) is not None
    runs = parser.runs
    assert next(results) is not None
    assert parser.runs > runs


def test_a_command_that_does_not_end_is_found(tmp_path: Path) -> None:
    command = script(tmp_path, "import time; time.sleep(60)")
    found = CommandParser(command, seconds=1).judge([SeedFrame(MARK)])
    assert found is not None
    assert found.signature.startswith("time | ")


def test_processes_that_a_command_leaves_behind_are_killed(tmp_path: Path) -> None:
    left = tmp_path / "pid"
    command = ["sh", "-c", f"sleep 1000 & echo $! > {left}; : {{pcap}}"]
    assert CommandParser(command).judge(FRAMES[:1]) is None
    wait_until(lambda: not is_running(int(left.read_text())))


def test_the_beginning_of_a_long_output_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_target, "MAX_OUTPUT", 1000)
    long = "yes | head -c 200000; exit 3; : {pcap}"
    found = CommandParser(["sh", "-c", long]).judge(FRAMES[:1])
    assert found is not None
    assert found.happened == "3: y"
    error = "yes | head -c 2000; echo Dissector bug; : {pcap}"
    assert CommandParser(["sh", "-c", error]).judge(FRAMES[:1]) is None


def test_a_campaign_finds_a_command_that_crashes(tmp_path: Path) -> None:
    path = tmp_path / "parser.py"
    action = "os.kill(os.getpid(), signal.SIGABRT)"
    path.write_text(CRASHES.replace("ACTION", action).replace("MARK in frame", "len(frame) < 14"))
    command = f"{sys.executable} -I -S {path} {{pcap}}"
    campaign = Campaign({"kind": "command", "command": command}, 1, max_findings=1, runs=100)
    (finding,) = campaign.run()
    assert finding.violation.signature == "signal | SIGABRT | "
    (one,) = mutants_from_json(finding.case)
    assert len(one.build()) < 14
    assert replay(finding) == finding.violation


def test_a_command_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FuzzError, match="cannot run it"):
        CommandParser(["/no/such/parser", "{pcap}"]).judge(FRAMES[:1])


def test_signatures_have_no_numbers() -> None:
    assert without_numbers("/tmp/a/b.pcap: frame 12 at 0x1F") == "PATH frame N at N"


def test_frames_of_several_link_types_are_a_pcapng(tmp_path: Path) -> None:
    native = next(one for one in CORPUS.frames() if one.link_type == LinkType.INFINIBAND)
    one = write_frames(tmp_path, FRAMES[:2])
    both = write_frames(tmp_path, [FRAMES[0], native])
    assert (one.suffix, both.suffix) == (".pcap", ".pcapng")
    with open_capture(both) as reader:
        assert [record.link_type for record in reader] == [FRAMES[0].link_type, native.link_type]


@pytest.mark.parametrize("command", ["cat ' {pcap}", None, 3, [1, "{pcap}"]])
def test_commands_without_words_are_refused(command: object) -> None:
    with pytest.raises(FuzzError, match="command"):
        make_fuzzer({"kind": "command", "command": command})


def test_a_real_time_signal_is_a_violation() -> None:
    found = CommandParser(["sh", "-c", "kill -40 $$; : {pcap}"]).judge([SeedFrame(b"x", 1, "x")])
    assert found is not None
    assert found.happened == "signal 40"
