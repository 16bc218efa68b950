"""The acceptance runner's reading of what programs print, and its tables. No program runs."""

import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import cast

import pytest

from tools.acceptance import page, processes, robustness, runner, trial
from tools.acceptance.case import Case, Frames, Package, Report, Result, UnitTest, Verdict
from tools.acceptance.cases import all_cases, chosen
from tools.acceptance.packages import checkout_version
from tools.acceptance.processes import Program
from tools.acceptance.reports import captured, measured, reason, shortened, unit_tests
from tools.acceptance.runner import Ended, ProgramPaths, judged, run
from tools.acceptance.service import Service, Usage
from tools.acceptance.trial import Size, Trial, TrialError

PACKAGE = Package("perftest", "perftest")
CASE = Case(PACKAGE, "ib_write_bw -a", "ib_write_bw -a localhost", transport="RC")
ONE_FRAME = Frames(1)
SIZE = Size(kills=7)

UNITTEST = """\
test_alloc_pd (tests.test_pd.PDTest.test_alloc_pd)
Test ibv_alloc_pd() ... ok
test_create_dm (tests.test_device.DMTest.test_create_dm) ... skipped 'no device memory'
test_mw_type1 (tests.test_mr.MWTest.test_mw_type1)
Test traffic of a window ... some output of the test
ERROR
test_hang (tests.test_mr.MWTest.test_hang)
======================================================================
ERROR: test_mw_type1 (tests.test_mr.MWTest.test_mw_type1)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "test_mr.py", line 1, in test_mw_type1
pyverbs.pyverbs_error.PyverbsRDMAError: Memory window bind error

----------------------------------------------------------------------
Ran 4 tests in 0.1s
"""

BANDWIDTH = """\
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 2          500             0.18               0.16                0.1
 65536      500             152.18             109.60              0.001747
---------------------------------------------------------------------------------------
"""
LATENCY = """\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]
 2       1000          20.11          90.21        31.25              33.6
---------------------------------------------------------------------------------------
"""
UCX = """\
+--------------+--------------+------------------------------+
Final:                  1000     41.201    43.150    43.150        0.18       0.18       23175
"""


def test_unit_tests_have_an_outcome_and_a_reason() -> None:
    assert unit_tests(Report.UNITTEST, UNITTEST) == (
        UnitTest("PDTest.test_alloc_pd", "ok"),
        UnitTest("DMTest.test_create_dm", "skipped", "no device memory"),
        UnitTest(
            "MWTest.test_mw_type1",
            "ERROR",
            "pyverbs.pyverbs_error.PyverbsRDMAError: Memory window bind error",
        ),
        UnitTest("MWTest.test_hang", "no end"),
    )


CARGO = """\
     Running tests/loopback.rs (target/debug/deps/loopback-bbb94558e6be07eb)

running 3 tests
test atomics ... ok
test inline_send ... ignored, needs a device
test rdma_read ... FAILED
test ibverbs/src/lib.rs - PostBatch (line 4037) - compile fail ... ok

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out
"""
PYTEST = """\
tests/test_cq.py::test_poll PASSED                                       [ 25%]
tests/test_cq.py::test_resize[8] FAILED                                  [ 50%]
tests/test_qp.py::TestQP::test_gpu SKIPPED (could not import 'torch')    [ 75%]
FAILED tests/test_cq.py::test_resize[8] - OSError: [Errno 22]
"""


def test_unit_tests_other_runners_have_the_same_outcomes() -> None:
    assert unit_tests(Report.CARGO, CARGO) == (
        UnitTest("atomics", "ok"),
        UnitTest("inline_send", "skipped", "needs a device"),
        UnitTest("rdma_read", "FAIL"),
        UnitTest("ibverbs/src/lib.rs - PostBatch (line 4037) - compile fail", "ok"),
    )
    assert unit_tests(Report.PYTEST, PYTEST) == (
        UnitTest("test_cq.py::test_poll", "ok"),
        UnitTest("test_cq.py::test_resize[8]", "FAIL"),
        UnitTest("test_qp.py::TestQP::test_gpu", "skipped", "could not import 'torch'"),
    )


@pytest.mark.parametrize(
    ("package", "reason"),
    [
        (Package("a", pypi="no-such-package"), "needs the package no-such-package of PyPI"),
        (
            Package("b", repository="https://example.org/b/rust-b"),
            "needs --sources FOLDER with rust-b, a checkout of https://example.org/b/rust-b",
        ),
        (Package("c", "libc"), "needs the package libc"),
    ],
)
def test_what_is_missing_is_the_reason(package: Package, reason: str) -> None:
    result = run(Case(package, "x", "no-such-program test"), ProgramPaths())
    assert (result.verdict, result.reason) == (Verdict.MISSING, reason)


