"""What each expectation says that does not hold: which, expected, found, and the frame."""

import pytest

from rdmawire.fuzz.planted_bugs import planted_rules
from rdmawire.traffic.scenario.model import Scenario
from rdmawire.traffic.scenario.model.step import StepPlan
from rdmawire.traffic.scenario.reader import read_scenario_text
from rdmawire.traffic.scenario.runner.observer import UnknownPoint
from rdmawire.traffic.scenario.runner.play import play
from rdmawire.traffic.scenario.runner.verdict import found_time
from rdmawire.traffic.scenario.types import End, Fill, Range, Span
from rdmawire.wire.ib import Ack, Nak
from tests.traffic.scenario.scene import (
    CLIENT,
    SERVER,
    SINK,
    SOURCE,
    between,
    connection,
    counts,
    event,
    exactly,
    expecting,
    failures,
    failures_of,
    fault,
    holds,
    host,
    lasts,
    link,
    memory,
    packets,
    scene,
    state,
    step,
    write,
)

BEYOND = Span("server", "sink", 4096)
TOO_LONG = step("write", local=(SOURCE,), remote=BEYOND, name="w1")


@pytest.mark.parametrize(
    ("range_", "expected"),
    [
        (exactly(0), "expected 0, found 8 (frame 1)"),
        (exactly(9), "expected 9, found 8 (frame 8)"),
        (Range(0, 3), "expected at most 3, found 8 (frame 4)"),
        (Range(1, 3), "expected 1 to 3, found 8 (frame 4)"),
        (Range(9, 11), "expected 9 to 11, found 8 (frame 8)"),
        (between(9), "expected 9 or more, found 8 (frame 8)"),
    ],
)
def test_packets_name_the_one_too_many_or_the_last_there_is(range_: Range, expected: str) -> None:
    where: dict[str, object] = {"bth.opcode": range(6, 9)}
    (found,) = failures(scene(write()), packets(range_, where))
    assert found == f"packets with bth.opcode 6..8: {expected}"
    assert failures(scene(write()), packets(exactly(8), where)) == []


def test_packets_are_described_as_they_were_asked_for() -> None:
    found = failures(
        scene(write()),
        packets(exactly(1), {}),
        packets(exactly(1), {"bth.psn": (100, 101)}, sent_by="client"),
        packets(exactly(1), {"eth.dst": bytes(6), "bth.psn": 5}, link="client-server"),
    )
    assert found == [
        "packets: expected 1, found 9 (frame 2)",
        "packets sent by client with bth.psn [100, 101]: expected 1, found 2 (frame 2)",
        ("packets on client-server with eth.dst 00:00:00:00:00:00, bth.psn 5: expected 1, found 0"),
    ]


def test_the_completion_of_a_step_names_the_nak_that_explains_it() -> None:
    found = failures(
        scene(TOO_LONG, write(name="behind", after=("w1",), times=2)),
        state(CLIENT, "RTS"),
        state(SERVER, "RTS"),
        event("AccessViolation", exactly(0)),
        event("AccessViolation", exactly(1)),
    )
    assert found == [
        "w1 (write) on client/a: expected SUCCESS, found REM_ACCESS_ERR (frame 9)",
        "behind (write) on client/a: expected SUCCESS, found WR_FLUSH_ERR",
        "state of client/a: expected RTS, found ERR (frame 9)",
        "state of server/a: expected RTS, found ERR (frame 1)",
        "events server.AccessViolation: expected 0, found 1 (frame 1)",
    ]


def test_values_of_completions_of_receives() -> None:
    inbox = (SINK,)

    def found(verb: str, expected: dict[str, int]) -> list[str]:
        values = {"imm": 7} if verb == "send_imm" else {}
        receive = step("receive", SERVER, local=inbox, values=expected)
        return failures(scene(receive, step(verb, inline=b"hello", values=values)))

    assert found("send_imm", {"byte_len": 5, "imm": 7}) == []
    on = "receive on server/a: expected"
    assert found("send_imm", {"byte_len": 8}) == [f"{on} byte_len 8, found byte_len 5"]
    assert found("send_imm", {"imm": 0}) == [f"{on} imm 0x0, found imm 0x7"]
    assert found("send", {"imm": 0}) == [f"{on} imm 0x0, found no immediate data"]


def test_work_that_completes_twice_is_a_failure() -> None:
    plan = scene(step("receive", SERVER, local=(SINK,)), step("send", inline=b"hello"))
    outcome = play(plan, rules={"server": planted_rules("completed-twice")})
    (failure,) = outcome.failures
    assert failure.text("").endswith(
        "receive on server/a: expected 1 completion, found 2 completions"
    )


