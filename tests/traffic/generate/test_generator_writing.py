"""Which way is taken, what is told meanwhile, and what it costs."""

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from rdmawire.traffic.generate import generator
from rdmawire.traffic.generate import replicate as repeating
from rdmawire.traffic.generate.generator import _repeats, generate
from rdmawire.traffic.generate.replicate import Repetition
from rdmawire.traffic.generate.rounds import Progress
from rdmawire.traffic.generate.spec import Sizes, TrafficSpec, Verb
from tests.traffic.generate.made import made, short_rounds, writing
from tests.waiting import HANG

ENVIRONMENTS = (
    {"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo", "LC_ALL": "C"},
    {"PYTHONHASHSEED": "99", "TZ": "America/Lima", "LC_ALL": "C.UTF-8", "PYTHONOPTIMIZE": "1"},
)
PROGRAM = """
from hashlib import sha256
from tests.traffic.generate.made import made
from rdmawire.traffic.generate.spec import TrafficSpec, Verb
mix = TrafficSpec(verb=Verb.MIX, count=600, qps=3, gpu=True, seed=11, loss=0.002)
print(made(mix).sha256, made(TrafficSpec(verb=Verb.CM, count=4, qps=2)).sha256)
print(made(TrafficSpec(verb=Verb.SEND, count=300, qps=3, marks=0.1)).sha256)
"""


def test_the_same_seed_gives_the_same_bytes_in_any_environment() -> None:
    said = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, **environment},
            cwd=Path(__file__).parents[3],
            capture_output=True,
            check=True,
            timeout=HANG,
        ).stdout
        for environment in ENVIRONMENTS
    }
    assert len(said) == 1
    assert len(said.pop().split()) == 3


def test_another_seed_gives_other_queue_pairs() -> None:
    one, other = (made(TrafficSpec(verb=Verb.WRITE, count=5, seed=seed)) for seed in (1, 2))
    assert {bth.destqp for bth in one.bths}.isdisjoint({bth.destqp for bth in other.bths})


@pytest.mark.parametrize(
    ("spec", "repeats"),
    [
        (TrafficSpec(verb=Verb.WRITE, count=10_000), True),
        (TrafficSpec(verb=Verb.WRITE, frames=10_000), True),
        (TrafficSpec(verb=Verb.WRITE, count=10), False),
        (TrafficSpec(verb=Verb.WRITE, count=10_000, marks=0.01), False),
        (TrafficSpec(verb=Verb.WRITE, count=10_000, sizes=Sizes.parse("100M")), False),
        (TrafficSpec(verb=Verb.WRITE, count=10_000, loss=0.0001), True),
        (TrafficSpec(verb=Verb.WRITE, count=10_000, loss=0.5), False),
    ],
)
def test_rounds_are_repeated_where_they_are_alike(spec: TrafficSpec, repeats: bool) -> None:
    assert _repeats(spec) == repeats


def test_repeated_rounds_have_the_bytes_of_rounds_that_are_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = TrafficSpec(verb=Verb.SEND, count=2000, sizes=Sizes.parse("64"))
    one = made(spec)
    monkeypatch.setattr(generator, "_repeats", lambda _: False)
    other = made(spec)
    assert (one.sha256, one.summary) == (other.sha256, other.summary)


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    "spec",
    [
        TrafficSpec(verb=Verb.WRITE, count=1200),
        TrafficSpec(verb=Verb.UD, frames=1500),
        TrafficSpec(verb=Verb.CNP, count=1200),
        TrafficSpec(verb=Verb.CM, count=300),
        TrafficSpec(verb=Verb.READ, sizes=Sizes.parse("2M"), count=1),
    ],
)
def test_progress_is_reported_up_to_the_end(
    tmp_path: Path, spec: TrafficSpec, at_once: bool
) -> None:
    told: list[tuple[int, int]] = []
    with writing(tmp_path / "x.pcap") as writer:
        generate(spec, writer, lambda *done: told.append(done), at_once=at_once)
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]
    assert told[0][0] < told[-1][0] or spec.verb is Verb.CNP  # all of those are made at once


@pytest.mark.parametrize("loss", [0.0, 0.001, 0.01])
def test_rounds_with_losses_are_really_made_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, loss: float
) -> None:
    spec = TrafficSpec(verb=Verb.WRITE, count=5000, sizes=Sizes.parse("64"), loss=loss)
    writes: list[int] = []
    with writing(tmp_path / "x.pcap") as writer:
        monkeypatch.setattr(writer, "write", None)  # nothing is written frame by frame
        monkeypatch.setattr(writer, "write_built", lambda data: writes.append(len(data)))
        summary = generate(spec, writer)
    assert summary.messages == 5000
    assert summary.lost > 0 or not loss
    assert 1 <= len(writes) < 10


def test_what_is_kept_of_rounds_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    short_rounds(monkeypatch)
    spec = TrafficSpec(verb=Verb.WRITE, sizes=Sizes.parse("64"), count=600, loss=0.05)
    unbounded = made(spec)
    monkeypatch.setattr(repeating, "MAX_HELD", 20_000)
    monkeypatch.setattr(repeating, "CHUNK", 9_000)  # so that little is discarded in between
    held: list[int] = []
    sizes: list[int] = []
    with writing(tmp_path / "x.pcap") as writer:
        one = Repetition(spec, writer, Progress(spec, lambda *_: held.append(one.held)))
        monkeypatch.setattr(writer, "write_built", lambda data: sizes.append(len(data)))
        assert one.run() == unbounded.summary
    assert 20_000 < max(held) < 40_000
    assert 4_500 < max(sizes) <= 9_000


def test_a_message_much_longer_than_memory_is_a_stream(tmp_path: Path) -> None:
    spec = TrafficSpec(verb=Verb.WRITE, sizes=Sizes.parse("2G"), mtu=4096, frames=2000)
    path = tmp_path / "x.pcap"
    tracemalloc.start()
    with writing(path) as writer:
        summary = generate(spec, writer)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 48 << 20
    assert summary.frames == 2000
