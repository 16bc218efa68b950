"""Campaigns: repeatable, resumed, over processes that may die, findings minimised and kept."""

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from rdmawire.capture import open_capture
from rdmawire.errors import Ended, FuzzError
from rdmawire.fuzz import batch_pool
from rdmawire.fuzz import campaign as module
from rdmawire.fuzz import fuzzer as fuzzer_module
from rdmawire.fuzz.campaign import Campaign, Progress
from rdmawire.fuzz.campaign_state import seed_of
from rdmawire.fuzz.engine_target import EngineTarget
from rdmawire.fuzz.exchange import Request
from rdmawire.fuzz.finding import Finding, findings_in, read_finding, replay
from rdmawire.fuzz.fuzzer import FUZZERS, Batch, FuzzerKind
from rdmawire.fuzz.inputs import Case, Input, input_from_json
from rdmawire.fuzz.minimise import Trials, minimise
from rdmawire.fuzz.oracle import Mismatch, Player, Violation, judge, violation
from rdmawire.fuzz.target import Completion, Target
from rdmawire.verbs.enums import WCOpcode, WCStatus
from rdmawire.wire.opcode import Opcode
from tests.fuzz.planted import SHORT_WRITES, ShortWrites

ENGINE = {"kind": "engine"}
SPEC = {"kind": "short-writes"}
SEED = 7
RUNS = 60
BATCH = 20


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A campaign of :data:`RUNS` runs has three batches, and two findings."""
    monkeypatch.setattr(module, "RUNS_OF_BATCH", BATCH)
    monkeypatch.setitem(FUZZERS, "short-writes", FuzzerKind(ShortWrites, ""))
    batch_pool._fuzzer.cache_clear()


@cache
def whole() -> tuple[Finding, ...]:
    """The findings of a campaign that nothing ends early."""
    findings = Campaign(SPEC, SEED, runs=RUNS).run()
    assert len(findings) == 2
    return tuple(findings)


def names(findings: Iterable[Finding]) -> set[str]:
    return {finding.name for finding in findings}


def test_a_healthy_engine_has_no_findings() -> None:
    campaign = Campaign(ENGINE, SEED, runs=150)
    assert campaign.run() == []
    assert campaign.progress.runs == 150
    assert campaign.progress.executed > 2000


def test_a_planted_bug_is_found_minimised_and_written(tmp_path: Path) -> None:
    findings = Campaign(SPEC, SEED, tmp_path, runs=RUNS).run()
    assert findings
    signatures = [finding.violation.signature for finding in findings]
    assert len(set(signatures)) == len(signatures)
    for finding in findings:
        assert len(finding.case["inputs"]) <= 3
        assert "IBA 9.7.4.1.6" in finding.violation.clause
        folder = tmp_path / finding.name
        assert read_finding(folder) == finding
        assert replay(finding) == finding.violation
        with open_capture(folder / "packets.pcapng") as reader:
            records = list(reader)
        assert records[-1].comments
        assert "expected: " in records[-1].comments[0]
        assert finding.violation.expected in (folder / "report.txt").read_text()


def test_completions_and_requests_are_described_in_words() -> None:
    done = Completion(1, WCStatus.SUCCESS, WCOpcode.RECV, 1, 0x7, 0x11)
    assert str(done) == "completion of work 1: SUCCESS, RECV, 1 byte, value 0x7, source 0x11"
    request = Request(Opcode.UD_SEND_ONLY, 1000, 1, b"", qkey=0x11, source=0x10)
    assert str(request) == "UD_SEND_ONLY PSN 1000, qkey 0x11, source 0x10"
    assert str(request._replace(opcode=Opcode.RC_SEND_ONLY)).startswith("SEND_ONLY PSN 1000")


def test_a_finding_does_not_show_on_a_healthy_engine() -> None:
    for finding in whole():
        assert replay(finding._replace(spec=dict(ENGINE))) is None


def test_the_same_seed_finds_the_same() -> None:
    assert tuple(Campaign(SPEC, SEED, runs=RUNS).run()) == whole()
    assert tuple(Campaign(SPEC, SEED + 1, runs=RUNS).run()) != whole()


def test_a_campaign_goes_on_where_it_ended(tmp_path: Path) -> None:
    Campaign(SPEC, SEED, tmp_path, runs=RUNS // 2).run()
    again = Campaign(SPEC, SEED, tmp_path, runs=RUNS - RUNS // 2)
    again.run()
    assert again.progress.runs == RUNS
    assert names(findings_in(tmp_path)) == names(whole())
    assert seed_of(tmp_path) == SEED


def test_another_target_or_seed_needs_another_folder(tmp_path: Path) -> None:
    Campaign(ENGINE, SEED, tmp_path, runs=10).run()
    with pytest.raises(FuzzError, match="another campaign: seed 7 there and 8 here: use another"):
        Campaign(ENGINE, SEED + 1, tmp_path)
    with pytest.raises(FuzzError, match=f"of that campaign: target engine, seed {SEED}"):
        Campaign(SPEC, SEED, tmp_path)
    with pytest.raises(FuzzError, match="campaign: service not given there and uc here: use"):
        Campaign({**ENGINE, "service": "uc"}, SEED, tmp_path)


def test_a_campaign_without_a_case_does_not_occupy_its_folder(tmp_path: Path) -> None:
    Campaign(ENGINE, SEED, tmp_path).save()
    assert Campaign(SPEC, SEED + 1, tmp_path).progress.runs == 0


def test_an_interrupt_keeps_what_was_found(tmp_path: Path) -> None:
    campaign = Campaign(SPEC, SEED, tmp_path)

    def interrupt(_: object) -> None:
        if campaign.findings:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        campaign.run(report=interrupt)
    assert names(findings_in(tmp_path)) == names(campaign.findings)
    assert json.loads((tmp_path / "campaign.json").read_text())["runs"] == campaign.done


def _next(folder: Path) -> int:
    """The first run that is not done according to the state of a campaign."""
    return int(json.loads((folder / "campaign.json").read_text())["next"])


@pytest.mark.parametrize("error", [FuzzError("disk full"), KeyboardInterrupt()])
@pytest.mark.parametrize("work", ["write_finding", "as_finding"])
def test_a_batch_whose_finding_is_not_written_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str, error: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(module, work, fail)
        campaign = Campaign(SPEC, SEED, tmp_path, runs=RUNS)
        with pytest.raises(type(error)):
            campaign.run()
    assert len(campaign.findings) == (work == "write_finding")  # it is shown all the same
    left = RUNS - _next(tmp_path)
    assert left > 0
    assert names(Campaign(SPEC, SEED, tmp_path, runs=left).run()) == names(whole())


def test_what_a_limit_of_findings_left_out_is_found_later(tmp_path: Path) -> None:
    Campaign(SPEC, SEED, tmp_path, runs=RUNS, max_findings=1).run()
    later = Campaign(SPEC, SEED, tmp_path, runs=RUNS).run()
    assert len(later) > 1
    assert names(later) == names(Campaign(SPEC, SEED, runs=_next(tmp_path)).run())


def test_a_folder_that_cannot_be_written_is_reported_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    campaign = Campaign(SPEC, SEED, tmp_path / "file" / "found", runs=RUNS)
    with pytest.raises(FuzzError, match="cannot write"):
        campaign.run()
    assert campaign.done == 0


def test_what_is_done_is_saved_now_and_then(tmp_path: Path) -> None:
    now = [0.0]
    campaign = Campaign(ENGINE, SEED, tmp_path, runs=3 * BATCH, clock=lambda: now[0])
    saved: list[int] = []

    def report(_: Progress) -> None:
        saved.append(_next(tmp_path))
        now[0] += 20

    campaign.run(report=report)
    assert saved == [0, BATCH + 1, 2 * BATCH + 1]
    assert _next(tmp_path) == 3 * BATCH


class Slow(ShortWrites):
    """A case takes a second of ``now``. After ``interrupted`` cases Ctrl-C comes."""

    now = 0.0
    interrupted = 10**9

    def parts(self, seed: int, first: int, runs: int) -> Iterator[Batch]:
        for part in super().parts(seed, first, runs):
            Slow.now += 1.0
            if part.first == Slow.interrupted:
                raise KeyboardInterrupt
            yield part


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setitem(FUZZERS, "slow", FuzzerKind(Slow, ""))
    monkeypatch.setattr(Slow, "now", 0.0)
    monkeypatch.setattr(Slow, "interrupted", 10**9)
    return {"kind": "slow"}


@pytest.mark.parametrize(("seconds", "cases"), [(3, 3), (0.5, 1), (0, 1)])
def test_a_campaign_of_slow_cases_ends_in_time(
    slow: dict[str, str], seconds: float, cases: int
) -> None:
    campaign = Campaign(slow, SEED, seconds=seconds, clock=lambda: Slow.now)
    reports: list[int] = []
    campaign.run(report=lambda progress: reports.append(progress.runs))
    assert campaign.done == cases
    assert reports == list(range(1, cases))  # each second, not only after a batch


def test_an_interrupt_keeps_the_cases_before_it(
    slow: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = max(finding.run for finding in whole())
    monkeypatch.setattr(Slow, "interrupted", last + 1)
    campaign = Campaign(slow, SEED, tmp_path, clock=lambda: Slow.now)
    with pytest.raises(KeyboardInterrupt):
        campaign.run()
    assert campaign.done == _next(tmp_path) == last + 1
    assert {one.violation for one in campaign.findings} == {one.violation for one in whole()}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Ended(signal.SIGTERM)])
def test_a_finding_that_is_being_minimised_is_kept_at_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def interrupt(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(ShortWrites, "minimised", interrupt)
        with pytest.raises(type(error)):
            Campaign(SPEC, SEED, tmp_path, runs=RUNS).run()
    (kept,) = findings_in(tmp_path)
    assert replay(kept) == kept.violation
    resumed = Campaign(SPEC, SEED, tmp_path, runs=RUNS).run()
    assert {one.violation.signature for one in resumed} >= {
        one.violation.signature for one in whole()
    }


def test_findings_are_written_again_to_a_folder_that_was_removed(tmp_path: Path) -> None:
    folder = tmp_path / "found"
    campaign = Campaign(SPEC, SEED, folder, runs=RUNS)

    def remove(_: Progress) -> None:
        if campaign.findings:
            shutil.rmtree(folder, ignore_errors=True)

    campaign.run(report=remove)
    assert list(findings_in(folder)) == sorted(campaign.findings, key=lambda one: one.name)
    assert _next(folder) == RUNS


def test_a_folder_that_a_killed_process_was_writing_is_no_finding(tmp_path: Path) -> None:
    found = Campaign(SPEC, SEED, tmp_path, runs=RUNS).run()
    half = tmp_path / f".{found[0].name}.1"
    half.mkdir()
    (half / "finding.json").write_text("{")
    assert names(findings_in(tmp_path)) == names(found)


def test_other_files_in_the_folder_of_a_finding_stay(tmp_path: Path) -> None:
    (finding, *_) = whole()
    folder = tmp_path / finding.name
    folder.mkdir()
    (folder / "notes").write_text("mine")
    Campaign(SPEC, SEED, tmp_path, runs=RUNS).run()
    assert (folder / "notes").read_text() == "mine"
    assert read_finding(folder) == finding
    assert not list(tmp_path.glob(".*"))


STATE = {"target": ENGINE, "seed": 1, "runs": 0, "executed": 0, "seconds": 0, "next": 0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("\ud800", "not JSON"),
        ("[]", "not the state of a campaign"),
        (json.dumps(STATE | {"next": 1.5}), "next is missing or not an integer"),
        (json.dumps(STATE | {"next": -1}), "next is missing or not an integer"),
        (json.dumps(STATE | {"runs": True}), "runs is missing or not an integer"),
        (json.dumps(STATE | {"executed": 10**400}), "executed is missing or not an integer"),
        (json.dumps(STATE | {"seed": float("nan")}), "seed is missing or not an integer"),
        (json.dumps(STATE | {"seconds": float("nan")}), "seconds are missing or not a number"),
        (json.dumps(STATE | {"seconds": float("inf")}), "seconds are missing or not a number"),
    ],
)
def test_a_damaged_state_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "campaign.json").write_bytes(text.encode(errors="surrogatepass"))
    for use in (seed_of, lambda folder: Campaign(ENGINE, SEED, folder)):
        with pytest.raises(FuzzError, match=message):
            use(tmp_path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "campaign.json")
    os.mkfifo(tmp_path / "finding.json")
    with pytest.raises(FuzzError, match="it is a pipe"):
        seed_of(tmp_path)
    with pytest.raises(FuzzError, match="it is a pipe"):
        read_finding(tmp_path)


def test_a_campaign_ends_with_enough_findings() -> None:
    assert len(Campaign(SPEC, SEED, max_findings=1).run()) == 1


def test_a_campaign_ends_when_its_time_is_over() -> None:
    times = iter(range(100))
    campaign = Campaign(ENGINE, SEED, seconds=3, clock=lambda: float(next(times)))
    campaign.run()
    assert campaign.progress.runs <= 3 * module.RUNS_OF_BATCH


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("{}", "not a finding of format 1"),
        ('{"format": 1}', "place is missing"),
    ],
)
def test_a_damaged_finding_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "finding.json").write_text(text)
    with pytest.raises(FuzzError, match=message):
        read_finding(tmp_path)


def test_a_folder_of_findings_is_no_finding(tmp_path: Path) -> None:
    Campaign(SPEC, SEED, tmp_path, runs=RUNS).run()
    with pytest.raises(FuzzError, match=r"name the folders of its findings, .*/\*/"):
        read_finding(tmp_path)


def test_values_of_other_types_are_refused(tmp_path: Path) -> None:
    (finding, *_) = Campaign(SPEC, SEED, tmp_path, runs=RUNS).run()
    path = tmp_path / finding.name / "finding.json"
    values = json.loads(path.read_text())
    for name, value in (("seed", "x"), ("place", None), ("what", 3), ("target", [])):
        path.write_text(json.dumps(values | {name: value}))
        with pytest.raises(FuzzError, match="other types"):
            read_finding(path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (None, "whose 'input' is one of packet"),
        ({"input": ["packet"]}, "whose 'input' is one of packet"),
        ({"input": "packet"}, "opcode is missing"),
        ({"input": "packet", "opcode": 300}, "opcode is a number from 0 to 255"),
        ({"input": "packet", "opcode": 1, "aheat": 1}, "no value is named 'aheat'; the nearest"),
        ({"input": "packet", "opcode": 1, "fields": {"bth.psn": "x"}}, "names with numbers"),
        ({"input": "packet", "opcode": 1, "checksum": "FINE"}, "checksum is one of GOOD"),
        ({"input": "packet", "opcode": 1, "extra": "reth"}, "extra is a list"),
        ({"input": "receive", "length": True}, "length is a number"),
    ],
)
def test_wrong_inputs_are_refused_in_a_line(values: object, message: str) -> None:
    with pytest.raises(FuzzError, match=message):
        input_from_json(values)


def test_minimising_keeps_the_signature() -> None:
    target = EngineTarget(rules=SHORT_WRITES)
    batch = ShortWrites(SPEC).batch(SEED, 0, RUNS)
    assert batch.found
    for found in batch.found:
        case, violation = minimise(target, Case.from_json(found.case), found.violation)
        assert violation.signature == found.violation.signature
        assert judge(target, case) == violation
        assert len(case.inputs) <= len(found.case["inputs"])


def test_without_trials_a_case_is_only_cut_after_the_violation() -> None:
    target = EngineTarget(rules=SHORT_WRITES)
    case = Case.from_json(whole()[0].case)
    shown = judge(target, case)
    assert shown is not None
    longer = case.with_inputs((*case.inputs[: shown.place + 1], *case.inputs))
    assert minimise(target, longer, shown, trials=Trials(0))[0] == case


def test_a_target_that_always_fails_is_still_fuzzed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A campaign plays few cases to minimise, however many signatures it finds."""
    played: list[Case] = []

    def counted(target: Target, case: Case, session: Player | None = None) -> Violation | None:
        played.append(case)
        shown = judge(target, case, session)
        return None if shown is None else shown._replace(signature=f"always {len(played) % 2}")

    def unlike(place: int, one: Input, mismatch: Mismatch) -> Violation:
        return violation(place, one, mismatch)._replace(signature=f"{one}")

    monkeypatch.setattr(module, "FREE_TRIALS", 60)
    monkeypatch.setattr(sys.modules[minimise.__module__], "judge", counted)
    monkeypatch.setattr(fuzzer_module, "violation", unlike)
    spec = {"kind": "requester", "service": "rc", "bug": "key-without-variant"}
    runs = 100
    Campaign(spec, SEED, runs=runs).run()
    assert runs < len(played) <= 60 + runs + runs


def test_the_number_of_behaviours_reached_grows_with_other_runs() -> None:
    campaign = Campaign(ENGINE, SEED, runs=BATCH // 2)
    campaign.run()
    few = campaign.progress.reached
    assert few > 50
    more = Campaign(ENGINE, SEED, runs=6 * BATCH, clock=lambda: 0.0)
    seen: list[int] = []
    more.run(report=lambda progress: seen.append(progress.reached))
    assert few < seen[0] < seen[-1]
    assert seen == sorted(seen)