SEND_IN_WRITE = """\
name: a message of two verbs
hosts: {client: {}, server: {memory: {sink: 4 KiB}}}
connections: {a: {between: "client, server", mtu: 256}}
work:
  - inject: {on: client/a, opcode: RC_RDMA_WRITE_FIRST, to: "server.sink[0:512]", payload: 256}
  - inject: {on: client/a, at: 1 ms, opcode: RC_SEND_LAST, payload: 256}
"""


def test_a_completion_of_no_posted_work_is_a_failure() -> None:
    rules = planted_rules("continues-as-another")
    outcome = play(read_scenario_text(SEND_IN_WRITE), rules={"server": rules})
    (failure,) = outcome.failures
    assert failure.text("") == (
        ":1:1: completion on server: expected that of a posted work request, found wr_id 0x0"
    )


def test_an_error_that_was_expected_and_did_not_come() -> None:
    assert failures(scene(write(status="REM_ACCESS_ERR"))) == [
        "write on client/a: expected REM_ACCESS_ERR, found SUCCESS"
    ]


def test_retries_that_run_out_name_the_last_packet_that_was_sent_again() -> None:
    lost = fault("drop", sent_by=CLIENT, packet=(8,))
    impatient = connection(attributes={"timeout": 1, "retry_cnt": 2})
    found = failures(scene(write(), links=(link(lost),), connections=(impatient,)))
    assert found == ["write on client/a: expected SUCCESS, found RETRY_EXC_ERR (frame 19)"]


def test_receivers_that_are_never_ready_are_named_by_their_last_nak() -> None:
    impatient = connection(attributes={"rnr_retry": 1, "min_rnr_timer": 1})
    found = failures(scene(step("send", inline=b"x"), connections=(impatient,)))
    assert found == ["send on client/a: expected SUCCESS, found RNR_RETRY_EXC_ERR (frame 4)"]


def test_the_first_queue_pair_that_fails_is_named() -> None:
    wrong = fault(
        "set",
        sent_by=End("client", "a", 2),
        where={"bth.opcode": 6},
        nth=(2,),
        options={"field": "reth.rkey", "value": 0},
    )
    found = failures(
        scene(write(times=3), links=(link(wrong),), connections=(connection(count=3),))
    )
    assert found[0].startswith("write on client/a#2: expected SUCCESS, found REM_ACCESS_ERR (frame")
    assert len(found) == 1


def test_refusals_are_expected_by_their_errno() -> None:
    assert failures(scene(step("send", SERVER, inline=bytes(2000), refused="EINVAL"))) == []
    assert failures(scene(step("send", SERVER, inline=bytes(2000), refused="ENOMEM"))) == [
        (
            "send on server/a: expected ENOMEM, "
            "found EINVAL (2000 bytes inline, max_inline_data 1024)"
        )
    ]
    assert failures(scene(write(refused="EINVAL"))) == [
        "write on client/a: expected EINVAL, found no refusal"
    ]
    assert failures(scene(step("send", SERVER, inline=bytes(2000)))) == [
        (
            "send on server/a: expected no refusal, "
            "found EINVAL (2000 bytes inline, max_inline_data 1024)"
        )
    ]


def test_work_that_does_not_end_is_counted() -> None:
    inbox = host("server", memory("sink"), memory("inbox"))
    hosts = (host("client", memory("source")), inbox)
    steps = (
        step("receive", SERVER, local=(Span("server", "inbox"),), times=3),
        step("send", inline=b"x", times=2),
    )
    assert failures(scene(*steps, hosts=hosts)) == [
        "receive on server/a: expected SUCCESS 3 times, found 2 of 3"
    ]


def test_time_is_when_all_is_at_rest() -> None:
    found = failures(
        scene(write()), lasts(exactly(2_000)), lasts(Range(0, 1_999)), lasts(between(2_001))
    )
    assert found == [
        "time: expected at most 1.999 us, found 2 us (frame 9)",
        "time: expected 2.001 us or more, found 2 us (frame 9)",
    ]


def test_a_failure_has_its_place_in_the_file() -> None:
    outcome = play(expecting(scene(write()), holds(SINK, fill=Fill.ZEROS)))
    (failure,) = outcome.failures
    assert failure.text("mine.yaml").startswith("mine.yaml:7:5: memory server.sink: expected 00")


def captured_at(point: str, *, arrived: bool = False) -> list[str]:
    """What is said of a NAK where the capture is of one point alone."""
    lost = fault("drop", sent_by=CLIENT, packet=(1,), nth=(1,))
    scenario: Scenario = expecting(
        scene(write(), links=(link(lost),)), counts("server.naks", exactly(0))
    )
    return failures_of(play(scenario, points=[point], arrived=arrived))