def test_the_version_of_a_checkout_is_that_of_its_crate_or_of_cmake(tmp_path: Path) -> None:
    assert not checkout_version(tmp_path)
    build = tmp_path / "CMakeLists.txt"
    build.write_text("set(G_VERSION_MAJOR 0)\nset(G_VERSION_MINOR 5)\nset(G_VERSION_PATCH 7)\n")
    assert checkout_version(tmp_path) == "0.5.7"
    build.write_text('set(PACKAGE_VERSION "64.0")\n')
    assert checkout_version(tmp_path) == "64.0"
    (tmp_path / "verbs").mkdir()
    (tmp_path / "verbs/Cargo.toml").write_text('[package]\nname = "verbs"\nversion = "0.9.2"\n')
    assert checkout_version(tmp_path) == "0.9.2"


def test_counts_of_a_capture() -> None:
    good = "a.pcap: 80625 frames; ICRC 80625 good; IPv4 header checksum 80625 good; none malformed"
    bad = "a.pcap: 9 frames; ICRC 6 good, 2 bad; IPv4 header checksum 9 good; 1 malformed"
    assert captured(good) == Frames(80625)
    assert captured(bad) == Frames(9, bad_icrc=2, malformed=1)
    assert captured("") == Frames()


@pytest.mark.parametrize(
    ("output", "figure"),
    [(BANDWIDTH, "110 MiB/s"), (LATENCY, "31.25 us"), (UCX, "43.150 us"), ("no table", "")],
)
def test_figures(output: str, figure: str) -> None:
    assert measured(output) == figure


def test_the_reason_is_the_first_line_that_names_an_error() -> None:
    assert (
        reason("----\n local address\nUnable to open device\nexiting\n") == "Unable to open device"
    )
    assert reason("only\nlines\n") == "only"
    assert reason("") == "it printed nothing"
    assert len(shortened("long " * 100)) == 160


@pytest.mark.parametrize(
    ("ended", "frames", "words"),
    [
        (Ended(0, ""), ONE_FRAME, ""),
        (Ended(1, "Unable to x"), ONE_FRAME, "client: exit status 1: Unable to x"),
        (Ended(None, "waiting"), ONE_FRAME, "client: no end within 60 s: waiting"),
        (Ended(0, "", 3, "error y"), ONE_FRAME, "server: exit status 3: error y"),
        (Ended(0, "", None, "z"), ONE_FRAME, "server: no end within 60 s: z"),
        (Ended(0, ""), Frames(), "no frames were captured"),
        (Ended(0, ""), Frames(5, 1), "1 frames with a bad ICRC, 0 malformed"),
        (Ended(0, ""), Frames(5, tshark_malformed=2), "2 of the first malformed for tshark"),
    ],
)
def test_verdicts(ended: Ended, frames: Frames, words: str) -> None:
    result = judged(CASE, ended, frames)
    assert result.verdict is (Verdict.FAILED if words else Verdict.PASSED)
    assert words in result.reason


def test_raw_packets_may_be_malformed() -> None:
    raw = replace(CASE, raw=True)
    assert judged(raw, Ended(0, ""), Frames(5, malformed=2)).verdict is Verdict.PASSED
    assert judged(raw, Ended(0, ""), Frames(5, bad_icrc=1)).verdict is Verdict.FAILED


def test_a_refusal_is_the_error_that_is_expected() -> None:
    case = Case(PACKAGE, "ib_send_bw -c SRD", "ib_send_bw", refused="SRD", frames=False)
    assert judged(case, Ended(1, "no SRD here"), Frames()).verdict is Verdict.REFUSED
    assert judged(case, Ended(0, "no SRD here"), Frames()).verdict is Verdict.FAILED
    assert judged(case, Ended(1, "other"), Frames()).verdict is Verdict.FAILED


def test_failed_unit_tests_are_named() -> None:
    case = Case(PACKAGE, "test_mr.py", "run_tests.py", report=Report.UNITTEST, frames=False)
    result = judged(case, Ended(1, UNITTEST), Frames())
    assert result.verdict is Verdict.FAILED
    assert result.reason == "1 ERROR, 1 no end, 1 ok, 1 skipped; failed: test_mw_type1, test_hang"


def test_each_case_is_unique_and_its_texts_are_patterns() -> None:
    cases = list(all_cases())
    keys = {(case.package, case.options, case.transport, case.where) for case in cases}
    assert len(keys) == len(cases)
    for case in cases:
        re.compile(case.expect)
        re.compile(case.refused)
    assert {case.program for case in chosen(("mckey",))} == {"mckey"}


