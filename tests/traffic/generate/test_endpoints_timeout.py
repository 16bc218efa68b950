"""Answers are waited for as long as they may take, and little longer."""

from typing import Any

import pytest

from rdmawire.capture import Record
from rdmawire.traffic.generate import endpoints as blend
from rdmawire.traffic.generate.endpoints import exponent
from rdmawire.traffic.generate.generator import generate
from rdmawire.traffic.generate.spec import Sizes, TrafficSpec, Verb
from rdmawire.traffic.summary import TrafficSummary
from rdmawire.units import gbps, ms

WIRES = [
    {"rate": gbps(100), "latency": 1000},
    {"rate": 10**6, "latency": 0},
    {"rate": gbps(400), "latency": ms(1)},
]


class Nobody:
    """Takes records, and forgets them."""

    def write(self, record: Record) -> None:
        pass


def run(spec: TrafficSpec) -> TrafficSummary:
    return generate(spec, Nobody())


def of(spec: TrafficSpec) -> int:
    return exponent(spec, blend.messages(spec))


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("qps", [1, pytest.param(7, marks=pytest.mark.slow), 200])
@pytest.mark.parametrize(
    ("verb", "sizes"),
    [
        *((verb, sizes) for verb in (Verb.WRITE, Verb.READ) for sizes in ("8", "64-9k", "64k")),
        *((Verb.SEND, "4k"), (Verb.MIX, "64-9k"), (Verb.ATOMIC, "")),
    ],
)
def test_without_loss_nothing_is_sent_again(
    verb: Verb, sizes: str, qps: int, wire: dict[str, Any]
) -> None:
    known = Sizes.parse(sizes) if sizes else None
    summary = run(TrafficSpec(verb=verb, sizes=known, qps=qps, mtu=256, frames=800, **wire))
    assert (summary.frames, summary.retransmits) == (800, 0)


@pytest.mark.parametrize("qps", [1, 8])
@pytest.mark.parametrize(("verb", "size"), [(Verb.WRITE, "2M"), (Verb.READ, "2M")])
def test_nor_of_long_messages(verb: Verb, size: str, qps: int) -> None:
    spec = TrafficSpec(verb=verb, sizes=Sizes.parse(size), mtu=4096, qps=qps, count=3 * qps)
    assert run(spec).retransmits == 0


@pytest.mark.parametrize("qps", [1, 5])
@pytest.mark.parametrize("verb", [Verb.WRITE, Verb.READ])
def test_nor_where_marks_slow_senders_down(verb: Verb, qps: int) -> None:
    spec = TrafficSpec(verb=verb, sizes=Sizes.parse("64,16k"), qps=qps, count=300, marks=0.5)
    summary = run(spec)
    assert summary.cnps > 0
    assert summary.retransmits == 0


def test_nor_among_very_many_messages() -> None:
    from rdmawire.capture import LinkType, create_capture

    spec = TrafficSpec(verb=Verb.WRITE, sizes=Sizes.parse("1"), qps=64, count=1_000_000)
    with create_capture("/dev/null", link_type=LinkType.ETHERNET) as writer:
        assert generate(spec, writer).retransmits == 0


def test_frames_that_are_lost_cost_little_time() -> None:
    calm, lossy = (
        run(TrafficSpec(verb=Verb.WRITE, frames=10_000, loss=loss)) for loss in (0.0, 0.01)
    )
    assert lossy.lost > 0
    assert lossy.virtual_ns < 2 * calm.virtual_ns


@pytest.mark.parametrize(
    ("wishes", "least"), [({}, 1), ({"latency": ms(10)}, 13), ({"rate": 10**6}, 17)]
)
def test_it_follows_from_the_link(wishes: dict[str, Any], least: int) -> None:
    spec = TrafficSpec(verb=Verb.WRITE, loss=0.01, **wishes)
    assert least <= of(spec) <= least + 4
    assert of(TrafficSpec(verb=Verb.WRITE, loss=0.01, timeout=14, **wishes)) == 14


def test_what_is_asked_for_is_waited() -> None:
    times = [
        run(TrafficSpec(verb=Verb.WRITE, count=200, loss=0.1, timeout=exponent)).virtual_ns
        for exponent in (8, 14)
    ]
    assert times[1] > 20 * times[0]


def test_by_way_of_a_switch_it_takes_two_links() -> None:
    two, many = (TrafficSpec(verb=Verb.WRITE, flows=4, clients=clients) for clients in (1, 4))
    assert of(many) == of(two) + 1
