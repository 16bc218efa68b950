"""Parsers in processes of their own: what they do to their processes stays there."""

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rdmawire.errors import FuzzError
from rdmawire.fuzz.campaign import Campaign
from rdmawire.fuzz.finding import replay
from rdmawire.fuzz.frame_mutation import SeedFrame
from rdmawire.fuzz.isolated_parser import IsolatedParser
from rdmawire.fuzz.parser_target import FunctionParser
from tests.fuzz import planted_parsers as planted
from tests.fuzz.parameters import slow
from tests.waiting import is_running, wait_until

CASE = [SeedFrame(b"a"), SeedFrame(b"b"), SeedFrame(b"c")]


@pytest.fixture
def noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the process ids that functions note."""
    path = tmp_path / "noted"
    path.touch()
    monkeypatch.setenv(planted.CALLS, str(path))
    return path


def processes(noted: Path) -> list[int]:
    return [int(line) for line in noted.read_text().split()]


def isolated(function: Callable[[bytes], object]) -> IsolatedParser:
    return IsolatedParser(partial(FunctionParser, function, isolated=True), "parser", 60)


def test_only_one_process_goes_on_after_a_fork(noted: Path) -> None:
    parser = isolated(planted.forks)
    assert list(parser.judge_all([CASE, CASE])) == [None, None]
    parser.close()
    assert len(processes(noted)) == 2 * len(CASE)
    assert len(set(processes(noted))) == 1


def test_processes_that_a_function_leaves_end_with_its_process(noted: Path) -> None:
    parser = isolated(planted.leaves_a_process)
    assert parser.judge(CASE) is None
    left = processes(noted)
    assert len(left) == len(CASE)
    parser.close()
    wait_until(lambda: not any(map(is_running, left)))


def test_the_end_of_a_process_is_seen_though_another_one_has_its_connection(noted: Path) -> None:
    found = isolated(planted.ends_but_leaves_a_process).judge(CASE)
    assert found is not None
    assert found.happened == "the process ended with status 3"
    (left,) = processes(noted)
    wait_until(lambda: not is_running(left))


def test_standard_output_is_discarded(capfd: pytest.CaptureFixture[str]) -> None:
    assert isolated(planted.prints).judge(CASE) is None
    assert capfd.readouterr().out == ""


def test_an_interrupt_of_the_function_itself_is_a_finding(
    capfd: pytest.CaptureFixture[str],
) -> None:
    found = isolated(planted.interrupts).judge(CASE)
    assert found is not None
    assert found.signature == "exception | KeyboardInterrupt | planted_parsers:interrupts"
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "junk",
    [
        b"\0\0\0\4junk",
        b'{"violation": {}}\n',
        *slow([b"junk\n", b"null\n", b"[" * 100_000 + b"\n"]),
    ],
)
def test_a_parser_that_writes_to_its_connection_is_found(junk: bytes) -> None:
    found = IsolatedParser(partial(planted.WritesJunk, junk), "junk", 60).judge(CASE)
    assert found is not None
    assert found.signature == "process | the process wrote to the connection of the fuzzer"


def killed_at_its_start(times: Path) -> FunctionParser:
    """Make a parser; the first processes, one for each byte of a file, are killed before."""
    if left := times.stat().st_size:
        os.truncate(times, left - 1)
        os.kill(os.getpid(), signal.SIGKILL)
    return FunctionParser(planted.healthy)


@pytest.mark.parametrize("killed", [b"x", *slow([b"xx"])])
def test_a_process_that_is_killed_at_its_start_is_started_again(
    killed: bytes, tmp_path: Path
) -> None:
    times = tmp_path / "times"
    times.write_bytes(killed)
    parser = IsolatedParser(partial(killed_at_its_start, times), "parser", 60)
    assert parser.judge([SeedFrame(b"")]) is None
    assert not times.read_bytes()
    parser.close()


@pytest.mark.slow
def test_a_process_that_is_killed_at_each_start_is_an_error(tmp_path: Path) -> None:
    times = tmp_path / "times"
    parser = IsolatedParser(partial(killed_at_its_start, times), "parser", 60)
    times.write_bytes(b"xxx")
    with pytest.raises(FuzzError, match=r"ends before its first case: .* ended by SIGKILL"):
        parser.judge(CASE)
    assert not times.read_bytes()


def test_long_names_of_exceptions_and_functions_are_shortened(tmp_path: Path) -> None:
    spec = {"kind": "parser", "function": "tests.fuzz.planted_parsers:raises_a_long_name"}
    (finding,) = Campaign(spec, 1, tmp_path, runs=1).run()
    assert replay(finding) == finding.violation
    assert len(finding.violation.happened) < 300
    assert (tmp_path / finding.name / "packets.pcapng").exists()
