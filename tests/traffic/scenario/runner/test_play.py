"""Scenarios played: each kind of expectation holds, and fails with what was found."""

from pathlib import Path

import pytest

from rdmawire.capture import open_capture
from rdmawire.errors import FabricError
from rdmawire.traffic.scenario.runner.play import play
from rdmawire.traffic.scenario.types import Fill, Span
from tests.traffic.scenario.scene import (
    CLIENT,
    SINK,
    SOURCE,
    counts,
    exactly,
    expecting,
    failures,
    fault,
    holds,
    link,
    scene,
    write,
)


def test_one_write_comes_to_the_peers_memory_and_to_the_capture(tmp_path: Path) -> None:
    path = tmp_path / "out.pcap"
    outcome = play(expecting(scene(write()), holds(SINK, SOURCE)), capture=path)
    assert outcome.failures == ()
    assert outcome.passed
    with open_capture(path) as reader:
        assert len(list(reader)) == outcome.frames == 9
    assert (outcome.summary.messages, outcome.summary.bytes) == (1, 8192)
    (done,) = outcome.steps
    assert (done.begun, done.posted, done.endings) == (True, 1, {"SUCCESS": 1})


def test_memory_that_differs_says_where_and_what() -> None:
    found = failures(
        scene(write()),
        holds(SINK, SOURCE),
        holds(SINK, fill=Fill.ZEROS),
        holds(Span("server", "sink", 16, 4), fill=Fill.HEX, data=b"\x10\x11\x12\xff"),
        holds(Span("server", "sink", 16, 4), fill=Fill.HEX, data=b"\x10\x11\x12\x13"),
    )
    zeros, counted = "00 00 00 00 00 00 00 00..", "01 02 03 04 05 06 07 08.."
    assert found == [
        f"memory server.sink: expected {zeros}, found {counted} at byte 1 (frame 1)",
        "memory server.sink[16:20]: expected ff, found 13 at byte 19 (frame 1)",
    ]


def test_the_frame_that_wrote_what_should_not_be_there_is_named() -> None:
    """A bit of the sixth packet turns on the way, and the ICRC fits: nobody hears of it."""
    turned = fault("corrupt", sent_by=CLIENT, packet=(6,), options={"seal": True})
    assert failures(scene(write(), links=(link(turned),)), holds(SINK, SOURCE)) == [
        (
            "memory server.sink: expected ff 00 01 02 03 04 05 06.. (of client.source), "
            "found fe 00 01 02 03 04 05 06.. at byte 6143 (frame 6)"
        )
    ]


def test_memory_that_no_frame_touched_has_no_frame_to_be_named() -> None:
    found = failures(scene(), *(holds(SINK, fill=Fill.COUNT) for _ in range(6)))
    text = "memory server.sink: expected 01 02 03 04 05 06 07 08.., found 00 00 00 00 00 00 00 00.."
    assert found == [f"{text} at byte 1"] * 6


def test_a_lost_packet_is_sent_again_and_the_frame_that_is_too_many_is_named() -> None:
    lost = fault("drop", sent_by=CLIENT, packet=(3,), nth=(1,))
    found = failures(
        scene(write(), links=(link(lost),)),
        holds(SINK, SOURCE),
        counts("client.retransmits", exactly(6)),
        counts("client.retransmits", exactly(1)),
        counts("server.naks", exactly(0)),
        counts("client-server.lost", exactly(1)),
        counts("client-server.lost", exactly(0)),
    )
    assert found == [
        "counter client.retransmits: expected 1, found 6 (frame 11)",
        "counter server.naks: expected 0, found 1 (frame 9)",
        "counter client-server.lost: expected 0, found 1 (frame 3)",
    ]


def test_what_is_no_scenario_is_refused() -> None:
    with pytest.raises(FabricError, match=r"scenario: 'send' .* is not of type Scenario"):
        play("send")  # type: ignore[arg-type]
