"""Tokens to experts and back: data, counts and packets are those of a plain model."""

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.capture import open_capture
from rdmawire.errors import KernelError
from rdmawire.gpudirect.deepep import (
    DeepEp,
    DeepEpSpec,
    Routing,
    deepep,
    expert_result,
    from_bf16,
    to_bf16,
)
from rdmawire.wire.ib import BTH
from rdmawire.wire.opcode import Opcode
from rdmawire.wire.roce import bth_offset
from tests.effort import examples


@st.composite
def specs(draw: st.DrawFn) -> DeepEpSpec:
    hosts, gpus = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    experts = hosts * gpus * draw(st.integers(1, 2))
    return DeepEpSpec(
        hosts,
        gpus,
        draw(st.integers(1, 4)),
        experts,
        draw(st.integers(1, min(experts, 4))),
        128 * draw(st.integers(1, 2)),
        draw(st.sampled_from(["A100", "H200"])),
        draw(st.integers(0, 1000)),
        loss=draw(st.sampled_from([0.0, 0.0, 0.05])),
        max_delay=draw(st.sampled_from([0, 500, 2000])),
    )


def routes(run: DeepEp) -> Iterator[tuple[int, int, int]]:
    """Yield rank, token and expert of all that is dispatched."""
    for rank, tokens in enumerate(run.routing.experts):
        for token, experts in enumerate(tokens):
            for expert in map(int, experts):
                yield rank, token, expert


def is_far(spec: DeepEpSpec, rank: int, expert: int) -> bool:
    """Return whether an expert is on another host than a rank."""
    return rank // spec.gpus != expert // spec.local_experts // spec.gpus


@settings(max_examples=examples(6))
@given(specs())
def test_tokens_and_sums_are_right(spec: DeepEpSpec) -> None:
    run = DeepEp(spec)
    report = run.run()  # which compares tokens and sums
    sent = list(routes(run))
    puts = sum(is_far(spec, rank, expert) for rank, _, expert in sent)
    assert (report.puts, report.stores) == (2 * puts, 2 * (len(sent) - puts))
    pairs = [(rank, expert) for rank in range(spec.ranks) for expert in range(spec.experts)]
    assert report.flags == 2 * sum(is_far(spec, *pair) for pair in pairs)
    assert report.frames >= 2 * (report.puts + report.flags) * (not spec.loss)
    assert 0 < report.dispatched < report.duration


def test_sums_are_those_of_exact_fractions() -> None:
    spec = DeepEpSpec(hosts=1, gpus=2, tokens=3, experts=4, topk=3, hidden=128, seed=5)
    routing = Routing.drawn(spec)
    wanted = routing.combined()
    for rank, token in np.ndindex(spec.ranks, spec.tokens):
        for place in range(spec.hidden):
            value = Fraction(float(routing.tokens[rank, token, place]))
            factors = [
                (1 + int(expert) % 3) * Fraction(float(weight))
                for expert, weight in zip(
                    routing.experts[rank, token], routing.weights[rank, token], strict=True
                )
            ]
            exact = value * sum(factors, Fraction(0))
            found = from_bf16(wanted[rank, token, place : place + 1].tobytes())[0]
            assert abs(Fraction(float(found)) - exact) <= abs(exact) / 256


@given(st.floats(-(2.0**100), 2.0**100, width=32))
def test_bfloat16_is_the_nearest_number(value: float) -> None:
    bits = int(to_bf16(np.array([value], np.float32))[0])
    found = float(from_bf16(bits.to_bytes(2, "little"))[0])
    for other in {max(bits - 1, 0), bits + 1}:
        near = float(from_bf16(other.to_bytes(2, "little"))[0])
        if np.isfinite(near):
            assert abs(found - value) <= abs(near - value)


def test_each_expert_makes_something_else_of_a_token() -> None:
    values = np.arange(1, 5, dtype=np.float32)
    assert not np.array_equal(expert_result(0, values), expert_result(1, values))


def test_each_queue_pair_carries_data_and_then_its_count(tmp_path: Path) -> None:
    spec = DeepEpSpec(hosts=2, gpus=1, tokens=6, experts=4, topk=2, hidden=128, seed=2)
    run = DeepEp(spec)
    path = tmp_path / "moe.pcap"
    with run.network.captured(path):
        run.run()
    seen: dict[tuple[bytes, int], str] = defaultdict(str)
    letters = {Opcode.RC_RDMA_WRITE_ONLY: "W", Opcode.RC_FETCH_ADD: "F"}
    with open_capture(path) as capture:
        for frame in capture:
            at = bth_offset(frame.data, 0, len(frame.data))
            bth = BTH.parse(frame.data, at)
            seen[frame.data[6:12], bth.destqp] += letters.get(Opcode(bth.opcode), "")
    found = sorted(text for text in seen.values() if text)
    # To each expert of the other host a rank sends its tokens; back go those of the other rank.
    counts: dict[tuple[int, int], int] = defaultdict(int)
    for rank, _, expert in routes(run):
        counts[rank, expert] += 1
    wanted = []
    for rank in range(2):
        for local in range(spec.local_experts):
            there = counts[rank, (1 - rank) * spec.local_experts + local]
            back = counts[1 - rank, rank * spec.local_experts + local]
            wanted.append("W" * there + "F" + "W" * back + "F")
    assert found == sorted(wanted)


def test_without_the_order_of_a_queue_pair_data_is_wrong() -> None:
    def is_right(seed: int, *, ordered: bool) -> bool:
        try:
            deepep(DeepEpSpec(loss=0.05, seed=seed, ordered=ordered))
        except KernelError as error:
            return "wrong" not in str(error)
        return True

    assert all(is_right(seed, ordered=True) for seed in range(4))
    assert not all(is_right(seed, ordered=False) for seed in range(4))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hosts": 0}, "hosts: 0; 1 to 64"),
        ({"experts": 9}, "9 experts on 2 ranks"),
        ({"experts": 1024}, "each has the same number, up to 31"),
        ({"topk": 9}, "9 of 8 experts"),
        ({"hidden": 130}, "a multiple of 128"),
        ({"loss": 0.5}, "a loss of 0.5"),
        ({"tokens": 1024, "hidden": 1 << 14}, "up to 4194304"),
        ({"hosts": 8, "gpus": 16, "experts": 128}, "128 PEs; 1 to 64"),
    ],
)
def test_specifications_that_cannot_be(change: dict[str, int], message: str) -> None:
    with pytest.raises(KernelError, match=message):
        DeepEp(DeepEpSpec()._replace(**change))  # type: ignore[arg-type]
