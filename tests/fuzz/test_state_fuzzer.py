"""State-level fuzzing: sequences of verbs, packets, faults and time, with an oracle after each."""

from pathlib import Path
from typing import Any

import pytest

from rdmawire.errors import FuzzError
from rdmawire.fuzz.campaign import Campaign
from rdmawire.fuzz.finding import read_finding, replay
from rdmawire.fuzz.fuzzer import Found
from rdmawire.fuzz.planted_bugs import planted
from rdmawire.fuzz.state_fuzzer import SequenceFuzzer, StateFuzzer
from rdmawire.fuzz.state_fuzzer import replay as play

RC = {"profiles": ["ibta", "ibta"], "connections": [{"service": "RC", "hosts": [0, 1], "psns": [0xFFFFFF, 100]}]}  # fmt: skip  # noqa: E501
TWO = {
    "profiles": ["ibta", "ibta", "ibta"],
    "connections": [
        {"service": "RC", "hosts": [0, 1], "psns": [0, 0x7FFFFF]},
        {"service": "UC", "hosts": [1, 2], "psns": [5, 6]},
    ],
}


def step(name: str, **arguments: Any) -> dict[str, Any]:
    return {"step": name, **arguments}


def post(verb: str, **arguments: Any) -> dict[str, Any]:
    return step("post", verb=verb, flags=2, **arguments)


EVERY_SERVICE = [
    step("receive", end=1, length=1024),
    step("receive", end=0, length=300),
    post("SEND", end=0, length=513),
    post("SEND_WITH_IMM", end=1, length=33, value=2),
    post("RDMA_WRITE", end=0, length=769, region=0, offset=64),
    post("RDMA_READ", end=1, length=257, region=0, offset=8),
    post("ATOMIC_FETCH_AND_ADD", end=0, offset=8, value=1),
    step("settle"),
]
LOSSES = [
    step("receive", end=1, length=1024),
    step("fault", do="drop", ahead=1, by=1),
    step("fault", do="reorder", ahead=3, by=9),
    step("fault", do="corrupt", ahead=5, by=40),
    post("SEND", end=0, length=772),
    post("RDMA_READ", end=0, length=768, region=0),
    post("RDMA_WRITE", end=1, length=512, region=0),
    step("settle"),
]
ERRORS = [
    post("RDMA_WRITE", end=0, length=8, region=0, key=1),
    post("RDMA_READ", end=0, length=8, region=0),
    step("settle"),
    step("reconnect", end=0),
    post("RDMA_WRITE", end=0, length=8, region=0),
    step("modify", end=1, state="ERR"),
    post("RDMA_WRITE", end=0, length=8, region=0),
    step("settle"),
]
REFUSING_READ = [
    post("RDMA_READ", end=0),
    step("inject", end=0, packet={"opcode": 13, "value": 33}),
    step("settle"),
]
"""A READ response whose AETH is an RNR NAK."""
FLUSHED_ON_UC = [
    post("RDMA_WRITE", end=3, length=1, offset=0, lkey=1),
    post("SEND", end=3),
    step("modify", end=3, state="RTS"),
    post("SEND", end=3),
    step("settle"),
]
"""Work after an error on UC: what was flushed took no PSNs."""
XRC = {"profiles": ["ibta", "ibta"], "connections": [{"service": "XRC", "hosts": [0, 1], "psns": [0, 0]}]}  # fmt: skip  # noqa: E501
CONTINUED_BY_ANOTHER = [
    post("SEND", end=0),
    post("RDMA_WRITE_WITH_IMM", end=0, length=768),
    step("reconnect", end=0),
    post("SEND_WITH_INV", end=0, length=257),
    post("RDMA_WRITE", end=0, length=512),
    step("receive", end=1, length=1024),
    step("settle"),
]
"""Frames of before a reset begin a WRITE; the first packet of another one is a duplicate then."""


@pytest.mark.parametrize("setup", [RC, TWO], ids=["one connection", "two connections"])
@pytest.mark.parametrize(
    "steps", [EVERY_SERVICE, LOSSES, ERRORS, REFUSING_READ], ids=["all", "losses", "errors", "read"]
)
def test_a_healthy_adapter_has_no_violation(setup: Any, steps: list[Any]) -> None:
    violation, frames = play({"setup": setup, "steps": steps})
    assert violation is None
    assert len(frames) >= 2