def test_frames_are_numbered_as_the_capture_has_them() -> None:
    said = "counter server.naks: expected 0, found 1"
    assert captured_at("client-server") == [f"{said} (frame 9)"]
    assert captured_at("server") == [f"{said} (frame 1)"]
    assert captured_at("client") == [f"{said} (frame 1 of server)"]
    assert captured_at("client", arrived=True) == [f"{said} (frame 1 of server)"]


def test_there_is_no_capture_of_a_place_that_there_is_not() -> None:
    with pytest.raises(UnknownPoint, match="'leaf' is none of client-server, client, server"):
        play(scene(write()), points=["leaf"])


@pytest.mark.parametrize(
    ("plan", "lacking"),
    [
        (step("fetch_add", local=(SOURCE,), remote=SINK), "fetch_add without 'add'"),
        (step("flush"), "flush without 'to'"),
        (step("modify", end=None, values={"state": "ERR"}), "modify without 'at'"),
        (step("fill", end=None, values={"what": SINK}), "fill without 'content'"),
        (step("deregister", end=None), "deregister without 'what'"),
    ],
)
def test_a_step_made_without_what_its_verb_needs_is_refused(plan: StepPlan, lacking: str) -> None:
    (failure,) = failures(scene(plan))
    assert lacking in failure


def test_no_memory_is_expected_to_hold_nothing() -> None:
    with pytest.raises(ValueError, match="neither 'same_as' nor 'content'"):
        holds(SINK)


def test_expected_packets_are_printed_as_in_the_file_with_the_nearest_frame() -> None:
    lost = fault("drop", sent_by=CLIENT, packet=(3,), nth=(1,))
    nak: dict[str, object] = {"aeth.ack": Ack.NAK, "aeth.value": Nak.PSN_SEQUENCE_ERROR}
    found = failures(
        scene(write(), links=(link(lost),)),
        packets(exactly(1), {**nak, "bth.psn": 101}),
        packets(exactly(1), {**nak, "bth.psn": 101}, sent_by="client"),
        packets(exactly(2), {"eth.dst": bytes(6), "bth.opcode": (6, 7)}),
        packets(exactly(0), {**nak, "bth.psn": 102}),
    )
    said = "with aeth.ack NAK, aeth.value PSN_SEQUENCE_ERROR, bth.psn"
    first, mine, other, many = found
    assert first == f"packets {said} 101: expected 1, found 0; nearest: frame 9, bth.psn 102"
    assert mine == f"packets sent by client {said} 101: expected 1, found 0"
    assert other.startswith(
        "packets with eth.dst 00:00:00:00:00:00, "
        "bth.opcode [RC_RDMA_WRITE_FIRST, RC_RDMA_WRITE_MIDDLE]: expected 2, found 0; "
        "nearest: frame 1, eth.dst 02:"
    )
    assert many == f"packets {said} 102: expected 0, found 1 (frame 9)"


def test_what_is_flushed_behind_a_message_that_failed_is_not_counted_as_failed() -> None:
    refused = step("write", local=(SOURCE,), remote=BEYOND, status="REM_ACCESS_ERR")
    behind = step("send", inline=b"behind", status="WR_FLUSH_ERR", after=())
    outcome = play(scene(refused, behind))
    assert outcome.passed, failures_of(outcome)
    assert outcome.summary.failed == 1


def test_idle_timers_take_no_time() -> None:
    """Rates go up again long after the last frame, if nothing is sent any more."""
    paced = connection(congestion="dcqcn", ecn=True, cnp_interval=1000)
    marked = fault("mark", sent_by=CLIENT, packet=(3,))
    scenario = expecting(
        scene(write(), connections=(paced,), links=(link(marked, rate=10**10),)),
        counts("server.cnps", exactly(1)),
        lasts(Range(1, 20_000)),
    )
    outcome = play(scenario)
    assert outcome.passed, failures_of(outcome)
    assert outcome.summary.virtual_ns < 20_000 < outcome.testbed.network.simulator.now


@pytest.mark.parametrize(
    ("time", "wanted", "said"),
    [
        (69_048_557, Range(0, 2_000_000), "69.05 ms"),
        (2_000_001, Range(0, 2_000_000), "2.000001 ms"),
        (1_500_000_000, exactly(0), "1.5 s"),
        (999, exactly(0), "999 ns"),
        (0, exactly(1), "0 ns"),
    ],
)
def test_times_are_rounded_where_that_does_not_hide_the_difference(
    time: int, wanted: Range, said: str
) -> None:
    assert found_time(time, wanted) == said
