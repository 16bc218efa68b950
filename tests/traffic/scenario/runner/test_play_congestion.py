"""Congestion: a switch marks, senders slow down, and frames beyond the capture are told of."""

from typing import Any

from rdmawire.traffic.scenario.consistency import headroom_of, longest_frame
from rdmawire.traffic.scenario.model import Scenario
from rdmawire.traffic.scenario.model.network import QueuePlan, SwitchPlan
from rdmawire.traffic.scenario.types import End, Span
from tests.traffic.scenario.scene import (
    COUNT,
    MARK,
    between,
    connection,
    counts,
    exactly,
    failures,
    holds,
    host,
    lasts,
    link,
    memory,
    packets,
    scene,
    step,
)

LOSSY = QueuePlan(priority=3, mark=MARK, dscp=(26,), kmin=4096, kmax=16384, pmax=0.5)


def congested(**more: Any) -> Scenario:
    """Two hosts send through one switch to a third, whose link is slower."""
    hosts = tuple(host(name, memory("source", 1 << 16, content=COUNT)) for name in ("one", "two"))
    to_both = host("sink", memory("one", 1 << 16), memory("two", 1 << 16))
    links = tuple(link(ends=(name, "leaf"), rate=100 * 10**9) for name in ("one", "two"))
    ecn = {"dscp": 26, "ecn": True, "mtu": 1024, **more}
    return scene(
        *(
            step(
                "write",
                End(name, name),
                local=(Span(name, "source"),),
                remote=Span("sink", name),
                times=4,
            )
            for name in ("one", "two")
        ),
        hosts=(*hosts, to_both),
        switches=(SwitchPlan(name="leaf", mark=MARK, queues=(LOSSY,)),),
        links=(*links, link(ends=("leaf", "sink"), rate=25 * 10**9)),
        connections=tuple(connection(name, ends=(name, "sink"), **ecn) for name in ("one", "two")),
    )


def test_a_switch_marks_and_senders_slow_down() -> None:
    found = failures(
        congested(congestion="dcqcn", cnp_interval=10_000, parameters={"g": 0.25}),
        holds(Span("sink", "one"), Span("one", "source")),
        holds(Span("sink", "two"), Span("two", "source")),
        counts("leaf:sink.marks", between(1)),
        counts("leaf:sink.marks_3", between(1)),
        counts("leaf:sink.marks_0", exactly(0)),
        counts("leaf:sink.drops", exactly(0)),
        counts("leaf.stranded", exactly(0)),
        counts("leaf.peak", between(4096)),
        counts("sink.cnps", between(1)),
        packets(between(1), {"bth.opcode": 0x81}, link="one-leaf"),
    )
    assert found == []


def test_notifications_may_have_a_dscp_of_their_own() -> None:
    found = failures(
        congested(congestion="dcqcn", cnp_dscp=48),
        counts("sink.cnps", between(1)),
        packets(exactly(0), {"bth.opcode": 0x81, "ip.dscp": 26}),
        packets(between(1), {"bth.opcode": 0x81, "ip.dscp": 48, "ip.ecn": 0}, sent_by="sink"),
        packets(exactly(0), {"bth.opcode": range(0x80), "ip.dscp": 48}),
    )
    assert found == []


def test_timely_and_no_control_at_all_are_played() -> None:
    assert failures(congested(congestion="timely"), counts("sink.cnps", exactly(0))) == []
    assert failures(congested(cnp_interval=1_000), counts("sink.cnps", between(1))) == []


def test_pauses_without_a_headroom_have_what_their_links_need() -> None:
    """The longest of them holds 25,000 bytes there and back, beside three frames."""
    pausing = QueuePlan(priority=3, mark=MARK, dscp=(26,), xoff=16 << 10, xon=8 << 10)
    scenario = congested()
    kept = scenario.model_copy(
        update={"switches": (SwitchPlan(name="leaf", mark=MARK, queues=(pausing,)),)}
    )
    found = failures(
        kept,
        holds(Span("sink", "one"), Span("one", "source")),
        counts("leaf:sink.drops", exactly(0)),
        counts("leaf:one.stops", between(1)),
        counts("two.pauses", between(1)),
        counts("two.retransmits", exactly(0)),
    )
    assert found == []
    needed = headroom_of("leaf", kept.links, kept.connections)
    assert 25_000 + 3 * longest_frame(kept.connections) < needed < 30_000
    assert headroom_of("other", kept.links, kept.connections) == 0


def test_a_frame_outside_the_capture_is_named_by_its_link() -> None:
    found = failures(
        congested(),
        packets(exactly(0), {"bth.opcode": 0x0A}, link="leaf-sink"),
        packets(exactly(0), {"bth.opcode": 0x06}, link="leaf-sink", sent_by="two"),
        lasts(between(0, 10)),
    )
    assert found[0].startswith(
        "packets sent by two on leaf-sink with bth.opcode RC_RDMA_WRITE_FIRST: expected 0, found 4"
    )
    assert found[0].endswith("of leaf-sink)")
    assert found[1].startswith("time: expected at most 10 ns, found ")