def test_flushed_work_takes_no_psns() -> None:
    violation, _ = play({"setup": TWO, "steps": FLUSHED_ON_UC})
    assert violation is None


LAST_IS_LOST = [
    step("fault", do="drop", ahead=1),
    post("RDMA_WRITE", end=0, length=257),
    post("RDMA_WRITE", end=0),
    step("settle"),
]
"""The only packet of the second WRITE is refused until the first WRITE is complete."""


@pytest.mark.parametrize(
    "steps", [CONTINUED_BY_ANOTHER, LAST_IS_LOST], ids=["duplicate", "after a gap"]
)
def test_a_packet_out_of_sequence_begins_no_write(steps: list[Any]) -> None:
    violation, _ = play({"setup": XRC, "steps": steps})
    assert violation is None


@pytest.mark.parametrize(
    ("bug", "what"),
    [
        pytest.param(
            "completed-twice", ("exactly once", "receive completions"), marks=pytest.mark.slow
        ),
        pytest.param("immediate-of-zero", ("request content",), marks=pytest.mark.slow),
        ("credits-never-limited", ("replies",)),
    ],
)
def test_a_planted_bug_of_one_host_is_found(bug: str, what: tuple[str, ...]) -> None:
    fuzzer = SequenceFuzzer({"kind": "state", "bug": bug, "service": "rc"})
    found = next(
        (one for first in range(40) for one in fuzzer.batch(1, 20 * first, 20).found), None
    )
    assert isinstance(found, Found)
    smallest = fuzzer.minimised(found)
    assert smallest.violation.what in what
    assert len(smallest.case["steps"]) <= len(found.case["steps"])
    shown, frames = fuzzer.replay(smallest.case)
    assert shown == smallest.violation
    assert frames
    assert play(smallest.case)[0] is None  # without the bug


def test_findings_of_a_campaign_are_played_again(tmp_path: Path) -> None:
    spec = {"kind": "state", "bug": "credits-never-limited", "service": "rc"}
    campaign = Campaign(spec, 1, tmp_path, runs=400, max_findings=1)
    (finding,) = campaign.run()
    folder = tmp_path / finding.name
    assert read_finding(folder) == finding
    assert replay(finding) == finding.violation
    assert (folder / "packets.pcapng").stat().st_size > 200
    assert "post" in (folder / "report.txt").read_text()


def test_rules_belong_to_one_host() -> None:
    case = {"setup": RC, "steps": EVERY_SERVICE}
    rules = planted("completed-twice").rules
    violation, _ = play(case, {0: rules})
    assert violation is not None
    assert violation.what in ("exactly once", "receive completions")
    assert play(case, {1: rules})[0] is None  # it receives no SEND of one packet


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (3, "expected an object with a setup"),
        ({"setup": RC, "steps": [{"step": "jump"}]}, "its 'step' is none of"),
        ({"setup": RC, "steps": [{"step": "wait", "s": 1}]}, "no argument 's'"),
        ({"setup": RC, "steps": [{"step": "wait", "ns": "1"}]}, "not of type int"),
        ({"setup": {"profiles": []}, "steps": []}, "setup: expected profiles"),
    ],
)
def test_what_is_no_case_is_refused(case: Any, message: str) -> None:
    with pytest.raises(FuzzError, match=message):
        play(case)


def test_unknown_services_and_profiles_are_refused() -> None:
    with pytest.raises(FuzzError, match="service 'rd' is none of rc, uc, ud, xrc, all"):
        SequenceFuzzer({"kind": "state", "service": "rd"})
    with pytest.raises(FuzzError, match="profile"):
        SequenceFuzzer({"kind": "state", "profile": "rxq"})


def test_a_search_reports_its_seed() -> None:
    lines: list[str] = []
    StateFuzzer(seed=7, max_steps=5, report=lines.append, services=("RC",)).run(2)
    assert lines == ["seed 7"]
