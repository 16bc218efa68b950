"""Many rounds at once give the bytes that two adapters put on the wire, frame by frame."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rdmawire.capture import Writer
from rdmawire.traffic.generate import endpoints as blend
from rdmawire.traffic.generate.replicate import repeat
from rdmawire.traffic.generate.rounds import Progress, play
from rdmawire.traffic.generate.spec import (
    CNP_DSCP,
    DEFAULT_SIZES,
    Address,
    CapturePoint,
    Sizes,
    TrafficSpec,
    Verb,
    VlanTag,
)
from rdmawire.traffic.summary import FrameCounter, TrafficSummary
from rdmawire.units import gbps
from rdmawire.wire.management import PATH_MTUS
from rdmawire.wire.serial import MODULUS
from tests.effort import examples
from tests.traffic.generate.made import Made, made, read, short_rounds, writing

SMALL = ["0", "1", "63-66", "64", "200", "0,64,256"]
ELSEWHERE = Address.parse("192.168.7.9/02:aa:00:00:00:09")
LARGE = [*SMALL, "1k,4k", "5000", "3000-9000", "70000"]


@st.composite
def specs(draw: st.DrawFn) -> TrafficSpec:
    """Any order but for ECN and connections, of some rounds and a part of one."""
    verb = draw(st.sampled_from([verb for verb in Verb if verb is not Verb.CM]))
    loss = 0.0 if verb is Verb.CNP else draw(st.sampled_from([0.0, 0.0, 0.005, 0.1]))
    ipv6 = draw(st.booleans())
    sizes = draw(st.sampled_from(SMALL if verb is Verb.UD or loss > 0.01 else LARGE))
    by_frames = draw(st.booleans())
    tag = draw(st.sampled_from([None, None, VlanTag(0), VlanTag(4094, 5)]))
    clients, servers = draw(st.sampled_from([(1, 1), (1, 1), (1, 1), (3, 1), (1, 2), (2, 3)]))
    by_flows = draw(st.booleans())
    spec = TrafficSpec(
        verb=verb,
        sizes=Sizes.parse(sizes) if verb in DEFAULT_SIZES else None,
        mtu=draw(st.sampled_from(PATH_MTUS)),
        qps=None if by_flows else draw(st.sampled_from([1, 1, 2, 5])),
        flows=draw(st.sampled_from([3, 7])) if by_flows else None,
        clients=clients,
        servers=servers,
        loss=loss,
        gpu=draw(st.booleans()),
        ipv6=ipv6,
        vlan=tag.vlan if tag else None,
        pcp=tag.pcp if tag else None,
        dscp=draw(st.sampled_from([0, 26])),
        psn=draw(st.sampled_from([None, MODULUS - 30])),
        seed=draw(st.integers(0, (1 << 64) - 1)),
        rate=draw(st.sampled_from([gbps(1), gbps(25), gbps(100), gbps(400), 7 * 10**9])),
        latency=draw(st.sampled_from([0, 1, 999, 1000, 50_000])),
        tap=draw(st.sampled_from(list(CapturePoint))),
        timeout=None if verb is Verb.UD else draw(st.sampled_from([None, None, 6, 14])),
        cnp_dscp=draw(st.sampled_from([CNP_DSCP, 0])),
        server=draw(st.sampled_from([None, None if ipv6 else ELSEWHERE])),
        frames=draw(st.integers(30, 600)) if by_frames else None,
    )
    if by_frames:
        return spec
    whole = len(blend.messages(spec))
    return _counted(spec, draw(st.integers(whole, 4 * whole + 3)))


def _counted(spec: TrafficSpec, count: int) -> TrafficSpec:
    fields = {name: getattr(spec, name) for name in TrafficSpec.__dataclass_fields__}
    return TrafficSpec(**{**fields, "count": count})


Way = Callable[[TrafficSpec, Writer, Progress], TrafficSummary]


def done(way: Way, spec: TrafficSpec, name: str) -> Made:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        with writing(path) as writer:
            summary = way(spec, writer, Progress(spec, lambda *_: None))
        return read(path, summary)


@given(st.data())
@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_both_ways_write_the_same_file(
    monkeypatch: pytest.MonkeyPatch, data: st.DataObject
) -> None:
    short_rounds(monkeypatch)
    spec = data.draw(specs())
    name = data.draw(st.sampled_from(["x.pcap", "x.pcapng", "x.pcap.gz"]))
    one, other = done(repeat, spec, name), done(play, spec, name)
    assert one.records == other.records
    assert one.sha256 == other.sha256
    assert one.summary == other.summary
    assert counted(one) == counted(other)


def counted(one: Made) -> tuple[int, ...]:
    """What a tap counts in the file: what the summary says."""
    counter = FrameCounter()
    for record in one.records:
        counter.count(record.data, record.time_ns)
    summary = one.summary
    assert counter.frames == summary.frames
    assert counter.messages == summary.messages
    assert counter.bytes == summary.bytes
    assert counter.retransmits == summary.retransmits
    return counter.naks, counter.rnr_naks, counter.cnps


@pytest.mark.parametrize("verb", [Verb.WRITE, Verb.READ, Verb.ATOMIC, Verb.UD, Verb.MIX])
def test_rounds_of_full_length_over_a_wrap_of_psns(verb: Verb) -> None:
    spec = TrafficSpec(verb=verb, count=1800, qps=3, psn=MODULUS - 100)
    one, other = made(spec), made(spec, at_once=False)
    assert (one.sha256, one.summary) == (other.sha256, other.summary)


def test_a_few_frames_that_are_lost() -> None:
    spec = TrafficSpec(verb=Verb.SEND, sizes=Sizes.parse("64"), count=5000, loss=0.001)
    one, other = made(spec), made(spec, at_once=False)
    assert (one.sha256, one.summary) == (other.sha256, other.summary)
    assert one.summary.lost > 0


@pytest.mark.parametrize("seed", range(4))
def test_a_round_whose_last_frame_is_lost_keeps_the_cable_busy(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    short_rounds(monkeypatch)
    spec = TrafficSpec(
        verb=Verb.UD,
        sizes=Sizes.parse("0"),
        frames=400,
        loss=0.1,
        rate=gbps(1),
        latency=0,
        seed=seed,
    )
    assert done(repeat, spec, "x.pcap").records == done(play, spec, "x.pcap").records
