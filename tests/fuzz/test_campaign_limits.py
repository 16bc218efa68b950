"""Limits of campaigns hold while findings are minimised, too; what is found is kept."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rdmawire.errors import Ended, FuzzError
from rdmawire.fuzz import campaign as module
from rdmawire.fuzz import command_target
from rdmawire.fuzz.campaign import Campaign
from rdmawire.fuzz.command_target import CommandParser, Outcome
from rdmawire.fuzz.finding import Finding, findings_in, read_finding
from rdmawire.fuzz.frame_map import NO_FRAME
from rdmawire.fuzz.frame_mutation import Mutant, SeedFrame, mutants_as_json
from rdmawire.fuzz.fuzzer import FUZZERS, Found, FuzzerKind, make_fuzzer
from rdmawire.fuzz.isolated_parser import PROCESS
from rdmawire.fuzz.minimise import Trials
from rdmawire.fuzz.oracle import TIME, Violation
from rdmawire.fuzz.parser_fuzzer import ParserFuzzer
from rdmawire.fuzz.seed_corpus import corpus_of
from rdmawire.worker_process import signals_deferred
from tests.fuzz.planted import ShortWrites

CORPUS = corpus_of()
SHORT_WRITES = {"kind": "short-writes"}


class Failing:
    """A parser that finds something in each case that is not shorter than 200 bytes.

    A call takes ``seconds`` of its clock.
    """

    name = "failing"

    def __init__(self, what: str, seconds: float = 1.0, least: int = 200) -> None:
        self._shown = Violation(0, what, "a result", "none", "", what)
        self._seconds = seconds
        self._least = least
        self.now = 0.0
        self.calls = 0

    def judge(self, frames: Sequence[SeedFrame]) -> Violation | None:
        self.now += self._seconds
        self.calls += 1
        return self._shown if sum(len(one.data) for one in frames) >= self._least else None

    def judge_all(self, cases: Sequence[Sequence[SeedFrame]]) -> list[Violation | None]:
        return list(map(self.judge, cases))


@pytest.mark.parametrize(("what", "calls"), [(TIME, 1), (PROCESS, 2)])
def test_a_finding_is_not_minimised_long_after_the_time_limit(
    what: str, calls: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    parser = Failing(what, 10, least=0)
    made = FuzzerKind(lambda _: ParserFuzzer(parser, CORPUS), "")
    monkeypatch.setitem(FUZZERS, "failing", made)
    monkeypatch.setattr(module, "RUNS_OF_BATCH", 1)
    spec = {"kind": "failing"}
    (finding,) = Campaign(spec, 1, tmp_path, seconds=10, clock=lambda: parser.now).run()
    assert parser.calls == calls
    assert list(findings_in(tmp_path)) == [finding]


def found(what: str) -> Found:
    """A finding in 200 different bytes."""
    violation = Violation(0, what, "a result", "none", "", what)
    mutant = Mutant(SeedFrame(bytes(range(200)), NO_FRAME))
    return Found(violation, mutants_as_json([mutant]), 0)


@pytest.mark.parametrize(("what", "calls"), [(TIME, 12), (PROCESS, 60), ("exception", 1000)])
def test_slow_calls_are_repeated_a_few_times_to_minimise(what: str, calls: int) -> None:
    parser = Failing(what)
    smallest = ParserFuzzer(parser, CORPUS).minimised(found(what))
    assert smallest.violation.what == what
    assert parser.calls <= calls
    assert parser.calls >= min(calls, 200)


def test_trials_of_a_part_count_in_the_whole() -> None:
    trials = Trials(5)
    part = trials.at_most(3)
    assert [part.take() for _ in range(4)] == [True, True, True, False]
    assert trials.left == 2
    assert [trials.at_most(9).take() for _ in range(3)] == [True, True, False]


def test_trials_end_when_they_are_over() -> None:
    now = [0]
    trials = Trials(5, lambda: now[0] > 0)
    assert trials.take()
    now[0] = 1
    assert not trials.take()
    assert trials.left == 4


@pytest.mark.parametrize(
    "spec",
    [
        {"kind": "cm", "bug": "own-id-not-compared"},
        {"kind": "mpa", "bug": "markers-of-own-side"},
        {"kind": "state", "bug": "credits-never-limited", "service": "rc"},
        {"kind": "engine", "bug": "short-writes", "service": "rc"},
    ],
    ids=lambda spec: spec["kind"],
)
def test_every_fuzzer_keeps_a_finding_without_trials(spec: dict[str, Any]) -> None:
    fuzzer = make_fuzzer(spec)
    batches = (fuzzer.batch(1, first, 20) for first in range(0, 3000, 20))
    one = next(found for batch in batches for found in batch.found)
    kept = fuzzer.minimised(one, Trials(0))
    assert kept.violation.signature == one.violation.signature
    shown, frames = fuzzer.replay(kept.case)
    assert shown is not None
    assert shown.signature == one.violation.signature
    assert len(fuzzer.frames(kept.case)) == len(frames)


def test_the_frames_of_a_parser_are_known_without_a_call() -> None:
    parser = Failing(TIME)
    frame = next(CORPUS.frames())
    case = mutants_as_json([Mutant(frame)])
    assert [one.data for one in ParserFuzzer(parser, CORPUS).frames(case)] == [frame.data]
    assert parser.calls == 0


# Commands that do not end.

HANGS = b"hangs"


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of captures that a command got; it does not end if there are bytes in it."""
    sizes: list[int] = []

    def outcome(command: Sequence[str], _: float) -> Outcome:
        data = Path(command[-1]).read_bytes()
        sizes.append(len(data))
        return Outcome(None if HANGS in data else 0, "")

    monkeypatch.setattr(command_target, "_outcome", outcome)
    return sizes