def test_rows_that_did_not_run_stay_as_they_were() -> None:
    other = Case(PACKAGE, "ib_read_bw", "ib_read_bw", transport="RC")
    old = [page.plain(Result(one, Verdict.FAILED, "old"), "1") for one in (CASE, other)]
    new = [page.plain(Result(other, Verdict.PASSED), "2")]
    new.append(page.plain(Result(CASE, Verdict.MISSING, "not installed"), ""))
    rows = page.merged(old, new, (other, CASE))
    assert [(row["program"], row["verdict"]) for row in rows] == [
        ("ib_read_bw", "passed"),
        ("ib_write_bw -a", "failed"),
    ]


def test_trials_are_chosen_by_their_names() -> None:
    def chosen_names(*patterns: str) -> list[str]:
        return [plan.name for plan in robustness.chosen(SIZE, patterns)]

    names = [plan.name for plan in robustness.plans(SIZE)]
    assert len(set(names)) == len(names)
    assert chosen_names() == names
    assert chosen_names("7 programs") == ["7 programs are killed"]
    assert chosen_names("perftest") == []


def test_trials_that_did_not_run_stay_as_they_were() -> None:
    first, second, third = robustness.plans(SIZE)[:3]
    old = [asdict(Trial(name, True, "old")) for name in (second.name, first.name, "other size")]
    rows = page.merged_trials(
        old, [asdict(Trial(second.name, False, "new"))], (first, second, third)
    )
    assert [(row["name"], row["what"]) for row in rows] == [
        (first.name, "old"),
        (second.name, "new"),
    ]


class FakeService:
    """A service that holds something, as a trial sees it."""

    def __init__(self, usage: Usage, qps: int) -> None:
        self._usage, self._qps = usage, qps

    def usage(self) -> Usage:
        return self._usage

    def objects(self) -> dict[str, int]:
        return {"qps": self._qps}


@pytest.mark.parametrize(
    ("usage", "qps", "is_clean"),
    [
        (Usage(9, 1, 0, 5 << 20), 0, True),
        (Usage(10, 1, 0, 0), 0, False),
        (Usage(9, 2, 0, 0), 0, False),
        (Usage(9, 1, 1, 0), 0, False),
        (Usage(9, 1, 0, 0), 1, False),
    ],
)
def test_what_programs_leave_is_found(
    usage: Usage, qps: int, is_clean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "_END_SECONDS", 0)
    service = cast("Service", FakeService(usage, qps))
    before = Usage(9, 1, 0, 0)
    if is_clean:
        assert trial.left(service, before) == "nothing is left"
    else:
        with pytest.raises(TrialError, match="before 9 descriptors, 1 threads"):
            trial.left(service, before)


def test_the_page_shows_text_of_programs_as_it_is() -> None:
    row = page.plain(Result(CASE, Verdict.FAILED, "<b> | `x`", frames=Frames(1234)), "4.5")
    text = page.page({"machine": "a machine", "results": [row], "robustness": []})
    assert "## perftest 4.5\n" in text
    assert r"| `ib_write_bw -a` | RC | direct | **failed** | \<b\> \| \`x\` | 1,234 |" in text
    assert "In all: 1 failed." in text


def test_the_page_has_the_settings_of_programs() -> None:
    text = page.page({"machine": "a machine", "results": [], "robustness": []})
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert all(line.count("|") == 4 for line in lines)
    named = {line.split("|")[1].strip() for line in lines}
    assert named >= {"UCX", "Open MPI", "MPICH", "fio", "QEMU", "NCCL", "NIXL", "Mooncake"}


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (Case(PACKAGE, "x", "true", prepare="false"), "false: exit status 1: it printed nothing"),
        (
            Case(PACKAGE, "x", "true", prepare="sh -c 'echo error: no compiler; exit 3'"),
            "sh: exit status 3: error: no compiler",
        ),
    ],
)
def test_a_preparation_that_fails_is_the_reason(
    case: Case, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_missing", lambda *_: "")
    result = run(case, ProgramPaths())
    assert (result.verdict, result.reason) == (Verdict.FAILED, words)


def test_all_packages_of_a_program_are_needed() -> None:
    package = Package("d", "no-such-first no-such-second")
    result = run(Case(package, "x", "sh -c true"), ProgramPaths())
    assert result.verdict is Verdict.MISSING
    assert result.reason == "needs the packages no-such-first, no-such-second"


def test_a_server_is_ready_when_it_prints_so(tmp_path: Path) -> None:
    server = Program("sh -c 'echo; echo waiting for 1; exec sleep 60'", {}, tmp_path / "output")
    try:
        server.wait_until_ready(0, ready=r"waiting for \d")
        assert "waiting for 1" in server.output
    finally:
        server.end()


def test_a_server_that_polls_is_ready_after_some_processor_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_POLLING_SECONDS", 0.2)
    server = Program("sh -c 'while :; do :; done'", {}, tmp_path / "output")
    try:
        server.wait_until_ready(0)
        state, used = processes._state(server.process.pid)
        assert state == "R"
        assert used >= 0.2
    finally:
        server.end()