def test_a_command_that_never_ends_is_found_in_one_run(hanging: list[int]) -> None:
    results = CommandParser(["hangs", "{pcap}"]).judge_all([[SeedFrame(HANGS)]] * 9)
    violation = next(results)
    assert violation is not None
    assert violation.what == TIME
    assert len(hanging) == 1


def test_cases_are_run_one_by_one_to_find_the_one_that_does_not_end(hanging: list[int]) -> None:
    cases = [[SeedFrame(b"a")] for _ in range(26)]
    cases[12] = [SeedFrame(b"b"), SeedFrame(HANGS), SeedFrame(b"c")]
    shown = list(CommandParser(["hangs", "{pcap}"]).judge_all(cases))
    assert [index for index, one in enumerate(shown) if one is not None] == [12]
    one, together, *alone = hanging
    assert one < together
    assert alone[:11] == [one] * 11
    assert len(alone) == 12 + 2  # the cases that follow are run together again


# What is found is kept.


def test_each_finding_is_reported_when_it_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(FUZZERS, "short-writes", FuzzerKind(ShortWrites, ""))
    reported: list[Finding] = []

    def tell(finding: Finding) -> None:
        assert read_finding(tmp_path / finding.name) == finding
        reported.append(finding)

    findings = Campaign(SHORT_WRITES, 1, tmp_path, runs=80).run(tell=tell)
    assert reported == findings != []


def test_a_finding_that_cannot_be_written_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object) -> None:
        raise FuzzError("disk full")

    monkeypatch.setitem(FUZZERS, "short-writes", FuzzerKind(ShortWrites, ""))
    monkeypatch.setattr(module, "write_finding", fail)
    reported: list[Finding] = []
    campaign = Campaign(SHORT_WRITES, 1, tmp_path, runs=80)
    with pytest.raises(FuzzError, match="disk full"):
        campaign.run(tell=reported.append)
    assert reported == campaign.findings
    assert campaign.progress.findings == len(reported) == 1


def test_nothing_is_written_for_a_program_that_is_missing(tmp_path: Path) -> None:
    folder = tmp_path / "found"
    with pytest.raises(FuzzError, match="no-such-program: cannot run it"):
        Campaign({"kind": "command", "command": "no-such-program {pcap}"}, 1, folder).run()
    assert not folder.exists()


def _raise_ended(number: int, _: object) -> None:
    raise Ended(number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_handled_after_work_that_must_be_completed(number: signal.Signals) -> None:
    done: list[int] = []

    def work() -> None:
        with signals_deferred():
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)
            done.append(1)

    before = signal.signal(number, _raise_ended)
    try:
        with pytest.raises(Ended):
            work()
        assert signal.getsignal(number) is _raise_ended
    finally:
        signal.signal(number, before)
    assert done
